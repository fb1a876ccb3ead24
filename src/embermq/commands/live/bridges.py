"""`ember bridges`: where each bridge of a running server goes, and how far it is."""

import time
from typing import Any

from embermq.commands.errors import errors_as_sentences
from embermq.commands.live.running_server import running_server
from embermq.commands.output import Json, duration_text, json_line, print_table
from embermq.commands.server_access.target import Config, Data


def bridges(json: Json = False, data: Data = None, config: Config = None) -> None:
    """List the bridges of a running server to other brokers.

    LAG are records of the log that a bridge has not passed, LOST those that were trimmed before. What went wrong last
    is in ERROR.
    """
    with errors_as_sentences(), running_server(data, config) as server:
        found = server.get("/api/v1/bridges")["items"]
        if json:
            for bridge in found:
                print(json_line(bridge))
            return
        names = ["bridge", "to", "state", "for", "lag", "sent", "received", "refused", "loops", "lost", "error"]
        print_table(names, [_row(bridge) for bridge in found])


def _row(bridge: dict[str, Any]) -> list[object]:
    from embermq.instants import instant_us

    return [
        bridge["name"],
        bridge["address"],
        bridge["state"],
        duration_text(max(0.0, time.time() - instant_us(bridge["since"]) / 1e6)),
        bridge["lag"],
        bridge["sent"],
        bridge["received"],
        bridge["refused"],
        bridge["loops"],
        bridge["lost_records"],
        bridge["error"],
    ]

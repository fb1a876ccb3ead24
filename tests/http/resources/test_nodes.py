"""The nodes of a cluster over HTTP, as the node that is asked has heard of them."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from embermq.cluster.node import Node
from embermq.cluster.operate import begin
from embermq.cluster.place import enter
from embermq.store.engines.disk import DiskStore
from embermq.store.engines.opening import JournalSettings
from support.http_place import Place, run
from support.memory_sequencer import MemoryLog, MemorySequencer

SETTINGS = JournalSettings(durability="os")
NODE_TIMEOUT_MS = 6_000


def test_a_single_server_has_no_nodes(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        assert (await place.get("/api/v1/nodes")).json == {"items": []}

    run(tmp_path, test)


def test_the_nodes_are_listed_with_their_roles_and_how_far_they_are(tmp_path: Path) -> None:
    log = MemoryLog()
    loops: list[asyncio.AbstractEventLoop] = []

    def call_soon(call: Callable[[], None]) -> None:
        loops[0].call_soon_threadsafe(call)

    def opened(number: int) -> tuple[Node, DiskStore]:
        sequencer = MemorySequencer(log)
        directory = tmp_path / f"node{number}"
        rules = enter(directory, sequencer)
        node = Node(sequencer, rules, number, 10 + number, NODE_TIMEOUT_MS, f"mqtt{number}:1883")
        return node, DiskStore(directory, call_soon, SETTINGS, shared=node)

    async def test(place: Place) -> None:
        async def found(*states: str) -> list[dict[str, Any]]:
            """The nodes, once they are in these states."""
            while True:
                items: list[dict[str, Any]] = (await place.get("/api/v1/nodes")).json["items"]
                if tuple(each["state"] for each in items) == states and all("heard" in each for each in items):
                    return items
                await asyncio.sleep(0.02)

        loops.append(asyncio.get_running_loop())
        first.begin(first_store)
        assert (await found("active"))[0]["is_this"] is True
        second, second_store = opened(2)
        second.begin(second_store)
        one, two = await found("active", "standby")
        assert (one["node"], one["reachable_at"], one["is_this"]) == (1, "mqtt1:1883", True)
        assert (two["node"], two["reachable_at"], two["is_this"], two["lag"]) == (2, "mqtt2:1883", False, 0)
        assert two["next_offset"] == second_store.log_end()
        second_store.close()
        while (await place.get("/api/v1/nodes")).json["items"][1] != {
            "node": 2,
            "state": "gone",
            "is_this": False,
            "reachable_at": "",
        }:
            await asyncio.sleep(0.02)

    begin(tmp_path / "node1", MemorySequencer(log), 1, 7, SETTINGS)
    first, first_store = opened(1)
    run(tmp_path, test, first_store)

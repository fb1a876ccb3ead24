"""`ember reload`: have a running server read its users, rights and certificate again."""

import os
import signal

from embermq.commands.errors import errors_as_sentences
from embermq.commands.live.running_server import running_server
from embermq.commands.output import Json, json_line
from embermq.commands.server_access.target import Config, Data
from embermq.errors import ConfigError


def reload(json: Json = False, data: Data = None, config: Config = None) -> None:
    """Have a running server read users, rights and certificate again, as SIGHUP does.

    If a file is wrong, the server keeps the old ones and says so in its log lines. Other settings need a restart.
    """
    with errors_as_sentences():
        with running_server(data, config) as server:
            process = int(server.get("/api/v1/statistics")["process"])
        try:
            os.kill(process, signal.SIGHUP)
        except OSError as error:
            raise ConfigError(f"cannot signal the server, process {process}: {error.strerror or error}") from None
        shown = {"process": process, "signal": "SIGHUP"}
        print(json_line(shown) if json else f"told process {process} to read users, rights and certificate again")

"""`ember reload`: have a running server read its users, rights, tokens, certificates and listeners again."""

from typing import Any

import typer

from embermq.commands.errors import errors_as_sentences, print_error
from embermq.commands.live.running_server import running_server
from embermq.commands.output import Json, json_line, printable
from embermq.commands.server_access.target import Config, Data


def reload(json: Json = False, data: Data = None, config: Config = None) -> None:
    """Have a running server read users, rights, tokens, certificates and [[listeners]] again, as SIGHUP does.

    Says what had changed, and which settings of the file need a restart. If a file is wrong, the command says so, and
    the server keeps the old ones. Exits with 1 if a listener cannot be opened.
    """
    with errors_as_sentences(), running_server(data, config) as server:
        done = server.post("/api/v1/reload", {})
        if json:
            print(json_line(done))
        else:
            _print(done)
        if done["failed"]:
            raise typer.Exit(1)


def _print(done: dict[str, Any]) -> None:
    """The report for people."""
    print(f"read again: {', '.join(done['read'])}")
    print(f"changed: {', '.join(done['changed']) or 'nothing'}")
    for sentence in done["listeners"]:
        print(sentence)
    for sentence in done["failed"]:
        print_error(printable(sentence))
    for sentence in done["needs_restart"]:
        print(f"needs a restart: {sentence}")
    if done["settings_problem"]:
        print(f"the settings were not compared: {done['settings_problem']}")

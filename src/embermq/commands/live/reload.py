"""`ember reload`: have a running server read its users, rights, tokens and certificate again."""

from embermq.commands.errors import errors_as_sentences
from embermq.commands.live.running_server import running_server
from embermq.commands.output import Json, json_line
from embermq.commands.server_access.target import Config, Data


def reload(json: Json = False, data: Data = None, config: Config = None) -> None:
    """Have a running server read users, rights, tokens and certificate again, as SIGHUP does.

    If a file is wrong, the command says so, and the server keeps the old ones. Other settings need a restart.
    """
    with errors_as_sentences(), running_server(data, config) as server:
        done = server.post("/api/v1/reload", {})
        print(json_line(done) if json else f"read again: {', '.join(done['read'])}")

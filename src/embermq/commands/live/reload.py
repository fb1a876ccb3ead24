"""`ember reload`: have a running server read its users, rights, tokens and certificate again."""

from embermq.commands.errors import errors_as_sentences
from embermq.commands.live.running_server import running_server
from embermq.commands.output import Json, json_line
from embermq.commands.server_access.target import Config, Data


def reload(json: Json = False, data: Data = None, config: Config = None) -> None:
    """Have a running server read users, rights, tokens and certificate again, as SIGHUP does.

    Says what had changed, and which settings of the file need a restart. If a file is wrong, the command says so, and
    the server keeps the old ones.
    """
    with errors_as_sentences(), running_server(data, config) as server:
        done = server.post("/api/v1/reload", {})
        if json:
            print(json_line(done))
            return
        print(f"read again: {', '.join(done['read'])}")
        print(f"changed: {', '.join(done['changed']) or 'nothing'}")
        for sentence in done["needs_restart"]:
            print(f"needs a restart: {sentence}")
        if done["settings_problem"]:
            print(f"the settings were not compared: {done['settings_problem']}")

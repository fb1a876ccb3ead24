"""`ember access`: the users and rights of a running server, shown and changed."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from embermq.commands.errors import errors_as_sentences
from embermq.commands.live.running_server import running_server
from embermq.commands.options import asked_password
from embermq.commands.output import Json, counted, json_line, print_table, printable
from embermq.commands.server_access.target import Config, Data
from embermq.errors import ConfigError

app = typer.Typer(
    help="Show and change the users and rights of a running server. A change is in force at once, for the clients that"
    " are connected too, stays after a restart, and is recorded in the log (topic $SYS/audit/access).",
    no_args_is_help=True,
)

LISTENER_HELP = "The listener whose own users or rights are meant, in place of those of the server."
Listener = Annotated[str, typer.Option("--listener", metavar="NAME", help=LISTENER_HELP, show_default=False)]
User = Annotated[str, typer.Argument(metavar="USER", help="The user name.")]
Section = Annotated[
    str, typer.Argument(metavar="SECTION", help="'all', 'anonymous', 'user NAME' or 'group NAME', as one argument.")
]
RULE_HELP = "A line of the access list, such as 'read,write home/#', 'deny write home/lock' or 'member ann'."


@app.command()
def users(listener: Listener = "", json: Json = False, data: Data = None, config: Config = None) -> None:
    """List the users, how many rules each has for itself, and its groups."""
    with errors_as_sentences(), running_server(data, config) as server:
        found = server.get("/api/v1/users", listener=listener)["items"]
        if json:
            for user in found:
                print(json_line(user))
            return
        rows = [[each["user"], each["rules"], ", ".join(each["groups"]), each["has_scram"]] for each in found]
        print_table(["user", "rules", "groups", "SCRAM"], [[*row[:3], "yes" if row[3] else "no"] for row in rows])


@app.command("set")
def set_user(
    user: User,
    stdin: Annotated[bool, typer.Option("--stdin", help="Read the password from the first line of the input.")] = False,
    scram: Annotated[
        bool, typer.Option("--scram/--no-scram", help="Whether the user can log in with SCRAM-SHA-256 (MQTT 5) too.")
    ] = True,
    listener: Listener = "",
    data: Data = None,
    config: Config = None,
) -> None:
    """Add a user, or set its password. The clients of a user whose password changes are disconnected."""
    try:
        password = asked_password(stdin).decode()
    except UnicodeDecodeError:
        raise ConfigError("expected a password that is UTF-8 text; ember passwd takes any bytes") from None
    body = {"user": user, "password": password, "scram": scram, "listener": listener}
    done = _post("/api/v1/users/set", body, data, config)
    print(f"{'changed the password of' if done['was_known'] else 'added'} {user}")


@app.command()
def delete(user: User, listener: Listener = "", data: Data = None, config: Config = None) -> None:
    """Remove a user. Its clients are disconnected; its rules stay, for a user who gets the name again."""
    _post("/api/v1/users/delete", {"user": user, "listener": listener}, data, config)
    print(f"removed {user}")


@app.command()
def rules(
    text: Annotated[bool, typer.Option("--text", help="The access list as it stands in its file.")] = False,
    listener: Listener = "",
    json: Json = False,
    data: Data = None,
    config: Config = None,
) -> None:
    """List the rules of the access list."""
    with errors_as_sentences(), running_server(data, config) as server:
        found = server.get("/api/v1/access/rules", listener=listener)
        if text:
            for line in found["text"].splitlines():
                print(printable(line))
        elif json:
            for rule in found["rules"]:
                print(json_line(rule))
        else:
            print_table(["section", "rule"], [[each["section"], each["rule"]] for each in found["rules"]])


@app.command()
def add(
    section: Section,
    rule: Annotated[str, typer.Argument(metavar="RULE", help=RULE_HELP)],
    listener: Listener = "",
    data: Data = None,
    config: Config = None,
) -> None:
    """Add a rule: ember access add 'user ann' 'read home/#'."""
    done = _post("/api/v1/access/rules/add", {"section": section, "rule": rule, "listener": listener}, data, config)
    print("added" if done["changed"] else "the list has this rule already")


@app.command()
def remove(
    section: Section,
    rule: Annotated[
        str | None, typer.Argument(metavar="RULE", help="The rule; without one, the whole section.")
    ] = None,
    listener: Listener = "",
    data: Data = None,
    config: Config = None,
) -> None:
    """Remove a rule of a section, or the whole section."""
    body: dict[str, Any] = {"section": section, "listener": listener}
    done = _post("/api/v1/access/rules/remove", body if rule is None else body | {"rule": rule}, data, config)
    print(f"removed {counted(done['changed'], 'rule')}")


@app.command()
def replace(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file with an access list; - is the input.")],
    listener: Listener = "",
    data: Data = None,
    config: Config = None,
) -> None:
    """Put another access list in the place of the one in force. One with an error is refused."""
    try:
        given = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        text = given.decode()
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text (byte {error.start})") from None
    done = _post("/api/v1/access/rules/replace", {"text": text, "listener": listener}, data, config)
    print(f"the access list has {counted(done['changed'], 'rule')} now")


@app.command()
def may(
    user: Annotated[str, typer.Argument(metavar="USER", help="The user name; '' for an anonymous client.")],
    verb: Annotated[str, typer.Argument(metavar="VERB", help="read, write, retain or see-all.")],
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic filter to read, a topic name to write.")],
    client_id: Annotated[
        str, typer.Option("--client-id", metavar="ID", help="For rules with %c.", show_default=False)
    ] = "",
    json: Json = False,
    data: Data = None,
    config: Config = None,
) -> None:
    """Say whether a user may do something, and which rules decide. Exit code 1: it may not."""
    with errors_as_sentences(), running_server(data, config) as server:
        found = server.get("/api/v1/access", user=user, verb=verb, topic=topic, client_id=client_id)
        if json:
            print(json_line(found))
        else:
            for line in (found["why"], *found["rules"]):
                print(printable(line), flush=True)
        if not found["allowed"]:
            raise typer.Exit(1)


def _post(path: str, body: dict[str, Any], data: Path | None, config: Path | None) -> dict[str, Any]:
    with errors_as_sentences(), running_server(data, config) as server:
        return server.post(path, body)

"""`ember clients` and `ember sessions`: who is connected, what each session is owed, and ending them."""

import time
from typing import Annotated, Any

import typer

from embermq.commands.errors import errors_as_sentences, print_error
from embermq.commands.live.running_server import running_server
from embermq.commands.output import Json, Size, counted, duration_text, json_line, print_table
from embermq.commands.server_access.target import Config, Data

ClientIdArgument = Annotated[str | None, typer.Argument(metavar="ID", help="Only the client with this client id.")]


def clients(
    client_id: ClientIdArgument = None,
    disconnect: Annotated[
        list[str] | None,
        typer.Option("--disconnect", metavar="ID", help="End the connection of this client; repeatable."),
    ] = None,
    json: Json = False,
    data: Data = None,
    config: Config = None,
) -> None:
    """List the connected clients of a running server, or end connections. Wills are published, sessions stay.

    QUEUED are messages that wait for a client, UNREAD is what was sent to it and not read.
    """
    with errors_as_sentences(), running_server(data, config) as server:
        if disconnect:
            done = server.post("/api/v1/clients/disconnect", {"client_ids": disconnect})
            _show_ended(done, "disconnected", "client", "is not connected", json)
            return
        found = list(server.lines("/api/v1/clients", client_id=client_id))
        if json:
            for client in found:
                print(json_line(client))
        else:
            print_table(CLIENT_COLUMNS, [client_row(client) for client in found])
        _exit_if_absent(client_id, found, "is not connected")


def sessions(
    client_id: ClientIdArgument = None,
    end: Annotated[
        list[str] | None, typer.Option("--end", metavar="ID", help="End the session of this client; repeatable.")
    ] = None,
    json: Json = False,
    data: Data = None,
    config: Config = None,
) -> None:
    """List the sessions of a running server with the log that each holds, the largest first, or end sessions.

    OWED are messages that a client is still to get; the retained messages of one subscription count as one, also
    before the server has looked whether there are any. HOLDS is how much of the log is kept for them. ABSENT is how
    long the client is not connected. A session that is ended loses what it is owed.
    """
    with errors_as_sentences(), running_server(data, config) as server:
        if end:
            done = server.post("/api/v1/sessions/end", {"client_ids": end})
            _show_ended(done, "ended", "session", "has no session", json)
            return
        found = list(server.lines("/api/v1/sessions", client_id=client_id))
        found.sort(key=lambda session: (-session["log_bytes"], -session["owed"], session["client_id"]))
        if json:
            for session in found:
                print(json_line(session))
        else:
            names = ["client", "user", "owed", "dropped", "holds", "absent", "expires in", "filters"]
            print_table(names, [_session_row(session) for session in found])
        _exit_if_absent(client_id, found, "has no session")


CLIENT_COLUMNS = [
    "client",
    "user",
    "address",
    "listener",
    "protocol",
    "since (UTC)",
    "in flight",
    "queued",
    "unread",
    "slowed by",
]


def client_row(client: dict[str, Any]) -> list[object]:
    """A client as a row of a table."""
    return [
        client["client_id"],
        client["user_name"],
        client["address"],
        client["listener"],
        client["protocol"],
        client["since"][:19] + "Z",
        client["in_flight"],
        client["queued"],
        Size(client["unread_bytes"]),
        ", ".join(client["slowed_by"]),
    ]


def _session_row(session: dict[str, Any]) -> list[object]:
    never = session["is_persistent"] and session.get("expires_s") is None
    return [
        session["client_id"],
        session["user_name"],
        session["owed"],
        session["dropped"],
        Size(session["log_bytes"]),
        _age(session.get("disconnected_since")),
        "never" if never else _left(session),
        session["subscriptions"],
    ]


def _left(session: dict[str, Any]) -> str:
    from embermq.instants import instant_us

    if session.get("expires") is not None:
        return duration_text(max(0.0, instant_us(session["expires"]) / 1e6 - time.time()))
    return duration_text(session.get("expires_s") or 0)


def _age(since: str | None) -> str:
    from embermq.instants import instant_us

    return "" if since is None else duration_text(max(0.0, time.time() - instant_us(since) / 1e6))


def _show_ended(done: dict[str, Any], what: str, noun: str, absent: str, json: bool) -> None:
    if json:
        print(json_line(done))
    elif done[what] or not done["unknown"]:
        print(f"{what} {counted(done[what], noun)}", flush=True)  # before the errors, also in a pipe
    for client_id in done["unknown"]:
        print_error(f"{client_id} {absent}")
    if done["unknown"]:
        raise typer.Exit(1)


def _exit_if_absent(client_id: str | None, found: list[dict[str, Any]], absent: str) -> None:
    if client_id is not None and not found:
        print_error(f"{client_id} {absent}")
        raise typer.Exit(1)

"""`ember top`: a running server, seen live: rates, sizes, and the clients with the most to do."""

import os
import select
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from embermq.commands.errors import errors_as_sentences
from embermq.commands.live.running_server import running_server
from embermq.commands.output import Json, counted, duration_text, json_line, printable, shortened, size_text
from embermq.commands.server_access.target import Config, Data

if TYPE_CHECKING:
    from embermq.http.client import HttpClient

CLIENTS_MAX: Final = 10_000
"""Of more clients, only some are looked at for the list."""
# Shown name, counter of `$SYS/broker/`, and whether it counts bytes.
RATES: Final = (
    ("messages in", "publish/messages/received", False),
    ("messages out", "publish/messages/sent", False),
    ("bytes in", "bytes/received", True),
    ("bytes out", "bytes/sent", True),
    ("dropped", "publish/messages/dropped", False),
)
_FULL_SCREEN: Final = "\x1b[?1049h\x1b[?25l"
_END_FULL_SCREEN: Final = "\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_CLEAR_LINE: Final = "\x1b[K"
_CLEAR_BELOW: Final = "\x1b[J"


def top(
    every: Annotated[
        float, typer.Option("--every", min=0.2, max=3600, metavar="S", help="Seconds between two views.")
    ] = 1.0,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, metavar="N", help="Stop after N updates.")
    ] = None,
    json: Json = False,
    data: Data = None,
    config: Config = None,
) -> None:
    """Show a running server live: rates, sizes, and the clients with the most to do. q or Ctrl-C ends it.

    Where the output is no terminal, one view is printed, unless --count or --json says otherwise.
    """
    with errors_as_sentences(), running_server(data, config) as server, _screen(json) as screen:
        before: dict[str, Any] | None = None
        before_s = 0.0
        shown = 0
        if screen is None and count is None and not json:
            count = 1
            before, before_s = server.get("/api/v1/statistics"), time.monotonic()
            time.sleep(every)  # else there would be no rates
        while True:
            now_s = time.monotonic()
            found = server.get("/api/v1/statistics")
            rates = _rates(before, found, now_s - before_s)
            if json:
                print(json_line({**found, "rates": rates}), flush=True)
            else:
                size = shutil.get_terminal_size()
                lines = view(found, rates, _busiest(server, size.lines), size.columns, size.lines)
                _draw(lines, screen)
            shown += 1
            if shown == count or _ended(now_s + every - time.monotonic(), screen):
                return
            before, before_s = found, now_s


def view(
    found: dict[str, Any],
    rates: dict[str, float] | None,
    clients: list[dict[str, Any]],
    columns: int,
    rows: int,
) -> list[str]:
    """The lines of one view, none wider than the terminal, no more than it has."""
    log = found["log"]
    lines = [
        f"EmberMQ {found['version']}, process {found['process']}, up {duration_text(found['uptime_s'])},"
        f" store {found['store_state']}",
        f"{counted(found['clients'], 'client')}, {counted(found['sessions'], 'session')}"
        f" ({found['persistent_sessions']} persistent), {counted(found['subscriptions'], 'subscription')}",
        f"retained: {counted(found['retained_count'], 'message')}, {size_text(found['retained_bytes'])};"
        f" log: {size_text(log['bytes'])}, offsets {log['first_offset']} to {log['next_offset'] - 1}",
        "a second: " + ("..." if rates is None else ", ".join(_rate(name, of, rates) for name, _, of in RATES)),
        "",
        f"{'QUEUED':>8}  {'UNREAD':>10}  {'IN FLIGHT':>9}  {'CLIENT':<24}  SLOWED BY",
    ]
    for client in clients:
        lines.append(
            f"{client['queued']:>8}  {size_text(client['unread_bytes']):>10}  {client['in_flight']:>9}"
            f"  {shortened(printable(client['client_id']), 24):<24}  {printable(', '.join(client['slowed_by']))}"
        )
    return [shortened(printable(line), columns) for line in lines[: rows - 1]]


def _rates(before: dict[str, Any] | None, found: dict[str, Any], elapsed_s: float) -> dict[str, float] | None:
    """How fast the counters grow; None for the first view."""
    if before is None or elapsed_s <= 0:
        return None
    then, now = before["counters"], found["counters"]
    return {name: (now.get(key, 0) - then.get(key, 0)) / elapsed_s for name, key, _ in RATES}


def _rate(name: str, is_bytes: bool, rates: dict[str, float]) -> str:
    value = max(0.0, rates[name])
    return f"{name} {size_text(int(value)) if is_bytes else f'{value:.0f}'}"


def _busiest(server: "HttpClient", rows: int) -> list[dict[str, Any]]:
    """The clients with the most that waits for them; the others by name."""
    found: list[dict[str, Any]] = []
    for client in server.lines("/api/v1/clients"):
        found.append(client)
        if len(found) >= CLIENTS_MAX:
            break
    found.sort(key=lambda one: (-one["queued"], -one["unread_bytes"], -one["in_flight"], one["client_id"]))
    return found[:rows]


def _draw(lines: list[str], screen: int | None) -> None:
    if screen is None:
        print(*lines, "", sep="\n", flush=True)
    else:
        sys.stdout.write(_HOME + "".join(f"{line}{_CLEAR_LINE}\r\n" for line in lines) + _CLEAR_BELOW)
        sys.stdout.flush()


def _ended(left_s: float, screen: int | None) -> bool:
    """Wait for the next view; whether q was pressed."""
    if screen is None:
        time.sleep(max(0.0, left_s))
        return False
    until_s = time.monotonic() + left_s
    while (left_s := until_s - time.monotonic()) > 0:
        if select.select([screen], [], [], left_s)[0] and os.read(screen, 1) in (b"q", b"Q", b"\x03", b""):
            return True
    return False


@contextmanager
def _screen(json: bool) -> Iterator[int | None]:
    """The whole terminal, whose keys come one by one; None if the output is no terminal."""
    if json or not (sys.stdout.isatty() and sys.stdin.isatty()):
        yield None
        return
    import termios
    import tty

    keyboard = sys.stdin.fileno()
    settings = termios.tcgetattr(keyboard)
    tty.setcbreak(keyboard)
    sys.stdout.write(_FULL_SCREEN)
    try:
        yield keyboard
    finally:
        sys.stdout.write(_END_FULL_SCREEN)
        sys.stdout.flush()
        termios.tcsetattr(keyboard, termios.TCSADRAIN, settings)

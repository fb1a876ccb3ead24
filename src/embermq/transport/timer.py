"""A timer for what clients are judged by: keep alives, connect time-outs, retries of MQTT-SN.

Owns: that such a judgement comes after what clients have sent. If the process, or its machine, was stopped for a while,
all timers are due when it goes on, and what clients sent meanwhile waits in the sockets.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from embermq.transport.server import Server

LATE_S: Final = 0.2
"""A timer that is due for longer lets the sockets be read first."""
PASSES_MIN: Final = 32
"""How many passes of the event loop that takes at least: a UDP socket may have thousands of datagrams."""
PASS_SOCKETS: Final = 256
"""How many sockets are read from in a pass at least, if they are ready."""


@final
class Timer:
    """Calls a function once after each `set`."""

    __slots__ = ("_call", "_due_s", "_handle", "_passes", "_server")

    def __init__(self, server: "Server", call: Callable[[], None]) -> None:
        self._server: Final = server
        self._call: Final = call
        self._handle: asyncio.Handle | None = None
        self._due_s = 0.0
        self._passes = 0  # of the event loop, before the call

    def set(self, wait_s: float) -> None:
        """Call after this time. A call that was set before does not come."""
        self.cancel()
        self._due_s = time.monotonic() + wait_s
        self._handle = self._server.loop.call_later(wait_s, self._due)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def is_set(self) -> bool:
        return self._handle is not None

    def _due(self) -> None:
        if not self._passes and time.monotonic() - self._due_s > LATE_S:
            self._passes = PASSES_MIN + self._server.connection_count() // PASS_SOCKETS
        if self._passes > 1:
            self._passes -= 1
            self._handle = self._server.loop.call_soon(self._due)
            return
        self._handle = None
        self._passes = 0
        self._call()

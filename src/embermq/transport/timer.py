"""Timers for what clients are judged by: keep alives, connect time-outs, retries of MQTT-SN.

Owns: that such a judgement comes after what clients have sent, and `limits.connect_timeout_s`. If the process, or its
machine, was stopped for a while, all timers are due when it continues, and what clients have sent waits in the
sockets.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, final

from embermq.transport.stream_link import StreamLink

LATE_S: Final = 0.2
"""A timer that is due for longer lets the sockets be read first."""
PASSES_MIN: Final = 32
"""How many passes of the event loop that takes at least: a UDP socket may have thousands of datagrams."""
PASS_SOCKETS: Final = 256
"""How many sockets are read from in a pass at least, if they are ready."""


@final
class Timer:
    """Calls a function once after each `set`. `stream_count` tells how many sockets may have something to read."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, stream_count: Callable[[], int], call: Callable[[], None]
    ) -> None:
        self._loop: Final = loop
        self._stream_count: Final = stream_count
        self._call: Final = call
        self._handle: asyncio.Handle | None = None
        self._due_s = 0.0
        self._passes = 0  # of the event loop, before the call

    def set(self, wait_s: float) -> None:
        """Call after this time. A call that was set before does not come."""
        self.cancel()
        self._due_s = time.monotonic() + wait_s
        self._handle = self._loop.call_later(wait_s, self._due)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def is_set(self) -> bool:
        return self._handle is not None

    def _due(self) -> None:
        if not self._passes and time.monotonic() - self._due_s > LATE_S:
            self._passes = PASSES_MIN + self._stream_count() // PASS_SOCKETS
        if self._passes > 1:
            self._passes -= 1
            self._handle = self._loop.call_soon(self._due)
            return
        self._handle = None
        self._passes = 0
        self._call()


@final
class UnopenedConnections:
    """The connections without a CONNACK. All have the same time, so they are due in the order in which they came."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stream_count: Callable[[], int], timeout_s: float) -> None:
        self._timeout_s: Final = timeout_s
        self._due_s: Final[dict[StreamLink, float]] = {}  # oldest first
        # For the oldest of them, or one that was opened or lost since.
        self._timer: Final = Timer(loop, stream_count, self._look)

    def add(self, connection: StreamLink) -> None:
        self._due_s[connection] = time.monotonic() + self._timeout_s
        if not self._timer.is_set():
            self._timer.set(self._timeout_s)

    def remove(self, connection: StreamLink) -> None:
        """CONNACK was sent, or the connection is lost."""
        self._due_s.pop(connection, None)

    def close(self) -> None:
        """No connection comes any more."""
        self._timer.cancel()

    def _look(self) -> None:
        now_s = time.monotonic()
        due: list[StreamLink] = []
        for connection, due_s in self._due_s.items():
            if due_s > now_s:
                self._timer.set(due_s - now_s)
                break
            due.append(connection)
        for connection in due:
            if self._due_s.pop(connection, None) is not None:
                connection.connect_timed_out()

"""Unopened connections: how long a client has from its connection to CONNACK.

Owns: `limits.connect_timeout_s`. All connections have the same time, so they are due in the order in which they came,
and one timer is enough.
"""

import time
from typing import TYPE_CHECKING, Final, final

from embermq.transport.timer import Timer

if TYPE_CHECKING:
    from embermq.transport.server import Server
    from embermq.transport.stream import StreamConnection


@final
class UnopenedConnections:
    """The connections without a CONNACK, oldest first."""

    __slots__ = ("_due_s", "_timeout_s", "_timer")

    def __init__(self, server: "Server", timeout_s: float) -> None:
        self._timeout_s: Final = timeout_s
        self._due_s: Final[dict[StreamConnection, float]] = {}
        self._timer: Final = Timer(server, self._look)  # for the oldest of them, or one that was opened or lost since

    def add(self, connection: "StreamConnection") -> None:
        self._due_s[connection] = time.monotonic() + self._timeout_s
        if not self._timer.is_set():
            self._timer.set(self._timeout_s)

    def remove(self, connection: "StreamConnection") -> None:
        """CONNACK was sent, or the connection is lost."""
        self._due_s.pop(connection, None)

    def close(self) -> None:
        """No connection comes any more."""
        self._timer.cancel()

    def _look(self) -> None:
        now_s = time.monotonic()
        due: list[StreamConnection] = []
        for connection, due_s in self._due_s.items():
            if due_s > now_s:
                self._timer.set(due_s - now_s)
                break
            due.append(connection)
        for connection in due:
            if self._due_s.pop(connection, None) is not None:
                connection.connect_timed_out()

"""Timers: which virtual connection has something due at which moment.

Owns: one heap. A deadline that moved later is found out when its entry comes up, so moving it costs nothing.
"""

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from embermq.protocol.sn.virtual_connection import VirtualConnection


@final
class Timers:
    """Virtual connections by when to look at them."""

    __slots__ = ("_heap", "_tie")

    def __init__(self) -> None:
        self._heap: Final[list[tuple[int, int, VirtualConnection]]] = []
        self._tie = 0

    def watch(self, connection: "VirtualConnection") -> None:
        """See to it that a connection is looked at no later than at its present deadline."""
        due_ms = connection.due_ms()
        if due_ms and (connection.watched_ms == 0 or due_ms < connection.watched_ms):
            connection.watched_ms = due_ms
            self._tie += 1
            heappush(self._heap, (due_ms, self._tie, connection))

    def due(self, now_ms: int) -> list["VirtualConnection"]:
        """Those whose deadline has passed, in the order of deadlines; each must be watched again."""
        found: list[VirtualConnection] = []
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            at_ms, _, connection = heappop(heap)
            if connection.watched_ms != at_ms:
                continue  # an earlier entry took its place
            connection.watched_ms = 0
            due_ms = connection.due_ms()
            if due_ms and due_ms <= now_ms:
                found.append(connection)
            else:
                self.watch(connection)
        return found

    def next_ms(self) -> int | None:
        """When to ask next; None while nothing is watched."""
        return self._heap[0][0] if self._heap else None

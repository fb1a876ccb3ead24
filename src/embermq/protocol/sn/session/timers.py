"""Timers: which virtual connection has something due at which moment.

Owns: one heap. A deadline that moves later costs nothing: it is noticed when the old entry comes up. Stale entries are
removed before they outnumber the others, or a peer that connects again and again with a keep alive of a day would
fill the memory.
"""

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from embermq.protocol.sn.session.connection import VirtualConnection

SWEEP_MIN: Final = 1_024
"""Below this number of entries no stale ones are removed."""


@final
class Timers:
    """Virtual connections by the moment of their next deadline."""

    __slots__ = ("_heap", "_tie", "_sweep_at")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, VirtualConnection]] = []
        self._tie = 0
        self._sweep_at = SWEEP_MIN

    def __len__(self) -> int:
        return len(self._heap)

    def watch(self, connection: "VirtualConnection") -> None:
        """Have `due` return a connection no later than at its present deadline."""
        due_ms = connection.due_ms()
        if due_ms and (connection.watched_ms == 0 or due_ms < connection.watched_ms):
            connection.watched_ms = due_ms
            self._tie += 1
            heappush(self._heap, (due_ms, self._tie, connection))
            if len(self._heap) > self._sweep_at:
                self._sweep()

    def _sweep(self) -> None:
        """Remove entries that an earlier one replaced, and those of connections that have ended."""
        kept: list[tuple[int, int, VirtualConnection]] = []
        for entry in self._heap:
            connection = entry[2]
            if connection.watched_ms != entry[0]:
                continue
            if connection.due_ms():
                kept.append(entry)
            else:
                connection.watched_ms = 0
        heapify(kept)
        self._heap = kept
        self._sweep_at = max(SWEEP_MIN, 2 * len(kept))

    def due(self, now_ms: int) -> list["VirtualConnection"]:
        """The connections whose deadline has passed, in the order of deadlines; each must be watched again."""
        found: list[VirtualConnection] = []
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            at_ms, _, connection = heappop(heap)
            if connection.watched_ms != at_ms:
                continue  # an earlier entry replaced this one
            connection.watched_ms = 0
            due_ms = connection.due_ms()
            if due_ms and due_ms <= now_ms:
                found.append(connection)
            else:
                self.watch(connection)
        return found

    def next_ms(self) -> int | None:
        """When to call `due` next; None while nothing is watched."""
        return self._heap[0][0] if self._heap else None

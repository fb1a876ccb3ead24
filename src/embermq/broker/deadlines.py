"""Deadlines: who is due at which moment.

Owns: one heap. A deadline that moved later is found out when its entry comes up, so moving it costs nothing.
Never: a clock. Time comes in as `now_ms`.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from embermq.broker.session import Session

STALE_MAX: Final = 1_024
"""The heap is made anew when more entries than this, and than half of it, are stale."""


@final
class Deadlines:
    """Sessions by the moment at which something falls due for them."""

    __slots__ = ("_due", "_heap", "_watched", "_asked", "_number")

    def __init__(self, due: Callable[["Session"], int]) -> None:
        """`due` tells a session's real deadline in ms, 0 for none: the heap only remembers when to ask."""
        self._due: Final = due
        self._heap: list[tuple[int, int]] = []  # when to ask, and the number of whom
        self._watched: dict[int, Session] = {}  # by number; an entry whose number is not here is stale
        self._asked: dict[Session, tuple[int, int]] = {}  # the entry of each
        self._number = 0

    def __len__(self) -> int:
        return len(self._heap)

    def watch(self, session: "Session") -> None:
        """See to it that a session is asked no later than at its present deadline."""
        due_ms = self._due(session)
        asked = self._asked.get(session)
        if due_ms and (asked is None or due_ms < asked[0]):
            self.forget(session)
            self._number += 1
            entry = due_ms, self._number
            self._asked[session] = entry
            self._watched[self._number] = session
            heappush(self._heap, entry)

    def forget(self, session: "Session") -> None:
        """Watch a session no more. It may have years to go, and nothing of it is to stay so long."""
        asked = self._asked.pop(session, None)
        if asked is None:
            return
        del self._watched[asked[1]]
        if len(self._heap) > 2 * len(self._watched) + STALE_MAX:
            self._heap = list(self._asked.values())
            heapify(self._heap)

    def expired(self, now_ms: int) -> list["Session"]:
        """Every session whose deadline has passed, in the order of deadlines; each is no longer watched."""
        found: list[Session] = []
        while self._heap and self._heap[0][0] <= now_ms:
            _, number = heappop(self._heap)
            session = self._watched.pop(number, None)
            if session is None:
                continue
            del self._asked[session]
            due_ms = self._due(session)
            if due_ms and due_ms <= now_ms:
                found.append(session)
            else:
                self.watch(session)
        return found

    def next_ms(self) -> int | None:
        """When to ask next; None while nothing is watched."""
        return self._heap[0][0] if self._heap else None

"""Deadlines: who is due at which moment.

Owns: one heap. A deadline that moved later is found out when its entry comes up, so moving it costs nothing.
Never: a clock. Time comes in as `now_ms`.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from embermq.broker.session import Session


@final
class Deadlines:
    """Sessions by the moment at which something falls due for them."""

    __slots__ = ("_due", "_heap", "_asked_ms", "_tie")

    def __init__(self, due: Callable[["Session"], int]) -> None:
        """`due` tells a session's real deadline in ms, 0 for none: the heap only remembers when to ask."""
        self._due: Final = due
        self._heap: list[tuple[int, int, Session]] = []
        self._asked_ms: dict[Session, int] = {}  # an entry of another time than this is stale
        self._tie = 0

    def watch(self, session: "Session") -> None:
        """See to it that a session is asked no later than at its present deadline."""
        due_ms = self._due(session)
        asked_ms = self._asked_ms.get(session)
        if due_ms and (asked_ms is None or due_ms < asked_ms):
            self._asked_ms[session] = due_ms
            self._tie += 1
            heappush(self._heap, (due_ms, self._tie, session))

    def expired(self, now_ms: int) -> list["Session"]:
        """Every session whose deadline has passed, in the order of deadlines; each is no longer watched."""
        found: list[Session] = []
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, _, session = heappop(self._heap)
            if self._asked_ms.get(session) != at_ms:
                continue
            del self._asked_ms[session]
            due_ms = self._due(session)
            if due_ms and due_ms <= now_ms:
                found.append(session)
            else:
                self.watch(session)
        return found

    def next_ms(self) -> int | None:
        """When to ask next; None while nothing is watched."""
        return self._heap[0][0] if self._heap else None

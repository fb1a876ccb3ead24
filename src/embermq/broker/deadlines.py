"""Deadlines: sessions, or wills, by the moment at which something falls due for them.

Owns: a heap of when to ask each of them for its deadline. One that has moved later is noticed when its entry comes up,
so a client that sends a packet moves its keep alive at no cost.
Never: a clock. Time comes in as `now_ms`.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar, final

T = TypeVar("T")

STALE_MAX: Final = 1_024
"""The heap is rebuilt when more entries than this, and more than half of it, are stale."""


@final
class Deadlines(Generic[T]):
    """The deadlines of one kind."""

    def __init__(self, due: Callable[[T], int]) -> None:
        """`due` tells the present deadline of one of them in ms, 0 for none."""
        self._due: Final = due
        self._heap: list[tuple[int, int]] = []  # when to ask, and the number of whom to ask
        self._watched: dict[int, T] = {}  # by number; an entry whose number is not here is stale
        self._asked: dict[T, tuple[int, int]] = {}  # the entry of each
        self._number = 0

    def __len__(self) -> int:
        return len(self._heap)

    def watch(self, each: T) -> None:
        """Make sure that one is asked no later than at its present deadline."""
        due_ms = self._due(each)
        asked = self._asked.get(each)
        if due_ms and (asked is None or due_ms < asked[0]):
            self.forget(each)
            self._number += 1
            entry = due_ms, self._number
            self._asked[each] = entry
            self._watched[self._number] = each
            heappush(self._heap, entry)

    def forget(self, each: T) -> None:
        """Stop watching one. Its deadline may be years away, and it must not stay in memory until then."""
        asked = self._asked.pop(each, None)
        if asked is None:
            return
        del self._watched[asked[1]]
        if len(self._heap) > 2 * len(self._watched) + STALE_MAX:
            self._heap = list(self._asked.values())
            heapify(self._heap)

    def expired(self, now_ms: int, count_max: int) -> list[T]:
        """Those whose deadline has passed, in the order of deadlines; none of them is watched any longer.

        If there are more than `count_max`, `next_ms` is in the past: the others come with the next call.
        """
        found: list[T] = []
        while self._heap and self._heap[0][0] <= now_ms and len(found) < count_max:
            _, number = heappop(self._heap)
            each = self._watched.pop(number, None)
            if each is None:
                continue
            del self._asked[each]
            due_ms = self._due(each)
            if due_ms and due_ms <= now_ms:
                found.append(each)
            else:
                self.watch(each)
        return found

    def next_ms(self) -> int | None:
        """When to call `expired` next; None while nothing is watched."""
        return self._heap[0][0] if self._heap else None

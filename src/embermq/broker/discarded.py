"""Discarded queues: the messages of sessions and share groups that have ended.

Owns: when they are freed, a part in each turn. To free a million of them at once takes most of a second.
"""

from collections import deque
from typing import Final, final

from embermq.protocol.packets import Delivery

FREED_AT_ONCE: Final = 1_024
"""A queue with no more messages is freed when it ends."""
FREED_A_TURN: Final = 8_192


@final
class Discarded:
    """The queues that are not empty yet."""

    __slots__ = ("_queues",)

    def __init__(self) -> None:
        self._queues: Final[deque[deque[Delivery]]] = deque()

    def add(self, queue: deque[Delivery]) -> None:
        """Nobody else uses a queue any more."""
        if len(queue) > FREED_AT_ONCE:
            self._queues.append(queue)

    def free_more(self) -> bool:
        """Free as many messages as one turn may. True: there are more."""
        left = FREED_A_TURN
        while self._queues and left > 0:
            queue = self._queues[0]
            count = min(left, len(queue))
            for _ in range(count):
                queue.pop()
            left -= count
            if not queue:
                self._queues.popleft()
        return bool(self._queues)

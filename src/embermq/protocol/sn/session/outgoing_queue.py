"""Messages that wait for one client: in order, and bounded by what they hold.

Owns: the queue and the count of its bytes. Who waits, and for what, is its user's (`outgoing`, `presence`).
"""

from collections import deque
from typing import Final, final

from embermq.protocol import packets as core

WAITING_BYTES_MAX: Final = 512 * 1024
"""What may wait for one client at QoS 0. A single message is never too large: it fits a datagram."""


@final
class Waiting:
    """A queue of messages; `size` is the bytes of their topic names and payloads."""

    __slots__ = ("size", "_messages")

    def __init__(self) -> None:
        self.size = 0
        self._messages: Final[deque[core.Publish]] = deque()

    def __len__(self) -> int:
        return len(self._messages)

    def first(self) -> core.Publish:
        """The one that has waited longest."""
        return self._messages[0]

    def fits(self, message: core.Publish, count_max: int) -> bool:
        """Whether one more has its place, in number and in bytes."""
        count = len(self._messages)
        return count < count_max and (count == 0 or self.size + _size(message) <= WAITING_BYTES_MAX)

    def put(self, message: core.Publish) -> None:
        """Add one at the end."""
        self._messages.append(message)
        self.size += _size(message)

    def put_back(self, message: core.Publish) -> None:
        """Add one at the front."""
        self._messages.appendleft(message)
        self.size += _size(message)

    def take(self) -> core.Publish:
        """Remove the first."""
        message = self._messages.popleft()
        self.size -= _size(message)
        return message


def _size(message: core.Publish) -> int:
    return len(message.topic_name) + len(message.payload)

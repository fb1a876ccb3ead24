"""A queue of messages to one client: in order, and bounded by what they hold.

Owns: the queue and the count of its bytes. `outgoing` keeps messages in one until they can be sent, `client_state`
keeps the QoS 0 messages of a sleeping client in another.
"""

from collections import deque
from typing import Final, final

from embermq.protocol import packets as core

QUEUE_BYTES_MAX: Final = 512 * 1024
"""What one queue may hold of QoS 0 messages. A single message always fits: it is no larger than a datagram."""


@final
class OutgoingQueue:
    """A queue of messages; `size` is the bytes of their topic names and payloads."""

    __slots__ = ("size", "_messages")

    def __init__(self) -> None:
        self.size = 0
        self._messages: Final[deque[core.Publish]] = deque()

    def __len__(self) -> int:
        return len(self._messages)

    def first(self) -> core.Publish:
        """The oldest message."""
        return self._messages[0]

    def fits(self, message: core.Publish, count_max: int) -> bool:
        """Whether one more message is within both bounds, in number and in bytes."""
        count = len(self._messages)
        return count < count_max and (count == 0 or self.size + _size(message) <= QUEUE_BYTES_MAX)

    def put(self, message: core.Publish) -> None:
        """Add a message at the end."""
        self._messages.append(message)
        self.size += _size(message)

    def put_back(self, message: core.Publish) -> None:
        """Add a message at the front."""
        self._messages.appendleft(message)
        self.size += _size(message)

    def take(self) -> core.Publish:
        """Remove the oldest message."""
        message = self._messages.popleft()
        self.size -= _size(message)
        return message


def _size(message: core.Publish) -> int:
    return len(message.topic_name) + len(message.payload) + len(message.properties)

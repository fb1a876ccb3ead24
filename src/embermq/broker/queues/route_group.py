"""What a route reaches besides the sessions with a plain subscription: share groups, and replays that are live.

Owns: the two calls with which such a group gets a message.
"""

from abc import ABC, abstractmethod

from embermq.protocol.packets import Publish


class RouteGroup(ABC):
    """A place in the trie that takes messages itself."""

    __slots__ = ("topic_filter",)

    def __init__(self, topic_filter: str) -> None:
        self.topic_filter = topic_filter

    @abstractmethod
    def enqueue(self, message: Publish, offset: int, client_id: str) -> int:
        """The server has taken a message of a client, and has recorded it at an offset; returns what `offer` gets."""

    @abstractmethod
    def offer(self, message: Publish, sequence: int) -> None:
        """A message may be sent. `sequence` is what `enqueue` returned; 0 for a message of the server itself."""

"""What a route reaches besides the sessions with a plain subscription: share groups, and replays that are live.

Owns: the calls with which such a group gets a message, and gets one back; and which share groups get a message that too
many match.
"""

from abc import ABC, abstractmethod
from typing import Final

from embermq.broker.access import Access
from embermq.protocol.packets import Delivery, Publish

GROUPS_OF_MESSAGE_MAX: Final = 500
"""How many share groups one message goes to."""


class RouteGroup(ABC):
    """A place in the trie that takes messages itself.

    `rank`: where more share groups match a message than may get it, those with a lower rank do; 0: always.
    """

    __slots__ = ("topic_filter", "rank")

    def __init__(self, topic_filter: str, rank: int = 0) -> None:
        self.topic_filter: Final = topic_filter
        self.rank: Final = rank

    def may_get(self, topic_name: str, access: Access) -> bool:
        """Whether the messages of a topic may go to it, by the rights of now. A group may decide for each message."""
        return True

    @abstractmethod
    def enqueue(self, message: Publish, offset: int, client_id: str) -> int:
        """The server has taken a message of a client, and has recorded it at an offset; returns what `offer` gets."""

    @abstractmethod
    def offer(self, message: Publish, sequence: int) -> None:
        """A message may be sent. `sequence` is what `enqueue` returned; 0 for a message of the server itself."""

    def finish(self, sequence: int) -> None:
        """A client has acknowledged a message that the group has handed to it (`Outbound.send_shared`)."""
        return

    def take_back(self, delivery: Delivery) -> None:
        """The client is gone, and has not acknowledged the message."""
        return


def _rank(group: RouteGroup) -> int:
    return group.rank


def groups_of_message(groups: list[RouteGroup]) -> list[RouteGroup]:
    """Those of all groups that match a topic name which get its messages, the lowest rank first."""
    ranked = sorted(groups, key=_rank)
    always = len([group for group in groups if group.rank == 0])
    return ranked[: always + GROUPS_OF_MESSAGE_MAX]

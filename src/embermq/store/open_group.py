"""The open group: what has been appended since the last commit.

Owns: the group in the making, the queues that grew or were acknowledged in it, and whether anybody waits for it.
Never: a file, a thread. `journal` seals it; the committer makes it durable.
"""

from typing import TYPE_CHECKING, Final, final

from embermq.store.log.records import Group

if TYPE_CHECKING:
    from embermq.store.state.queue import StateQueue


@final
class Sealed:
    """A group that is closed, and the queues it brings forward, each with its newest sequence number in it."""

    __slots__ = ("group", "queues")

    def __init__(self, group: Group, queues: "list[tuple[StateQueue, int]]") -> None:
        self.group: Final = group
        self.queues: Final = queues


@final
class OpenGroup:
    """Records on their way to a commit."""

    __slots__ = ("group", "lasting", "now_us", "reference_floor", "shown", "touched")

    def __init__(self, next_offset: int, now_us: int) -> None:
        self.group = Group(next_offset)
        self.now_us = now_us
        self.lasting = False  # something in it must be durable before its effects leave
        self.shown = False  # something in it must be seen in the state before its effects leave
        self.touched: dict[int, StateQueue] = {}  # by session id
        self.reference_floor = 0  # older records may be trimmed: a queue gets copies of them

    def append(
        self, kind: int, flags: int, topic: bytes, payload: bytes, client_id: bytes, properties: bytes = b""
    ) -> int:
        return self.group.append(self.now_us, kind, flags, topic, payload, client_id, properties)

    def next_offset(self) -> int:
        return self.group.first_offset + len(self.group.topics)

    def is_empty(self) -> bool:
        return not self.group.topics and not self.touched

    def seal(self) -> Sealed:
        """Close the group, with one record for each queue that grew, and begin the next."""
        queues = [(queue, queue.seal()) for queue in self.touched.values()]
        sealed = Sealed(self.group, queues)
        self.group = Group(self.next_offset())
        self.touched = {}
        self.lasting = self.shown = False
        return sealed

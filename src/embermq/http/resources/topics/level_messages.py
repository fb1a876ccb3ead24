"""The retained messages of one level of the topic tree, read together and away from the event loop.

Owns: that a level is read in the order of the store, not topic by topic; on the threads that read the history. A store
in memory has none, and is quick.
"""

from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Final, final

from embermq.broker.operator import retained_pieces
from embermq.http.store_reads import answered
from embermq.http.streaming import Slices
from embermq.store.history.pieces import RetainedSpan
from embermq.store.interface import Retained

if TYPE_CHECKING:
    from embermq.http.service import Service

READ_TOPICS: Final = 64
READ_BYTES: Final = 256 * 1024
"""How much one read has: the thread that reads may keep the interpreter for as long as it takes."""
FEW_TOPICS: Final = 4
"""So many are read one by one: between them there may be thousands of branches without a message."""
OFFSET_MAX: Final = 1 << 62


@final
class LevelMessages:
    """The messages that were found, by topic name. `until`: where the reading ended, None if all topics were read."""

    def __init__(self) -> None:
        self.found: Final[dict[str, Retained]] = {}
        self.size_bytes = 0
        self.until: str | None = None

    def has(self, topic_name: str) -> bool:
        """Whether it is known what a topic has: the reading did not end before it."""
        return self.until is None or store_order(topic_name) <= store_order(self.until)

    def add(self, retained: Retained) -> None:
        self.found[retained.topic_name] = retained
        self.size_bytes += len(retained.payload)


async def level_messages(
    service: "Service", level_filter: str | None, after: str, topic_names: list[str], instant_us: int, bytes_max: int
) -> LevelMessages:
    """The messages of some topics of one level at an instant, 0 being now; after `bytes_max` of payload it is enough.

    The topics are in the order of the store. `level_filter` matches the whole level, and `after` is a name before all
    of them; without a filter, and where it does not match (a topic that begins with $), topics are read one by one.
    """
    level = LevelMessages()
    wanted = set(topic_names)
    if level_filter is not None and len(topic_names) > FEW_TOPICS:
        last = store_order(topic_names[-1])
        async for piece, position in instant_pieces(service, level_filter, after, instant_us):
            for retained in piece:
                if retained.topic_name in wanted:
                    level.add(retained)
            if level.size_bytes >= bytes_max:
                level.until = position
                return level
            if store_order(position) >= last:
                break
    for name in topic_names:
        if name in level.found:
            continue
        async for piece, _ in instant_pieces(service, name, "", instant_us):
            for retained in piece:
                level.add(retained)
        if level.size_bytes >= bytes_max:
            level.until = name
            return level
    return level


def store_order(topic_name: str) -> str:
    """Sorts as the store does: what is below a topic comes before its neighbours."""
    return topic_name.replace("/", "\0")


async def instant_pieces(
    service: "Service", topic_filter: str, after: str, instant_us: int
) -> AsyncIterator[tuple[list[Retained], str]]:
    """What a filter matches at an instant, 0 being now, in pieces, each with the topic name up to which it goes."""
    store = service.server.store
    history = store.history.reads()
    if history is None:
        slices = Slices()
        for piece in retained_pieces(store, topic_filter, instant_us or None, after):
            yield piece, piece[-1].topic_name if piece else ""
            await slices.rest()
        return
    is_archived = is_done = False
    while not is_done:
        now_us = instant_us or history.now_us()
        span = RetainedSpan(topic_filter, now_us, OFFSET_MAX, after, READ_TOPICS, READ_BYTES)
        read = await answered(partial(history.read_retained, span=span, is_archived=is_archived))
        after, is_archived, is_done = read.after_topic_name, read.is_archived, read.is_done
        yield read.retained, after

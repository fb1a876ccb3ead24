"""The topic tree of instants of which the archive has one at least: a part of a level, and a search for a word.

Each call does all that a page needs, so that what was made for its instants is not removed meanwhile.
"""

from collections.abc import Callable
from typing import Final

from embermq.history.rebuilt import ArchivedPast, rest
from embermq.store.history.pieces import HistoryReads
from embermq.store.interface import Retained
from embermq.store.state.topic_walks import LevelWalk, WordSearch
from embermq.store.topic_tree import Moments, TreeLevel

PAYLOADS_MAX: Final = 4 * 1024 * 1024
"""From this many bytes of payload on, a search has no more messages."""

Levels = tuple[list[TreeLevel], str | None]
"""Some levels, and the position to go on at; None at the end."""


def past_levels(
    past: ArchivedPast,
    local: HistoryReads,
    below: str | None,
    position: str,
    moments: Moments,
    limit: int,
    work_max: int,
    is_wanted: Callable[[], bool],
) -> Levels:
    """Levels below a topic until there are more than `limit`, or enough was read."""
    walk = LevelWalk(past.topics(moments, local, is_wanted), below, position, work_max)
    found: list[TreeLevel] = []
    while not walk.is_done() and not walk.is_exhausted() and len(found) <= limit:
        found += walk.step()
        rest(is_wanted)
    return found, None if walk.is_done() else walk.position()


def past_names(
    past: ArchivedPast,
    local: HistoryReads,
    word: str,
    position: str,
    instant_us: int,
    limit: int,
    steps_max: int,
    is_wanted: Callable[[], bool],
) -> tuple[list[Retained], str | None]:
    """Messages whose topic names have a word in them, until they are enough, or enough was read; and where to go on."""
    search = WordSearch(past.topics(Moments(instant_us), local, is_wanted), word, position)
    found: list[Retained] = []
    size_bytes = 0
    for _ in range(steps_max):
        for topic_name in search.step():
            message = past.message(topic_name, instant_us)
            if message is None:
                continue
            found.append(message)
            if len(found) % 32 == 0:
                rest(is_wanted)
            size_bytes += len(message.payload)
            if len(found) >= limit or size_bytes >= PAYLOADS_MAX:
                return found, topic_name + "/"  # the first position after this topic
        if search.is_done():
            return found, None
        rest(is_wanted)
    return found, search.position()

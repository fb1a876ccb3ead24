"""A piece of the retained set as of an instant, within bounds of work.

Owns: the bounds. `history` knows the changes of each topic, and their messages.
"""

from collections.abc import Iterator
from typing import Final

from embermq.store.interface import Retained, RetainedPiece
from embermq.store.log.lookup import Records
from embermq.store.state.history import OFFSET_MAX, STEPS_MAX, Change, ChangesInRange, History, made_change
from embermq.store.state.retained_keys import SEPARATOR, BoundedSeeks, key_topic, ranges, topic_key, walk

PIECE_SEEKS: Final = 1_000
"""How many topics that do not match are passed over for one piece."""
PIECE_TOPICS: Final = 32
PIECE_BYTES: Final = 1024 * 1024
"""How many topics, and how many bytes of payload, one piece of a whole answer covers."""
TOGETHER_MAX: Final = 64
TOGETHER_BYTES: Final = 64 * 1024
"""How many messages are asked for at once, and the bytes of payload from which on the next are asked for one by one."""


def as_of_pieces(
    history: History, log: Records, topic_filter: str, instant_us: int, after_topic_name: str = ""
) -> Iterator[list[Retained]]:
    """All messages that were retained at an instant, in store order and in pieces; a piece may be empty."""
    while True:
        piece = as_of_piece(
            history, log, topic_filter, instant_us, OFFSET_MAX, after_topic_name, PIECE_TOPICS, PIECE_BYTES
        )
        yield piece.found()
        if piece.done:
            return
        after_topic_name = piece.after_topic_name


def as_of_piece(
    history: History,
    log: Records,
    topic_filter: str,
    instant_us: int,
    before_offset: int,
    after_topic_name: str,
    limit: int,
    bytes_max: int,
) -> RetainedPiece:
    """Some of the messages that were retained at an instant, after a topic name.

    `limit` bounds the topics that are looked at. Changes at the instant count only if they are before an offset.
    """
    after_key = topic_key(after_topic_name)
    changes: list[Change] = []
    topics = seeks = 0
    is_done = False
    read = _range(history, topic_filter, after_key, instant_us, before_offset, limit)
    if read is not None:
        changes, topics, is_done = read.changes, read.topics, read.is_end
        if topics:
            after_key = read.last_key
    if is_done or topics * STEPS_MAX > limit:
        history.check_known(instant_us)  # after the read: what is forgotten from now on does not matter
    else:
        cursor = history.cursor()
        history.check_known(instant_us)  # after it: the cursor sees nothing that is forgotten from now on
        bounded = BoundedSeeks(cursor, PIECE_SEEKS)
        is_done = True
        for key in walk(topic_filter, after_key, bounded):
            last = cursor.change_at(instant_us, before_offset)
            change = None if last is None else made_change(key, last[0], last[1], last[2], instant_us)
            if change is not None:
                changes.append(change)
            topics += 1
            after_key = key
            if topics >= limit:
                is_done = False
                break
        seeks = bounded.count
        if bounded.stopped_at is not None:
            after_key = bounded.stopped_at
            is_done = False
    found: list[Retained] = []
    size_bytes = taken = 0
    # How many messages are asked for at once: few while they are large.
    together = TOGETHER_MAX if history.mean_bytes() * TOGETHER_MAX <= TOGETHER_BYTES else 1
    while taken < len(changes):
        if size_bytes >= bytes_max:
            return RetainedPiece(found, key_topic(changes[taken - 1].key), False, size_bytes, seeks)
        given, given_bytes, used = history.messages(
            log, changes[taken : taken + together], instant_us, bytes_max - size_bytes
        )
        taken += used
        together = TOGETHER_MAX if given_bytes <= TOGETHER_BYTES else 1
        found += given
        size_bytes += given_bytes
    return RetainedPiece(found, key_topic(after_key), is_done, size_bytes, seeks)


def _range(
    history: History, topic_filter: str, after_key: bytes, instant_us: int, before_offset: int, limit: int
) -> ChangesInRange | None:
    """What one read has of the topics that a filter matches; None if they are not all in ranges."""
    spans = ranges(topic_filter)
    if spans is None:
        return None
    found: ChangesInRange | None = None
    for number, (low, high) in enumerate(spans, 1):
        start = after_key + SEPARATOR if after_key and after_key >= low else low
        if high and start >= high:
            continue
        found = history.changes_in_range(start, high, instant_us, before_offset, limit)
        if not found.is_end:
            return found
        if found.topics:
            is_end = number == len(spans)
            return ChangesInRange(found.changes, found.topics, found.last_key, is_end)
    return found

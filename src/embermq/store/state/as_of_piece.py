"""A piece of the retained set as of an instant, within bounds of work.

Owns: the bounds. `history` knows the changes of each topic, and their messages.
"""

from typing import Final

from embermq.store.interface import Retained, RetainedPiece
from embermq.store.log.lookup import Records
from embermq.store.state.history import TOGETHER_BYTES, TOGETHER_MAX, Change, History, made_change
from embermq.store.state.retained_keys import BoundedSeeks, key_topic, topic_key, walk

PIECE_SEEKS: Final = 1_000
"""How many topics that do not match are passed over for one piece."""


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
    cursor = history.cursor()
    history.check_known(instant_us)  # after it: the cursor sees nothing that is forgotten from now on
    seeks = BoundedSeeks(cursor, PIECE_SEEKS)
    found: list[Retained] = []
    changes: list[Change] = []
    size_bytes = 0
    together = 1  # how many messages are asked for at once: few while they are large
    for topics, key in enumerate(walk(topic_filter, topic_key(after_topic_name), seeks), 1):
        last = cursor.change_at(instant_us, before_offset)
        change = None if last is None else made_change(key, last[0], last[1], last[2], instant_us)
        if change is not None:
            changes.append(change)
        if len(changes) >= together or (changes and topics >= limit):
            given = history.messages(log, changes, instant_us)
            changes = []
            given_bytes = sum([len(retained.payload) for retained in given])
            together = min(2 * together, TOGETHER_MAX) if given_bytes <= TOGETHER_BYTES else 1
            found += given
            size_bytes += given_bytes
        if topics >= limit or size_bytes >= bytes_max:
            found += history.messages(log, changes, instant_us)
            return RetainedPiece(found, key_topic(key), False, size_bytes, seeks.count)
    found += history.messages(log, changes, instant_us)
    if seeks.stopped_at is None:
        return RetainedPiece(found, after_topic_name, True, size_bytes, seeks.count)
    return RetainedPiece(found, key_topic(seeks.stopped_at), False, size_bytes, seeks.count)

"""The past: what was retained at an instant, out of the state's history and the log.

Owns: putting the two together, while the log may be trimmed meanwhile.
"""

from collections.abc import Iterator
from typing import Final

from embermq.store.errors import HistoryTrimmed, StoreError
from embermq.store.interface import Retained
from embermq.store.log.blocks import Record
from embermq.store.log.records import QOS_MASK
from embermq.store.log.writer import Log
from embermq.store.state.history import Change
from embermq.store.state.retained_keys import key_topic
from embermq.store.state.retained_value import unpack_retained
from embermq.store.state.state import State

PIECE_TOPICS: Final = 128
PIECE_BYTES: Final = 1024 * 1024
"""How many topics are looked at, and how many bytes of payload gathered, before others have their turn."""
_ATTEMPTS: Final = 3  # a trim may move a message from the log to the state between two looks


def retained_as_of(
    state: State, log: Log, topic_filter: str, after_topic_name: str, limit: int, instant_us: int
) -> list[Retained]:
    """Up to `limit` messages that were retained at an instant, in store order."""
    if limit <= 0:
        return []
    for _ in range(_ATTEMPTS):
        if instant_us < state.history_begins_us():
            raise HistoryTrimmed(instant_us, state.history_begins_us())
        changes = state.changes_as_of(topic_filter, after_topic_name, limit, instant_us)
        found = [_message(state, log, change) for change in changes]
        complete = [retained for retained in found if retained is not None]
        if len(complete) == len(found):
            return complete
    raise StoreError(f"the history of {topic_filter} names messages that are not there")


def retained_as_of_pieces(state: State, log: Log, topic_filter: str, instant_us: int) -> Iterator[list[Retained]]:
    """All messages that were retained at an instant, in store order and in pieces; a piece may be empty."""
    if instant_us < state.history_begins_us():
        raise HistoryTrimmed(instant_us, state.history_begins_us())
    piece: list[Retained] = []
    topics = size_bytes = 0
    for change in state.past_changes(topic_filter, instant_us):
        topics += 1
        if change is not None:
            message = _message(state, log, change)
            # Between two pieces the log may have been trimmed: then the history says by now where the message is.
            found = [message] if message else retained_as_of(state, log, key_topic(change.key), "", 1, instant_us)
            piece += found
            size_bytes += sum(len(retained.payload) for retained in found)
        if topics >= PIECE_TOPICS or size_bytes >= PIECE_BYTES:
            yield piece
            piece = []
            topics = size_bytes = 0
    yield piece


def _message(state: State, log: Log, change: Change) -> Retained | None:
    if change.copy:
        return unpack_retained(change.key, change.copy)
    # Most messages of the recent past are current still, and the state is quicker to ask than the log.
    current = state.retained.get(key_topic(change.key))
    if current is not None and current.offset == change.offset:
        return current
    record = log.read(change.offset)
    return None if record is None else _from_record(change.key, record)


def _from_record(key: bytes, record: Record) -> Retained:
    return Retained(
        key_topic(key),
        record.payload,
        record.flags & QOS_MASK,
        record.properties,
        record.offset,
        record.timestamp_us,
        record.client_id.decode(),
    )

"""The history of retained messages: for each topic the instants at which its message changed.

Owns: the changes of each topic, what was retained at an instant, and forgetting with the log.
A change is a reference to its record in the log. Before the record is trimmed, the message that was current at the
log's new beginning is copied here, unless it is current still: then the retained message itself is the copy.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, final

from embermq.store.errors import HistoryTrimmed, StoreError
from embermq.store.interface import Retained, RetainedChange, RetainedPiece
from embermq.store.log.lookup import Records
from embermq.store.rows import RETAIN_FLAG, Group, Kind
from embermq.store.state.changes import (
    OFFSET_MAX,
    STEPS_MAX,
    Change,
    Entry,
    TopicCursor,
    change_expires_us,
    changes_of_entry,
    each_change,
    entries_before,
    entry_of_changes,
    made_change,
    offset_of,
    read_range,
    until,
)
from embermq.store.state.retained import RetainedState
from embermq.store.state.retained_keys import (
    CHANGED_AT,
    HISTORY_END,
    RETAINED,
    SEPARATOR,
    BoundedSeeks,
    key_topic,
    ranges,
    topic_key,
    walk,
)
from embermq.store.state.retained_values import (
    CLEARED,
    COPY,
    REFERENCE,
    packed_row,
    retained_of,
    unpack_retained,
    value_offset,
    with_expiry,
)
from embermq.store.state.rocks import Rocks
from embermq.store.state.write_buffer import Batch

CHUNK_TOPICS: Final = 4_000
CHUNK_BYTES: Final = 4 * 1024 * 1024
"""How much of a log that is to be trimmed is read before other groups may be applied."""
PIECE_SEEKS: Final = 1_000
"""How many topics that do not match are passed over for one piece."""
PIECE_TOPICS: Final = 32
PIECE_BYTES: Final = 1024 * 1024
"""How many topics, and how many bytes of payload, one piece of a whole answer covers."""
TOGETHER_MAX: Final = 64
TOGETHER_BYTES: Final = 64 * 1024
"""How many messages are asked for at once, and the bytes of payload from which on the next are asked for one by one."""

_BEGINS: Final = b"\x00history"
_NUMBER: Final = Struct("<Q")
_ATTEMPTS: Final = 3  # a trim may move a message from the log to the state between two reads


@final
class MadeChanges:
    """The changes that made messages which were retained at an instant, and how far the topics were looked at."""

    def __init__(self, after_key: bytes, instant_us: int) -> None:
        self._instant_us: Final = instant_us
        self.changes: Final[list[Change]] = []
        self.topics = 0
        self.seeks = 0
        self.after_key = after_key
        self.is_done = False

    def add(self, key: bytes, last: Entry | None) -> None:
        """A topic, and its last change up to the instant."""
        change = made_change(key, last, self._instant_us)
        if change is not None:
            self.changes.append(change)
        self.topics += 1
        self.after_key = key

    def finish(self) -> None:
        """There are no more topics."""
        self.is_done = True

    def add_seeks(self, bounded: BoundedSeeks) -> None:
        """So many seeks were made; perhaps the last of them led to a topic that did not match."""
        self.seeks = bounded.count
        if bounded.stopped_at is not None:
            self.after_key = bounded.stopped_at


@final
class History:
    """The history in the state. The log, where most messages of it are, comes with each question."""

    def __init__(
        self,
        rocks: Rocks,
        retained: RetainedState,
        chunk_topics: int = CHUNK_TOPICS,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self.rocks: Final = rocks
        self._retained: Final = retained
        self._chunk_topics: Final = chunk_topics
        self._chunk_bytes: Final = chunk_bytes
        self.load()

    def load(self) -> None:
        """Take the beginning from the database."""
        self._begins_us = int.from_bytes(self.rocks.get(_BEGINS) or b"", "little")

    def begins_us(self) -> int:
        """From which instant on the history is known; 0 if nothing of it was trimmed."""
        return self._begins_us

    def begin(self, first_offset: int, instant_us: int) -> None:
        """The log has no records before an offset, and the history knows nothing before an instant."""
        self._retained.raise_history_floor(first_offset)
        batch = Batch()
        batch.put(_BEGINS, _NUMBER.pack(instant_us))
        self.rocks.write(batch)
        self._begins_us = instant_us

    def _mean_bytes(self) -> int:
        """How large a retained message is on average."""
        count, size_bytes = self._retained.totals()
        return size_bytes // count if count else 0

    # -- as of an instant ----------------------------------------------------------------------------------------

    def as_of(
        self, log: Records, topic_filter: str, after_topic_name: str, limit: int, instant_us: int
    ) -> list[Retained]:
        """Up to `limit` messages that were retained at an instant, in store order."""
        found: list[Retained] = []
        while len(found) < limit:
            looked_at = limit - len(found)
            piece = self.piece(log, topic_filter, instant_us, OFFSET_MAX, after_topic_name, looked_at, PIECE_BYTES)
            found += piece.found()
            if piece.done:
                break
            after_topic_name = piece.after_topic_name
        return found

    def pieces(
        self, log: Records, topic_filter: str, instant_us: int, after_topic_name: str = ""
    ) -> Iterator[list[Retained]]:
        """All messages that were retained at an instant, in store order and in pieces; a piece may be empty."""
        while True:
            piece = self.piece(log, topic_filter, instant_us, OFFSET_MAX, after_topic_name, PIECE_TOPICS, PIECE_BYTES)
            yield piece.found()
            if piece.done:
                return
            after_topic_name = piece.after_topic_name

    def piece(
        self,
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
        made = self.changes_as_of(topic_filter, topic_key(after_topic_name), instant_us, before_offset, limit)
        changes = made.changes
        found: list[Retained] = []
        size_bytes = taken = 0
        # How many messages are asked for at once: few while they are large.
        together = TOGETHER_MAX if self._mean_bytes() * TOGETHER_MAX <= TOGETHER_BYTES else 1
        while taken < len(changes):
            if size_bytes >= bytes_max:
                return RetainedPiece(found, key_topic(changes[taken - 1].key), False, size_bytes, made.seeks)
            given, given_bytes, used = self._messages(
                log, changes[taken : taken + together], instant_us, bytes_max - size_bytes
            )
            taken += used
            together = TOGETHER_MAX if given_bytes <= TOGETHER_BYTES else 1
            found += given
            size_bytes += given_bytes
        return RetainedPiece(found, key_topic(made.after_key), made.is_done, size_bytes, made.seeks)

    def changes_as_of(
        self, topic_filter: str, after_key: bytes, instant_us: int, before_offset: int, limit: int
    ) -> MadeChanges:
        """The changes that made the messages of a piece: those of up to `limit` topics that a filter matches."""
        latest = until(instant_us, before_offset)
        made = MadeChanges(after_key, instant_us)
        spans = ranges(topic_filter)
        if spans is not None:
            self._read_spans(made, spans, latest, limit)
        if made.is_done or made.topics * STEPS_MAX > limit:
            self._check_known(instant_us)  # after the read: what is forgotten from now on does not matter
            return made
        cursor = TopicCursor(self.rocks.iterator(HISTORY_END))
        self._check_known(instant_us)  # after it: the cursor sees nothing that is forgotten from now on
        bounded = BoundedSeeks(cursor, PIECE_SEEKS)
        for key in walk(topic_filter, made.after_key, bounded):
            made.add(key, cursor.last_change(latest))
            if made.topics >= limit:
                break
        else:
            if bounded.stopped_at is None:
                made.finish()
        made.add_seeks(bounded)
        return made

    def _read_spans(self, made: MadeChanges, spans: list[tuple[bytes, bytes]], latest: bytes, limit: int) -> None:
        """Add what one read has of the topics in some ranges."""
        after_key = made.after_key
        for number, (low, high) in enumerate(spans, 1):
            start = after_key + SEPARATOR if after_key and after_key >= low else low
            if high and start >= high:
                continue
            read = read_range(self.rocks, start, high, limit, [latest])
            for key, last in zip(read.keys, read.last[0], strict=True):
                made.add(key, last)
            if not read.is_end:
                return
            if read.keys and number < len(spans):
                return
        made.finish()

    def _messages(
        self, log: Records, changes: list[Change], instant_us: int, bytes_max: int
    ) -> tuple[list[Retained], int, int]:
        """The messages of some changes, the bytes of their payloads, and how many changes these are of.

        Most are retained still: the state is asked for all of them at once. With `bytes_max` bytes it is enough.
        """
        found: list[Retained] = []
        size_bytes = taken = 0
        for change, value in zip(changes, self._current(changes), strict=True):
            message: Retained | None
            if not change.copy and value is not None and value_offset(value) == change.offset:
                message = unpack_retained(change.key, value)
            else:
                message = self._message(log, change)
                if message is None:
                    message = self._moved_message(log, change.key, instant_us)
            taken += 1
            if message is not None:
                found.append(message)
                size_bytes += len(message.payload)
                if size_bytes >= bytes_max:
                    break
        return found, size_bytes, taken

    def _current(self, changes: list[Change]) -> list[bytes | None]:
        """What is retained now on the topics of some changes, which are in order."""
        # In one pass a message takes a quarter of the time. What lies behind many others is asked for by its key.
        passed = self.rocks.items_from(RETAINED + changes[0].key, RETAINED + changes[-1].key + SEPARATOR, len(changes))
        current: list[bytes | None] = []
        at = 0
        for change in changes:
            key = RETAINED + change.key
            while at < len(passed) and passed[at][0] < key:
                at += 1
            if at == len(passed):
                break
            current.append(passed[at][1] if passed[at][0] == key else None)
        behind = changes[len(current) :]
        if len(passed) < len(changes):
            return current + [None for _ in behind]
        return current + self.rocks.get_many([RETAINED + change.key for change in behind])

    def changes_of(self, log: Records, topic_name: str, after_offset: int, limit: int) -> list[RetainedChange]:
        """The changes of one topic above an offset, oldest first."""
        key = topic_key(topic_name)
        found: list[RetainedChange] = []
        for stored, value in each_change(entries_before(self.rocks.iterator(HISTORY_END), key, OFFSET_MAX)):
            timestamp_us, offset = CHANGED_AT.unpack_from(stored, len(stored) - CHANGED_AT.size)
            if offset <= after_offset:
                continue
            message = None
            if value != CLEARED:
                copy = value[1:] if value[:1] == COPY else b""
                message = self._message(log, Change(key, timestamp_us, offset, copy, change_expires_us(value)))
            found.append(RetainedChange(timestamp_us, offset, message))
            if len(found) == limit:
                break
        return found

    def _check_known(self, instant_us: int) -> None:
        """HistoryTrimmed if the history does not reach back to an instant."""
        if instant_us < self._begins_us:
            raise HistoryTrimmed(instant_us, self._begins_us)

    def _message(self, log: Records, change: Change) -> Retained | None:
        if change.copy:
            return unpack_retained(change.key, change.copy)
        # Most messages of recent instants are retained still, and the state is quicker to ask than the log.
        current = self._retained.get(key_topic(change.key))
        if current is not None and current.offset == change.offset:
            return current
        record = log.read(change.offset)
        return None if record is None else retained_of(record, change.expires_us)

    def _moved_message(self, log: Records, key: bytes, instant_us: int) -> Retained | None:
        """The message of a topic at an instant, after its record was trimmed between two reads: the history has it."""
        topic_name = key_topic(key)
        for _ in range(_ATTEMPTS):
            changes = self.changes_as_of(topic_name, b"", instant_us, OFFSET_MAX, 1).changes
            message = self._message(log, changes[0]) if changes else None
            if message is not None or not changes:
                return message
        raise StoreError(f"the history of {topic_name} names messages that are missing")

    # -- forgetting ----------------------------------------------------------------------------------------------

    def forget(self, groups: Iterable[Group], before_offset: int) -> Iterator[None]:
        """Drop the changes that only the log before an offset could tell, copying what outlives it.

        `groups` is that part of the log. Done in pieces: other groups may be applied between two of them.
        """
        seen: dict[bytes, tuple[int, bytes]] = {}
        seen_bytes = 0
        for group in groups:
            for row in group.rows:
                if row.offset >= before_offset:
                    break
                removed = row.kind == Kind.RETAINED_REMOVED
                if not removed and not (row.kind == Kind.PUBLISH and row.flags & RETAIN_FLAG):
                    continue
                key = row.topic.replace(b"/", SEPARATOR)
                value = b"" if removed or not row.payload else packed_row(row)
                seen[key] = row.offset, value
                seen_bytes += len(key) + len(value)
                if len(seen) >= self._chunk_topics or seen_bytes >= self._chunk_bytes:
                    self._forget_topics(seen, before_offset)
                    seen.clear()
                    seen_bytes = 0
                    yield
            yield
            if group.next_offset >= before_offset:
                break
        self._forget_topics(seen, before_offset)

    def _forget_topics(self, seen: dict[bytes, tuple[int, bytes]], before_offset: int) -> None:
        if not seen:
            return
        iterator = self.rocks.iterator(HISTORY_END)
        current = self.rocks.get_many([RETAINED + key for key in seen])

        batch = Batch()
        for (key, (offset, value)), retained in zip(seen.items(), current, strict=True):
            last: Entry | None = None
            for entry in entries_before(iterator, key, before_offset):
                if last is not None:
                    batch.delete(last[0])
                last = entry
            if last is None:
                continue
            changes = changes_of_entry(last[0], last[1])
            after = [change for change in changes if offset_of(change[0]) >= before_offset]
            newest, change = changes[len(changes) - len(after) - 1]
            if offset_of(newest) != offset:
                continue  # a later piece meets the newest one
            if len(changes) > 1:
                batch.delete(last[0])
            if after:
                batch.put(*entry_of_changes(after))
            if not value:
                batch.delete(newest)
            elif retained is None or value_offset(retained) != offset:
                batch.put(newest, COPY + with_expiry(value, change_expires_us(change)))
            elif len(changes) > 1:
                batch.put(newest, REFERENCE)
        self.rocks.write(batch)

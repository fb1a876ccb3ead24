"""The history of retained messages: for each topic the instants at which its message changed.

Owns: the changes of each topic, what was retained at an instant, and forgetting with the log.
A change is a reference to its record in the log. Before the record is trimmed, the message that was current at the
log's new beginning is copied here, unless it is current still: then the retained message itself is the copy.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, final

from librt.strings import read_i64_be

from embermq.store.errors import HistoryTrimmed, StoreError
from embermq.store.interface import Retained, RetainedChange
from embermq.store.log.blocks import Record
from embermq.store.log.lookup import Records
from embermq.store.log.records import QOS_MASK, RETAIN_FLAG, Group, Kind
from embermq.store.state.changes.series import changes_of_entry, each_change, entry_of_changes, last_change
from embermq.store.state.retained import RetainedState
from embermq.store.state.retained_keys import (
    AFTER_TOPIC,
    CHANGED_AT,
    HISTORY,
    HISTORY_END,
    RETAINED,
    SEPARATOR,
    TERMINATOR,
    KeyCursor,
    escape,
    key_topic,
    topic_key,
    unescape,
    walk,
)
from embermq.store.state.retained_values import (
    CLEARED,
    COPY,
    EXPIRING,
    REFERENCE,
    packed_record,
    unpack_retained,
    value_expires_us,
    value_offset,
    with_expiry,
)
from embermq.store.state.rocks import Rocks
from embermq.store.state.write_buffer import Batch, StateIterator

CHUNK_TOPICS: Final = 4_000
CHUNK_BYTES: Final = 4 * 1024 * 1024
"""How much of a log that is to be trimmed is read before other groups may be applied."""
STEPS_MAX: Final = 8
"""Up to this many changes of a topic are stepped over before a seek: most have few, a step costs a tenth of a seek."""

OFFSET_MAX: Final = 0xFFFF_FFFF_FFFF_FFFF

_BEGINS: Final = b"\x00history"
_NUMBER: Final = Struct("<Q")
_ATTEMPTS: Final = 3  # a trim may move a message from the log to the state between two reads


@final
class Change:
    """The newest change of one topic up to an instant. `copy` is empty where the log or the state has the message;
    `expires_us` is when that expires.
    """

    __slots__ = ("copy", "expires_us", "key", "offset", "timestamp_us")

    def __init__(self, key: bytes, timestamp_us: int, offset: int, copy: bytes, expires_us: int = 0) -> None:
        self.key: Final = key
        self.timestamp_us: Final = timestamp_us
        self.offset: Final = offset
        self.copy: Final = copy
        self.expires_us: Final = expires_us


@final
class ChangesInRange:
    """What one read of a range has found: `topics` topics up to `last_key`. `is_end`: all of the range."""

    __slots__ = ("changes", "is_end", "last_key", "topics")

    def __init__(self, changes: list[Change], topics: int, last_key: bytes, is_end: bool) -> None:
        self.changes: Final = changes
        self.topics: Final = topics
        self.last_key: Final = last_key
        self.is_end: Final = is_end


@final
class TopicCursor(KeyCursor):
    """Goes from topic to topic, whatever the number of changes of each."""

    __slots__ = ("_escaped", "_iterator")

    def __init__(self, iterator: StateIterator) -> None:
        self._iterator: Final = iterator
        self._escaped = b""

    def seek(self, key: bytes) -> bytes | None:
        self._iterator.seek(HISTORY + escape(key))
        return self._topic()

    def next(self) -> bytes | None:
        iterator = self._iterator
        prefix = HISTORY + self._escaped + TERMINATOR
        for _ in range(STEPS_MAX):
            if not iterator.valid() or not iterator.key().startswith(prefix):
                return self._topic()
            iterator.next()
        iterator.seek(HISTORY + self._escaped + AFTER_TOPIC)
        return self._topic()

    def change_at(self, instant_us: int, before_offset: int = OFFSET_MAX) -> tuple[int, int, bytes] | None:
        """Timestamp, offset and value of the current topic's last change up to an instant. Asked once for a topic.

        Of the changes at the instant itself only those before an offset count.
        """
        iterator = self._iterator
        prefix = HISTORY + self._escaped + TERMINATOR
        last = prefix + CHANGED_AT.pack(instant_us, before_offset - 1)
        found = value = b""
        for _ in range(STEPS_MAX):
            key: bytes = iterator.key() if iterator.valid() else HISTORY_END
            if key > last:  # as every change of a later topic is
                break
            found, value = key, iterator.value()
            iterator.next()
        else:
            iterator.seek_for_prev(last)
            found, value = iterator.key(), iterator.value()
        if not found:
            return None
        found, value = last_change(found, value, last)
        timestamp_us, offset = CHANGED_AT.unpack_from(found, len(prefix))
        return timestamp_us, offset, value

    def _topic(self) -> bytes | None:
        if not self._iterator.valid():
            return None
        found: bytes = self._iterator.key()
        self._escaped = found[1 : found.index(TERMINATOR, 1)]
        return unescape(self._escaped)


@final
class History:
    """The history in the state. The log, where most messages of it are, comes with each question."""

    __slots__ = ("_begins_us", "_chunk_bytes", "_chunk_topics", "_retained", "rocks")

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
        self.rocks.write(lambda batch: batch.put(_BEGINS, _NUMBER.pack(instant_us)))
        self._begins_us = instant_us

    def mean_bytes(self) -> int:
        """How large a retained message is on average."""
        count, size_bytes = self._retained.totals()
        return size_bytes // count if count else 0

    def cursor(self) -> TopicCursor:
        """Goes through all topics that have changes."""
        return TopicCursor(self.rocks.iterator(HISTORY_END))

    # -- as of an instant ----------------------------------------------------------------------------------------

    def as_of(
        self, log: Records, topic_filter: str, after_topic_name: str, limit: int, instant_us: int
    ) -> list[Retained]:
        """Up to `limit` messages that were retained at an instant, in store order."""
        if limit <= 0:
            return []
        for _ in range(_ATTEMPTS):
            self.check_known(instant_us)
            changes = self.changes_as_of(topic_filter, after_topic_name, limit, instant_us)
            found = [self._message(log, change) for change in changes]
            complete = [retained for retained in found if retained is not None]
            if len(complete) == len(found):
                return complete
        raise StoreError(f"the history of {topic_filter} names messages that are missing")

    def messages(
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
                if message is None:  # the log may have been trimmed between two pieces: then the history has it by now
                    again = self.as_of(log, key_topic(change.key), "", 1, instant_us)
                    message = again[0] if again else None
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

    def changes_as_of(self, topic_filter: str, after_topic_name: str, limit: int, instant_us: int) -> list[Change]:
        """For up to `limit` topics that had a retained message at an instant, the change that made it so."""
        found: list[Change] = []
        for change in self._last_changes(topic_filter, topic_key(after_topic_name), instant_us):
            if change is not None:
                found.append(change)
                if len(found) == limit:
                    break
        return found

    def changes_of(self, log: Records, topic_name: str, after_offset: int, limit: int) -> list[RetainedChange]:
        """The changes of one topic above an offset, oldest first."""
        key = topic_key(topic_name)
        found: list[RetainedChange] = []
        for stored, value in each_change(_entries_before(self.rocks.iterator(HISTORY_END), key, OFFSET_MAX)):
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

    def check_known(self, instant_us: int) -> None:
        """HistoryTrimmed if the history does not reach back to an instant."""
        if instant_us < self._begins_us:
            raise HistoryTrimmed(instant_us, self._begins_us)

    def _last_changes(self, topic_filter: str, after_key: bytes, instant_us: int) -> Iterator[Change | None]:
        """For each topic the change that was its last at an instant; None if nothing was retained then."""
        cursor = self.cursor()
        for key in walk(topic_filter, after_key, cursor):
            change = cursor.change_at(instant_us)
            yield None if change is None else made_change(key, change[0], change[1], change[2], instant_us)

    def changes_in_range(
        self, low_key: bytes, high_key: bytes, instant_us: int, before_offset: int, limit: int
    ) -> "ChangesInRange":
        """The last changes of topics from a key on and before another (empty: no end), as far as one read goes.

        One read has up to `limit` changes, which takes a quarter of the time of a step for each. Where topics have
        many changes a cursor is quicker: a topic of which the read does not have all is left to it.
        """
        low = HISTORY + escape(low_key)
        end = HISTORY + escape(high_key) if high_key else HISTORY_END
        entries = self.rocks.items_from(low, end, limit)
        is_end = len(entries) < limit
        until = CHANGED_AT.pack(instant_us, before_offset - 1)
        found: list[Change] = []
        topics = at = 0
        last_key = b""
        while at < len(entries):
            first = entries[at][0]
            prefix = first[: first.index(TERMINATOR, 1) + 1]
            last = prefix + until
            stored = value = b""
            while at < len(entries) and entries[at][0].startswith(prefix):
                if entries[at][0] <= last:
                    stored, value = entries[at]
                at += 1
            if at == len(entries) and not is_end:
                break
            topics += 1
            last_key = unescape(prefix[1:-1])
            if stored:
                stored, value = last_change(stored, value, last)
                timestamp_us, offset = read_i64_be(stored, len(prefix)), read_i64_be(stored, len(prefix) + 8)
                change = made_change(last_key, timestamp_us, offset, value, instant_us)
                if change is not None:
                    found.append(change)
        return ChangesInRange(found, topics, last_key, is_end)

    def _message(self, log: Records, change: Change) -> Retained | None:
        if change.copy:
            return unpack_retained(change.key, change.copy)
        # Most messages of recent instants are retained still, and the state is quicker to ask than the log.
        current = self._retained.get(key_topic(change.key))
        if current is not None and current.offset == change.offset:
            return current
        record = log.read(change.offset)
        return None if record is None else _from_record(change, record)

    # -- forgetting ----------------------------------------------------------------------------------------------

    def forget(self, groups: Iterable[Group], before_offset: int) -> Iterator[None]:
        """Drop the changes that only the log before an offset could tell, copying what outlives it.

        `groups` is that part of the log. Done in pieces: other groups may be applied between two of them.
        """
        seen: dict[bytes, tuple[int, bytes]] = {}
        seen_bytes = 0
        for group in groups:
            for row in range(min(len(group), before_offset - group.first_offset)):
                kind = group.kinds[row]
                removed = kind == Kind.RETAINED_REMOVED
                if not removed and not (kind == Kind.PUBLISH and group.flags[row] & RETAIN_FLAG):
                    continue
                key = group.topics[row].replace(b"/", SEPARATOR)
                value = b"" if removed or not group.payloads[row] else packed_record(group, row)
                seen[key] = group.first_offset + row, value
                seen_bytes += len(key) + len(value)
                if len(seen) >= self._chunk_topics or seen_bytes >= self._chunk_bytes:
                    self._forget_topics(seen, before_offset)
                    seen.clear()
                    seen_bytes = 0
                    yield
            yield
            if group.first_offset + len(group) >= before_offset:
                break
        self._forget_topics(seen, before_offset)

    def _forget_topics(self, seen: dict[bytes, tuple[int, bytes]], before_offset: int) -> None:
        if not seen:
            return
        iterator = self.rocks.iterator(HISTORY_END)
        current = self.rocks.get_many([RETAINED + key for key in seen])

        def fill(batch: Batch) -> None:
            for (key, (offset, value)), retained in zip(seen.items(), current, strict=True):
                last: tuple[bytes, bytes] | None = None
                for entry in _entries_before(iterator, key, before_offset):
                    if last is not None:
                        batch.delete(last[0])
                    last = entry
                if last is None:
                    continue
                changes = changes_of_entry(last[0], last[1])
                after = [change for change in changes if _offset_of(change[0]) >= before_offset]
                newest, change = changes[len(changes) - len(after) - 1]
                if _offset_of(newest) != offset:
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

        self.rocks.write(fill)


def _entries_before(iterator: StateIterator, key: bytes, before_offset: int) -> Iterator[tuple[bytes, bytes]]:
    """The entries of a topic whose first change is before an offset."""
    prefix = HISTORY + escape(key) + TERMINATOR
    iterator.seek(prefix)
    while iterator.valid():
        found: bytes = iterator.key()
        if not found.startswith(prefix) or _offset_of(found) >= before_offset:
            return
        yield found, iterator.value()
        iterator.next()


def _offset_of(change: bytes) -> int:
    """Of the record of a change, by its key."""
    return read_i64_be(change, len(change) - 8)


def made_change(key: bytes, timestamp_us: int, offset: int, value: bytes, instant_us: int) -> Change | None:
    """A change that has made a message which was retained at an instant; None if it was not."""
    if value == CLEARED:
        return None
    expires_us = change_expires_us(value)
    if 0 < expires_us <= instant_us:
        return None
    return Change(key, timestamp_us, offset, value[1:] if value[:1] == COPY else b"", expires_us)


def change_expires_us(value: bytes) -> int:
    """When the message expires that a change has made; 0: never."""
    if value[:1] == EXPIRING:
        return int.from_bytes(value[1:], "little")
    return value_expires_us(value[1:]) if value[:1] == COPY else 0


def _from_record(change: Change, record: Record) -> Retained:
    return Retained(
        record.topic,
        record.payload,
        record.flags & QOS_MASK,
        record.properties,
        record.offset,
        record.timestamp_us,
        record.client_id,
        change.expires_us,
    )

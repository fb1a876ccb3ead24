"""The write buffer: what was applied to the state and is not in RocksDB yet.

Owns: the batch of one write, the changed topics and other entries until they are written, and a reader's view of the
buffer and the database together.
Never: when the buffer is written to the database; `rocks` decides that.
RocksDB takes many keys in their order for a fraction of what it takes for the same keys group by group, and a topic
that changes again in the meantime has its message written once. A crash loses no more with the buffer than with
RocksDB's memtable alone: both are made again from the log.
The buffer is open at first: topics are objects, found by name. Who reads a range seals it: its entries are made and
sorted, and never change again, so a reader needs no copy. The writer writes a sealed buffer to the database before it
adds anything, and an empty one is never sealed.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final, TypeAlias, final

from rocksdict import RdictIter, WriteBatch

from embermq.store.state.changed_topics import TOPIC_BYTES, ChangedTopic
from embermq.store.state.retained_keys import EXPIRY, HISTORY, RETAINED, SEPARATOR, escape_all
from embermq.store.state.retained_sizes import Sizes

BUFFER_ENTRIES_MAX: Final = 32_768
"""The buffer is written to the database from this many keys on: sorting and writing these must not take long."""
BUFFER_BYTES_MAX: Final = 8 * 1024 * 1024
"""The same for the bytes of its keys and values: a topic name may have 64 KiB, and each change has a key with it."""


@final
class Batch:
    """What one write puts and deletes, apart from changed topics."""

    def __init__(self) -> None:
        self.entries: dict[bytes, bytes | None] = {}  # None: deleted
        self.size_bytes = 0  # of keys and values
        self._before: Final[list[tuple[dict[bytes, bytes | None], bytes, bytes]]] = []  # up to each `delete_range`

    def put(self, key: bytes, value: bytes) -> None:
        self.entries[key] = value
        self.size_bytes += len(key) + len(value)

    def delete(self, key: bytes) -> None:
        self.entries[key] = None
        self.size_bytes += len(key)

    def delete_range(self, low: bytes, high: bytes) -> None:
        """Delete the keys from `low` up to but without `high`. A batch with ranges is not buffered."""
        self._before.append((self.entries, low, high))
        self.entries = {}

    def has_ranges(self) -> bool:
        return len(self._before) > 0

    def fill(self, batch: WriteBatch) -> None:
        """Add all of it to a batch of the database."""
        for entries, low, high in self._before:
            _fill_sorted(batch, entries)
            batch.delete_range(low, high)
        _fill_sorted(batch, self.entries)


def _fill_sorted(batch: WriteBatch, entries: dict[bytes, bytes | None]) -> None:
    keys = sorted(entries)
    _fill(batch, keys, [entries[key] for key in keys])


def _fill(batch: WriteBatch, keys: list[bytes], values: list[bytes | None]) -> None:
    """Add entries to a batch of the database, in order: out of order each key takes longer there."""
    put = batch.put
    for key, value in zip(keys, values, strict=True):
        if value is None:
            batch.delete(key)
        else:
            put(key, value)


@final
class SortedEntries:
    """The entries of a sealed buffer, in the order of their keys. They never change."""

    def __init__(self, values: dict[bytes, bytes | None]) -> None:
        self.values: Final = values
        self.keys: Final = sorted(values)


@final
class WriteBuffer:
    """One buffer, from the first write until the database has it."""

    def __init__(self, sizes: Sizes, entries_max: int, bytes_max: int = BUFFER_BYTES_MAX) -> None:
        self._sizes: Final = sizes
        self._entries_max: Final = entries_max
        self._bytes_max: Final = bytes_max
        self.topics: Final[dict[bytes, ChangedTopic]] = {}  # by name, as the log has it; none once it is sealed
        self._entries: Final[dict[bytes, bytes | None]] = {}  # they come before those of the topics
        self._spaces: Final[set[int]] = set()  # the first bytes of all keys
        self._count = 0  # of entries, about
        self._size_bytes = 0
        self._sorted: SortedEntries | None = None

    # -- while it is open ----------------------------------------------------------------------------------------

    def add(self, batch: Batch) -> None:
        """Add a batch that has no ranges."""
        self._size_bytes += batch.size_bytes
        self._count += len(batch.entries)
        self._entries.update(batch.entries)
        for key in batch.entries:
            self._spaces.add(key[0])

    def add_topic(self, topic: bytes, changed: ChangedTopic) -> None:
        """A topic that will have a change, the first one in this buffer."""
        self.topics[topic] = changed
        self._count += 2
        self._size_bytes += 2 * len(topic) + TOPIC_BYTES
        self._spaces.add(RETAINED[0])
        self._spaces.add(HISTORY[0])

    def grow(self, size_bytes: int, has_expiry: bool) -> None:
        """A topic has changed."""
        self._size_bytes += size_bytes
        if has_expiry:
            self._count += 2
            self._spaces.add(EXPIRY[0])

    def is_full(self) -> bool:
        return self._count > self._entries_max or self._size_bytes > self._bytes_max

    def is_sealed(self) -> bool:
        return self._sorted is not None

    # -- reading -------------------------------------------------------------------------------------------------

    def is_empty(self) -> bool:
        return not self.topics and not self._entries

    def has_space(self, first_byte: int) -> bool:
        """Whether it may have keys with this first byte."""
        return first_byte in self._spaces

    def has(self, key: bytes) -> bool:
        """Whether it says anything of a key; while it is open, changes and expiries of topics are left out."""
        return key in self._entries or self._topic(key) is not None

    def get(self, key: bytes) -> bytes | None:
        """What it says of a key that it has; None: deleted."""
        topic = self._topic(key)
        return self._entries[key] if topic is None else topic.message()

    def _topic(self, key: bytes) -> ChangedTopic | None:
        if not self.topics or key[:1] != RETAINED:
            return None
        return self.topics.get(key[1:].replace(SEPARATOR, b"/"))

    def seal(self) -> SortedEntries:
        """All entries in order. Nothing can be added any more."""
        if self._sorted is None:
            keys, values = self._made_entries()
            self._entries.update(zip(keys, values, strict=True))
            self.topics.clear()
            self._sorted = SortedEntries(self._entries)
        return self._sorted

    def fill(self, batch: WriteBatch) -> None:
        """Add all entries to a batch of the database."""
        _fill_sorted(batch, self._entries)
        keys, values = self._made_entries()
        _fill(batch, keys, values)

    def _made_entries(self) -> tuple[list[bytes], list[bytes | None]]:
        """The entries of the topics: their changes in the order of the keys, then their messages."""
        topics = sorted(self.topics.values(), key=_key_of)
        by_key = [topic.key for topic in topics]
        keys: list[bytes] = []
        values: list[bytes | None] = []
        message_keys: list[bytes] = []
        messages: list[bytes | None] = []
        known: list[int] = []
        for topic, escaped in zip(topics, escape_all(by_key), strict=True):
            topic.add_history(escaped, keys, values)
            topic.add_message(message_keys, messages)
            known.append(topic.known())
        self._sizes.remember(by_key, known)
        keys.extend(message_keys)
        values.extend(messages)
        return keys, values


def _key_of(topic: ChangedTopic) -> bytes:
    return topic.key


def merged_items(
    stored: Iterator[tuple[bytes, bytes]], buffered: SortedEntries, low: bytes, high: bytes
) -> Iterator[tuple[bytes, bytes]]:
    """What the database and the buffer have from `low` up to but without `high`; the buffer is the newer one."""
    keys, values = buffered.keys, buffered.values
    at, end = bisect_left(keys, low), bisect_left(keys, high)
    for entry in stored:
        key = entry[0]
        is_replaced = False
        while at < end and keys[at] <= key:
            is_replaced = keys[at] == key
            value = values[keys[at]]
            if value is not None:
                yield keys[at], value
            at += 1
        if not is_replaced:
            yield entry
    while at < end:
        value = values[keys[at]]
        if value is not None:
            yield keys[at], value
        at += 1


@final
class MergedIterator:
    """Seeks about in the database and the buffer before a key, as `RdictIter` does in the database."""

    def __init__(self, stored: RdictIter, buffered: SortedEntries, high: bytes) -> None:
        self._stored: Final = stored
        self._keys: Final = buffered.keys
        self._values: Final = buffered.values
        self._end: Final = bisect_left(buffered.keys, high)
        self._at = 0
        self._key: bytes | None = None  # where it is; None: nowhere
        self._value: bytes | None = None  # None: the database has it
        self._is_behind = False  # after `seek_for_prev`, which leaves both places at or before the key

    def valid(self) -> bool:
        return self._key is not None

    def key(self) -> bytes:
        assert self._key is not None
        return self._key

    def value(self) -> bytes:
        if self._value is not None:
            return self._value
        value: bytes = self._stored.value()
        return value

    def seek(self, key: bytes) -> None:
        self._stored.seek(key)
        self._at = bisect_left(self._keys, key, 0, self._end)
        self._is_behind = False
        self._choose()

    def next(self) -> None:
        key = self._key
        if key is None:
            return
        if self._is_behind:
            self.seek(key + b"\x00")
            return
        if self._value is not None:
            self._at += 1
        else:
            self._stored.next()
        self._choose()

    def _choose(self) -> None:
        """Go on to the lower one of the two places, and past what is deleted or replaced."""
        stored, keys = self._stored, self._keys
        while self._at < self._end:
            buffered = keys[self._at]
            if stored.valid():
                key: bytes = stored.key()
                if key < buffered:
                    self._key, self._value = key, None
                    return
                if key == buffered:
                    stored.next()
            value = self._values[buffered]
            if value is not None:
                self._key, self._value = buffered, value
                return
            self._at += 1
        self._value = None
        self._key = stored.key() if stored.valid() else None

    def seek_for_prev(self, key: bytes) -> None:
        """Go to the last key that is not above `key`."""
        stored, keys = self._stored, self._keys
        self._is_behind = True
        stored.seek_for_prev(key)
        at = bisect_right(keys, key, 0, self._end) - 1
        while at >= 0:
            buffered = keys[at]
            if stored.valid():
                found: bytes = stored.key()
                if found > buffered:
                    break
                if found == buffered:
                    stored.prev()
            value = self._values[buffered]
            if value is not None:
                self._key, self._value = buffered, value
                return
            at -= 1
        self._value = None
        self._key = stored.key() if stored.valid() else None


StateIterator: TypeAlias = RdictIter | MergedIterator

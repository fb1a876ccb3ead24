"""The write buffer: what was written to the state and is not in RocksDB yet.

Owns: the batch of one write, its place in the buffer, and readers' view of the buffer and the database together; what
late entries are.
Never: when the buffer is written to the database; `rocks` decides that.
RocksDB takes many keys in their order for a fraction of what it takes for the same keys group by group, and a key that
is written again in the meantime only once. A crash loses no more with the buffer than with RocksDB's memtable alone:
both are made again from the log.
A buffer that a reader has sorted never changes again, so a reader needs no copy of it: the next write goes to the
database together with all that is buffered, and begins another buffer.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final, TypeAlias, final

from mypy_extensions import mypyc_attr
from rocksdict import RdictIter, WriteBatch

BUFFER_ENTRIES_MAX: Final = 32_768
"""The buffer is written to the database from this many keys on: sorting and writing these must not take long."""
BUFFER_BYTES_MAX: Final = 8 * 1024 * 1024
"""The same for the bytes of its keys and values: a topic name may have 64 KiB, and each change has a key with it."""

NEW_VALUE: Final = b"\x01"


@final
class KeySpace:
    """What is buffered of the keys that have the same first byte.

    `new` has keys that are written for the first time and have `NEW_VALUE`: those are only found by ranges, and a
    list of them costs a fraction of what a dict does. What `entries` says of a key comes after `new`; None: deleted.
    """

    __slots__ = ("entries", "new")

    def __init__(self) -> None:
        self.entries: Final[dict[bytes, bytes | None]] = {}
        self.new: Final[list[bytes]] = []

    def __len__(self) -> int:
        return len(self.entries) + len(self.new)

    def add(self, later: "KeySpace") -> None:
        self.entries.update(later.entries)
        self.new.extend(later.new)

    def fill(self, batch: WriteBatch) -> None:
        """Add it to a batch of the database, in order: out of order each key takes longer there."""
        put = batch.put
        for key in sorted(self.new):
            put(key, NEW_VALUE)
        entries = self.entries
        for key in sorted(entries):
            value = entries[key]
            if value is None:
                batch.delete(key)
            else:
                put(key, value)


@final
class Batch:
    """What one write puts and deletes."""

    __slots__ = ("_before", "has_late", "size_bytes", "spaces")

    def __init__(self) -> None:
        self.spaces: dict[int, KeySpace] = {}
        self.has_late = False  # the same write has made late entries
        self.size_bytes = 0  # of keys and values
        self._before: Final[list[tuple[dict[int, KeySpace], bytes, bytes]]] = []  # up to each `delete_range`

    def space(self, first_byte: int) -> KeySpace:
        """For many keys of one space: who puts them there counts `size_bytes`."""
        found = self.spaces.get(first_byte)
        if found is None:
            found = self.spaces[first_byte] = KeySpace()
        return found

    def put(self, key: bytes, value: bytes) -> None:
        self.space(key[0]).entries[key] = value
        self.size_bytes += len(key) + len(value)

    def delete(self, key: bytes) -> None:
        self.space(key[0]).entries[key] = None
        self.size_bytes += len(key)

    def delete_range(self, low: bytes, high: bytes) -> None:
        """Delete the keys from `low` up to but without `high`. A batch with ranges is not buffered."""
        self._before.append((self.spaces, low, high))
        self.spaces = {}

    def has_ranges(self) -> bool:
        return len(self._before) > 0

    def fill(self, batch: WriteBatch) -> None:
        """Add all of it to a batch of the database."""
        for spaces, low, high in self._before:
            _fill(batch, spaces)
            batch.delete_range(low, high)
        _fill(batch, self.spaces)


def _fill(batch: WriteBatch, spaces: dict[int, KeySpace]) -> None:
    for first_byte in sorted(spaces):
        spaces[first_byte].fill(batch)


@mypyc_attr(allow_interpreted_subclasses=True)
class LateEntries(ABC):
    """Entries that are not in the buffer yet: they follow upon it, and are made when they are needed there.

    `count` and `size_bytes` are about those of the entries. Used with the lock of the database only.
    """

    __slots__ = ("count", "size_bytes")

    def __init__(self) -> None:
        self.count = 0
        self.size_bytes = 0

    @abstractmethod
    def has(self, key: bytes) -> bool:
        """Whether one of them has this key, unless it is new."""

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """The value of a key that one of them has; None: deleted."""

    @abstractmethod
    def has_space(self, first_byte: int) -> bool:
        """Whether any of them may have a key of this space."""

    @abstractmethod
    def fill(self, batch: Batch) -> None:
        """Make them, and have none any more."""

    @abstractmethod
    def forget(self) -> None:
        """Have none any more."""


@final
class SortedSpace:
    """The buffered keys of one space, in order. It never changes."""

    __slots__ = ("keys", "values")

    def __init__(self, space: KeySpace) -> None:
        self.values: dict[bytes, bytes | None] = space.entries
        if space.new:
            self.values = dict.fromkeys(space.new, NEW_VALUE)
            self.values.update(space.entries)
        self.keys: Final = sorted(self.values)


@final
class WriteBuffer:
    """Batches that follow each other, joined. The writer adds to it, and only while no reader has sorted it."""

    __slots__ = ("_bytes_max", "_entries_max", "_size_bytes", "_sorted", "_spaces", "is_incomplete", "is_refused")

    def __init__(self, entries_max: int, bytes_max: int) -> None:
        self._entries_max: Final = entries_max
        self._bytes_max: Final = bytes_max
        self._spaces: Final[dict[int, KeySpace]] = {}
        self._sorted: Final[dict[int, SortedSpace]] = {}
        self._size_bytes = 0
        self.is_refused = False  # by the database: then the next write must fail, too
        self.is_incomplete = False  # it has a part of a write that failed: it must never be written

    def is_closed(self) -> bool:
        """Whether nothing can be added, whatever its size."""
        return bool(self._sorted) or self.is_refused

    def is_read(self) -> bool:
        """Whether a reader has asked for a range of it, and no write of it has failed."""
        return bool(self._sorted) and not self.is_refused

    def takes(self, batch: Batch, late: LateEntries | None = None) -> bool:
        """Whether a batch can be added, and late entries, too; if not, it goes to the database, behind the buffer."""
        if self.is_closed() or batch.has_ranges():
            return False
        size_bytes = self._size_bytes + batch.size_bytes
        count = _length(self._spaces) + _length(batch.spaces)
        if late is not None:
            size_bytes += late.size_bytes
            count += late.count
        return size_bytes <= self._bytes_max and count <= self._entries_max

    def add(self, batch: Batch) -> None:
        self._size_bytes += batch.size_bytes
        for first_byte, added in batch.spaces.items():
            space = self._spaces.get(first_byte)
            if space is None:
                self._spaces[first_byte] = added
            else:
                space.add(added)

    def is_empty(self) -> bool:
        return not self._spaces

    def has_space(self, first_byte: int) -> bool:
        """Whether it has keys of a space; only then a reader of that space closes it."""
        return first_byte in self._spaces

    def entries(self, key: bytes) -> dict[bytes, bytes | None] | None:
        """Where a key is if it is buffered, unless it is new."""
        space = self._spaces.get(key[0])
        return None if space is None else space.entries

    def sorted(self, first_byte: int) -> SortedSpace | None:
        """The keys of a space for a reader, who may keep them; None if there are none."""
        found = self._sorted.get(first_byte)
        if found is None and first_byte in self._spaces:
            found = self._sorted[first_byte] = SortedSpace(self._spaces[first_byte])
        return found

    def fill(self, batch: WriteBatch) -> None:
        """Add all of it to a batch of the database."""
        _fill(batch, self._spaces)


def _length(spaces: dict[int, KeySpace]) -> int:
    length = 0
    for space in spaces.values():
        length += len(space)
    return length


def merged_items(
    stored: Iterator[tuple[bytes, bytes]], buffered: SortedSpace, low: bytes, high: bytes
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
    """Seeks about in the database and a space of the buffer, as `RdictIter` does in the database."""

    __slots__ = ("_at", "_is_behind", "_key", "_keys", "_stored", "_value", "_values")

    def __init__(self, stored: RdictIter, buffered: SortedSpace) -> None:
        self._stored: Final = stored
        self._keys: Final = buffered.keys
        self._values: Final = buffered.values
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
        self._at = bisect_left(self._keys, key)
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
        while self._at < len(keys):
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
        at = bisect_right(keys, key) - 1
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

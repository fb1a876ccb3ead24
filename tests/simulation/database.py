"""RocksDB as the state uses it, modelled by what it promises without a write-ahead log.

Owns: the stand-ins for `Rdict`, `WriteBatch` and `ReadOptions`, and what a crash leaves.
The promise, which `test_database.py` compares with the real one: a write is seen at once and as a whole; a flush that
was waited for survives everything; of flushes that were begun and not waited for, the last ones may be missing; nothing
else survives, and what does is the database after a whole number of writes. An iterator sees what there was when it was
made. After a failed flush nothing more is taken.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from random import Random
from typing import Final

Data = dict[bytes, bytes]


class WriteBatch:
    def __init__(self, raw_mode: bool = False) -> None:
        self.changes: Final[list[tuple[bytes, bytes | None, bytes | None]]] = []  # key, value, end of a range
        self.size_bytes = 0

    def put(self, key: bytes, value: bytes) -> None:
        self.changes.append((key, value, None))
        self.size_bytes += len(key) + len(value)

    def delete(self, key: bytes) -> None:
        self.changes.append((key, None, None))
        self.size_bytes += len(key)

    def delete_range(self, low: bytes, high: bytes) -> None:
        self.changes.append((low, None, high))


class ReadOptions:
    def __init__(self) -> None:
        self.high: bytes | None = None

    def set_iterate_upper_bound(self, high: bytes) -> None:
        self.high = high


class View:
    """What the database had at one moment. It never changes."""

    def __init__(self, data: Data) -> None:
        self.data: Final = data
        self._keys: list[bytes] | None = None

    @property
    def keys(self) -> list[bytes]:
        if self._keys is None:
            self._keys = sorted(self.data)
        return self._keys


class Files:
    """What the directory of the database holds, from one process to the next."""

    def __init__(self) -> None:
        self._durable: View = View({})
        self._begun: list[View] = []  # flushes that nobody has waited for, oldest first
        self.is_failing = False  # the disk takes nothing

    def open(self) -> "Database":
        return Database(self, self._durable)

    def begin(self, view: View) -> None:
        self._begun.append(view)

    def flushed(self, view: View) -> None:
        self._durable = view
        self._begun.clear()

    def crash(self, rng: Random) -> None:
        """Some of the flushes that were begun have been completed."""
        self._durable = rng.choice([self._durable, *self._begun])
        self._begun.clear()


class Database:
    """`rocksdict.Rdict`."""

    def __init__(self, files: Files, view: View) -> None:
        self._files: Final = files
        self._view = view
        self._unflushed_bytes = 0
        self._has_failed = False

    def get(self, key: bytes | list[bytes]) -> bytes | list[bytes | None] | None:
        data = self._view.data
        if isinstance(key, list):
            return [data.get(each) for each in key]
        return data.get(key)

    def items(self, from_key: bytes, read_opt: ReadOptions) -> Iterator[tuple[bytes, bytes]]:
        return _items(self._view, from_key, read_opt.high)

    def keys(self, from_key: bytes, read_opt: ReadOptions) -> Iterator[bytes]:
        return (key for key, _ in _items(self._view, from_key, read_opt.high))

    def iter(self, read_opt: ReadOptions) -> "Cursor":
        return Cursor(self._view, read_opt.high)

    def write(self, batch: WriteBatch, options: object = None) -> None:
        if self._has_failed:
            raise Exception("IO error: a flush has failed")
        data = dict(self._view.data)
        for key, value, end in batch.changes:
            if end is not None:
                for found in [found for found in data if key <= found < end]:
                    del data[found]
            elif value is None:
                data.pop(key, None)
            else:
                data[key] = value
        self._view = View(data)
        self._unflushed_bytes += batch.size_bytes

    def flush(self, wait: bool = True) -> None:
        self._unflushed_bytes = 0
        if self._files.is_failing:
            self._has_failed = True
            if wait:
                raise Exception("IO error: no space left on device")
        elif wait:
            self._files.flushed(self._view)
        else:
            self._files.begin(self._view)

    def property_int_value(self, name: str) -> int:
        return self._unflushed_bytes

    def close(self) -> None:
        if not self._has_failed:
            self.flush(True)


def _items(view: View, low: bytes, high: bytes | None) -> Iterator[tuple[bytes, bytes]]:
    keys, data = view.keys, view.data
    end = len(keys) if high is None else bisect_left(keys, high)
    for at in range(bisect_left(keys, low), end):
        yield keys[at], data[keys[at]]


class Cursor:
    """`rocksdict.RdictIter`."""

    def __init__(self, view: View, high: bytes | None) -> None:
        self._keys: Final = view.keys
        self._data: Final = view.data
        self._end: Final = len(view.keys) if high is None else bisect_left(view.keys, high)
        self._at = -1

    def valid(self) -> bool:
        return 0 <= self._at < self._end

    def key(self) -> bytes:
        return self._keys[self._at]

    def value(self) -> bytes:
        return self._data[self._keys[self._at]]

    def seek(self, key: bytes) -> None:
        self._at = bisect_left(self._keys, key)

    def seek_for_prev(self, key: bytes) -> None:
        self._at = bisect_right(self._keys, key, 0, self._end) - 1

    def next(self) -> None:
        self._at += 1

    def prev(self) -> None:
        self._at -= 1

"""RocksDB as the state uses it: one sorted map from bytes to bytes, written in batches.

Owns: how it is opened, what memory it may take, and that a write never waits while it holds the interpreter's lock.
Never: what a key means.
Its own write-ahead log is off: the journal's log is the truth, and what a crash takes from the memtable is applied
again from there. One column family, so a flush is a whole number of batches and a crash never cuts one in two.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from threading import Event, RLock
from typing import Final, final

from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    DBCompactionStyle,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    UniversalCompactOptions,
    WriteBatch,
    WriteOptions,
)

from embermq.store.errors import StoreError
from embermq.store.state.retained_sizes import Sizes
from embermq.store.state.write_buffer import (
    BUFFER_ENTRIES_MAX,
    Batch,
    MergedIterator,
    SortedEntries,
    StateIterator,
    WriteBuffer,
    merged_items,
)

BLOCK_CACHE_BYTES: Final = 16 * 1024 * 1024  # data, index and filter blocks together: for readers, writes seldom read
BLOCK_BYTES: Final = 4 * 1024
METADATA_BLOCK_BYTES: Final = 4 * 1024
BLOOM_BITS_PER_KEY: Final = 10
FLUSH_BYTES: Final = 8 * 1024 * 1024  # a memtable is flushed from here on: it bounds what a start applies again
MEMTABLE_BYTES_MAX: Final = 24 * 1024 * 1024  # where RocksDB itself would flush, without asking; above `FLUSH_BYTES`
MEMTABLES_MAX: Final = 3
MEMTABLE_FILTER_RATIO: Final = 0.05  # of a memtable: spares most reads the search in it
RUNS_MIN: Final = 10  # fewer sorted runs are not merged: that would cost writes more than it gives readers
SUPERSEDED_PERCENT_MAX: Final = 200  # with more than this beside the oldest run, everything is merged into one
BACKGROUND_JOBS_MAX: Final = 3  # a flush, a large merge, and the small ones that must not wait for it
OPEN_FILES_MAX: Final = 256
INFO_LOG_BYTES_MAX: Final = 1024 * 1024
PROBE_BYTES: Final = 64 * 1024
LIST_ITEMS_MAX: Final = 64
LIST_BYTES: Final = 64 * 1024
"""The bounds of one list of items: it ends with this many of them, or with the value that makes this many bytes."""
STALL_WAIT_S: Final = 0.002
STALL_WAITS_MAX: Final = 15_000

_MEMTABLE_PROPERTY: Final = "rocksdb.cur-size-active-mem-table"


def open_database(
    directory: Path, block_cache_bytes: int = BLOCK_CACHE_BYTES, memtables_max: int = MEMTABLES_MAX
) -> Rdict:
    """A database with these options, whatever the options it was made with."""
    options = _options(block_cache_bytes, memtables_max)
    # Named, or a database that exists would be opened with the options and the cache it was made with.
    return Rdict(str(directory), options, {"default": options})


def free_bytes(directory: Path) -> int:
    """How much the disk of a directory still takes, by its own account."""
    disk = os.statvfs(directory)
    return disk.f_bavail * disk.f_frsize


def _options(block_cache_bytes: int, memtables_max: int) -> Options:
    table = BlockBasedOptions()
    table.set_block_cache(Cache.new_hyper_clock_cache(block_cache_bytes, BLOCK_BYTES))
    table.set_block_size(BLOCK_BYTES)
    table.set_bloom_filter(BLOOM_BITS_PER_KEY, False)
    # Index and filters share the bounded cache, cut in small blocks: a whole filter would not fit and never stay.
    table.set_cache_index_and_filter_blocks(True)
    table.set_index_type(BlockBasedIndexType.two_level_index_search())
    table.set_partition_filters(True)
    table.set_metadata_block_size(METADATA_BLOCK_BYTES)
    table.set_pin_top_level_index_and_filter(True)
    table.set_format_version(5)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(table)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_write_buffer_size(MEMTABLE_BYTES_MAX)
    options.set_max_write_buffer_number(memtables_max)
    options.set_max_open_files(OPEN_FILES_MAX)
    options.set_memtable_prefix_bloom_ratio(MEMTABLE_FILTER_RATIO)
    options.set_memtable_whole_key_filtering(True)
    options.set_max_background_jobs(BACKGROUND_JOBS_MAX)
    # By levels, writes all over the topics would rewrite the whole retained set with every fourth flush. With six runs
    # and the oldest merged at once its size, two million such writes cost half as much again in merging as with these.
    runs = UniversalCompactOptions()
    runs.max_size_amplification_percent = SUPERSEDED_PERCENT_MAX
    runs.max_merge_width = RUNS_MIN - 1  # else the oldest is merged as soon as the others are as large together
    options.set_compaction_style(DBCompactionStyle.universal())
    options.set_universal_compaction_options(runs)
    options.set_level_zero_file_num_compaction_trigger(RUNS_MIN)
    options.set_max_log_file_size(INFO_LOG_BYTES_MAX)
    options.set_keep_log_file_num(2)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    options.set_skip_stats_update_on_db_open(True)
    return options


@final
class Rocks:
    """One open database. Readers on any thread, one writer."""

    def __init__(
        self,
        directory: Path,
        open_database: Callable[[Path], Rdict] = open_database,
        free_bytes: Callable[[Path], int] = free_bytes,
        stall_waits_max: int = STALL_WAITS_MAX,
        buffer_entries_max: int = BUFFER_ENTRIES_MAX,
        sizes: Sizes | None = None,
    ) -> None:
        """`buffer_entries_max` 0: each write goes to the database at once. `sizes` gets to know what is buffered."""
        self._directory: Final = directory
        self._open_database: Final = open_database
        self._free_bytes: Final = free_bytes
        self._stall_waits_max: Final = stall_waits_max
        self._write_options: Final = WriteOptions()
        self._write_options.disable_wal = True  # type: ignore[method-assign,assignment]  # the stub has a method, the class an attribute
        # A write that has to wait for a flush would stop every thread, since it keeps the interpreter's lock.
        self._write_options.no_slowdown = True
        self._never_set: Final = Event()
        self._bounds: Final[dict[bytes, ReadOptions]] = {}  # kept: see `items`
        self._buffer_entries_max: Final = buffer_entries_max
        self._sizes: Final = sizes if sizes is not None else Sizes()
        self._buffer = self._empty_buffer()
        self._is_refused = False  # the database has not taken a write: it takes none before it is opened again
        # Taken until a database that was opened again is caught up, and while the buffer changes or is written.
        self.lock: Final = RLock()
        self._db: Rdict | None = self._open()

    def _open(self) -> Rdict:
        try:
            return self._open_database(self._directory)
        except Exception as error:  # rocksdict raises nothing more special
            raise StoreError(
                f"the state in {self._directory} cannot be opened ({error}):"
                " `ember store rebuild` makes a new one from the log"
            ) from error

    def _empty_buffer(self) -> WriteBuffer:
        return WriteBuffer(self._sizes, self._buffer_entries_max)

    def reopen(self) -> None:
        """After a failed flush a database takes nothing any more: begin again from what the last good one left.

        What is buffered is dropped: it follows upon what was lost.
        """
        self._buffer = self._empty_buffer()
        self._is_refused = False
        if self._db is not None:
            with suppress(Exception):  # it tries to flush once more
                self._db.close()
            self._db = None
        self._db = self._open()

    def has_space(self) -> bool:
        """Whether the disk has space for another flush; without it, opening again would only stop the readers.

        OSError, as it comes, if the disk takes nothing at all.
        """
        probe = self._directory / "probe"
        try:
            with open(probe, "wb", opener=_privately) as file:
                file.write(bytes(PROBE_BYTES))
                file.flush()
                os.fsync(file.fileno())
        finally:
            with suppress(OSError):
                probe.unlink(missing_ok=True)
        return self._free_bytes(self._directory) >= FLUSH_BYTES

    def _use(self) -> Rdict:
        if self._db is None:
            raise StoreError(f"the state in {self._directory} is not open")
        return self._db

    # -- reading -------------------------------------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        with self.lock:
            if self._buffer.has(key):
                return self._buffer.get(key)
            value: bytes | None = self._use().get(key)
        return value

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        with self.lock:
            buffer = self._buffer
            missing = [key for key in keys if not buffer.has(key)]
            stored: list[bytes | None] = self._use().get(missing) if missing else []  # type: ignore[arg-type,assignment]  # list for list
            if len(missing) == len(keys):
                return stored
            found = dict(zip(missing, stored, strict=True))
            return [found[key] if key in found else buffer.get(key) for key in keys]

    def items(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys of one space from `low` up to but without `high`, as they are when the first is asked for."""
        for pairs in self.item_lists(low, high):
            yield from pairs

    def item_lists(self, low: bytes, high: bytes) -> Iterator[list[tuple[bytes, bytes]]]:
        """As `items`, several at a time, which takes less time: one at first, then more."""
        bounds = _bounded(high)
        # A generator, because the bound must live as long as the iterator: rocksdict keeps only a pointer to it.
        pairs: list[tuple[bytes, bytes]] = []
        count, size_bytes = 1, 0
        for pair in self._found(low, high, bounds):
            pairs.append(pair)
            size_bytes += len(pair[1])
            if len(pairs) >= count or size_bytes >= LIST_BYTES:
                yield pairs
                pairs = []
                count, size_bytes = min(2 * count, LIST_ITEMS_MAX), 0
        if pairs:
            yield pairs

    def items_from(self, low: bytes, high: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Up to `limit` keys of one space from `low` up to but without `high`, with their values."""
        bounds = _bounded(high)
        return list(islice(self._found(low, high, bounds), limit))

    def keys_from(self, low: bytes, high: bytes, limit: int) -> list[bytes]:
        """As `items_from`, without the values, which takes less time."""
        bounds = _bounded(high)
        with self.lock:
            if self._sealed(low[0]) is None:
                found: Iterator[bytes] = self._use().keys(from_key=low, read_opt=bounds)  # type: ignore[assignment]  # an iterator, which its stub does not say
                return list(islice(found, limit))
        return [key for key, _ in self.items_from(low, high, limit)]

    def _found(self, low: bytes, high: bytes, bounds: ReadOptions) -> Iterator[tuple[bytes, bytes]]:
        """What the database and the buffer have. The caller keeps `bounds`."""
        with self.lock:
            stored: Iterator[tuple[bytes, bytes]] = self._use().items(from_key=low, read_opt=bounds)  # type: ignore[assignment]  # bytes, in raw mode
            buffered = self._sealed(low[0])
        return stored if buffered is None else merged_items(stored, buffered, low, high)

    def iterator(self, high: bytes) -> StateIterator:
        """For seeking about in the key space that ends at `high`; unset until the first seek."""
        with self.lock:  # two threads that both made the bound would let one of the two go
            bounds = self._bounds.get(high)
            if bounds is None:
                bounds = self._bounds[high] = _bounded(high)
            stored = self._use().iter(bounds)
            buffered = self._sealed(high[0] - 1)
        return stored if buffered is None else MergedIterator(stored, buffered, high)

    def _sealed(self, first_byte: int) -> SortedEntries | None:
        """The buffer, if it has keys with this first byte; with the lock."""
        return self._buffer.seal() if self._buffer.has_space(first_byte) else None

    # -- writing -------------------------------------------------------------------------------------------------

    def write(self, batch: Batch, change_topics: Callable[[WriteBuffer, Batch], None] | None = None) -> None:
        """Write all of a batch and what `change_topics` does to the buffer and adds to the batch, or nothing.

        A batch with ranges goes to the database at once, behind all that is buffered.
        """
        self._check_not_refused()
        while not self._add(batch, change_topics):  # a reader has sealed the buffer, and seals none that is empty
            self._write_buffer(None)
        if batch.has_ranges():
            self._write_buffer(batch)
        elif self._buffer.is_full():
            self._write_buffer(None)

    def _add(self, batch: Batch, change_topics: Callable[[WriteBuffer, Batch], None] | None) -> bool:
        """Add a write to the buffer, except a batch with ranges; False if the buffer is sealed."""
        with self.lock:
            buffer = self._buffer
            if buffer.is_sealed():
                return False
            if change_topics is not None:
                change_topics(buffer, batch)
            if not batch.has_ranges():
                buffer.add(batch)
            return True

    def has_buffered(self) -> bool:
        """Whether something was written that is not in the database yet."""
        return not self._buffer.is_empty()

    def is_buffer_sealed(self) -> bool:
        """Whether a reader has asked for a range of what is buffered: until it is written, ranges take longer."""
        return self._buffer.is_sealed() and not self._is_refused

    def write_buffered(self) -> None:
        """Write to the database what is buffered, if anything is."""
        if self.has_buffered():
            self._write_buffer(None)

    def _write_buffer(self, behind: Batch | None) -> None:
        """Write to the database what is buffered, and a batch behind it: all or nothing.

        What was refused stays readable, and is never tried again: it may be a part of a write.
        """
        self._check_not_refused()
        self._is_refused = True  # unless this succeeds
        for _ in range(self._stall_waits_max):
            batch = WriteBatch(raw_mode=True)
            try:
                with self.lock:
                    self._buffer.fill(batch)
                    if behind is not None:
                        behind.fill(batch)
                    self._use().write(batch, self._write_options)
                    self._buffer = self._empty_buffer()
                self._is_refused = False
                return
            except StoreError:
                raise
            except Exception as error:  # rocksdict raises nothing more special
                if "stall" not in str(error).lower():
                    raise StoreError(f"the state cannot be written: {error}") from error
            self._never_set.wait(STALL_WAIT_S)
        raise StoreError("the state cannot be written: its disk does not keep up")

    def _check_not_refused(self) -> None:
        if self._is_refused:
            raise StoreError("the state cannot be written before it is opened again")

    def memtable_bytes(self) -> int:
        return self._use().property_int_value(_MEMTABLE_PROPERTY) or 0

    def flush(self, wait: bool) -> None:
        """Make durable everything that was written so far; without `wait`, soon."""
        self.write_buffered()
        try:
            self._use().flush(wait)
        except Exception as error:  # rocksdict raises nothing more special
            raise StoreError(f"the state cannot be flushed: {error}") from error

    def close(self) -> None:
        if self._db is not None:
            try:
                self._db.close()
            except Exception as error:  # rocksdict raises nothing more special, after it has closed
                raise StoreError(f"the state cannot be flushed: {error}") from error


def _bounded(high: bytes) -> ReadOptions:
    bounds = ReadOptions()
    bounds.set_iterate_upper_bound(high)
    return bounds


def _privately(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)

"""The log: every commit group as one block, appended to segment files.

Owns: the open segment, rolling to the next one, and what is durable.
Never: what a record means (`store.records`), when to commit (`engines.disk`), how much to keep (the caller of `trim`).
A block is written, synced and then entered in the index beside it, so an index entry means "durable" and readers in
other processes need no other signal. One thread appends; another may read records and trim at the same time.
"""

import fcntl
import mmap
import os
import sys
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final, final

from embermq.store.log.blocks import Block, block_of, read_header
from embermq.store.log.errors import BadBlock, LogCorrupt, LogInUse
from embermq.store.log.identity import log_identity
from embermq.store.log.lookup import Lookup, Records
from embermq.store.log.recovery import recover
from embermq.store.log.segments import (
    FIRST_OFFSET,
    TOPIC_INDEX_SUFFIX,
    Index,
    check_place,
    encode_segment_header,
    index_path,
    lock_file,
    log_path,
    packed_entry,
    sync_directory,
)
from embermq.store.rows import Group, LogRow
from embermq.store.segment import ENTRY_BYTES, SEGMENT_HEADER_BYTES, Segment

CHECK_BYTES: Final = 32 << 20
CACHE_BYTES: Final = 16 << 20
ZEROS_BYTES: Final = 256 << 10
"""How many zeros are written after a block that goes beyond the end of the file. The blocks that take their place do
not change the file's length: then a sync writes the block and nothing else."""
ZEROS_BLOCK_BYTES_MAX: Final = 32 << 10
"""After a larger block there are no zeros: writing everything twice would cost more than it saves."""

LOCK: Final = "lock"

_ZEROS: Final = bytes(ZEROS_BYTES)


@final
class Log(Records):
    """The one writer of a log directory. Opening it recovers what a crash left behind.

    `check_bytes`: how much of the newest log has its checksums compared on opening.
    """

    def __init__(
        self,
        directory: Path,
        *,
        segment_bytes: int,
        segment_age_s: int,
        sync: bool,
        check_bytes: int = CHECK_BYTES,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self._directory: Final = directory
        self._segment_bytes: Final = segment_bytes
        self._segment_age_us: Final = segment_age_s * 1_000_000
        self._sync: Final = sync
        self._descriptor = -1
        self._file_bytes = 0  # of the open segment: its blocks, and the zeros after them
        self._has_zeros = sync
        self._index_descriptor = -1
        self._segments_lock: Final = Lock()
        self._lookup: Final = Lookup(directory, cache_bytes)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock_descriptor = _lock(directory)
        self._locked: Final = os.fstat(self._lock_descriptor)
        self._opened = self._locked  # of the open segment, with its path: whether it is still there is asked often
        self._opened_path = ""
        try:
            self.identity: Final = log_identity(directory)
            # Readers on another thread take this tuple as it is; it is replaced, never changed.
            self._segments: tuple[Segment, ...] = tuple(recover(directory, check_bytes))
            self.next_offset = self._segments[-1].next_offset if self._segments else FIRST_OFFSET
            self.last_timestamp_us = max((segment.last_timestamp_us for segment in self._segments), default=0)
            if self._segments:
                self._open_last()
            else:
                self._create_segment()
        except BaseException:
            self.close()
            raise

    @property
    def directory(self) -> Path:
        return self._directory

    @property
    def newest_segment(self) -> int:
        """The first offset of the newest segment."""
        return self._segments[-1].first_offset

    @property
    def first_offset(self) -> int:
        """The oldest offset that is still there; equal to `next_offset` while the log is empty."""
        return self._segments[0].first_offset

    def append(self, group: Group, now_us: int) -> None:
        """Write a group as one block; once this returns it is durable (with `sync`) and seen by readers.

        OSError as it comes: then the group is not in the log, the open segment has been abandoned, and the same group
        may be appended again; it goes to a new segment. Timestamps that run backwards are raised to the one before.
        `DirectoryLost`: the open segment is not in the directory any more, and nothing may be appended again.
        """
        if group.first_offset != self.next_offset:
            raise ValueError(f"the group begins at offset {group.first_offset}, the log goes on at {self.next_offset}")
        self.raise_timestamps(group)
        block = block_of(group)
        columns, records = group.columns, len(group)
        try:
            segment = self._segment_for(len(block), now_us)
            entry = packed_entry(block, segment.file_bytes, group.first_offset, columns.first_timestamp_us, records)
            _write(self._descriptor, block, segment.file_bytes)
            if self._has_zeros:
                self._write_zeros(segment.file_bytes + len(block), len(block))
            if self._sync:
                _sync_data(self._descriptor)
            check_place(self._opened_path, self._opened)
            self._write_entry(entry, segment, segment.file_bytes + len(block))
        except OSError:
            self._has_zeros = False  # a disk may tell only at the sync that it has no room for them
            self.abandon_segment()
            raise
        self.last_timestamp_us = columns.last_timestamp_us
        self.next_offset = group.next_offset
        segment.add_block(len(block), self.next_offset, columns.first_timestamp_us, self.last_timestamp_us)

    def abandon_segment(self) -> None:
        """Never write to the open segment again: after a failed sync its pages cannot be trusted.

        What the failed write left behind is cut off if the disk lets us. If not, the next segment's first offset tells
        where this one ended. `append` does this by itself when it fails; doing it twice is harmless.
        """
        if self._descriptor < 0:
            return
        segment = self._segments[-1]
        with suppress(OSError):
            os.ftruncate(self._descriptor, segment.file_bytes)
        with suppress(OSError):
            os.ftruncate(self._index_descriptor, segment.blocks * ENTRY_BYTES)
        self._close_segment()

    def check_directory(self) -> None:
        """`DirectoryLost` if the directory is not at its path any more, or another server could lock it."""
        check_place(str(self._directory / LOCK), self._locked)

    def roll(self) -> None:
        """Close the open segment, so that it can be trimmed. The next group starts a new one."""
        if self._descriptor < 0 or not self._segments[-1].blocks:
            return
        # Once closed a segment is no longer recovered block by block, so both files must be whole.
        self._cut_zeros()
        os.fsync(self._descriptor)
        os.fsync(self._index_descriptor)
        self._close_segment()

    def close_segment(self) -> None:
        """Close the open segment if it has records, and begin an empty one: only what is closed can be archived, and a
        checkpoint is written where a segment begins.
        """
        if self._segments[-1].blocks:
            self.roll()
            self._create_segment()

    def close_old_segment(self, now_us: int) -> bool:
        """Close the open segment if its age asks for it, without a new group; whether it was closed."""
        segment = self._segments[-1]
        if not segment.blocks or now_us - segment.first_timestamp_us < self._segment_age_us:
            return False
        self.close_segment()
        return True

    def trim(self, before_offset: int) -> list[Path]:
        """Delete the segments that end before an offset, oldest first, never the newest one. Returns their paths."""
        deleted: list[Path] = []
        self.check_directory()  # never delete files of another server
        with self._segments_lock:
            while len(self._segments) > 1 and self._segments[0].next_offset <= before_offset:
                first_offset = self._segments[0].first_offset
                path = log_path(self._directory, first_offset)
                path.unlink(missing_ok=True)
                index_path(self._directory, first_offset).unlink(missing_ok=True)
                path.with_suffix(TOPIC_INDEX_SUFFIX).unlink(missing_ok=True)
                self._segments = self._segments[1:]
                deleted.append(path)
        return deleted

    def bytes_from(self, offset: int) -> int:
        """How many bytes the segments have from the one on that an offset is in."""
        return sum(segment.file_bytes for segment in self._segments if segment.next_offset > offset)

    def segments(self) -> list[Segment]:
        """What there is, oldest first; the last one may be open."""
        return [segment.copy() for segment in self._segments]

    def block(self, offset: int) -> Block | None:
        """The block with the record at an offset; None if it is not durable yet or was trimmed."""
        segment = self.segment_of(offset)
        return None if segment is None else self._lookup.block(offset, segment)

    def read(self, offset: int) -> LogRow | None:
        block = self.block(offset)
        return None if block is None else block.record(offset)

    def segment_of(self, offset: int) -> Segment | None:
        """The segment that holds an offset; None if it is not durable yet or was trimmed."""
        segments = self._segments
        if not segments[0].first_offset <= offset < self.next_offset:
            return None
        number = bisect_right(segments, offset, key=lambda segment: segment.first_offset) - 1
        # Those of a gap were lost with a machine.
        return segments[number] if offset < segments[number].next_offset else None

    def next_kept(self, offset: int) -> int:
        """The first offset from one on that is not in a gap, which a lost machine left; else the log's end."""
        for segment in self._segments:
            if offset < segment.next_offset:
                return max(offset, segment.first_offset)
        return self.next_offset

    def begins_us(self) -> int:
        """From which instant on every record is there; 0 if none was trimmed."""
        first = self._segments[0]
        if first.first_offset == FIRST_OFFSET:
            return 0
        return first.first_timestamp_us if first.blocks else self.last_timestamp_us + 1

    def segment_at(self, instant_us: int) -> Segment | None:
        """The last segment that begins before an instant; None if none does."""
        for segment in reversed(self._segments):
            if segment.blocks and segment.first_timestamp_us < instant_us:
                return segment
        return None

    def groups_from(self, offset: int) -> Iterator[Group]:
        """Every durable group from an offset on, each checked; the first one begins at exactly that offset."""
        for segment in self._segments:
            if segment.next_offset <= offset or not segment.blocks:
                continue
            path = log_path(self._directory, segment.first_offset)
            with (
                open(path, "rb") as file,
                mmap.mmap(file.fileno(), segment.file_bytes, access=mmap.ACCESS_READ) as data,
                memoryview(data) as view,
            ):
                position, expected = self._block_of(segment, view, offset)
                while position < segment.file_bytes:
                    header = read_header(view, position)
                    if header is None or header.first_offset != expected:
                        raise LogCorrupt(str(path), position, f"there is no block for offset {expected}")
                    end = position + header.total_bytes
                    expected += header.records
                    if expected > offset:
                        try:
                            yield Block(bytes(view[position:end])).group(offset)
                        except BadBlock as error:
                            raise LogCorrupt(str(path), position, str(error)) from None
                    position = end

    def _block_of(self, segment: Segment, view: memoryview, offset: int) -> tuple[int, int]:
        """Position and first offset of the block that holds an offset, or of the segment's first one."""
        index = Index.open(index_path(self._directory, segment.first_offset))
        number = index.block_of(offset)
        if 0 < number < segment.blocks:
            entry = index.entry(number)
            header = read_header(view, entry.position) if entry.position < len(view) else None
            if header is not None and header.first_offset == entry.first_offset <= offset:
                return entry.position, entry.first_offset
        return SEGMENT_HEADER_BYTES, segment.first_offset

    def close(self) -> None:
        """Make durable what is written, and unlock the directory."""
        try:
            if self._descriptor >= 0:
                self._cut_zeros()
                os.fsync(self._descriptor)
        finally:
            self._close_segment()
            if self._lock_descriptor >= 0:
                os.close(self._lock_descriptor)
                self._lock_descriptor = -1

    def raise_timestamps(self, group: Group) -> None:
        """Timestamps never run backwards within the log, whatever the clock does: a search by instant needs it."""
        columns = group.columns
        if not columns.are_in_order or columns.first_timestamp_us < self.last_timestamp_us:
            group.raise_timestamps(self.last_timestamp_us)

    def _write_zeros(self, end: int, block_bytes: int) -> None:
        """Write zeros after a block that has made the file longer."""
        if end <= self._file_bytes:
            return
        self._file_bytes = end
        if block_bytes <= ZEROS_BLOCK_BYTES_MAX and end + ZEROS_BYTES <= self._segment_bytes:
            with suppress(OSError):  # a disk that has no room for them may have for blocks
                self._file_bytes += os.pwrite(self._descriptor, _ZEROS, end)

    def _write_entry(self, entry: bytes, segment: Segment, end: int) -> None:
        """Enter the block that ends at `end` in the index. Zeros that have taken the disk's last room are cut off."""
        try:
            _write(self._index_descriptor, entry, segment.blocks * ENTRY_BYTES)
        except OSError:
            if self._file_bytes <= end:
                raise
            os.ftruncate(self._descriptor, end)
            self._file_bytes = end
            _write(self._index_descriptor, entry, segment.blocks * ENTRY_BYTES)

    def _cut_zeros(self) -> None:
        size_bytes = self._segments[-1].file_bytes
        if self._file_bytes > size_bytes:
            with suppress(OSError):  # left where they are, they mean nothing
                os.ftruncate(self._descriptor, size_bytes)
                self._file_bytes = size_bytes

    def _segment_for(self, block_bytes: int, now_us: int) -> Segment:
        """The segment that the next block goes to, a new one if the open one is full, old, or was given up."""
        if self._descriptor >= 0:
            segment = self._segments[-1]
            full = segment.file_bytes + block_bytes > self._segment_bytes
            old = now_us - segment.first_timestamp_us >= self._segment_age_us
            if not segment.blocks or not (full or old):
                return segment
            self.roll()
        self._create_segment()
        return self._segments[-1]

    def _create_segment(self) -> None:
        """A new, empty segment. It gets its name last, so that no reader ever sees one without a header."""
        self.check_directory()
        path = log_path(self._directory, self.next_offset)
        unnamed = path.with_suffix(".log.new")
        unnamed.unlink(missing_ok=True)
        index = index_path(self._directory, self.next_offset)
        self._descriptor = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        self._file_bytes = SEGMENT_HEADER_BYTES
        try:
            _write(self._descriptor, encode_segment_header(self.next_offset), 0)
            os.fsync(self._descriptor)
            index.unlink(missing_ok=True)
            self._index_descriptor = os.open(index, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            # A segment of this name exists if its first block failed: this one replaces it.
            os.rename(unnamed, path)
            sync_directory(self._directory)
            self._note_opened(path)
        except OSError:
            self._close_segment()
            with suppress(OSError):
                unnamed.unlink(missing_ok=True)
            raise
        with self._segments_lock:
            kept = [segment for segment in self._segments if segment.first_offset != self.next_offset]
            self._segments = (*kept, Segment(log_path(self._directory, self.next_offset), self.next_offset))

    def _open_last(self) -> None:
        first_offset = self._segments[-1].first_offset
        self._file_bytes = self._segments[-1].file_bytes  # recovery has cut off the rest
        path = log_path(self._directory, first_offset)
        self._descriptor = os.open(path, os.O_RDWR)
        self._note_opened(path)
        self._index_descriptor = os.open(index_path(self._directory, first_offset), os.O_RDWR | os.O_CREAT, 0o600)

    def _note_opened(self, path: Path) -> None:
        self._opened = os.fstat(self._descriptor)
        self._opened_path = str(path)

    def _close_segment(self) -> None:
        for descriptor in (self._descriptor, self._index_descriptor):
            if descriptor >= 0:
                with suppress(OSError):  # a failed close has still closed, and the sync before it has told the truth
                    os.close(descriptor)
        self._descriptor = self._index_descriptor = -1


def _write(descriptor: int, data: bytes | bytearray, position: int) -> None:
    written = os.pwrite(descriptor, data, position)
    if written < len(data):  # a disk that is nearly full takes a part; asking again gives its error
        view = memoryview(data)
        while written < len(data):
            written += os.pwrite(descriptor, view[written:], position + written)


def _sync_data(descriptor: int) -> None:
    if sys.platform == "darwin":  # its fsync stops at the drive's cache
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(descriptor)


def _lock(directory: Path) -> int:
    try:
        return lock_file(directory / LOCK)
    except BlockingIOError:
        raise LogInUse(str(directory)) from None

"""The log's reader: a library of its own, for Spark, the command line, and anyone with the directory.

Owns: finding records by offset and by instant, and handing them out while the server writes: as blocks, or as Arrow
batches, for which alone pyarrow and numpy are imported.
Never: writing, or seeing what is not durable. An index entry is written after the sync, so the index is the signal.
"""

import os
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from embermq.store.log.blocks import HEADER_BYTES, Block
from embermq.store.log.entries import Entries, blocks_in, first_mismatch, runs
from embermq.store.log.errors import BadBlock, LogCorrupt, LogTrimmed, NotALog
from embermq.store.log.identity import LostRange, end_before, goes_on_at, lost_ranges
from embermq.store.log.segments import (
    SEGMENT_HEADER_BYTES,
    Index,
    check_segment_header,
    first_offsets,
    index_path,
    log_path,
    read_entries,
    rebuilt_index,
)
from embermq.store.segment import Segment

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = ("offset", "timestamp", "kind", "flags", "topic", "payload", "client_id", "properties")
"""The log as a table; `arrow.SCHEMA` has their types."""
BATCH_RECORDS: Final = 10_000
BATCH_BYTES: Final = 8 << 20
"""Spark reads batches of about this size fastest: small ones cost a crossing to the JVM each."""

_ENTRIES_AT_ONCE: Final = 65_536
_NEVER_US: Final = 1 << 62


@final
class BlockRange:
    """Neighbouring blocks of one segment: their index entries, and the open file that has them."""

    def __init__(self, path: Path, descriptor: int, entries: Entries) -> None:
        self.path: Final = path
        self.descriptor: Final = descriptor
        self.entries: Final = entries
        self.position: Final = entries.position(0)
        self.end: Final = entries.end()


@final
class ReadBlocks:
    """Some blocks as they were read, of whose records those from `start` up to, not including, `end` are wanted."""

    __slots__ = ("data", "end", "entries", "path", "start")

    def __init__(self, path: Path, entries: Entries, data: bytes, start: int, end: int) -> None:
        self.path: Final = path
        self.entries: Final = entries
        self.data: Final = data
        self.start: Final = start
        self.end: Final = end

    def blocks(self) -> Iterator[Block]:
        """The blocks, decoded. LogCorrupt if one is damaged."""
        try:
            yield from blocks_in(self.data, self.entries)
        except BadBlock as error:
            raise LogCorrupt(str(self.path), self.entries.position(0), str(error)) from None


@final
class LogReader:
    """A log directory, read while another process writes it. Holds no file open between calls.

    `verify` compares the checksum of each block that is read.
    """

    def __init__(self, directory: str | os.PathLike[str], *, verify: bool = True) -> None:
        self._directory: Final = Path(directory)
        self._verify: Final = verify
        self._rebuilt: Final[dict[int, Index]] = {}  # of segments whose index file is damaged
        self._check_header(self._segments()[-1])  # the only one that is never trimmed

    def bounds(self) -> tuple[int, int]:
        """The first durable offset, and the one after the last."""
        segments = self._segments()
        return segments[0], self._index(segments, len(segments) - 1).next_offset(segments[-1])

    def segments(self) -> list[Segment]:
        """The segment files, oldest first; those that are trimmed during the call are left out."""
        return list(self.segments_from(0))

    def segments_from(self, offset: int) -> Iterator[Segment]:
        """As `segments`, from the one on that an offset lies in, each looked at when it is asked for."""
        segments = self._segments()
        for number in range(max(0, bisect_right(segments, offset) - 1), len(segments)):
            try:
                info = self._info(segments[number], self._index(segments, number))
            except FileNotFoundError:
                continue
            yield info

    def lost(self) -> tuple[LostRange, ...]:
        """The offsets that no record has, because they were lost with a machine."""
        return lost_ranges(self._directory)

    def offset_at(self, timestamp_us: int) -> int:
        """The offset of the first record that is not older than an instant; the log's end if there is none."""
        while True:
            segments = self._segments()
            try:
                return self._offset_at(segments, timestamp_us)
            except FileNotFoundError:
                if self._segments()[0] == segments[0]:  # not trimmed since it was listed
                    raise

    def block_offsets_at(self, timestamps_us: Sequence[int]) -> list[int]:
        """For each instant the first offset of the first block that begins then or later; the log's end if none does.

        Offsets have no gaps but after a restore, so two of them tell how many records lie between, and only the index
        is read.
        """
        while True:
            segments = self._segments()
            try:
                indexes = [self._index(segments, number) for number in range(len(segments))]
            except FileNotFoundError:
                if self._segments()[0] == segments[0]:  # not trimmed since it was listed
                    raise
                continue
            firsts_us = [index.entry(0).first_timestamp_us if index.count else _NEVER_US for index in indexes]
            return [_block_offset(segments, indexes, firsts_us, instant_us) for instant_us in timestamps_us]

    def batches(
        self,
        start: int,
        end: int | None = None,
        *,
        rows: int = BATCH_RECORDS,
        bytes: int = BATCH_BYTES,
        columns: Sequence[str] = COLUMNS,
    ) -> "Iterator[pa.RecordBatch]":
        """The durable records from `start` up to, not including, `end` (the end of now without one), in order.

        Each batch has at most `rows` records, and about `bytes` bytes unless one record alone has more. LogTrimmed if
        `start` is no longer there, also when it is trimmed while this reads; ValueError if `end` is not durable yet.
        """
        unknown = set(columns) - set(COLUMNS)
        if unknown:
            raise ValueError(f"the log has no column {', '.join(sorted(unknown))}; it has {', '.join(COLUMNS)}")
        from embermq.store.log.arrow import cut, gather

        for run in self.runs(start, end, rows=rows, bytes=bytes):
            batch = gather(run.data, run.entries, columns)
            skipped = run.start - run.entries.first_offset(0)
            yield from cut(batch.slice(skipped, run.end - run.start), rows, bytes)

    def runs(
        self, start: int, end: int | None = None, *, rows: int = BATCH_RECORDS, bytes: int = BATCH_BYTES
    ) -> Iterator[ReadBlocks]:
        """As `batches`, the records as the blocks that have them: as many as have so many records and bytes."""
        durable = self.bounds()[1]
        if end is None:
            end = max(start, durable)
        if end > durable and end > start:
            raise ValueError(f"offset {end - 1} is not in the log yet, which ends before offset {durable}")
        lost = self.lost()
        while start < end and (start := goes_on_at(lost, start)) < end:
            segments = self._segments()
            if start < segments[0]:
                raise LogTrimmed(start, segments[0])
            number = bisect_right(segments, start) - 1
            following = segments[number + 1] if number + 1 < len(segments) else end
            stop = min(end, end_before(lost, following))
            try:
                for run in self._segment_runs(segments, number, start, stop, rows, bytes):
                    yield run
                    start = run.end
            except FileNotFoundError:
                if self._segments()[0] <= start:
                    raise

    def follow(
        self,
        start: int,
        poll_s: float = 0.05,
        *,
        rows: int = BATCH_RECORDS,
        bytes: int = BATCH_BYTES,
        columns: Sequence[str] = COLUMNS,
        wait: Callable[[float], object] = time.sleep,
    ) -> "Iterator[pa.RecordBatch]":
        """As `batches`, and then whatever becomes durable, for as long as the caller goes on asking."""
        while True:
            end = self.bounds()[1]
            if end > start:
                yield from self.batches(start, end, rows=rows, bytes=bytes, columns=columns)
                start = end
            else:
                wait(poll_s)

    def entries(self, first_offset: int, blocks: int) -> Entries:
        """The index entries of the first blocks of the segment that begins at an offset.

        LogCorrupt if the segment's index and its blocks do not agree; `batches` finds them by other means.
        """
        segments = self._segments()
        if first_offset not in segments:
            raise FileNotFoundError(str(log_path(self._directory, first_offset)))
        entries = self._index(segments, segments.index(first_offset)).entries(0, blocks)
        if entries.consistent(SEGMENT_HEADER_BYTES, first_offset) < blocks:
            entries = self._rebuild(segments, segments.index(first_offset), entries.first_offset(-1)).entries(0, blocks)
        return entries

    def block_range(self, start: int, end: int, size: int, blocks: int) -> "BlockRange":
        """The blocks of one segment that hold the records from `start` on, before `end`: as many as fit, at least one.

        They have at most `size` bytes together, and are at most `blocks`. The caller closes the file. LogTrimmed if
        `start` is no longer there, ValueError if it is not durable yet.
        """
        while True:
            start = goes_on_at(self.lost(), start)
            segments = self._segments()
            if start < segments[0]:
                raise LogTrimmed(start, segments[0])
            number = bisect_right(segments, start) - 1
            try:
                return self._block_range(segments, number, start, end, size, blocks)
            except FileNotFoundError:
                if self._segments()[0] <= start:  # not trimmed since it was listed
                    raise

    def _block_range(
        self, segments: list[int], number: int, start: int, end: int, size: int, blocks: int
    ) -> "BlockRange":
        path = log_path(self._directory, segments[number])
        index = self._index(segments, number)
        next_offset = index.next_offset(segments[number])
        if start >= next_offset:
            raise ValueError(f"offset {start} is not in the log yet, which ends before offset {next_offset}")
        block = max(0, index.block_of(start))
        entries = index.entries(block, min(index.count, block + blocks))
        if not _lead_to(entries, start):
            index = self._rebuild(segments, number, next_offset)
            block = max(0, index.block_of(start))
            entries = index.entries(block, min(index.count, block + blocks))
        following = segments[number + 1] if number + 1 < len(segments) else end
        run = next(runs(entries.part(0, entries.blocks_before_offset(min(end, following))), 1 << 62, size))
        descriptor = os.open(path, os.O_RDONLY)
        found = BlockRange(path, descriptor, run)
        if found.end > os.fstat(descriptor).st_size:
            os.close(descriptor)
            raise LogCorrupt(str(path), found.position, "the file ends before its last durable block")
        return found

    def _offset_at(self, segments: list[int], timestamp_us: int) -> int:
        low, high = 0, len(segments)
        while low < high:  # the first segment that begins at the instant or later
            middle = (low + high) // 2
            index = self._index(segments, middle)
            if index.count and index.entry(0).first_timestamp_us < timestamp_us:
                low = middle + 1
            else:
                high = middle
        if not low:
            return segments[0]
        index = self._index(segments, low - 1)
        entry = index.entry(index.blocks_before(timestamp_us) - 1)
        path = log_path(self._directory, segments[low - 1])
        data = self._read(path, entry.position + HEADER_BYTES, 8 * entry.records)
        return entry.first_offset + bisect_left(memoryview(data).cast("q"), timestamp_us)

    def _segments(self) -> list[int]:
        try:
            segments = first_offsets(self._directory)
        except (FileNotFoundError, NotADirectoryError):
            raise NotALog(str(self._directory), "there is no such directory") from None
        if not segments:
            raise NotALog(str(self._directory), "there is no segment file in it")
        return segments

    def _info(self, first_offset: int, index: Index) -> Segment:
        path = log_path(self._directory, first_offset)
        if not index.count:
            return Segment(path, first_offset)
        first, last = index.entry(0), index.entry(index.count - 1)
        timestamp = self._read(path, last.position + HEADER_BYTES + 8 * (last.records - 1), 8)
        return Segment(
            path,
            first_offset,
            last.first_offset + last.records,
            index.count,
            last.position + last.total_bytes,
            first.first_timestamp_us,
            int.from_bytes(timestamp, "little", signed=True),
        )

    def _check_header(self, first_offset: int) -> None:
        path = log_path(self._directory, first_offset)
        check_segment_header(path, self._read(path, 0, SEGMENT_HEADER_BYTES), first_offset)

    def _index(self, segments: list[int], number: int) -> Index:
        """The index of a segment. That of a closed one must reach to the next; if not, a new one is made in memory."""
        first_offset = segments[number]
        if first_offset in self._rebuilt:
            return self._rebuilt[first_offset]
        path = index_path(self._directory, first_offset)
        index = Index.open(path)
        if number + 1 < len(segments):
            if index.next_offset(first_offset) != segments[number + 1]:
                end = end_before(self.lost(), segments[number + 1])
                return index if index.next_offset(first_offset) == end else self._rebuild(segments, number, end)
        elif index.count and not index.entry(index.count - 1).records:
            # A power cut may leave zeros at the end of an index; the server will put it right.
            return Index(read_entries(path, first_offset).data)
        return index

    def _rebuild(self, segments: list[int], number: int, end: int) -> Index:
        first_offset = segments[number]
        index = rebuilt_index(log_path(self._directory, first_offset), first_offset, end)
        if number + 1 < len(segments):  # the last one grows
            self._rebuilt[first_offset] = index
        return index

    def _segment_runs(
        self, segments: list[int], number: int, start: int, stop: int, rows: int, size: int
    ) -> Iterator[ReadBlocks]:
        first_offset = segments[number]
        path = log_path(self._directory, first_offset)
        self._check_header(first_offset)
        index = self._index(segments, number)
        rebuilt = first_offset in self._rebuilt
        while start < stop:
            try:
                for run in self._indexed_runs(path, index, start, stop, rows, size):
                    start = run.end
                    yield run
            except LogCorrupt:
                if rebuilt:
                    raise
                # It may be the index that is wrong, not the block. If it is the block, this names its place.
                index = self._rebuild(segments, number, index.next_offset(first_offset))
                rebuilt = True

    def _indexed_runs(
        self, path: Path, index: Index, start: int, stop: int, rows: int, size: int
    ) -> Iterator[ReadBlocks]:
        block = max(0, index.block_of(start))
        # A file object, which closes itself: in a compiled generator that is given up, nothing else does.
        with open(path, "rb", buffering=0) as file:
            while start < stop:
                entries = index.entries(block, min(index.count, block + _ENTRIES_AT_ONCE))
                entries = entries.part(0, entries.blocks_before_offset(stop))
                if not _lead_to(entries, start):
                    raise LogCorrupt(str(path), 0, f"its index does not lead to offset {start}")
                for run in runs(entries, rows, size):
                    data = _pread(file.fileno(), path, run)
                    bad = first_mismatch(data, run, self._verify)
                    if bad is not None:
                        raise LogCorrupt(str(path), bad, "the block does not match its checksum or its index entry")
                    end = min(stop, run.next_offset())
                    yield ReadBlocks(path, run, data, start, end)
                    start = end
                    block += len(run)

    def _read(self, path: Path, position: int, length: int) -> bytes:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            return os.pread(descriptor, length, position)
        finally:
            os.close(descriptor)


def _block_offset(segments: list[int], indexes: list[Index], firsts_us: list[int], instant_us: int) -> int:
    number = bisect_left(firsts_us, instant_us) - 1  # of the last segment that begins before the instant
    if number < 0:
        return segments[0]
    index = indexes[number]
    block = index.blocks_before(instant_us)
    return index.entry(block).first_offset if block < index.count else index.next_offset(segments[number])


def _lead_to(entries: Entries, offset: int) -> bool:
    """Whether entries continue one another and the first one's block holds an offset."""
    if not len(entries):
        return False
    first_offset = entries.first_offset(0)
    sound = entries.consistent(entries.position(0), first_offset) == len(entries)
    return sound and first_offset <= offset < entries.next_offset(0)


def _pread(descriptor: int, path: Path, run: Entries) -> bytes:
    position, end = run.position(0), run.end()
    if not 0 <= position < end <= os.fstat(descriptor).st_size:
        raise LogCorrupt(str(path), position, "the file ends before its last durable block")
    return os.pread(descriptor, end - position, position)

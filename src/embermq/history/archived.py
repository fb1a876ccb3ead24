"""The log in an archive: its closed segments, read by range."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, final

import pyarrow as pa

from embermq.archive.archive import Archive, open_archive
from embermq.archive.errors import ArchiveDamaged, NotArchived
from embermq.archive.manifest import ArchivedSegment
from embermq.history.gathering import gathered
from embermq.history.source import LogEnd, ReadableLog, SegmentStart
from embermq.store.log.blocks import HEADER_BYTES
from embermq.store.log.checkpoint import Checkpoint
from embermq.store.log.entries import Entries, runs
from embermq.store.log.errors import LogCorrupt, LogTrimmed
from embermq.store.log.identity import LostRange
from embermq.store.log.segments import ENTRY_BYTES, SEGMENT_HEADER_BYTES

READ_BYTES: Final = 8 << 20


@cache
def opened_archive(address: str) -> Archive:
    """The archive at an address; one for each process, since it keeps the manifests that it has read."""
    return open_archive(address)


@final
class ArchivedLog(ReadableLog):
    """What an archive has of a log."""

    __slots__ = ("_archive",)

    def __init__(self, archive: Archive) -> None:
        self._archive: Final = archive

    @property
    def name(self) -> str:
        return f"the archive {self._archive.shown}"

    def log_id(self) -> str:
        """Which log it is."""
        return self._archive.log_id

    def bounds(self) -> tuple[int, int]:
        return self._archive.bounds()

    def end(self) -> LogEnd:
        """The server has later records: nothing is known behind the last one that is archived."""
        segments = self._archive.segments()
        return LogEnd(self.bounds()[1], segments[-1].last_timestamp_us - 1 if segments else 0)

    def lost(self) -> tuple[LostRange, ...]:
        return tuple((one.lost_from, one.first_offset) for one in self._archive.generations())

    def ranges(self, start: int, end: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for segment in self._archive.segments():
            first, following = max(start, segment.first_offset), min(end, segment.next_offset)
            if first >= following:
                continue
            if found and found[-1][1] == first:
                found[-1] = (found[-1][0], following)
            else:
                found.append((first, following))
        return found

    def offset_at(self, timestamp_us: int) -> int:
        segments = self._archive.segments()
        number = bisect_right(segments, timestamp_us - 1, key=lambda segment: segment.last_timestamp_us)
        if number == len(segments):
            return self.bounds()[1]
        segment = segments[number]
        if segment.first_timestamp_us >= timestamp_us:
            return segment.first_offset
        entries = self._entries(segment)
        block = entries.blocks_before(timestamp_us) - 1
        position, records = entries.position(block), entries.records(block)
        data = self._archive.read(segment, position + HEADER_BYTES, position + HEADER_BYTES + 8 * records)
        return entries.first_offset(block) + bisect_left(memoryview(data).cast("q"), timestamp_us)

    def segment_of(self, offset: int) -> SegmentStart | None:
        segments = self._archive.segments()
        number = bisect_right(segments, offset, key=lambda segment: segment.first_offset) - 1
        if number < 0:
            return None
        return SegmentStart(segments[number].first_offset, segments[number].first_timestamp_us)

    def batches(self, start: int, end: int, rows: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if end <= start:
            return
        segments = self._archive.segments()
        first, durable = (segments[0].first_offset, segments[-1].next_offset) if segments else (1, 1)
        if end > durable:
            raise ValueError(f"offset {end - 1} is not in {self.name} yet, which ends before offset {durable}")
        if start < first:
            raise LogTrimmed(start, first)
        ends = {segment.next_offset for segment in segments}
        for segment in segments:
            if segment.next_offset <= start or segment.first_offset >= end:
                continue
            if start < segment.first_offset and start not in ends:
                raise LogTrimmed(start, segment.first_offset)  # these offsets were lost with a machine
            try:
                yield from self._segment_batches(segment, start, min(end, segment.next_offset), rows, columns)
            except NotArchived:
                if self.bounds()[0] > segment.first_offset:  # its retention is over
                    raise LogTrimmed(segment.first_offset, self.bounds()[0]) from None
                raise
            start = segment.next_offset

    def _segment_batches(
        self, segment: ArchivedSegment, start: int, end: int, rows: int, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        entries = self._entries(segment)
        wanted = entries.part(max(0, entries.block_of(start)), entries.blocks_before_offset(end))
        pieces = list(runs(wanted, 1 << 62, READ_BYTES))
        source = f"{self.name}, {segment.name}.log"
        # The next piece is on its way while this one becomes rows.
        with ThreadPoolExecutor(1, "ember-archive") as ahead:
            answer = ahead.submit(self._read, segment, pieces[0])
            for number, piece in enumerate(pieces):
                data = answer.result()
                if number + 1 < len(pieces):
                    answer = ahead.submit(self._read, segment, pieces[number + 1])
                yield from gathered(source, memoryview(data), piece, start, end, rows, columns)

    def _read(self, segment: ArchivedSegment, piece: Entries) -> bytes:
        return self._archive.read(segment, piece.position(0), piece.end())

    def _entries(self, segment: ArchivedSegment) -> Entries:
        data = self._archive.read_index(segment)
        entries = Entries(data)
        if entries.consistent(SEGMENT_HEADER_BYTES, segment.first_offset) * ENTRY_BYTES < len(data) or not data:
            raise LogCorrupt(f"{self.name}, {segment.name}.idx", 0, "the index is not consistent in itself")
        return entries

    @contextmanager
    def undamaged_checkpoint(self, first_offset: int, next_offset: int) -> Iterator[Checkpoint | None]:
        with TemporaryDirectory(prefix="embermq-") as directory:
            yield self._fetch_undamaged(Path(directory), first_offset, next_offset)

    def _fetch_undamaged(self, directory: Path, first_offset: int, next_offset: int) -> Checkpoint | None:
        for archived in self._archive.checkpoints():
            if not first_offset <= archived.offset <= next_offset:
                continue
            try:
                self._archive.fetch_checkpoint(archived, directory)
                checkpoint = Checkpoint(directory, archived.offset)
                checkpoint.check()
            except (LogCorrupt, NotArchived, ArchiveDamaged):
                continue
            return checkpoint
        return None

    def register_reader(self, name: str, next_offset: int) -> None:
        """An archive has its own retention, which waits for nobody."""

"""Some blocks of a log, chosen by time and topic, as Arrow batches.

Owns: choosing blocks without reading them, and reading those that lie apart.
Never: which times and topics are wanted; a `BlockChooser` knows.
A closed segment has a topic index (`topic_index`); of the open one, blocks are chosen by time only.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, final

import numpy as np
import pyarrow as pa
from mypy_extensions import mypyc_attr
from numpy.typing import NDArray

from embermq.store.log.arrow import SCHEMA, gather
from embermq.store.log.by_topic.topic_index import (
    TopicIndex,
    build_topic_index,
    read_topic_index,
    topic_index_path,
    write_topic_index,
)
from embermq.store.log.errors import LogCorrupt
from embermq.store.log.reader import LogReader, runs
from embermq.store.log.segments import Entries, SegmentInfo, first_mismatch

BATCH_RECORDS: Final = 50_000
BATCH_BYTES: Final = 16 << 20
TIME_PARTS: Final = 32
"""A segment of which a part is wanted is divided into so many parts, twice."""

_OFFSET: Final = SCHEMA.field("offset")


@mypyc_attr(allow_interpreted_subclasses=True)
class BlockChooser(ABC):
    """What of the log is wanted, as far as it is known without reading a record."""

    @abstractmethod
    def times(self, spans: Sequence[tuple[int, int]]) -> list[bool]:
        """For each span of time, its first and last microsecond: whether a wanted record may lie in it."""

    @abstractmethod
    def topics(self, names: pa.Array) -> NDArray[np.bool_] | None:
        """Which topics may have wanted records; None if all may."""


@final
class ReadCount:
    """How many bytes of a log were read, and how many it has."""

    __slots__ = ("read_bytes", "log_bytes")

    def __init__(self) -> None:
        self.read_bytes = 0
        self.log_bytes = 0


@final
class ChosenBlocks:
    """The blocks of a log that a chooser wants. The end of the log is that of the moment of `batches`."""

    __slots__ = ("_are_closed", "_chooser", "_directory", "_log", "_verify", "count")

    def __init__(self, directory: Path, chooser: BlockChooser, verify: bool = True, are_closed: bool = False) -> None:
        """`are_closed`: the newest segment is closed too, as those of an archive are."""
        self._are_closed: Final = are_closed
        self._directory: Final = directory
        self._chooser: Final = chooser
        self._verify: Final = verify
        self._log: Final = LogReader(directory, verify=verify)
        self.count: Final = ReadCount()

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The records of the chosen blocks, in order; also records of theirs that are not wanted."""
        for info, is_closed in self._segments():
            try:
                yield from self._of_segment(info, is_closed, columns, BATCH_RECORDS, BATCH_BYTES)
            except FileNotFoundError:
                if info.path.exists():
                    raise  # otherwise it was trimmed meanwhile, as if the query had begun later

    def newest_batches(
        self, columns: Sequence[str], before_offset: int, rows: int, size: int
    ) -> Iterator[pa.RecordBatch]:
        """As `batches`, from the batch before an offset back to the oldest; each batch is in order, and has about
        `rows` records and `size` bytes at most, and perhaps records from that offset on."""
        for info, is_closed in reversed(self._segments()):
            if info.first_offset >= before_offset:
                continue
            try:
                yield from self._of_segment(info, is_closed, columns, rows, size, before_offset)
            except FileNotFoundError:
                if info.path.exists():
                    raise
                return  # it was trimmed, and those before it too

    def _segments(self) -> list[tuple[SegmentInfo, bool]]:
        """The segments that the chooser wants, and whether each is closed."""
        segments = [info for info in self._log.segments() if info.blocks]
        self.count.log_bytes = sum(info.size_bytes for info in segments)
        spans = [(info.first_timestamp_us, info.last_timestamp_us) for info in segments]
        wanted = self._chooser.times(spans) if spans else []
        return [
            (info, self._are_closed or info is not segments[-1])
            for info, is_wanted in zip(segments, wanted, strict=True)
            if is_wanted
        ]

    def _of_segment(
        self,
        info: SegmentInfo,
        is_closed: bool,
        columns: Sequence[str],
        rows: int,
        size: int,
        before_offset: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The chosen blocks of a segment; those before an offset come from the newest on."""
        if is_closed and self._has_no_wanted_topic(info):
            return
        entries = self._log.entries(info.first_offset, info.blocks)
        self.count.read_bytes += entries.nbytes
        chosen = self._by_time(entries, info.last_timestamp_us)
        if is_closed:
            by_topic = self._by_topic(info, entries)
            if by_topic is not None:
                chosen &= by_topic
        if before_offset is not None:
            chosen &= entries["first_offset"] < before_offset
        if not chosen.any():
            return
        descriptor = os.open(info.path, os.O_RDONLY)
        try:
            found = runs(entries[chosen], rows, size)
            for run in found if before_offset is None else reversed(list(found)):
                yield self._gathered(descriptor, info.path, run, columns)
        finally:
            os.close(descriptor)

    def _has_no_wanted_topic(self, info: SegmentInfo) -> bool:
        """Whether the topic index of a segment says so: then its other index is not even read."""
        if self._chooser.topics(pa.array([], pa.string())) is None:
            return False
        path = topic_index_path(self._directory, info.first_offset)
        index = read_topic_index(path, info.next_offset)
        wanted = None if index is None or not index.is_complete else self._chooser.topics(index.topics)
        if wanted is None or wanted.any():
            return False
        self.count.read_bytes += path.stat().st_size
        return True

    def _by_time(self, entries: Entries, last_us: int) -> NDArray[np.bool_]:
        """Blocks by their times: parts of a segment, then parts of the parts that are wanted."""
        firsts = entries["first_timestamp_us"]
        chosen = np.zeros(len(entries), np.bool_)
        parts = [(0, len(entries))]
        for _ in range(2):
            divided = [piece for part in parts for piece in _divided(*part)]
            spans = [
                (int(firsts[start]), int(firsts[end]) if end < len(entries) else last_us) for start, end in divided
            ]
            parts = [part for part, wanted in zip(divided, self._chooser.times(spans), strict=True) if wanted]
            if len(parts) in (0, len(divided)):
                break
        for start, end in parts:
            chosen[start:end] = True
        return chosen

    def _by_topic(self, info: SegmentInfo, entries: Entries) -> NDArray[np.bool_] | None:
        if self._chooser.topics(pa.array([], pa.string())) is None:
            return None
        index = self._topic_index(info, entries)
        if not index.is_complete:
            return None
        wanted = self._chooser.topics(index.topics)
        if wanted is None:
            return None
        chosen = np.zeros(len(entries), np.bool_)
        chosen[index.blocks_of(wanted)] = True
        return chosen

    def _topics(self, info: SegmentInfo) -> Iterator[pa.Array]:
        for batch in self._log.batches(info.first_offset, info.next_offset, rows=100_000, columns=["topic"]):
            yield batch.column(0)

    def _topic_index(self, info: SegmentInfo, entries: Entries) -> TopicIndex:
        path = topic_index_path(self._directory, info.first_offset)
        index = read_topic_index(path, info.next_offset)
        if index is None:
            table = build_topic_index(self._topics(info), entries["records"].astype(np.int64), info.next_offset)
            write_topic_index(path, table)
            index = TopicIndex(table)
            self.count.read_bytes += info.size_bytes
        else:
            self.count.read_bytes += path.stat().st_size
        return index

    def _gathered(self, descriptor: int, path: Path, run: Entries, columns: Sequence[str]) -> pa.RecordBatch:
        """The records of blocks that may lie apart."""
        data = b"".join(_read_neighbours(descriptor, run))
        self.count.read_bytes += len(data)
        joined = run.copy()
        joined["position"] = np.concatenate(([0], run["total_bytes"].cumsum(dtype=np.int64)[:-1]))
        bad = None if len(data) == int(run["total_bytes"].sum()) else 0
        if bad is None:
            bad = first_mismatch(data, joined, self._verify)
        if bad is not None:
            place = int(run["position"][int(joined["position"].searchsorted(bad))])
            raise LogCorrupt(str(path), place, "the block does not match its checksum or its index entry")
        batch = gather(data, joined, columns)
        if "offset" in columns:
            batch = batch.set_column(columns.index("offset"), _OFFSET, pa.array(_offsets(run)))
        return batch


def _divided(start: int, end: int) -> Iterator[tuple[int, int]]:
    step = max(1, -(-(end - start) // TIME_PARTS))
    for first in range(start, end, step):
        yield first, min(end, first + step)


def _read_neighbours(descriptor: int, run: Entries) -> Iterator[bytes]:
    """The bytes of blocks; those that follow one another in the file are read together."""
    positions, sizes = run["position"], run["total_bytes"].astype(np.int64)
    apart = np.flatnonzero(positions[1:] != positions[:-1] + sizes[:-1]) + 1
    for start, end in zip([0, *apart.tolist()], [*apart.tolist(), len(run)], strict=True):
        position = int(positions[start])
        yield os.pread(descriptor, int(positions[end - 1]) + int(sizes[end - 1]) - position, position)


def _offsets(run: Entries) -> NDArray[np.int64]:
    records = run["records"].astype(np.int64)
    before = np.concatenate(([0], records.cumsum()[:-1]))
    shift: NDArray[np.int64] = np.repeat(run["first_offset"] - before, records)
    return shift + np.arange(len(shift), dtype=np.int64)

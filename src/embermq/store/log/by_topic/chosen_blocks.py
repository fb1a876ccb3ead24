"""Some blocks of a log, chosen by time and topic.

Owns: choosing blocks without reading them, and reading those that lie apart: as they are, or as Arrow batches.
Never: which times and topics are wanted; a `BlockChooser` knows.
A closed segment has a topic index (`topic_index`); of the open one, blocks are chosen by time only.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import mypyc_attr

from embermq.store.log.by_topic.topic_index import (
    NO_TOPICS,
    TopicIndex,
    TopicIndexBuilder,
    read_topic_index,
    topic_index_path,
    write_topic_index,
)
from embermq.store.log.entries import Entries, first_mismatch, runs
from embermq.store.log.errors import LogCorrupt
from embermq.store.log.reader import LogReader, ReadBlocks
from embermq.store.segment import Segment

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_RECORDS: Final = 50_000
BATCH_BYTES: Final = 16 << 20
TIME_PARTS: Final = 32
"""A segment of which a part is wanted is divided into so many parts, twice."""


@mypyc_attr(allow_interpreted_subclasses=True)
class BlockChooser(ABC):
    """What of the log is wanted, as far as it is known without reading a record."""

    @abstractmethod
    def times(self, spans: Sequence[tuple[int, int]]) -> list[bool]:
        """For each span of time, its first and last microsecond: whether a wanted record may lie in it."""

    @abstractmethod
    def topics(self, index: TopicIndex) -> Sequence[int] | None:
        """The numbers of the topics that may have wanted records; None if all may."""


@final
class ReadCount:
    """How many bytes of a log were read, and how many it has."""

    def __init__(self) -> None:
        self.read_bytes = 0
        self.log_bytes = 0

    def add(self, read_bytes: int, log_bytes: int) -> None:
        self.read_bytes += read_bytes
        self.log_bytes += log_bytes


@final
class ChosenBlocks:
    """The blocks of a log that a chooser wants. The end of the log is that of the moment of `batches`."""

    def __init__(self, directory: Path, chooser: BlockChooser, verify: bool = True, are_closed: bool = False) -> None:
        """`are_closed`: the newest segment is closed too, as those of an archive are."""
        self._are_closed: Final = are_closed
        self._directory: Final = directory
        self._chooser: Final = chooser
        self._verify: Final = verify
        self._log: Final = LogReader(directory, verify=verify)
        self.count: Final = ReadCount()

    def batches(self, columns: Sequence[str]) -> "Iterator[pa.RecordBatch]":
        """The records of the chosen blocks, in order; also records of theirs that are not wanted."""
        from embermq.store.log.arrow import gather

        for info, is_closed in self._segments():
            try:
                for run in self._of_segment(info, is_closed, BATCH_RECORDS, BATCH_BYTES):
                    yield gather(run.data, run.entries, columns)
            except FileNotFoundError:
                if info.path.exists():
                    raise  # otherwise it was trimmed meanwhile, as if the query had begun later

    def newest(self, before_offset: int, rows: int, size: int) -> Iterator[ReadBlocks]:
        """The chosen blocks from those before an offset back to the oldest; those read together are in order, and have
        about `rows` records and `size` bytes at most, and perhaps records from that offset on."""
        for info, is_closed in reversed(self._segments()):
            if info.first_offset >= before_offset:
                continue
            try:
                yield from self._of_segment(info, is_closed, rows, size, before_offset)
            except FileNotFoundError:
                if info.path.exists():
                    raise
                return  # it was trimmed, and those before it too

    def _segments(self) -> list[tuple[Segment, bool]]:
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
        self, info: Segment, is_closed: bool, rows: int, size: int, before_offset: int | None = None
    ) -> Iterator[ReadBlocks]:
        """The chosen blocks of a segment; those before an offset come from the newest on."""
        if is_closed and self._has_no_wanted_topic(info):
            return
        entries = self._log.entries(info.first_offset, info.blocks)
        self.count.read_bytes += len(entries.data)
        chosen = self._by_time(entries, info.last_timestamp_us)
        if is_closed:
            by_topic = self._by_topic(info)
            if by_topic is not None:
                chosen = [number for number in chosen if number in by_topic]
        if before_offset is not None:
            before = entries.blocks_before_offset(before_offset)
            chosen = [number for number in chosen if number < before]
        if not chosen:
            return
        with open(info.path, "rb", buffering=0) as file:  # a descriptor would stay open when this is given up
            found = list(runs(entries.chosen(chosen), rows, size))
            if before_offset is not None:
                found.reverse()
            for run in found:
                yield self._read(file.fileno(), info.path, run)

    def _has_no_wanted_topic(self, info: Segment) -> bool:
        """Whether the topic index of a segment says so: then its other index is not even read."""
        if self._chooser.topics(NO_TOPICS) is None:
            return False
        path = topic_index_path(self._directory, info.first_offset)
        index = read_topic_index(path, info.next_offset)
        wanted = None if index is None or not index.is_complete else self._chooser.topics(index)
        if wanted is None or len(wanted):
            return False
        self.count.read_bytes += path.stat().st_size
        return True

    def _by_time(self, entries: Entries, last_us: int) -> list[int]:
        """Blocks by their times: parts of a segment, then parts of the parts that are wanted."""
        parts = [(0, len(entries))]
        for _ in range(2):
            divided = [piece for part in parts for piece in _divided(part[0], part[1])]
            spans = [
                (
                    entries.first_timestamp_us(start),
                    entries.first_timestamp_us(end) if end < len(entries) else last_us,
                )
                for start, end in divided
            ]
            parts = [part for part, wanted in zip(divided, self._chooser.times(spans), strict=True) if wanted]
            if len(parts) in (0, len(divided)):
                break
        return [number for start, end in parts for number in range(start, end)]

    def _by_topic(self, info: Segment) -> set[int] | None:
        if self._chooser.topics(NO_TOPICS) is None:
            return None
        index = self._topic_index(info)
        if not index.is_complete:
            return None
        wanted = self._chooser.topics(index)
        return None if wanted is None else set(index.blocks_of(wanted))

    def _topic_index(self, info: Segment) -> TopicIndex:
        path = topic_index_path(self._directory, info.first_offset)
        index = read_topic_index(path, info.next_offset)
        if index is None:
            builder = TopicIndexBuilder()
            for run in self._log.runs(info.first_offset, info.next_offset):
                for block in run.blocks():
                    builder.add(block)
            index = builder.index()
            write_topic_index(path, index, info.next_offset)
            self.count.read_bytes += info.size_bytes
        else:
            self.count.read_bytes += path.stat().st_size
        return index

    def _read(self, descriptor: int, path: Path, run: Entries) -> ReadBlocks:
        """Blocks that may lie apart."""
        data = b"".join(_read_neighbours(descriptor, run))
        self.count.read_bytes += len(data)
        bad = first_mismatch(data, run, self._verify)
        if bad is not None:
            raise LogCorrupt(str(path), bad, "the block does not match its checksum or its index entry")
        return ReadBlocks(path, run, data, run.first_offset(0), run.next_offset())


def _divided(start: int, end: int) -> Iterator[tuple[int, int]]:
    step = max(1, -(-(end - start) // TIME_PARTS))
    for first in range(start, end, step):
        yield first, min(end, first + step)


def _read_neighbours(descriptor: int, run: Entries) -> Iterator[bytes]:
    """The bytes of blocks; those that follow one another in the file are read together."""
    first = 0
    for number in range(1, len(run) + 1):
        if number == len(run) or run.position(number) != run.end(number - 1):
            position = run.position(first)
            yield os.pread(descriptor, run.end(number - 1) - position, position)
            first = number

"""The log in a data directory, read from its files."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, final

import pyarrow as pa

from embermq.history.source import ReadableLog, SegmentStart
from embermq.store.log.checkpoint import Checkpoint, undamaged_checkpoint
from embermq.store.log.identity import LostRange
from embermq.store.log.reader import LogReader
from embermq.store.log.readers import register_reader
from embermq.store.log.segments import Index, first_offsets, index_path


@final
class DirectoryLog(ReadableLog):
    """A log whose disk this machine has."""

    __slots__ = ("_data", "_directory", "_reader")

    def __init__(self, data: Path) -> None:
        self._data: Final = data
        self._directory: Final = data / "log"
        self._reader: Final = LogReader(self._directory)

    @property
    def name(self) -> str:
        return str(self._directory)

    def bounds(self) -> tuple[int, int]:
        return self._reader.bounds()

    def lost(self) -> tuple[LostRange, ...]:
        return self._reader.lost()

    def offset_at(self, timestamp_us: int) -> int:
        return self._reader.offset_at(timestamp_us)

    def segment_of(self, offset: int) -> SegmentStart | None:
        segments = [first for first in first_offsets(self._directory) if first <= offset]
        if not segments:
            return None
        # After a loss of power the index may be empty until the server has rebuilt it.
        index = Index.open(index_path(self._directory, segments[-1]))
        return SegmentStart(segments[-1], index.entry(0).first_timestamp_us if index.count else None)

    def batches(self, start: int, end: int, rows: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return self._reader.batches(start, end, rows=rows, columns=columns)

    @contextmanager
    def undamaged_checkpoint(self, first_offset: int, next_offset: int) -> Iterator[Checkpoint | None]:
        yield undamaged_checkpoint(self._directory, first_offset, next_offset)

    def register_reader(self, name: str, next_offset: int) -> None:
        register_reader(self._data, name, next_offset)

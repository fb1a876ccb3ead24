"""A log with its archive: what was trimmed from the directory is read from there, as if it were one log.

Owns: which part is read where. What the directory has is never read from the archive.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, final

import pyarrow as pa

from embermq.archive.archive import Archive, open_archive
from embermq.history.archived_records import ArchivedRecords
from embermq.history.rebuilt import CACHE
from embermq.history.segment_cache import SegmentCache
from embermq.store.log.by_topic.chosen_blocks import BlockChooser, ChosenBlocks, ReadCount
from embermq.store.log.errors import NotALog
from embermq.store.log.identity import read_identity
from embermq.store.log.reader import LogReader


@final
class WholeLog:
    """The log in a log directory and, if it has one, its archive."""

    __slots__ = ("_archive", "_directory", "_records", "_temporary")

    def __init__(self, directory: Path, address: str | None = None) -> None:
        LogReader(directory)
        self._directory: Final = directory
        self._archive: Final[Archive | None] = open_archive(address) if address else None
        self._records: ArchivedRecords | None = None
        self._temporary: TemporaryDirectory[str] | None = None  # goes with this object
        if self._archive is not None:
            identity = read_identity(directory)
            if identity is None or identity.log_id != self._archive.log_id:
                raise NotALog(str(directory), f"{self._archive.shown} is the archive of another log")
            kept = _cache_directory(directory)
            if kept is None:
                self._temporary = TemporaryDirectory(prefix="embermq-archive-")
                kept = Path(self._temporary.name)
            self._records = ArchivedRecords(self._archive, SegmentCache(self._archive, kept))

    def bounds(self) -> tuple[int, int]:
        """The first offset that can be read, and the one after the last."""
        first, end = LogReader(self._directory).bounds()
        if self._archive is not None:
            segments = self._archive.segments()
            first = min(first, segments[0].first_offset) if segments else first
        return first, end

    def chosen(self, chooser: BlockChooser, columns: Sequence[str], count: ReadCount) -> Iterator[pa.RecordBatch]:
        """The records of the blocks that a chooser wants, in order; also records of theirs that are not wanted."""
        start = 0
        if self._records is not None:
            # The server may trim while this reads: then the archive has what was trimmed.
            while (first := LogReader(self._directory).bounds()[0]) > start:
                yield from self._records.chosen(start, first, chooser, columns, count)
                start = first
        blocks = ChosenBlocks(self._directory, chooser)
        yield from blocks.batches(columns)
        count.add(blocks.count.read_bytes, blocks.count.log_bytes)


def _cache_directory(directory: Path) -> Path | None:
    """Where fetched segments are kept: in the data directory; None if this user may not write there."""
    try:
        (directory.parent / CACHE).mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return None
    return directory.parent / CACHE / "segments"

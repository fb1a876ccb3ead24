"""Records of an archive that the local log no longer has, read with the tools for a log.

Owns: which archived segments a question needs, and fetching each when its turn comes.
"""

from collections.abc import Iterator, Sequence
from typing import Final, final

import pyarrow as pa

from embermq.archive.archive import Archive
from embermq.archive.manifest import ArchivedSegment
from embermq.history.segment_cache import SegmentCache
from embermq.store.log.by_topic.chosen_blocks import BlockChooser, ChosenBlocks, ReadCount

ATTEMPTS: Final = 3
"""A cached segment may be removed by another process between two questions so often."""


@final
class ArchivedRecords:
    """The records of an archive. Segments are fetched into a cache, one after the other."""

    def __init__(self, archive: Archive, cache: SegmentCache) -> None:
        self._archive: Final = archive
        self._cache: Final = cache

    def chosen(
        self, start: int, end: int, chooser: BlockChooser, columns: Sequence[str], count: ReadCount
    ) -> Iterator[pa.RecordBatch]:
        """The records from `start` up to, not including, `end` in blocks that a chooser wants, as `ChosenBlocks`."""
        segments = [one for one in self._archive.segments() if one.next_offset > start and one.first_offset < end]
        count.add(0, sum(one.size_bytes + one.index.size_bytes for one in segments))
        spans = [(one.first_timestamp_us, one.last_timestamp_us) for one in segments]
        for segment, wanted in zip(segments, chooser.times(spans) if spans else [], strict=True):
            if wanted:
                blocks = self._blocks(segment, chooser)
                yield from blocks.batches(columns)
                count.add(blocks.count.read_bytes, 0)

    def _blocks(self, segment: ArchivedSegment, chooser: BlockChooser) -> ChosenBlocks:
        for _ in range(ATTEMPTS - 1):
            try:
                return ChosenBlocks(self._cache.log_of(segment), chooser, are_closed=True)
            except FileNotFoundError:
                continue
        return ChosenBlocks(self._cache.log_of(segment), chooser, are_closed=True)

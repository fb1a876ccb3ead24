"""Records of an archive by offset, out of segments that were fetched."""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

from embermq.archive.errors import ArchiveError
from embermq.archive.manifest import ArchivedSegment
from embermq.history.segment_cache import SegmentCache
from embermq.store.log.lookup import Lookup, Records
from embermq.store.rows import LogRow
from embermq.store.segment import Segment

ATTEMPTS: Final = 3
"""A cached segment may be removed by another process between two reads so often."""
LOOKUPS_MAX: Final = 8
LOOKUP_BYTES: Final = 2 << 20
"""For so many segments, so many bytes of what was read last are kept in memory."""


@final
class FetchedRecords(Records):
    """The records of some segments, each fetched when a record of it is first asked for. For one thread."""

    def __init__(self, cache: SegmentCache) -> None:
        self._cache: Final = cache
        self._segments: list[ArchivedSegment] = []
        self._firsts: list[int] = []
        self._lookups: Final[OrderedDict[Path, Lookup]] = OrderedDict()  # by directory, least used first

    def use(self, segments: Sequence[ArchivedSegment]) -> None:
        """Read from these, oldest first."""
        self._segments = list(segments)
        self._firsts = [segment.first_offset for segment in segments]

    def read(self, offset: int) -> LogRow | None:
        number = bisect_right(self._firsts, offset) - 1
        if number < 0 or offset >= self._segments[number].next_offset:
            return None
        segment = self._segments[number]
        for _ in range(ATTEMPTS):
            block = self._lookup(segment).block(offset, _as_local(segment))
            if block is not None:
                return block.record(offset)
        raise ArchiveError(f"what was fetched of {segment.name} is removed again and again")

    def fetched(self, segment: ArchivedSegment) -> Path:
        """The directory that a segment was fetched to; another process may remove it."""
        return self._cache.log_of(segment)

    def _lookup(self, segment: ArchivedSegment) -> Lookup:
        directory = self._cache.log_of(segment)
        lookup = self._lookups.get(directory)
        if lookup is None:
            lookup = self._lookups[directory] = Lookup(directory, LOOKUP_BYTES)
            if len(self._lookups) > LOOKUPS_MAX:
                self._lookups.popitem(last=False)
        self._lookups.move_to_end(directory)
        return lookup


def _as_local(archived: ArchivedSegment) -> Segment:
    path = Path(archived.name)
    return Segment(path, archived.first_offset, archived.next_offset, archived.blocks, archived.size_bytes)

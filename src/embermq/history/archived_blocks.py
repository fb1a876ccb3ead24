"""Blocks of an archive by offset and by instant: only those bytes are read that are asked for.

Owns: which segments lead without a gap to the beginning of the local log, and their indexes, bounded in bytes.
Never: what the local log has. Any thread may use it; each call takes as long as the archive does.
"""

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Final, final

from embermq.archive.archive import Archive, open_archive
from embermq.archive.errors import ArchiveDamaged, ArchiveError, NotArchived
from embermq.archive.manifest import ArchivedSegment
from embermq.store.errors import HistoryTrimmed
from embermq.store.log.blocks import HEADER_BYTES
from embermq.store.log.by_topic.topic_index import TopicIndex, parse_topic_index
from embermq.store.log.entries import Entries, first_mismatch, runs
from embermq.store.log.errors import LogTrimmed
from embermq.store.log.identity import LostRange, goes_on_at, read_identity
from embermq.store.log.reader import ReadBlocks
from embermq.store.log.segments import FIRST_OFFSET
from embermq.store.segment import ENTRY_BYTES, SEGMENT_HEADER_BYTES

READ_BYTES: Final = 1 << 20
"""What is read at once; a block may be larger."""
INDEX_BYTES: Final = 32 << 20
"""The indexes that are kept for the next question: a segment of 128 MiB with blocks of 1 KiB has one of 6 MiB."""
LIST_AGE_S: Final = 60.0
"""So long it is not asked again which segments there are, while those lead to the log: a long list takes seconds."""
OFFSET_MAX: Final = 1 << 62
UNREACHED_US: Final = 1 << 62
"""An instant after every record."""


@dataclass(frozen=True, slots=True)
class BlockRun:
    """Neighbouring blocks of a segment, compared with their checksums, and their index entries."""

    segment: ArchivedSegment
    entries: Entries
    data: bytes

    def records(self, start: int, end: int) -> ReadBlocks:
        """The records from an offset on and before another, of those that it has."""
        first, following = self.entries.first_offset(0), self.entries.next_offset()
        path = Path(f"{self.segment.name}.log")
        return ReadBlocks(path, self.entries, self.data, max(start, first), min(end, following))


@final
class ArchivedBlocks:
    """The blocks of the archive of one log. Nothing is opened before the first question."""

    def __init__(
        self, address: str, log_directory: Path, index_bytes: int = INDEX_BYTES, list_age_s: float = LIST_AGE_S
    ) -> None:
        """`log_directory` says which log it must be the archive of."""
        self._address: Final = address
        self._log_directory: Final = log_directory
        self._archive: Archive | None = None
        self._lost: tuple[LostRange, ...] = ()
        self._segments: list[ArchivedSegment] = []  # as the archive was listed last; replaced, never changed
        self._listed_s = -list_age_s
        self._list_age_s: Final = list_age_s
        self._lock: Final = Lock()  # of the indexes; nobody waits for the archive with it
        self._indexes: Final[OrderedDict[str, Entries]] = OrderedDict()  # by segment, least used first
        self._index_bytes: Final = index_bytes
        self._begins_us = 0
        self._unreached = 0  # where the log began when no segment led to it

    def begins_us(self, log_begins: int) -> int:
        """From which instant on no record was missing when that was last asked; 0 if it was not, or has all.

        If the log is trimmed where nothing leads to its beginning, what is trimmed then may have been archived.
        """
        return UNREACHED_US if log_begins == self._unreached else self._begins_us

    def first_offset(self, log_begins: int) -> int:
        """The oldest offset from which on no record is missing before the log's beginning."""
        reach = self.reach(log_begins)
        return reach[0].first_offset if reach else log_begins

    def offset_at(self, instant_us: int, log_begins: int) -> int:
        """The offset of the first record that is not older than an instant; the log's beginning if it is after those.

        HistoryTrimmed if records may be missing from there on.
        """
        reach = self.reach(log_begins)
        if not reach:
            raise LogTrimmed(log_begins - 1, log_begins)
        if instant_us < _begins_us(reach):
            raise HistoryTrimmed(instant_us, _begins_us(reach))
        number = bisect_right(reach, instant_us - 1, key=lambda segment: segment.last_timestamp_us)
        if number == len(reach):
            return log_begins
        segment = reach[number]
        if segment.first_timestamp_us >= instant_us:
            return segment.first_offset
        try:
            return self._offset_in(segment, instant_us)
        except NotArchived:
            if not self.is_over(segment, log_begins):
                raise
        return self.offset_at(instant_us, log_begins)  # by the list of now

    def _offset_in(self, segment: ArchivedSegment, instant_us: int) -> int:
        entries = self.entries(segment)
        block = entries.blocks_before(instant_us) - 1
        data = self.read(segment, entries.part(block, block + 1)).data
        timestamps_us = memoryview(data)[HEADER_BYTES : HEADER_BYTES + 8 * entries.records(block)].cast("q")
        return entries.first_offset(block) + bisect_left(timestamps_us, instant_us)

    def is_over(self, segment: ArchivedSegment, log_begins: int) -> bool:
        """Whether a segment could not be read because its retention is over: the archive is listed again."""
        self._list()
        return self.first_offset(log_begins) > segment.first_offset

    def goes_on_at(self, offset: int) -> int:
        """Where somebody goes on who has read all before an offset: there, or behind what was lost with a machine."""
        self._opened()
        return goes_on_at(self._lost, offset)

    def run(
        self, offset: int, log_begins: int, size_bytes: int = READ_BYTES, before_offset: int = OFFSET_MAX
    ) -> BlockRun | None:
        """Blocks from the one on that has an offset: as many of its segment as have so many bytes, at least one.

        Blocks with records from `before_offset` on only are left out. None if the archive does not have the offset, but
        the log does; LogTrimmed if neither has it.
        """
        segment = self._segment_of(offset)
        if segment is None:
            if offset >= log_begins:
                return None
            raise LogTrimmed(
                offset,
                min((one.first_offset for one in self._segments if one.first_offset > offset), default=log_begins),
            )
        try:
            return self._run(segment, offset, size_bytes, before_offset)
        except NotArchived:
            if self.is_over(segment, log_begins):
                raise LogTrimmed(offset, self.first_offset(log_begins)) from None
            raise

    def _run(self, segment: ArchivedSegment, offset: int, size_bytes: int, before_offset: int) -> BlockRun:
        entries = self.entries(segment)
        block = entries.block_of(offset)
        end = max(block + 1, entries.blocks_before_offset(before_offset))
        return self.read(segment, next(runs(entries.part(block, end), OFFSET_MAX, size_bytes)))

    def topic_index(self, segment: ArchivedSegment) -> tuple[TopicIndex | None, int]:
        """Which topics a segment has in which blocks, if the archive knows it, and how many bytes were read for it."""
        data = self._opened().read_topics(segment)
        return (None, 0) if data is None else (parse_topic_index(data, segment.next_offset), len(data))

    def read(self, segment: ArchivedSegment, entries: Entries) -> BlockRun:
        """The blocks of neighbouring index entries."""
        data = self._opened().read(segment, entries.position(0), entries.end())
        bad = first_mismatch(data, entries, True)
        if bad is not None:
            raise ArchiveDamaged(
                f"{segment.name}.log of the archive {self._opened().shown} is damaged: the block at byte {bad} does not"
                " match its checksum or its index entry"
            )
        return BlockRun(segment, entries, data)

    def _opened(self) -> Archive:
        if self._archive is None:
            archive = open_archive(self._address, for_clients=True)
            identity = read_identity(self._log_directory)
            if identity is None or identity.log_id != archive.log_id:
                raise ArchiveError(f"{archive.shown} is the archive of another log")
            self._lost = identity.lost
            self._archive = archive
        return self._archive

    def _list(self) -> list[ArchivedSegment]:
        segments = self._opened().segments()
        if not segments:  # a directory that is not mounted is empty too: that is an error
            open_archive(self._address, for_clients=True)
        self._segments, self._listed_s = segments, monotonic()
        return segments

    def _segment_of(self, offset: int) -> ArchivedSegment | None:
        return _holding(self._segments, offset) or _holding(self._list(), offset)

    def reach(self, log_begins: int) -> list[ArchivedSegment]:
        """The segments from which on no record is missing before the log's beginning, oldest first."""
        is_new = monotonic() - self._listed_s < self._list_age_s
        reach = _leading_to(self._segments, self._lost, log_begins) if is_new else []
        if not reach:
            reach = _leading_to(self._list(), self._lost, log_begins)
        self._begins_us = _begins_us(reach)
        self._unreached = 0 if reach else log_begins
        return reach

    def entries(self, segment: ArchivedSegment) -> Entries:
        """The index entries of a segment."""
        with self._lock:
            known = self._indexes.get(segment.name)
            if known is not None:
                self._indexes.move_to_end(segment.name)
                return known
        entries = Entries(self._opened().read_index(segment))
        sound = entries.consistent(SEGMENT_HEADER_BYTES, segment.first_offset)
        if not sound or sound * ENTRY_BYTES < len(entries.data):
            raise ArchiveDamaged(
                f"{segment.name}.idx of the archive {self._opened().shown} is damaged: it is not consistent in itself"
            )
        with self._lock:
            self._indexes[segment.name] = entries
            while len(self._indexes) > 1 and sum(len(one.data) for one in self._indexes.values()) > self._index_bytes:
                self._indexes.popitem(last=False)
        return entries


def _begins_us(reach: Sequence[ArchivedSegment]) -> int:
    return reach[0].first_timestamp_us if reach and reach[0].first_offset > FIRST_OFFSET else 0


def _holding(segments: Sequence[ArchivedSegment], offset: int) -> ArchivedSegment | None:
    number = bisect_right(segments, offset, key=lambda segment: segment.first_offset) - 1
    return segments[number] if number >= 0 and offset < segments[number].next_offset else None


def _leading_to(
    segments: Sequence[ArchivedSegment], lost: Sequence[LostRange], log_begins: int
) -> list[ArchivedSegment]:
    leading: list[ArchivedSegment] = []
    following = log_begins
    for segment in reversed(segments):
        if segment.first_offset >= log_begins:
            continue
        if segment.next_offset < following and (segment.next_offset, following) not in lost:
            break
        leading.append(segment)
        following = segment.first_offset
    return leading[::-1]

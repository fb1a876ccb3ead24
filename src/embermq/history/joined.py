"""A log with its archive, read as one: what was trimmed from the directory comes from the archive.

Owns: which part is read where. What the directory has is never read from the archive.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, final

from embermq.history.archived_blocks import ArchivedBlocks, BlockRun
from embermq.history.changes import ChangesPart, archived_changes
from embermq.history.rates import ArchivedOffsets, archived_offsets_at
from embermq.history.topic_runs import newest_topic_runs
from embermq.store.log.errors import LogTrimmed
from embermq.store.log.identity import LostRange
from embermq.store.log.reader import LogReader, ReadBlocks


@final
class JoinedLog:
    """The log in a directory and, if it is given, its archive. Any thread may use it.

    With an archive each call takes as long as that does, and may raise ArchiveError, and HistoryTrimmed for an instant
    that the archive does not reach back to; without one LogTrimmed says what the log no longer has.
    """

    def __init__(self, directory: Path, archived: ArchivedBlocks | None = None) -> None:
        self._directory: Final = directory
        self._archived: Final = archived
        self._begins_us = 0

    @property
    def has_archive(self) -> bool:
        return self._archived is not None

    def bounds(self) -> tuple[int, int]:
        """The first offset that can be read, and the one after the last."""
        first, end = LogReader(self._directory).bounds()
        return first if self._archived is None else self._archived.first_offset(first), end

    def offset_at(self, instant_us: int) -> int:
        """The offset of the first record that is not older than an instant; the log's end if there is none."""
        reader = LogReader(self._directory)
        found = reader.offset_at(instant_us)
        first = reader.bounds()[0]  # after it: if the log is trimmed in between, the archive is asked
        if found > first or first == 1:
            return found
        oldest = next(reader.segments_from(first), None)
        if oldest is not None and instant_us > oldest.first_timestamp_us:
            return found
        if self._archived is None:
            if oldest is not None and instant_us == oldest.first_timestamp_us:
                return found
            raise LogTrimmed(first - 1, first)
        return self._archived.offset_at(instant_us, first)

    def runs(self, start: int, end: int, rows: int, size: int) -> Iterator[ReadBlocks]:
        """The records from `start` up to, not including, `end`, which must be durable; as `LogReader.runs`.

        If they are trimmed meanwhile, the archive is read from there on.
        """
        while start < end:
            reader = LogReader(self._directory)
            try:
                for read in reader.runs(start, end, rows=rows, bytes=size):
                    start = read.end
                    yield read
                return
            except LogTrimmed as error:
                if self._archived is None:
                    raise
                start = self._archived.goes_on_at(error.offset)
            run = self._archived.run(start, reader.bounds()[0], size)
            if run is not None:
                read = run.records(start, end)
                yield read
                start = read.end

    def archived_blocks(self, start: int, end: int, size_bytes: int) -> BlockRun | None:
        """The first blocks of those that hold the records from `start` on, before `end`; None if the log has them.

        They have at most so many bytes together, but are at least one. LogTrimmed if neither has them.
        """
        if self._archived is None:
            return None
        return self._archived.run(
            self._archived.goes_on_at(start), LogReader(self._directory).bounds()[0], size_bytes, end
        )

    def archived_topic(
        self, topic_name: str, since_us: int, until_us: int, before_offset: int
    ) -> Iterator[tuple[int, int, ReadBlocks | None]]:
        """Records among which are all of one topic that only the archive has, before an offset, newest blocks first.

        Each time with the lowest offset and the bytes that were read; None if nothing was found in these.
        """
        if self._archived is None:
            return
        log_begins = LogReader(self._directory).bounds()[0]
        before_offset = min(before_offset, log_begins)
        for found in newest_topic_runs(self._archived, topic_name, since_us, until_us, before_offset, log_begins):
            read = None if found.run is None else found.run.records(0, before_offset)
            yield found.first_offset, found.read_bytes, read

    def archived_changes(
        self, topic_name: str, since_us: int, from_offset: int, before_offset: int
    ) -> Iterator[ChangesPart]:
        """As `past.changes.archived_changes`; without an archive none."""
        if self._archived is not None:
            yield from archived_changes(self._archived, topic_name, since_us, from_offset, before_offset)

    def block_offsets_at(self, instants_us: Sequence[int]) -> ArchivedOffsets:
        """As `LogReader.block_offsets_at`, with the instant at which log and archive begin."""
        reader = LogReader(self._directory)
        first = reader.bounds()[0]
        oldest = next(reader.segments_from(first), None)
        begins_us = oldest.first_timestamp_us if oldest is not None and oldest.blocks else 0
        offsets = reader.block_offsets_at(instants_us)
        is_estimated = False
        if self._archived is not None and first > 1:
            older = [instant_us for instant_us in instants_us if not begins_us or instant_us <= begins_us]
            found = archived_offsets_at(self._archived, older, first)
            known = dict(zip(older, found.offsets, strict=True))
            offsets = [known.get(instant_us, offset) for instant_us, offset in zip(instants_us, offsets, strict=True)]
            is_estimated, begins_us = found.is_estimated, found.begins_us or begins_us
        lost = reader.lost()
        self._begins_us = begins_us
        return ArchivedOffsets([_without_lost(lost, offset) for offset in offsets], is_estimated, begins_us)

    def begins_us(self) -> int:
        """The instant at which log and archive begin, as `block_offsets_at` has found it last; 0 before that."""
        return self._begins_us

    def archive_begins(self, log_begins: int) -> tuple[int, int]:
        """The first offset, and its instant, from which on the archive lacks nothing before an offset of the log.

        The instant is 0 if it has everything.
        """
        if self._archived is None:
            return log_begins, 0
        first = self._archived.first_offset(log_begins)
        return first, self._archived.begins_us(log_begins)


def _without_lost(lost: Sequence[LostRange], offset: int) -> int:
    """An offset, as if those that were lost with a machine had not been."""
    return offset - sum(following - first for first, following in lost if following <= offset)

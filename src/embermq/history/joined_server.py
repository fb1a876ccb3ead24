"""An archive and the server that writes it as one log: closed segments from the archive, the rest from the server."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, final

import pyarrow as pa

from embermq.errors import PipelineError
from embermq.history.archived import ArchivedLog
from embermq.history.server import ServerLog
from embermq.history.source import LogEnd, ReadableLog, SegmentStart
from embermq.store.log.checkpoint import Checkpoint
from embermq.store.log.errors import LogTrimmed
from embermq.store.log.identity import LostRange


@final
class JoinedLog(ReadableLog):
    """Reads from the archive what it has, so that the server is asked only for what it alone has."""

    __slots__ = ("_archive", "_server")

    def __init__(self, archive: ArchivedLog, server: ServerLog) -> None:
        """PipelineError if they are not of the same log."""
        self._archive: Final = archive
        self._server: Final = server
        if server.log_id() != archive.log_id():
            raise PipelineError(f"{archive.name} is not of {server.name}: name the archive that this server writes")

    @property
    def name(self) -> str:
        return self._server.name

    def bounds(self) -> tuple[int, int]:
        first, end = self._server.bounds()
        archived_first, archived_end = self._archive.bounds()
        return (min(first, archived_first) if archived_end > archived_first else first), end

    def end(self) -> LogEnd:
        return self._server.end()

    def lost(self) -> tuple[LostRange, ...]:
        return self._archive.lost()

    def ranges(self, start: int, end: int) -> list[tuple[int, int]]:
        archived = self._archive.ranges(start, end)
        rest = max(start, archived[-1][1] if archived else start, self._server.bounds()[0])
        if rest >= end:
            return archived
        if archived and archived[-1][1] == rest:
            return [*archived[:-1], (archived[-1][0], end)]
        return [*archived, (rest, end)]

    def offset_at(self, timestamp_us: int) -> int:
        found = self._archive.offset_at(timestamp_us)
        return self._server.offset_at(timestamp_us) if found >= self._archive.bounds()[1] else found

    def segment_of(self, offset: int) -> SegmentStart | None:
        live = self._server.segment_of(offset)
        return self._archive.segment_of(offset) if live is None else live

    def batches(self, start: int, end: int, rows: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        first = self.bounds()[0]
        if start < first:
            raise LogTrimmed(start, first)
        archived_first, archived_end = self._archive.bounds()
        if start < archived_first and archived_first < archived_end:  # the archive keeps less than the server
            until = min(end, archived_first)
            yield from self._server.batches(start, until, rows, columns)
            start = until
        if start < end and archived_first <= start < archived_end:
            until = min(end, archived_end)
            yield from self._archive.batches(start, until, rows, columns)
            # After a restore the server goes on behind the offsets that were lost with the old machine.
            start = max(until, self._server.bounds()[0]) if until < end else until
        if start < end:
            yield from self._server.batches(start, end, rows, columns)

    @contextmanager
    def undamaged_checkpoint(self, first_offset: int, next_offset: int) -> Iterator[Checkpoint | None]:
        with self._archive.undamaged_checkpoint(first_offset, next_offset) as archived:
            if archived is not None:
                yield archived
                return
        with self._server.undamaged_checkpoint(first_offset, next_offset) as live:
            yield live

    def register_reader(self, name: str, next_offset: int) -> None:
        self._server.register_reader(name, next_offset)

"""What the source and the pipeline ask of a log, wherever it is read from.

Owns: the questions. The same offsets give the same records from a directory, an archive and a server.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

import pyarrow as pa

from embermq.instants import microseconds
from embermq.store.log.checkpoint import Checkpoint
from embermq.store.log.errors import LogTrimmed
from embermq.store.log.identity import LostRange, present


class SegmentStart(NamedTuple):
    """Where a segment begins. `since_us` is its first timestamp; None while its index has no entry."""

    first_offset: int
    since_us: int | None


COMMIT_US_MAX: Final = 5_000_000
"""How long after its timestamp a record is durable at the latest: a turn of the server, and a slow disk."""


class LogEnd(NamedTuple):
    """The offset after the last durable record. Every record up to the instant `known_us` has a lower offset."""

    next_offset: int
    known_us: int


class ReadableLog(ABC):
    """A log that is read while its server writes it. Errors are sentences: a LogError or a PipelineError."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What the log is called in a sentence."""

    @abstractmethod
    def bounds(self) -> tuple[int, int]:
        """The first durable offset, and the one after the last."""

    def end(self) -> LogEnd:
        """Where the log ends now, and up to which instant that is known to be all of it."""
        now_us = time.time_ns() // 1000  # before the end is read: no record may come in between
        return LogEnd(self.bounds()[1], now_us - COMMIT_US_MAX)

    def known_until_us(self, next_offset: int) -> int | None:
        """The last instant whose records all have lower offsets; None if that is not to be had.

        Several records may have the timestamp of the one at the offset, also before it.
        """
        end = self.end()
        if next_offset >= end.next_offset:
            return end.known_us
        try:
            found = next(self.batches(next_offset, next_offset + 1, 1, ("timestamp",)), None)
        except LogTrimmed:
            return None
        # A restored log does not have the records that were lost with a machine.
        return None if found is None else microseconds(found["timestamp"][0].as_py()) - 1

    def lost(self) -> tuple[LostRange, ...]:
        """The offsets that no record has, because they were lost with a machine (docs/archive.md, "Generations")."""
        return ()

    def ranges(self, start: int, end: int) -> list[tuple[int, int]]:
        """The offsets from `start` up to, not including, `end` that the log has: without those that were lost with a
        machine before the log was restored. LogLost if `start` is one of these."""
        return present(self.lost(), start, end)

    @abstractmethod
    def offset_at(self, timestamp_us: int) -> int:
        """The offset of the first record that is not older than an instant; the log's end if there is none."""

    @abstractmethod
    def segment_of(self, offset: int) -> SegmentStart | None:
        """The last segment that does not begin after an offset; None if all do."""

    @abstractmethod
    def batches(self, start: int, end: int, rows: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The durable records from `start` up to, not including, `end`, in order; at most `rows` in a batch.

        LogTrimmed if `start` is no longer there, also when it is trimmed while this reads; ValueError if `end` is not
        durable yet.
        """

    @abstractmethod
    def undamaged_checkpoint(self, first_offset: int, next_offset: int) -> AbstractContextManager[Checkpoint | None]:
        """The oldest undamaged checkpoint from which a log that has these offsets can be read; None if there is none.

        The checkpoint can be read inside the context.
        """

    @abstractmethod
    def register_reader(self, name: str, next_offset: int) -> None:
        """Tell the server how far a reader is, so that it keeps what is not read yet."""

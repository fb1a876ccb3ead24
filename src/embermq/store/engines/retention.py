"""The retention of the log: what may be trimmed by size and age, and how long that waits for readers and the archive.

Owns: the offset up to which the log may be trimmed, and the warnings before records go that somebody still needs.
Never: deleting; the committer does, up to a checkpoint.
"""

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final, final

from mypy_extensions import mypyc_attr

from embermq.store.log.readers import BRIDGE, registered_readers
from embermq.store.segment import Segment

ARCHIVE: Final = "the archive"

DISK_PART: Final = 20
"""The reserve is at most this part of the disk."""
LOOK_BYTES: Final = 1024 * 1024
LOOK_S: Final = 1.0
"""What is free is looked up after this many bytes or seconds."""

_logger: Final = logging.getLogger("embermq.store")


@dataclass(frozen=True, slots=True)
class Retention:
    """How much of the log is kept, and how much more for a registered reader that has not read it, or the archive."""

    size_bytes: int
    age_s: int
    unread_bytes_max: int = 0
    unarchived_bytes_max: int = 0
    disk_reserve_bytes: int = 0


@mypyc_attr(allow_interpreted_subclasses=True)
class Archiver(ABC):
    """Copies closed segments and checkpoints on a thread of its own. No method waits for that, except `close`."""

    @abstractmethod
    def begin(self, log_directory: Path) -> None:
        """Start, once the log has been opened."""

    @abstractmethod
    def wake(self) -> None:
        """A segment was closed."""

    @abstractmethod
    def archived_before(self) -> int:
        """What the log has before this offset is archived; 0 while that is not known."""

    @abstractmethod
    def counts(self) -> dict[str, int]:
        """Numbers for the operator, by name."""

    @abstractmethod
    def close(self) -> None:
        """Stop; what is not archived yet is archived at the next start."""


@final
class TrimLimit:
    """Up to where the log may be trimmed. `unread_bytes` of it are kept for readers only."""

    def __init__(self, data: Path, retention: Retention, archiver: Archiver | None = None) -> None:
        self._archiver: Final = archiver
        self._data: Final = data
        self._retention: Final = retention
        self._warned: Final[set[str]] = set()
        self.unread_bytes = 0
        self.lost_records = 0  # trimmed before every registered reader had read them
        self.unarchived_records = 0  # trimmed before the archive had them

    def offset(self, segments: Sequence[Segment], now_us: int, size_bytes_max: int | None = None) -> int:
        """The offset before which the log exceeds its retention, or a smaller size, and is not kept for a reader."""
        if size_bytes_max is None:
            size_bytes_max = self._retention.size_bytes
        size_bytes = sum(segment.size_bytes for segment in segments)
        oldest_us = now_us - self._retention.age_s * 1_000_000
        limit = segments[0].first_offset
        beyond: list[Segment] = []
        for segment in segments[:-1]:
            if size_bytes <= size_bytes_max and segment.last_timestamp_us >= oldest_us:
                break
            size_bytes -= segment.size_bytes
            limit = segment.next_offset
            beyond.append(segment)
        for reader in registered_readers(self._data):
            limit = min(limit, self._limit_for(_reader(reader.name), reader.next_offset, beyond))
        self.unread_bytes = sum(segment.size_bytes for segment in beyond if segment.first_offset >= limit)
        if self._archiver is not None:
            limit = min(limit, self._limit_for(ARCHIVE, self._archiver.archived_before(), beyond))
        return limit

    def trimmed(self, first_offset: int, end: int) -> None:
        """The log was trimmed: count what a reader has not read of it, and say so."""
        for reader in registered_readers(self._data):
            lost = end - max(first_offset, reader.next_offset)
            if lost > 0:
                self.lost_records += lost
                _logger.warning(
                    "trimmed %d records that %s has not read: it exceeds store.unread_bytes_max (%d)",
                    lost,
                    _reader(reader.name),
                    self._retention.unread_bytes_max,
                )
        if self._archiver is not None:
            first_lost = max(first_offset, self._archiver.archived_before())
            if first_lost < end:
                self.unarchived_records += end - first_lost
                _logger.warning(
                    "trimmed offsets %d to %d, which the archive does not have: it exceeds store.unarchived_bytes_max"
                    " (%d)",
                    first_lost,
                    end - 1,
                    self._retention.unarchived_bytes_max,
                )

    def _limit_for(self, name: str, next_offset: int, beyond: Sequence[Segment]) -> int:
        """Where one who reads the log, or the bound on what is kept for it, lets the trimming go to."""
        limit = beyond[0].first_offset if beyond else 0
        unread = [segment for segment in beyond if segment.next_offset > next_offset]
        unread_bytes = sum(segment.size_bytes for segment in unread)
        self._warn(name, unread_bytes)
        for segment in beyond:
            if segment.next_offset > next_offset:
                if unread_bytes <= self._bytes_max(name):
                    break
                unread_bytes -= segment.size_bytes
            limit = segment.next_offset
        return limit

    def _warn(self, name: str, unread_bytes: int) -> None:
        """Say once that somebody is late, before records go that it has not read, unless the bound is 0."""
        bytes_max = self._bytes_max(name)
        if not bytes_max:
            return
        if unread_bytes <= bytes_max // 2:
            self._warned.discard(name)
        elif name not in self._warned:
            self._warned.add(name)
            _logger.warning(
                "%s is late: the log keeps %d bytes for it beyond its retention, and trims what it has not read above"
                " store.%s (%d)",
                name,
                unread_bytes,
                "unarchived_bytes_max" if name == ARCHIVE else "unread_bytes_max",
                bytes_max,
            )

    def _bytes_max(self, name: str) -> int:
        return self._retention.unarchived_bytes_max if name == ARCHIVE else self._retention.unread_bytes_max


def _reader(name: str) -> str:
    return f"the {name}" if name.startswith(BRIDGE) else f"the pipeline of {name}"


def disk_bytes(directory: Path) -> tuple[int, int]:
    """The size of the file system that a directory is on, and what is free of it for us."""
    found = os.statvfs(directory)
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


@final
class DiskReserve:
    """The part of the disk that is left free. `is_full`: it is reached. `is_short`: soon, so the log is trimmed.

    What was accepted before may still grow a little: acknowledgements, the ends of sessions. When half of the reserve
    is left, nothing at all is accepted (`is_used_up`).
    """

    def __init__(
        self, directory: Path, reserve_bytes: int, disk: Callable[[Path], tuple[int, int]] = disk_bytes
    ) -> None:
        self._directory: Final = directory
        self._disk: Final = disk
        self._unlooked_bytes = 0
        self._looked_s = 0.0
        total_bytes, self.free_bytes = disk(directory)
        self.reserve_bytes: Final = min(reserve_bytes, total_bytes // DISK_PART)
        self.is_full = False

    def is_due(self, written_bytes: int) -> bool:
        """Whether it is time to look again, now that so much more was written."""
        self._unlooked_bytes += written_bytes
        return (
            self._unlooked_bytes >= min(LOOK_BYTES, self.reserve_bytes // 8) or monotonic() - self._looked_s >= LOOK_S
        )

    def look(self) -> None:
        """Find out what is free."""
        self._unlooked_bytes = 0
        self._looked_s = monotonic()
        with suppress(OSError):
            self.free_bytes = self._disk(self._directory)[1]
        needed_bytes = self.reserve_bytes * 5 // 4 if self.is_full else self.reserve_bytes
        is_full = self.free_bytes < needed_bytes
        if is_full and not self.is_full:
            _logger.error("nothing new is made durable: %s", self._sentence())
        elif self.is_full and not is_full:
            _logger.warning("%d bytes of the disk are free: all is made durable again", self.free_bytes)
        self.is_full = is_full

    def is_short(self) -> bool:
        return self.free_bytes < 2 * self.reserve_bytes

    def is_used_up(self) -> bool:
        return self.free_bytes < self.reserve_bytes // 2

    def shortage_bytes(self) -> int:
        """How much the log should shrink."""
        return max(0, 2 * self.reserve_bytes - self.free_bytes)

    def refusal(self) -> str:
        """Why nothing new is made durable; empty if it is."""
        return self._sentence() if self.is_full else ""

    def _sentence(self) -> str:
        return f"{self.free_bytes} bytes of the disk are free, and {self.reserve_bytes} are store.disk_reserve_bytes"

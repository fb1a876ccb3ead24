"""Restoring a log from its archive, on a machine that has nothing of it.

Owns: what a new data directory gets, and the offset at which the log goes on.
Never: writing to the archive; the restored server claims its generation there when it uploads.
"""

import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final
from uuid import uuid4

from embermq.archive.address import parse_address
from embermq.archive.archive import Archive, archived_log, missing, open_archive
from embermq.archive.errors import ArchiveError
from embermq.archive.manifest import ArchivedCheckpoint, ArchivedSegment
from embermq.archive.objects import Objects
from embermq.store.engines.directory import DataDirectory
from embermq.store.engines.opening import JournalSettings, open_state
from embermq.store.log.checkpoint import Checkpoint, CheckpointWriter, checkpoint_path
from embermq.store.log.errors import LogCorrupt
from embermq.store.log.identity import LogIdentity, write_identity
from embermq.store.log.segments import (
    FIRST_OFFSET,
    encode_segment_header,
    first_offsets,
    index_path,
    log_path,
    sync_directory,
)
from embermq.store.log.writer import Log
from embermq.store.records import SESSION_SEQUENCE
from embermq.store.rows import Kind
from embermq.store.state.state import State

LOST_OFFSETS_MIN: Final = 1_000_000_000
"""At least so many offsets are left out by a restore: more than a machine can have used since its last upload.

The log goes on at a multiple of this, which people recognise."""
RESTORING: Final = "log.restoring"
"""The directory of a log that is being restored; it gets its name when it is whole."""

_logger: Final = logging.getLogger("embermq.archive")

Progress = Callable[[int, int], None]
"""Is told how many bytes were fetched, of how many."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore has given: the records from `first_offset` up to, not including, `lost_from`."""

    log_id: str
    generation: int
    first_offset: int
    lost_from: int
    goes_on_at: int
    segments: int
    size_bytes: int
    last_timestamp_us: int


def refuse_new_log(directory: Path, address: str) -> None:
    """Refuse to begin a new log where an archive has one that can be restored: ArchiveError says what to do."""
    if directory.is_dir() and first_offsets(directory):
        return
    objects = Objects(parse_address(address))
    log_id = archived_log(objects)
    if log_id is None:
        return
    end = Archive(objects, log_id).bounds()[1]
    raise ArchiveError(
        f"{directory.parent} has no log, and the archive {objects.shown} has one up to offset {end - 1}: go on with it"
        f" by `ember log restore --from {address} --data {directory.parent}`, or name another prefix in store.archive"
    )


def restore(address: str, data: Path, settings: JournalSettings, progress: Progress | None = None) -> Restored:
    """Make a data directory from an archive: the newest checkpoint with the segments that it and its sessions need.

    ArchiveError if the directory has a log, or the archive lacks something. After that nothing of it counts as a log.
    """
    archive = open_archive(address)
    segments = archive.segments()
    if not segments:
        raise ArchiveError(f"the archive {archive.shown} has no segment: there is nothing to restore")
    if (data / "log").is_dir() and first_offsets(data / "log"):
        raise ArchiveError(f"{data} has a log: restore into a directory without one")
    directory = DataDirectory(data)
    try:
        return _Restoration(archive, segments, directory, settings, progress).run()
    finally:
        directory.close()


@final
class _Restoration:
    """One restore, into a directory that is locked."""

    def __init__(
        self,
        archive: Archive,
        segments: list[ArchivedSegment],
        directory: DataDirectory,
        settings: JournalSettings,
        progress: Progress | None,
    ) -> None:
        self._archive: Final = archive
        self._directory: Final = directory
        self._settings: Final = settings
        self._progress: Final = progress
        self._log_directory: Final = directory.path / RESTORING
        generations = archive.generations()
        self._lost: Final = tuple((one.lost_from, one.first_offset) for one in generations)
        unarchived = [gap for gap in missing(segments) if gap not in self._lost]
        first = unarchived[-1][1] if unarchived else segments[0].first_offset
        self._segments: Final = [segment for segment in segments if segment.first_offset >= first]
        self._checkpoints: Final = [one for one in archive.checkpoints() if one.offset >= first]

    def run(self) -> Restored:
        shutil.rmtree(self._log_directory, ignore_errors=True)
        self._log_directory.mkdir(mode=0o700)
        begins = self._fetch_checkpoint()
        chosen = [segment for segment in self._segments if segment.next_offset > begins]
        lost_from = self._segments[-1].next_offset
        goes_on_at = (lost_from // LOST_OFFSETS_MIN + 2) * LOST_OFFSETS_MIN
        fetched, total = 0, sum(segment.size_bytes for segment in chosen)
        for segment in chosen:
            self._archive.fetch(segment, self._log_directory)
            fetched += segment.size_bytes
            if self._progress is not None:
                self._progress(fetched, total)
        generation = max([1, *(one.generation for one in self._archive.generations())]) + 1
        lost = (*self._lost, (lost_from, goes_on_at))
        write_identity(self._log_directory, LogIdentity(self._archive.log_id, generation, uuid4().hex, lost))
        _begin_segment(self._log_directory, goes_on_at)
        last_timestamp_us = self._make_state(goes_on_at)
        (self._log_directory / "lock").unlink(missing_ok=True)
        self._log_directory.rename(self._directory.log)  # which is empty
        sync_directory(self._directory.path)
        return Restored(
            self._archive.log_id,
            generation,
            begins,
            lost_from,
            goes_on_at,
            len(chosen),
            total,
            last_timestamp_us,
        )

    def _fetch_checkpoint(self) -> int:
        """Fetch the checkpoint to begin at; returns the first offset that the log then has.

        The newest one is taken, unless its sessions are owed older messages: then one that is older than these.
        """
        needed = self._segments[-1].next_offset
        chosen: ArchivedCheckpoint | None = None
        is_newest = True
        for checkpoint in reversed(self._checkpoints):
            if checkpoint.offset > needed:
                continue
            try:
                owed = self._oldest_owed(checkpoint)
            except (ArchiveError, LogCorrupt) as error:
                _logger.warning("another checkpoint is taken than that of offset %d: %s", checkpoint.offset, error)
                continue
            chosen = checkpoint
            if not is_newest or owed is None or owed >= checkpoint.offset:
                needed = checkpoint.offset
                break
            needed, is_newest = owed, False
        first = self._segments[0].first_offset
        if first == FIRST_OFFSET and (chosen is None or chosen.offset > needed):
            chosen = None
        elif chosen is None:
            raise ArchiveError(
                f"the archive {self._archive.shown} begins at offset {first} and has no undamaged checkpoint to begin"
                " at"
            )
        elif chosen.offset > needed:
            _logger.warning("what sessions are owed from offset %d to %d is not archived", needed, chosen.offset - 1)
        for path in self._log_directory.glob("*.ckpt"):
            if chosen is None or path != checkpoint_path(self._log_directory, chosen.offset):
                path.unlink()
        return FIRST_OFFSET if chosen is None else chosen.offset

    def _oldest_owed(self, archived: ArchivedCheckpoint) -> int | None:
        """The oldest offset that a session is owed as of a checkpoint, which is fetched and checked; None: nothing."""
        self._archive.fetch_checkpoint(archived, self._log_directory)
        acknowledged: dict[int, int] = {}
        oldest: int | None = None
        for rows in Checkpoint(self._log_directory, archived.offset).rows():
            for row in rows:
                if row.kind == Kind.ACKNOWLEDGED:
                    session_id, sequence = SESSION_SEQUENCE.unpack_from(row.payload)
                    acknowledged[session_id] = sequence
                elif row.kind == Kind.QUEUED:
                    session_id, first = SESSION_SEQUENCE.unpack_from(row.payload)
                    entries = memoryview(row.payload)[SESSION_SEQUENCE.size :].cast("Q")
                    owed = entries[max(0, acknowledged.get(session_id, 0) + 1 - first) :]
                    if len(owed):
                        offset = min(owed) >> 3  # `queue_entry`
                        oldest = offset if oldest is None else min(oldest, offset)
        return oldest

    def _make_state(self, goes_on_at: int) -> int:
        """Apply the log, and write the checkpoint of the offset at which it goes on; returns the last timestamp.

        A reader that has seen records which were lost begins again at this checkpoint.
        """
        shutil.rmtree(self._directory.state, ignore_errors=True)
        self._directory.state.mkdir(mode=0o700)
        log = Log(
            self._log_directory,
            segment_bytes=self._settings.segment_bytes,
            segment_age_s=self._settings.segment_age_s,
            sync=True,
        )
        try:
            self._from_checkpoint(log.first_offset)
            state = open_state(self._directory, log, self._settings, None)
            try:
                writer = CheckpointWriter(self._log_directory, goes_on_at, log.last_timestamp_us)
                try:
                    for row in state.view().rows(log.last_timestamp_us):
                        writer.add(row)
                    writer.finish()
                finally:
                    writer.abandon()
            finally:
                state.close()
            return log.last_timestamp_us
        finally:
            log.close()

    def _from_checkpoint(self, offset: int) -> None:
        if offset > FIRST_OFFSET:
            state = State(self._directory.state, self._settings.budgets, self._settings.state)
            try:
                state.restore(Checkpoint(self._log_directory, offset))
            finally:
                state.close()


def _begin_segment(directory: Path, first_offset: int) -> None:
    """An empty segment, to which the restored log appends."""
    for path, data in (
        (index_path(directory, first_offset), b""),
        (log_path(directory, first_offset), encode_segment_header(first_offset)),
    ):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    sync_directory(directory)

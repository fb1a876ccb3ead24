"""Writing to an archive: one log for each place, each segment and checkpoint once.

Owns: whether this log may write there, and the order in which the objects of a segment are written.
Never: when something is uploaded, or what happens if that fails.
"""

import hashlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, final

from embermq.archive.archive import Archive, archived_log, identity_json
from embermq.archive.errors import ArchiveError
from embermq.archive.manifest import (
    CHECKPOINTS,
    IDENTITIES,
    MANIFEST_SUFFIX,
    SEGMENTS,
    ArchivedCheckpoint,
    ArchivedFile,
    ArchivedSegment,
    Generation,
    object_name,
    to_json,
)
from embermq.archive.objects import CHUNK_BYTES, Objects
from embermq.store.log.by_topic.topic_index import read_topic_index
from embermq.store.log.checkpoint import Checkpoint
from embermq.store.log.entries import Entries, first_mismatch, runs
from embermq.store.log.errors import LogCorrupt
from embermq.store.log.identity import LogIdentity
from embermq.store.log.segments import (
    SEGMENT_HEADER_BYTES,
    TOPIC_INDEX_SUFFIX,
    check_segment_header,
    encode_segment_header,
)
from embermq.store.segment import Segment

Pace = Callable[[int], None]
"""Is told the size of each piece before it is sent; may wait, or raise to give the upload up."""


@final
class ArchiveWriter:
    """The archive of one log, written. For one thread."""

    def __init__(self, objects: Objects, identity: LogIdentity, pace: Pace = lambda size_bytes: None) -> None:
        self._objects: Final = objects
        self._identity: Final = identity
        self._archive: Final = Archive(objects, identity.log_id)
        self._pace: Final = pace

    @property
    def archive(self) -> Archive:
        return self._archive

    def claim(self) -> None:
        """Make the place this log's, if it is nobody's; ArchiveError if this log may not write there."""
        log_id = self._identity.log_id
        owner = archived_log(self._objects)
        if owner is None:
            name = f"{IDENTITIES}/{log_id}{MANIFEST_SUFFIX}"
            self._objects.write_bytes(name, identity_json(log_id, _now()))
            owner = archived_log(self._objects)
            if owner is not None and owner != log_id:  # another server has begun here at the same moment
                self._objects.delete(name)
        if owner != log_id:
            raise ArchiveError(
                f"{self._objects.shown} is the archive of another log ({owner}, this one is {log_id}): name another"
                " place in store.archive, or for the backup"
            )
        self._claim_generation()

    def _claim_generation(self) -> None:
        own = self._identity
        known = self._archive.generations()
        newest = known[-1].generation if known else 1
        if newest > own.generation or (newest == own.generation > 1 and known[-1].token != own.token):
            raise ArchiveError(
                f"the log in {self._objects.shown} was restored by another server, which goes on with it from offset"
                f" {known[-1].first_offset}: stop one of the two, or name another prefix in store.archive"
            )
        if newest == own.generation:
            return
        lost_from, first_offset = own.lost[-1]
        end = self._archive.bounds()[1]
        if end != lost_from or newest != own.generation - 1:
            raise ArchiveError(
                f"{self._objects.shown} has gone on to offset {end} since this log was restored up to offset"
                f" {lost_from}: another server writes there; stop it and restore again, or name another prefix in"
                " store.archive"
            )
        claimed = Generation(own.generation, own.token, lost_from, first_offset, _now())
        self._objects.write_bytes(claimed.name + MANIFEST_SUFFIX, to_json(claimed))

    def upload_segment(self, info: Segment, entries: Entries) -> ArchivedSegment:
        """Upload a segment with its index. LogCorrupt if it is damaged here.

        `entries` are its whole index, or the end of it: then the uploaded segment begins at the first block of these.
        """
        is_whole = len(entries) == info.blocks
        first_offset = info.first_offset if is_whole else entries.first_offset(0)
        name = object_name(SEGMENTS, first_offset, self._identity.generation)
        manifest = ArchivedSegment(
            first_offset,
            info.next_offset,
            info.first_timestamp_us if is_whole else entries.first_timestamp_us(0),
            info.last_timestamp_us,
            len(entries),
            self._identity.generation,
            log=self._upload(f"{name}.log", _checked_blocks(info, entries, first_offset)),
            index=self._upload(f"{name}.idx", iter((entries.moved_to(SEGMENT_HEADER_BYTES).data,))),
            topics=self._upload_topics(info, name) if is_whole else None,
        )
        self._objects.write_bytes(name + MANIFEST_SUFFIX, to_json(manifest))
        return manifest

    def upload_checkpoint(self, checkpoint: Checkpoint) -> ArchivedCheckpoint:
        """Upload a checkpoint. LogCorrupt if it is damaged here."""
        checkpoint.check()
        name = object_name(CHECKPOINTS, checkpoint.offset, self._identity.generation)
        manifest = ArchivedCheckpoint(
            checkpoint.offset,
            checkpoint.timestamp_us,
            self._identity.generation,
            self._upload(f"{name}.ckpt", _pieces(checkpoint.path)),
        )
        self._objects.write_bytes(name + MANIFEST_SUFFIX, to_json(manifest))
        return manifest

    def delete(self, manifest: ArchivedSegment | ArchivedCheckpoint) -> None:
        """Delete a segment or a checkpoint. Its manifest goes first: what is left of it then does not count."""
        suffixes = (".ckpt",) if isinstance(manifest, ArchivedCheckpoint) else (".log", ".idx", TOPIC_INDEX_SUFFIX)
        for suffix in (MANIFEST_SUFFIX, *suffixes):
            self._objects.delete(manifest.name + suffix)

    def _upload(self, name: str, pieces: Iterator[bytes]) -> ArchivedFile:
        digest, size_bytes = hashlib.sha256(), 0

        def measured() -> Iterator[bytes]:
            nonlocal size_bytes
            for piece in pieces:
                self._pace(len(piece))
                digest.update(piece)
                size_bytes += len(piece)
                yield piece

        self._objects.write(name, measured())
        return ArchivedFile(size_bytes, digest.hexdigest())

    def _upload_topics(self, info: Segment, name: str) -> ArchivedFile | None:
        """The topic index, if a reader has made one."""
        path = info.path.with_suffix(TOPIC_INDEX_SUFFIX)
        if read_topic_index(path, info.next_offset) is None:
            return None
        return self._upload(name + TOPIC_INDEX_SUFFIX, _pieces(path))


def _checked_blocks(info: Segment, entries: Entries, first_offset: int) -> Iterator[bytes]:
    """A segment file that begins at an offset, without what a failed write may have left at its end.

    Each block is compared with its checksum.
    """
    with open(info.path, "rb") as file:
        header = file.read(SEGMENT_HEADER_BYTES)
        check_segment_header(info.path, header, info.first_offset)
        yield header if first_offset == info.first_offset else encode_segment_header(first_offset)
        if len(entries):
            file.seek(entries.position(0))
        for run in runs(entries, 1 << 62, CHUNK_BYTES):
            data = file.read(run.end() - run.position(0))
            bad = first_mismatch(data, run, True)
            if bad is not None:
                raise LogCorrupt(str(info.path), bad, "the block does not match its checksum or its index entry")
            yield data


def _pieces(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while piece := file.read(CHUNK_BYTES):
            yield piece


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")

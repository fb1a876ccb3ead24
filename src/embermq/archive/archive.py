"""An archive, read: which segments and checkpoints it has, and their bytes (docs/archive.md).

Owns: which objects belong to the log, and that what is handed out is what was uploaded.
Never: writing to it. An object without a manifest is an upload that has not ended, and is not seen.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final, final

from embermq.archive.address import parse_address
from embermq.archive.errors import ArchiveDamaged, ArchiveError, NotArchived
from embermq.archive.manifest import (
    CHECKPOINTS,
    GENERATIONS,
    IDENTITIES,
    MANIFEST_SUFFIX,
    SEGMENTS,
    ArchivedCheckpoint,
    ArchivedFile,
    ArchivedSegment,
    Generation,
    Manifest,
    from_json,
    parsed_name,
)
from embermq.archive.objects import Objects, copy
from embermq.store.log.checkpoint import checkpoint_path
from embermq.store.log.segments import TOPIC_INDEX_SUFFIX, index_path, log_path

READS_AT_ONCE: Final = 8
"""How many manifests are read at a time: each is a request of its own."""


def open_archive(url: str | os.PathLike[str], for_clients: bool = False) -> "Archive":
    """The archive at an address: `s3://bucket/prefix`, `gs://`, `abfs://`, `hdfs://`, `file://` or a directory.

    ArchiveError if there is none, or it cannot be reached. `for_clients`: one on S3 that does not answer is given up
    earlier.
    """
    objects = Objects(parse_address(os.fspath(url), for_clients))
    log_id = archived_log(objects)
    if log_id is None:
        raise NotArchived(f"{objects.shown} is not an archive: no server has written to it")
    return Archive(objects, log_id)


def archived_log(objects: Objects) -> str | None:
    """The id of the log that a place holds the archive of; None if it has none.

    Of two servers that began at the same moment on the same place, the one whose log has the lower id goes on.
    """
    names = [name.removesuffix(MANIFEST_SUFFIX) for name in objects.names(IDENTITIES) if name.endswith(MANIFEST_SUFFIX)]
    return min(names, default=None)


@final
class Archive:
    """The archive of one log. Each call sees it as it is then; manifests are kept, since they never change."""

    def __init__(self, objects: Objects, log_id: str) -> None:
        self._objects: Final = objects
        self.log_id: Final = log_id
        self._manifests: Final[dict[str, ArchivedSegment | ArchivedCheckpoint | Generation]] = {}

    @property
    def shown(self) -> str:
        """The address as messages show it."""
        return self._objects.shown

    def segments(self) -> list[ArchivedSegment]:
        """The segments, oldest first. Where one does not begin where the one before it ends, records are missing."""
        found = self._read_all(ArchivedSegment, SEGMENTS)
        generations = self.generations()
        return sorted(
            (segment for segment in found if _belongs(segment.next_offset, segment.generation, generations)),
            key=lambda segment: segment.first_offset,
        )

    def checkpoints(self) -> list[ArchivedCheckpoint]:
        """The checkpoints, oldest first."""
        found = self._read_all(ArchivedCheckpoint, CHECKPOINTS)
        generations = self.generations()
        return sorted(
            (checkpoint for checkpoint in found if _belongs(checkpoint.offset, checkpoint.generation, generations)),
            key=lambda checkpoint: checkpoint.offset,
        )

    def generations(self) -> list[Generation]:
        """Each time that the log was restored, oldest first."""
        found = self._read_all(Generation, GENERATIONS)
        return sorted(found, key=lambda generation: generation.generation)

    def bounds(self) -> tuple[int, int]:
        """The first archived offset, and the one after the last; both 1 while there is none."""
        segments = self.segments()
        return (segments[0].first_offset, segments[-1].next_offset) if segments else (1, 1)

    def read(self, segment: ArchivedSegment, from_byte: int, to_byte: int) -> bytes:
        """Some bytes of a segment file. Each block in it has a checksum of its own, which the caller compares."""
        return self._objects.read(f"{segment.name}.log", from_byte, to_byte)

    def read_index(self, segment: ArchivedSegment) -> bytes:
        """The index of a segment (docs/log-format.md), compared with its checksum."""
        return self._read_checked(f"{segment.name}.idx", segment.index)

    def read_topics(self, segment: ArchivedSegment) -> bytes | None:
        """The topic index of a segment; None if there is none, or not as it was uploaded: nothing depends on it."""
        if segment.topics is None:
            return None
        try:
            return self._read_checked(f"{segment.name}{TOPIC_INDEX_SUFFIX}", segment.topics)
        except (NotArchived, ArchiveDamaged):
            return None

    def fetch(self, segment: ArchivedSegment, into: Path) -> Path:
        """Copy a segment with its index into a directory, under the names that a log has; returns its path.

        ArchiveDamaged if it is not what was uploaded: then there is no file. The segment gets its name last.
        """
        self._fetch(f"{segment.name}.idx", segment.index, index_path(into, segment.first_offset))
        path = log_path(into, segment.first_offset)
        if segment.topics is not None:
            topics = path.with_suffix(TOPIC_INDEX_SUFFIX)
            with suppress(NotArchived, ArchiveDamaged):  # a reader makes another one
                self._fetch(f"{segment.name}{TOPIC_INDEX_SUFFIX}", segment.topics, topics)
        self._fetch(f"{segment.name}.log", segment.log, path)
        return path

    def fetch_checkpoint(self, checkpoint: ArchivedCheckpoint, into: Path) -> Path:
        """Copy a checkpoint into a directory, under the name that it has beside a log; returns its path."""
        path = checkpoint_path(into, checkpoint.offset)
        self._fetch(f"{checkpoint.name}.ckpt", checkpoint.file, path)
        return path

    def check(self, manifest: ArchivedSegment | ArchivedCheckpoint) -> None:
        """Read the objects of a segment or a checkpoint; ArchiveDamaged if one is not what was uploaded."""
        if isinstance(manifest, ArchivedCheckpoint):
            self._check(f"{manifest.name}.ckpt", manifest.file)
        else:
            self._check(f"{manifest.name}.idx", manifest.index)
            self._check(f"{manifest.name}.log", manifest.log)

    def _read_all(self, kind: type[Manifest], folder: str) -> list[Manifest]:
        """Every manifest of a folder; one that has been deleted since the folder was listed is left out."""
        names = [f"{folder}/{name}" for name in self._objects.names(folder) if parsed_name(name) is not None]
        new = [name for name in names if name not in self._manifests]
        if new:
            with ThreadPoolExecutor(min(READS_AT_ONCE, len(new)), "ember-archive") as pool:
                for name, data in zip(new, pool.map(self._read_small, new), strict=True):
                    if data is not None:
                        self._manifests[name] = from_json(kind, name, data)
        found: list[Manifest] = []
        for name in names:
            manifest = self._manifests.get(name)
            if isinstance(manifest, kind):
                found.append(manifest)
        return found

    def _read_small(self, name: str) -> bytes | None:
        try:
            return self._objects.read(name)
        except NotArchived:
            return None

    def _read_checked(self, name: str, file: ArchivedFile) -> bytes:
        data = self._objects.read(name)
        self._compare(name, file, len(data), hashlib.sha256(data).hexdigest())
        return data

    def _check(self, name: str, file: ArchivedFile) -> None:
        digest, size = hashlib.sha256(), 0
        for chunk in self._objects.chunks(name):
            digest.update(chunk)
            size += len(chunk)
        self._compare(name, file, size, digest.hexdigest())

    def _fetch(self, name: str, file: ArchivedFile, path: Path) -> None:
        unfinished = path.with_name(f"{path.name}.{os.getpid()}.new")
        digest = hashlib.sha256()
        try:
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "wb") as copied:
                size = copy(self._objects.chunks(name), copied, digest.update)
                copied.flush()
                os.fsync(copied.fileno())
            self._compare(name, file, size, digest.hexdigest())
            unfinished.replace(path)
        except OSError as error:
            raise ArchiveError(f"{path} cannot be written: {error.strerror or error}") from None
        finally:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)

    def _compare(self, name: str, file: ArchivedFile, size_bytes: int, sha256: str) -> None:
        if size_bytes != file.size_bytes:
            raise ArchiveDamaged(
                f"{name} of the archive {self.shown} is damaged: it has {size_bytes} bytes, expected {file.size_bytes}"
            )
        if sha256 != file.sha256:
            raise ArchiveDamaged(
                f"{name} of the archive {self.shown} is damaged: its checksum is not the one that was uploaded"
            )


def _belongs(next_offset: int, generation: int, generations: Sequence[Generation]) -> bool:
    """Whether what a generation wrote is of the log: its machine may have gone on after the log was restored."""
    return all(next_offset <= later.lost_from for later in generations if later.generation > generation)


def missing(segments: Sequence[ArchivedSegment]) -> list[tuple[int, int]]:
    """The offsets between segments that no segment has, as pairs of the first and the one after the last."""
    return [
        (before.next_offset, after.first_offset)
        for before, after in pairwise(segments)
        if before.next_offset < after.first_offset
    ]


def identity_json(log_id: str, made: str) -> bytes:
    """The object that says whose archive this is."""
    return json.dumps({"format": 1, "log_id": log_id, "made": made}, indent=1).encode() + b"\n"

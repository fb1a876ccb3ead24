"""Segments of an archive that were fetched, kept on the disk for the next question up to a bound.

Owns: a directory with a directory for each segment, and which of them is removed.
Never: what is read of them. Several processes may use the same directory.
"""

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final, final
from uuid import uuid4

from embermq.archive.archive import Archive
from embermq.archive.manifest import ArchivedSegment
from embermq.store.log.segments import log_path

CACHE_BYTES: Final = 1 << 30


@final
class SegmentCache:
    """Fetched segments, each as a log of its own. The one that was used the longest ago goes first."""

    def __init__(self, archive: Archive, directory: Path, bytes_max: int = CACHE_BYTES) -> None:
        self._archive: Final = archive
        self._directory: Final = directory
        self._bytes_max: Final = bytes_max

    def log_of(self, segment: ArchivedSegment) -> Path:
        """The directory of a log that has this segment only; fetched and compared if it is not there.

        Another process may remove it at any time: FileNotFoundError then means to ask again.
        """
        wanted = self._directory / f"{segment.first_offset:020d}-{segment.generation:06d}-{segment.sha256[:16]}"
        path = log_path(wanted, segment.first_offset)
        if _is_whole(path, segment):
            with suppress(FileNotFoundError):
                os.utime(wanted)
            return wanted
        self._make_room(segment.size_bytes)
        unfinished = self._directory / f"{uuid4().hex}.new"
        try:
            unfinished.mkdir(mode=0o700, parents=True)
            self._archive.fetch(segment, unfinished)
            try:
                unfinished.rename(wanted)
            except OSError:  # another process was quicker, or somebody has damaged it
                if not _is_whole(path, segment):
                    shutil.rmtree(wanted, ignore_errors=True)
                    unfinished.rename(wanted)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        return wanted

    def _make_room(self, needed_bytes: int) -> None:
        kept: list[tuple[float, int, Path]] = []
        with suppress(FileNotFoundError):
            for found in self._directory.iterdir():
                with suppress(FileNotFoundError):  # removed by another process
                    size_bytes = sum(one.stat().st_size for one in found.iterdir())
                    kept.append((found.stat().st_mtime, size_bytes, found))
        used_bytes = sum(size_bytes for _, size_bytes, _ in kept)
        for _, size_bytes, found in sorted(kept):
            if used_bytes + needed_bytes <= self._bytes_max:
                return
            shutil.rmtree(found, ignore_errors=True)
            used_bytes -= size_bytes


def _is_whole(path: Path, segment: ArchivedSegment) -> bool:
    try:
        return path.stat().st_size == segment.size_bytes
    except FileNotFoundError:
        return False

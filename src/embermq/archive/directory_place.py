"""An archive in a directory of this machine.

Owns: that a file has its name only when it is whole and durable.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, final
from uuid import uuid4

from embermq.archive.place import CHUNK_BYTES, UNFINISHED, Place
from embermq.store.log.segments import sync_directory

SYNC_BYTES: Final = 4 << 20
"""What is written between two syncs: the log may be on the same disk, and waits for a long one."""


@final
class DirectoryPlace(Place):
    """The files below a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory: Final = directory

    def sizes(self, folder: str) -> dict[str, int]:
        try:
            with os.scandir(self._directory / folder) as found:
                return {one.name: one.stat().st_size for one in found if one.is_file()}
        except FileNotFoundError:
            return {}

    def read_range(self, name: str, start: int, end: int) -> bytes:
        with open(self._directory / name, "rb") as file:
            return os.pread(file.fileno(), end - start, start)

    def chunks(self, name: str) -> Iterator[bytes]:
        with open(self._directory / name, "rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk

    def write(self, name: str, chunks: Iterator[bytes]) -> None:
        path = self._directory / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished = path.with_name(f"{path.name}.{uuid4().hex}{UNFINISHED}")
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(descriptor, "wb") as file:
                unsynced = 0
                for chunk in chunks:
                    file.write(chunk)
                    unsynced += len(chunk)
                    if unsynced >= SYNC_BYTES:
                        file.flush()
                        os.fdatasync(file.fileno())
                        unsynced = 0
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
        except BaseException:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
            raise
        sync_directory(path.parent)

    def delete(self, name: str) -> None:
        (self._directory / name).unlink()

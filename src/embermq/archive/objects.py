"""The objects of an archive: named bytes below a prefix of a file system, each written once and whole.

Owns: reading, writing and listing them, and turning what a file system says into one sentence.
Never: what an object means.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Final, final
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs

from embermq.archive.address import Address, one_line
from embermq.archive.errors import ArchiveDamaged, ArchiveError, NotArchived
from embermq.store.log.segments import sync_directory

CHUNK_BYTES: Final = 1 << 20
SYNC_BYTES: Final = 4 << 20
"""What is written to a directory between two syncs: the log may be on the same disk, and waits for a long one."""
STREAMS_MAX: Final = 8
"""How many streams of objects in Google's store are kept open: as many as are read by turns."""
UNFINISHED: Final = ".new"
"""How the name ends of a file that is being written, where a file gets its name before it is whole."""


@final
class Objects:
    """The objects below the address of an archive. Any thread may use it."""

    __slots__ = ("_address", "_lock", "_streams")

    def __init__(self, address: Address) -> None:
        self._address: Final = address
        self._lock: Final = Lock()
        self._streams: Final[dict[str, tuple[int, pa.NativeFile]]] = {}  # by path, each with its position

    @property
    def shown(self) -> str:
        """The address as messages show it."""
        return self._address.shown

    def names(self, folder: str) -> dict[str, int]:
        """The names of a folder's objects, without the folder, and their sizes."""
        selector = fs.FileSelector(f"{self._address.root}/{folder}", allow_not_found=True)
        with self._sentences(f"cannot list {folder}"):
            found = self._address.filesystem.get_file_info(selector)
        return {
            info.base_name: info.size
            for info in found
            if info.type == fs.FileType.File and not info.base_name.endswith(UNFINISHED)
        }

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """An object, or its bytes from `start` up to, not including, `end`; ArchiveDamaged if it ends before."""
        with self._sentences(f"cannot read {name}"):
            if end is None:
                with self._address.filesystem.open_input_stream(self._path(name)) as stream:
                    stream.read(start)
                    whole: bytes = stream.read()
                    return whole
            data = self._read_range(self._path(name), start, end)
        if len(data) < end - start:
            raise ArchiveDamaged(
                f"{name} of the archive {self.shown} is damaged: it ends at byte {start + len(data)}, expected {end}"
            )
        return data

    def chunks(self, name: str) -> Iterator[bytes]:
        """An object, piece by piece."""
        with (
            self._sentences(f"cannot read {name}"),
            self._address.filesystem.open_input_stream(self._path(name)) as file,
        ):
            while chunk := file.read(CHUNK_BYTES):
                yield chunk

    def write(self, name: str, chunks: Iterator[bytes]) -> None:
        """Write an object; it has its name only when it is whole and durable."""
        with self._sentences(f"cannot write {name}"):
            if self._address.directory is not None:
                self._write_file(self._address.directory / name, chunks)
            elif self._address.filesystem.type_name == "hdfs":
                self._write_and_move(name, chunks)
            else:  # an object store shows an object when its upload is complete
                self._stream(self._path(name), chunks)

    def write_bytes(self, name: str, data: bytes) -> None:
        """Write a small object."""
        self.write(name, iter((data,)))

    def delete(self, name: str) -> None:
        """Delete an object; one that is not there is no error."""
        with suppress(NotArchived), self._sentences(f"cannot delete {name}"):
            self._address.filesystem.delete_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._address.root}/{name}"

    def _read_range(self, path: str, start: int, end: int) -> bytes:
        filesystem = self._address.filesystem
        if filesystem.type_name == "gcs":
            return self._read_on(path, start, end)
        with filesystem.open_input_file(path) as file:
            data: bytes = file.read_at(end - start, start)
            return data

    def _read_on(self, path: str, start: int, end: int) -> bytes:
        """A range of an object in Google's store, from a stream of it.

        A file would send its first request while pyarrow holds the interpreter's lock: a slow answer would stop the
        server. A stream does not, but can only be read on; so it stays open for the range that follows.
        """
        with self._lock:
            position, stream = self._streams.pop(path, (end, None))
        if stream is None or position > start:
            position, stream = 0, self._address.filesystem.open_input_stream(path)
        while position < start and (skipped := stream.read(min(CHUNK_BYTES, start - position))):
            position += len(skipped)
        data: bytes = stream.read(end - start)
        with self._lock:
            self._streams[path] = (position + len(data), stream)
            if len(self._streams) > STREAMS_MAX:
                del self._streams[next(iter(self._streams))]
        return data

    def _stream(self, path: str, chunks: Iterator[bytes]) -> None:
        # pyarrow completes an upload also when the writing of it failed: no object counts without its manifest.
        with self._address.filesystem.open_output_stream(path) as stream:
            for chunk in chunks:
                stream.write(chunk)

    def _write_and_move(self, name: str, chunks: Iterator[bytes]) -> None:
        filesystem, path = self._address.filesystem, self._path(name)
        unfinished = f"{path}.{uuid4().hex}{UNFINISHED}"
        filesystem.create_dir(path.rpartition("/")[0])
        self._stream(unfinished, chunks)
        filesystem.move(unfinished, path)

    @staticmethod
    def _write_file(path: Path, chunks: Iterator[bytes]) -> None:
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

    @contextmanager
    def _sentences(self, what: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise NotArchived(f"the archive {self.shown} {what}: there is no such object") from None
        except (OSError, pa.ArrowException) as error:
            raise ArchiveError(f"the archive {self.shown} {what}: {one_line(error)}") from None


def copy(chunks: Iterator[bytes], file: BinaryIO, seen: Callable[[bytes], object] | None = None) -> int:
    """Write chunks to a file, show each to a function; returns how many bytes there were."""
    size = 0
    for chunk in chunks:
        file.write(chunk)
        if seen is not None:
            seen(chunk)
        size += len(chunk)
    return size

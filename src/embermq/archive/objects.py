"""The objects of an archive: named bytes in a place, each written once and whole.

Owns: reading, writing and listing them, and turning what a place says into one sentence.
Never: what an object means.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, Final, final

from embermq.archive.address import Address, one_line
from embermq.archive.errors import ArchiveDamaged, ArchiveError, NotArchived
from embermq.archive.place import CHUNK_BYTES as CHUNK_BYTES
from embermq.archive.place import UNFINISHED


@final
class Objects:
    """The objects below the address of an archive. Any thread may use it."""

    def __init__(self, address: Address) -> None:
        self._address: Final = address
        self._place: Final = address.place

    @property
    def shown(self) -> str:
        """The address as messages show it."""
        return self._address.shown

    def names(self, folder: str) -> dict[str, int]:
        """The names of a folder's objects, without the folder, and their sizes."""
        with self._sentences(f"cannot list {folder}"):
            found = self._place.sizes(folder)
        return {name: size for name, size in found.items() if not name.endswith(UNFINISHED)}

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """An object, or its bytes from `start` up to, not including, `end`; ArchiveDamaged if it ends before."""
        if end is None:
            return b"".join(self.chunks(name))[start:]
        with self._sentences(f"cannot read {name}"):
            data = self._place.read_range(name, start, end)
        if len(data) < end - start:
            raise ArchiveDamaged(
                f"{name} of the archive {self.shown} is damaged: it ends at byte {start + len(data)}, expected {end}"
            )
        return data

    def chunks(self, name: str) -> Iterator[bytes]:
        """An object, piece by piece."""
        with self._sentences(f"cannot read {name}"):
            yield from self._place.chunks(name)

    def write(self, name: str, chunks: Iterator[bytes]) -> None:
        """Write an object; it has its name only when it is whole and durable."""
        with self._sentences(f"cannot write {name}"):
            self._place.write(name, chunks)

    def write_bytes(self, name: str, data: bytes) -> None:
        """Write a small object."""
        self.write(name, iter((data,)))

    def delete(self, name: str) -> None:
        """Delete an object; one that is not there is no error."""
        with suppress(NotArchived), self._sentences(f"cannot delete {name}"):
            self._place.delete(name)

    @contextmanager
    def _sentences(self, what: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise NotArchived(f"the archive {self.shown} {what}: there is no such object") from None
        except OSError as error:
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

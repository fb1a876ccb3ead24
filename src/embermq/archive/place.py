"""Where the objects of an archive are: a directory or a store, behind the same five calls.

Owns: nothing that runs. What goes wrong is an OSError; an object that is not there, a FileNotFoundError.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Final

CHUNK_BYTES: Final = 1 << 20
UNFINISHED: Final = ".new"
"""How the name ends of a file that is being written, where a file gets its name before it is whole."""


class Place(ABC):
    """Names lead from the archive's beginning. Any thread may use it."""

    @abstractmethod
    def sizes(self, folder: str) -> dict[str, int]:
        """The files of a folder and their sizes; none if the folder does not exist."""

    @abstractmethod
    def read_range(self, name: str, start: int, end: int) -> bytes:
        """The bytes of an object from `start` up to, not including, `end`, fewer if it ends before."""

    @abstractmethod
    def chunks(self, name: str) -> Iterator[bytes]:
        """An object, piece by piece."""

    @abstractmethod
    def write(self, name: str, chunks: Iterator[bytes]) -> None:
        """Write an object; it has its name only when it is whole and durable."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete an object."""

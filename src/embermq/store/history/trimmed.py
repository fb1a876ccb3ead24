"""What the log no longer has: the interface of a place that has it.

Owns: the words between the reader of the history and an archive. Nothing here runs.
"""

from abc import ABC, abstractmethod
from typing import Final, final

from mypy_extensions import mypyc_attr

from embermq.store.log.lookup import Stretch


@final
class Fetched:
    """Where a read begins: at `offset`, with the blocks of `stretch`; without one, the log itself has that record."""

    __slots__ = ("offset", "stretch")

    def __init__(self, offset: int, stretch: Stretch | None) -> None:
        self.offset: Final = offset
        self.stretch: Final = stretch


@mypyc_attr(allow_interpreted_subclasses=True)
class TrimmedLog(ABC):
    """The records before the log's beginning. Any thread may call it."""

    __slots__ = ()

    @abstractmethod
    def fetch(self, offset: int, from_us: int, log_begins: int) -> Fetched:
        """The blocks from an offset on, or without one (0) from the last that begins before an instant (0: the oldest).

        Takes as long as a network may. `log_begins` is the first offset of the log: up to there no record is missing,
        or this is a StoreError. Offsets that were lost with a machine are passed over.
        """

    @abstractmethod
    def in_memory(self, offset: int) -> Fetched | None:
        """As `fetch`, of what was fetched before; None if that is not in memory any more."""

    @abstractmethod
    def begins_us(self) -> int:
        """From which instant on it had every record when it was last asked; 0 if it was not, or has all."""

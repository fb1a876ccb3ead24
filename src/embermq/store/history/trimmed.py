"""What the log and the history no longer have: the interface of a place that has it.

Owns: the words between the reader of the history and an archive. Nothing here runs.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import mypyc_attr

from embermq.store.history.retained_messages import RetainedPiece
from embermq.store.log.lookup import Stretch


@final
class Fetched:
    """Where a read begins: at `offset`, with the blocks of `stretch`; without one, the log itself has that record."""

    def __init__(self, offset: int, stretch: Stretch | None) -> None:
        self.offset: Final = offset
        self.stretch: Final = stretch


@mypyc_attr(allow_interpreted_subclasses=True)
class TrimmedLog(ABC):
    """The records before the log's beginning. Any thread may call it."""

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
    def begins_us(self, log_begins: int) -> int:
        """From which instant on it had every record when it was last asked; 0 if it was not, or has all.

        `log_begins` as above: where it reached nothing before, it may have what the log no longer has since.
        """

    @abstractmethod
    def fetched_bytes(self) -> int:
        """How many bytes of blocks were fetched so far."""

    @abstractmethod
    def retained(self) -> "TrimmedRetained":
        """The retained set of instants that the history does not reach back to. Opens nothing yet."""


@mypyc_attr(allow_interpreted_subclasses=True)
class TrimmedRetained(ABC):
    """The retained set of instants that the history does not reach back to. One thread asks it for pieces."""

    @abstractmethod
    def piece(
        self,
        topic_filter: str,
        instant_us: int,
        after_topic_name: str,
        limit: int,
        bytes_max: int,
        is_wanted: Callable[[], bool],
    ) -> RetainedPiece:
        """Some of the messages that were retained at an instant, after a topic name; `limit` topics are looked at.

        The first one of an instant may take minutes. `is_wanted` is asked now and then: if it is not, NotWanted.
        """

    @abstractmethod
    def is_made(self, instant_us: int) -> bool:
        """Whether a piece of an instant takes no longer than one of the history does."""

    @abstractmethod
    def begins_us(self) -> int:
        """From which instant on it knows the retained set, if that was found out; 0 if it was not, or knows all."""

    @abstractmethod
    def close(self) -> None:
        """Remove what was made for pieces. Asked by the same thread."""

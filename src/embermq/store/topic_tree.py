"""The topic tree of the retained messages as the operator sees it: one level at a time, and a search for a word."""

from abc import ABC, abstractmethod
from typing import Final, final

from mypy_extensions import mypyc_attr

SAME: Final = 0
APPEARED: Final = 1
CHANGED: Final = 2
VANISHED: Final = 3
UNKNOWN_COUNT: Final = -1
WORK_MAX: Final = 400_000
"""How many keys a walk may read for its counts; one branch may take half of what is left. After twice as many an answer
should end, whatever it has found: perhaps none of the topics had a message at the instant."""


@final
class Moments:
    """For which instants is asked: `as_of_us`, 0 being now; with `compare_us`, what has changed since that instant."""

    def __init__(self, as_of_us: int = 0, compare_us: int = 0) -> None:
        self.as_of_us: Final = as_of_us
        self.compare_us: Final = compare_us


@final
class TreeLevel:
    """One level below a topic, or a first level: its own topic, and the topics below it together with it.

    `sign` is what became of its own message between the two instants; `is_retained` whether it has one at either.
    `topics` counts those with a message at the later instant; it is UNKNOWN_COUNT, and the other counts say nothing,
    where counting would have taken too long.
    """

    def __init__(
        self,
        level: str,
        topic_name: str,
        is_retained: bool,
        has_children: bool,
        sign: int,
        topics: int,
        appeared: int,
        changed: int,
        vanished: int,
    ) -> None:
        self.level: Final = level
        self.topic_name: Final = topic_name
        self.is_retained: Final = is_retained
        self.has_children: Final = has_children
        self.sign: Final = sign
        self.topics: Final = topics
        self.appeared: Final = appeared
        self.changed: Final = changed
        self.vanished: Final = vanished


@final
class TopicPiece:
    """The topics with a message from a key on, up to `covered` and without it; an empty `covered` is the end of all.

    `signs` has for each of them what became of it, or is empty if all are the same. `work` is how many keys were read.
    `changes` has for each the key of the change that made its message, where that is asked for.
    """

    def __init__(
        self, keys: list[bytes], signs: bytes, covered: bytes, work: int, changes: list[bytes] | None = None
    ) -> None:
        self.keys: Final = keys
        self.changes: Final = changes
        self.signs: Final = signs
        self.covered: Final = covered
        self.work: Final = work


@mypyc_attr(allow_interpreted_subclasses=True)
class TopicSource(ABC):
    """The topics with a message at one instant, or at either of two."""

    @abstractmethod
    def piece(self, low: bytes, high: bytes, limit: int) -> TopicPiece:
        """The topics from a key on and before another (empty: no end), of about `limit` keys."""


@mypyc_attr(allow_interpreted_subclasses=True)
class TreeWalk(ABC):
    """The levels below a topic, in store order, found in steps between which others have their turn."""

    @abstractmethod
    def step(self) -> list[TreeLevel]:
        """The levels that the next step finds; it may find none."""

    @abstractmethod
    def is_done(self) -> bool:
        """Whether there are no more."""

    @abstractmethod
    def is_exhausted(self) -> bool:
        """Whether so much was read that an answer should end here; `position` is where to go on."""

    @abstractmethod
    def position(self) -> str:
        """Where the walk is; another one can begin there."""


@mypyc_attr(allow_interpreted_subclasses=True)
class NameSearch(ABC):
    """Topics with a message whose name has a word in it, in store order, found in steps."""

    @abstractmethod
    def step(self) -> list[str]:
        """The topic names that the next step finds; it may find none."""

    @abstractmethod
    def is_done(self) -> bool:
        """Whether there are no more."""

    @abstractmethod
    def position(self) -> str:
        """Where the search is; another one can begin there."""


def position_after(level: str) -> str:
    """The position behind a level and all that is below it."""
    return level + "\x01"  # see `AFTER_SUBTREE` of the keys

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

    __slots__ = ("as_of_us", "compare_us")

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

    __slots__ = (
        "appeared",
        "changed",
        "has_children",
        "is_retained",
        "level",
        "sign",
        "topic_name",
        "topics",
        "vanished",
    )

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


@mypyc_attr(allow_interpreted_subclasses=True)
class TreeWalk(ABC):
    """The levels below a topic, in store order, found in steps between which others have their turn."""

    __slots__ = ()

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

    __slots__ = ()

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

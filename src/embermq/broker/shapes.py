"""Shapes of topic filters: how many nodes of the trie one client's filters can add to the walk for one topic name.

Owns: counting them, and the bound.
The shape of a filter says of each level whether it is a name or a wildcard. A topic name reaches at most one node of
the trie for each beginning of a shape, since the name decides all levels that are not wildcards. So the beginnings of
the shapes of a client's filters bound what they add to the walk for any topic name, however many filters there are:
20,000 filters such as `site/<number>/+/state` have four, the 2^14 ways to put `+` into 14 levels have 32,766.
"""

from collections.abc import Iterable
from typing import Final, final

from embermq.protocol.topics import filter_of_share, is_shared

BEGINNINGS_MAX: Final = 1_024
"""Of the shapes of one client's filters with wildcards. Filters that people write have some tens."""

FEW_FILTERS: Final = 8
"""As many filters of 128 levels, the most by default, are within the bound: for most sessions nothing is counted."""

_NAME: Final = "."
_PLUS: Final = "+"


def shape_of(topic_filter: str) -> str:
    """A character for each level; `#` has none, as it has no node. Empty: there is no wildcard."""
    if is_shared(topic_filter):
        topic_filter = filter_of_share(topic_filter)
    if _PLUS not in topic_filter and "#" not in topic_filter:
        return ""
    levels = topic_filter.split("/")
    if levels[-1] == "#":
        levels.pop()
    return "".join([_PLUS if level == _PLUS else _NAME for level in levels])


@final
class FilterShapes:
    """The shapes of one session's filters with wildcards."""

    __slots__ = ("_filters", "_beginnings")

    def __init__(self, topic_filters: Iterable[str] = ()) -> None:
        self._filters: Final[dict[str, int]] = {}  # by shape, how many filters have it
        self._beginnings: Final[dict[str, int]] = {}  # how many shapes begin like this
        for topic_filter in topic_filters:
            self.add(topic_filter)

    def __len__(self) -> int:
        """How many beginnings there are."""
        return len(self._beginnings)

    def admits(self, topic_filter: str) -> bool:
        """Whether one more filter is within the bound."""
        shape = shape_of(topic_filter)
        if not shape or shape in self._filters:
            return True
        # The longest beginning that another shape has; those before it are there, too.
        known = len(shape)
        while known and shape[:known] not in self._beginnings:
            known -= 1
        return len(self._beginnings) + len(shape) - known <= BEGINNINGS_MAX

    def add(self, topic_filter: str) -> None:
        """The session has one more filter."""
        shape = shape_of(topic_filter)
        if not shape:
            return
        self._filters[shape] = self._filters.get(shape, 0) + 1
        if self._filters[shape] == 1:
            for length in range(1, len(shape) + 1):
                beginning = shape[:length]
                self._beginnings[beginning] = self._beginnings.get(beginning, 0) + 1

    def remove(self, topic_filter: str) -> None:
        """A filter that was added is gone."""
        shape = shape_of(topic_filter)
        if not shape:
            return
        self._filters[shape] -= 1
        if self._filters[shape]:
            return
        del self._filters[shape]
        for length in range(1, len(shape) + 1):
            beginning = shape[:length]
            self._beginnings[beginning] -= 1
            if not self._beginnings[beginning]:
                del self._beginnings[beginning]

"""Levels of the topic tree as the store or the archive has them, and as a user with rights on some topics sees them.

Owns: that counts, names and cursors which such a user gets do not depend on topics that it may not read.
"""

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Final, final

from embermq.http.store_reads import on_store_thread
from embermq.http.streaming import Slices
from embermq.protocol.topics import intersection
from embermq.store.errors import HistoryTrimmed
from embermq.store.topic_tree import (
    APPEARED,
    CHANGED,
    SAME,
    UNKNOWN_COUNT,
    VANISHED,
    Moments,
    TreeLevel,
    position_after,
)

if TYPE_CHECKING:
    from embermq.http.service import Service

Levels = tuple[list[TreeLevel], str | None]
"""Some levels, and the position to go on at; None at the end."""

NAMES_ONLY: Final = 1
"""As `work_max`: branches are not counted."""
UNBOUNDED: Final = 1 << 60
"""As `work_max` or `limit`."""
BRANCHES_MAX: Final = 2_000
"""After this many branches below a level of which only a part can be read, its count is given up."""


async def found_levels(
    service: "Service",
    below: str | None,
    position: str,
    moments: Moments,
    limit: int,
    work_max: int,
) -> Levels:
    """Levels until there are more than `limit`, or enough was read."""
    store = service.server.store
    slices = Slices()
    try:
        walk = store.retained.levels(below, position, moments, work_max)
    except HistoryTrimmed:
        local = store.history.reads()
        if service.archived is None or local is None:
            raise
        from embermq.history.tree import past_levels

        return await service.archived.of_past(
            lambda past, is_wanted: past_levels(past, local, below, position, moments, limit, work_max, is_wanted),
            moments.as_of_us,
            moments.compare_us,
        )
    found: list[TreeLevel] = []
    while not walk.is_done() and not walk.is_exhausted() and len(found) <= limit:
        found += await on_store_thread(store, walk.step)
        await slices.rest()
    return found, None if walk.is_done() else walk.position()


@final
class NarrowedLevels:
    """The tree of one user. `filters` match all that it may read; `may_read` decides about a topic or a filter."""

    __slots__ = (
        "_branches",
        "_branches_max",
        "_filters",
        "_may_read",
        "_moments",
        "_service",
        "_work_max",
    )

    def __init__(
        self,
        service: "Service",
        filters: list[str],
        may_read: Callable[[str], bool],
        moments: Moments,
        work_max: int,
    ) -> None:
        self._service: Final = service
        self._filters: Final = filters
        self._may_read: Final = may_read
        self._moments: Final = moments
        self._work_max: Final = work_max
        self._branches_max: Final = UNBOUNDED if work_max == UNBOUNDED else BRANCHES_MAX
        self._branches = 0

    async def page(self, below: str | None, position: str, limit: int) -> list[TreeLevel]:
        """Levels until there are more than `limit`."""
        found: list[TreeLevel] = []
        async for level in self._names(below, position):
            self._branches = 0
            seen = await self._branch(below, level)
            if seen is not None:
                found.append(seen)
                if len(found) > limit:
                    break
        return found

    async def _branch(self, below: str | None, level: str) -> TreeLevel | None:
        """One level; None if nothing of its branch may be read, or has a message."""
        self._branches += 1
        topic_name = level if below is None else f"{below}/{level}"
        if self._may_read(f"{topic_name}/#"):
            return await self._one(below, level, self._work_max)
        is_retained, sign = False, SAME
        if self._may_read(topic_name):
            own = await self._one(below, level, NAMES_ONLY)
            if own is not None and own.is_retained:
                is_retained, sign = True, own.sign
        own_count = int(is_retained)
        topics = own_count * (sign != VANISHED)
        appeared = own_count * (sign == APPEARED)
        changed = own_count * (sign == CHANGED)
        vanished = own_count * (sign == VANISHED)
        has_children = is_unknown = False
        async for name in self._names(topic_name, ""):
            child = await self._branch(topic_name, name)
            if child is None:
                continue
            has_children = True
            is_unknown = child.topics == UNKNOWN_COUNT or self._branches > self._branches_max
            if is_unknown:
                break
            topics += child.topics
            appeared += child.appeared
            changed += child.changed
            vanished += child.vanished
        if not is_retained and not has_children:
            return None
        return TreeLevel(
            level,
            topic_name,
            is_retained,
            has_children,
            sign,
            UNKNOWN_COUNT if is_unknown else topics,
            appeared,
            changed,
            vanished,
        )

    async def _names(self, below: str | None, position: str) -> AsyncIterator[str]:
        """The levels from a position on that may have something to read in their branches."""
        depth = 0 if below is None else below.count("/") + 1
        names: set[str] = set()
        for topic_filter in self._filters:
            common = topic_filter if below is None else intersection(topic_filter, f"{below}/#")
            levels = [] if common is None else common.split("/")[depth : depth + 1]
            if levels and levels[0] in ("+", "#"):
                async for name in self._all_names(below, position):
                    yield name
                return
            names.update(levels)
        for name in sorted(names):
            if name >= position.replace("/", "\0"):
                yield name

    async def _all_names(self, below: str | None, position: str) -> AsyncIterator[str]:
        following: str | None = position
        while following is not None:
            found, following = await self._found(below, following, UNBOUNDED, NAMES_ONLY)
            for each in found:
                yield each.level

    async def _one(self, below: str | None, level: str, work_max: int) -> TreeLevel | None:
        following: str | None = level
        while following is not None and following < position_after(level):
            found, following = await self._found(below, following, 0, work_max)
            if found:
                return found[0] if found[0].level == level else None
        return None

    async def _found(self, below: str | None, position: str, limit: int, work_max: int) -> Levels:
        return await found_levels(self._service, below, position, self._moments, limit, work_max)

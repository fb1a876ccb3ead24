"""Levels of the topic tree in the past that were found a moment ago: many pages show the same, and counting takes long.

Owns: how long levels are given again, that those who ask at the same time wait for one walk, and that it ends when none
of them waits any more.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, final

from embermq.store.topic_tree import TreeLevel

LEVELS_MAX: Final = 64
"""How many pages of levels are kept."""
FRESH_S: Final = 60.0
"""How long levels are given again: those of the past change only when the log is trimmed."""

Key = tuple[str | None, str, int, int, int]  # below, cursor, limit, the two instants
Found = tuple[list[TreeLevel], str | None]  # the levels, and the cursor to go on


Find = Callable[[], Awaitable[Found]]


@final
class _Walk:
    """Levels that are being found, or were. `until_s`: until when they are given again."""

    __slots__ = ("_waiting", "task", "until_s")

    def __init__(self, find: Find) -> None:
        self._waiting = 0
        self.until_s = 0.0
        self.task: Final = asyncio.ensure_future(find())

    def is_wanted(self) -> bool:
        return self._waiting > 0

    async def found(self) -> Found:
        """Wait for the levels. When the last of those who wait is cancelled, so is the walk."""
        self._waiting += 1
        try:
            return await asyncio.shield(self.task)
        finally:
            self._waiting -= 1
            if not self._waiting and not self.task.done():
                self.task.cancel()


@final
class LevelCache:
    """The levels of one server."""

    __slots__ = ("_kept", "_levels_max", "_now_s")

    def __init__(self, levels_max: int = LEVELS_MAX, now_s: Callable[[], float] = time.monotonic) -> None:
        self._levels_max: Final = levels_max
        self._now_s: Final = now_s
        self._kept: Final[OrderedDict[Key, _Walk]] = OrderedDict()

    async def get(self, key: Key, find: Find) -> Found:
        """What was found for a key, or is being found, or else what `find` finds.

        The instants of the key are so long ago that all records of them are applied.
        """
        kept = self._kept.get(key)
        if kept is not None and (kept.is_wanted() or (kept.task.done() and self._now_s() < kept.until_s)):
            return await kept.found()
        walk = _Walk(find)
        self._kept[key] = walk
        self._kept.move_to_end(key)
        if len(self._kept) > self._levels_max:
            self._kept.popitem(last=False)

        def done(found: asyncio.Future[Found]) -> None:
            is_kept = self._kept.get(key) is walk
            if found.cancelled() or found.exception() is not None:
                if is_kept:
                    del self._kept[key]
            elif is_kept:
                walk.until_s = self._now_s() + FRESH_S

        walk.task.add_done_callback(done)
        return await walk.found()

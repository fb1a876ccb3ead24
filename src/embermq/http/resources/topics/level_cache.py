"""Levels of the topic tree in the past that were found a moment ago: many pages show the same, and counting takes long.

Owns: how long levels are given again, and that those who ask at the same time wait for one walk.
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


@final
class LevelCache:
    """The levels of one server."""

    __slots__ = ("_kept", "_levels_max", "_now_s")

    def __init__(self, levels_max: int = LEVELS_MAX, now_s: Callable[[], float] = time.monotonic) -> None:
        self._levels_max: Final = levels_max
        self._now_s: Final = now_s
        self._kept: Final[OrderedDict[Key, tuple[asyncio.Future[Found], float]]] = OrderedDict()  # until when

    async def get(self, key: Key, find: Callable[[], Awaitable[Found]]) -> Found:
        """What was found for a key, or is being found, or else what `find` finds.

        The instants of the key are so long ago that all records of them are applied.
        """
        kept = self._kept.get(key)
        if kept is not None and (not kept[0].done() or self._now_s() < kept[1]):
            return await asyncio.shield(kept[0])
        task = asyncio.ensure_future(find())
        self._kept[key] = task, 0.0
        self._kept.move_to_end(key)
        if len(self._kept) > self._levels_max:
            self._kept.popitem(last=False)

        def done(found: asyncio.Future[Found]) -> None:
            is_kept = self._kept.get(key, (None, 0.0))[0] is found
            if found.cancelled() or found.exception() is not None:
                if is_kept:
                    del self._kept[key]
            elif is_kept:
                self._kept[key] = found, self._now_s() + FRESH_S

        task.add_done_callback(done)
        return await asyncio.shield(task)

"""The retained set as of instants that only the archive has, for requests.

A request that is given up stops its work. The thread is not one of `ArchiveThreads`: the end of the process waits until
what was made for instants is removed.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final, TypeVar, final

from embermq.store.interface import HistoryReads, Retained
from embermq.store.topic_tree import Moments

if TYPE_CHECKING:
    from embermq.history.rebuilt import ArchivedPast
    from embermq.history.tree import Levels

T = TypeVar("T")


@final
class Past:
    """As of instants that only the archive has: on a thread of its own, one question after the other."""

    __slots__ = ("_address", "_data", "_past", "_thread")

    def __init__(self, address: str, data: Path) -> None:
        self._address: Final = address
        self._data: Final = data
        self._past: ArchivedPast | None = None
        self._thread: Final = ThreadPoolExecutor(1, "ember-past")

    async def pieces(self, topic_filter: str, instant_us: int, after_topic_name: str) -> AsyncIterator[list[Retained]]:
        """As `ArchivedPast.pieces`."""
        opened = await self._on_thread(self._opened)
        given_up = Event()
        pieces = opened.pieces(topic_filter, instant_us, after_topic_name, lambda: not given_up.is_set())
        try:
            while (piece := await self._on_thread(partial(next, pieces, None))) is not None:
                yield piece
        finally:
            given_up.set()

    async def message(self, topic_name: str, instant_us: int) -> Retained | None:
        """As `ArchivedPast.message`."""
        opened = await self._on_thread(self._opened)
        given_up = Event()
        try:
            return await self._on_thread(partial(opened.message, topic_name, instant_us, lambda: not given_up.is_set()))
        finally:
            given_up.set()

    async def levels(
        self,
        local: HistoryReads,
        below: str | None,
        position: str,
        moments: Moments,
        limit: int,
        work_max: int,
        is_wanted: Callable[[], bool],
    ) -> "Levels":
        """As `past_levels`."""
        from embermq.history.tree import past_levels

        opened = await self._on_thread(self._opened)
        return await self._on_thread(
            partial(past_levels, opened, local, below, position, moments, limit, work_max, is_wanted)
        )

    async def names(
        self,
        local: HistoryReads,
        word: str,
        position: str,
        instant_us: int,
        limit: int,
        steps_max: int,
        is_wanted: Callable[[], bool],
    ) -> tuple[list[Retained], str | None]:
        """As `past_names`."""
        from embermq.history.tree import past_names

        opened = await self._on_thread(self._opened)
        return await self._on_thread(
            partial(past_names, opened, local, word, position, instant_us, limit, steps_max, is_wanted)
        )

    def first_us(self) -> int:
        """From which instant on the archive knows the retained set; 0 while that was not found out."""
        return 0 if self._past is None else self._past.first_us()

    def close(self) -> None:
        """No question follows; what was made for one is removed when that has ended."""
        if self._past is not None:
            self._thread.submit(self._past.close)
        self._thread.shutdown(wait=False)

    async def _on_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def _opened(self) -> "ArchivedPast":
        if self._past is None:
            from embermq.history.rebuilt import CACHE, ArchivedPast

            self._past = ArchivedPast(self._address, self._data / CACHE, log_directory=self._data / "log")
        return self._past

"""Levels found a moment ago are given again, one walk at a time, and never for long."""

import asyncio

import pytest

from embermq.http.resources.topics.level_cache import FRESH_S, Found, Key, LevelCache

THEN: Key = (None, "", 100, 1_000_000, 0)


class Walk:
    """A walk that ends when it is told to, and may fail then."""

    def __init__(self, is_wrong: bool = False) -> None:
        self.clock_s = 0.0
        self.count = 0
        self._is_wrong = is_wrong
        self.was_cancelled = False
        self.may_end = asyncio.Event()
        self.may_end.set()

    def now_s(self) -> float:
        return self.clock_s

    async def find(self) -> Found:
        self.count += 1
        found: Found = ([], str(self.count))
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        if self._is_wrong:
            raise ValueError("the walk failed")
        return found


def test_levels_are_given_again_until_they_are_old() -> None:
    async def test() -> None:
        walk = Walk()
        cache = LevelCache(now_s=walk.now_s)
        assert await cache.get(THEN, walk.find) == ([], "1")
        walk.clock_s += FRESH_S - 0.01
        assert await cache.get(THEN, walk.find) == ([], "1")
        walk.clock_s += 0.02
        assert await cache.get(THEN, walk.find) == ([], "2")

    asyncio.run(test())


def test_those_who_ask_together_wait_for_one_walk() -> None:
    async def test() -> None:
        walk = Walk()
        walk.may_end.clear()
        cache = LevelCache(now_s=walk.now_s)
        first, *others = [asyncio.ensure_future(cache.get(THEN, walk.find)) for _ in range(20)]
        await asyncio.sleep(0)
        first.cancel()  # the walk goes on for the others
        walk.may_end.set()
        assert await asyncio.gather(*others) == [([], "1")] * 19
        assert walk.count == 1

    asyncio.run(test())


def test_a_walk_ends_with_the_last_of_those_who_wait_for_it() -> None:
    async def test() -> None:
        walk = Walk()
        walk.may_end.clear()
        cache = LevelCache(now_s=walk.now_s)
        first, second = [asyncio.ensure_future(cache.get(THEN, walk.find)) for _ in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for waiting, is_cancelled in ((first, False), (second, True)):
            waiting.cancel()
            await asyncio.wait([waiting])
            await asyncio.sleep(0)
            assert walk.was_cancelled == is_cancelled
        walk.may_end.set()
        assert await cache.get(THEN, walk.find) == ([], "2")

    asyncio.run(test())


def test_a_failed_walk_is_not_kept_and_few_are() -> None:
    async def test() -> None:
        walk = Walk(is_wrong=True)
        cache = LevelCache(levels_max=2, now_s=walk.now_s)
        for _ in range(2):
            with pytest.raises(ValueError, match="the walk failed"):
                await cache.get(THEN, walk.find)
        assert walk.count == 2
        good = Walk()
        cache = LevelCache(levels_max=2, now_s=good.now_s)
        for limit in (1, 2, 3, 3, 1):
            await cache.get((None, "", limit, 0, 0), good.find)
        assert good.count == 4

    asyncio.run(test())

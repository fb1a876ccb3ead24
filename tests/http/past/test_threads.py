"""Threads that wait for an archive: some at a time, and nothing waits for their end."""

import asyncio
import subprocess
import sys
from functools import partial
from threading import Event

import pytest

from embermq.http.past.threads import ArchiveThreads

HANGING = """
import asyncio
from threading import Event
from embermq.http.past.threads import ArchiveThreads

async def main():
    threads, begun = ArchiveThreads(1, "test"), asyncio.Event()
    loop = asyncio.get_running_loop()
    def hang():
        loop.call_soon_threadsafe(begun.set)
        Event().wait()
    asked = asyncio.create_task(threads.run(hang))
    await begun.wait()
    threads.close()
    asked.cancel()

asyncio.run(main())
print("ended")
"""


def test_calls_are_answered_in_turn_and_errors_are_raised() -> None:
    async def test() -> None:
        threads = ArchiveThreads(2, "test")
        assert await asyncio.gather(*(threads.run(partial(int, number)) for number in range(20))) == [*range(20)]
        with pytest.raises(ZeroDivisionError):
            await threads.run(lambda: 1 // 0)
        assert await threads.run(lambda: "after it") == "after it"
        threads.close()

    asyncio.run(test())


def test_so_many_run_at_a_time_and_those_that_nobody_wants_do_not_begin() -> None:
    async def test() -> None:
        threads, go_on = ArchiveThreads(2, "test"), Event()
        begun: list[int] = []
        two = asyncio.Event()
        loop = asyncio.get_running_loop()

        def hold(number: int) -> int:
            begun.append(number)
            if len(begun) == 2:
                loop.call_soon_threadsafe(two.set)
            assert go_on.wait(60)
            return number

        tasks = [asyncio.create_task(threads.run(partial(hold, number))) for number in range(5)]
        await two.wait()
        assert sorted(begun) == [0, 1]
        tasks[3].cancel()
        await asyncio.sleep(0)
        go_on.set()
        assert [await tasks[number] for number in (0, 1, 2, 4)] == [0, 1, 2, 4]
        assert sorted(begun) == [0, 1, 2, 4]
        threads.close()

    asyncio.run(test())


def test_a_process_ends_although_one_of_them_hangs() -> None:
    ended = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, "ended\n"), ended.stderr

"""Threads that wait for an archive, which may never answer.

Owns: that nothing else waits with them, also not the end of the process: the threads of Python's own executors would
keep it.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar, final

from embermq.named_thread import NamedThread

T = TypeVar("T")


@final
class ArchiveThreads:
    """Some threads, which start when they are needed. Its methods are for the event loop."""

    __slots__ = ("_count", "_count_max", "_name", "_waiting")

    def __init__(self, count_max: int, name: str) -> None:
        self._count_max: Final = count_max
        self._name: Final = name
        self._count = 0
        self._waiting: Final[SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None]] = SimpleQueue()

    async def run(self, call: Callable[[], T]) -> T:
        """Do something on one of the threads. A call that nobody waits for any more is not begun."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.put((call, answer))
        if self._count < self._count_max:
            self._count += 1
            NamedThread(self._run, f"{self._name}-{self._count}").start()
        return await answer

    def close(self) -> None:
        """No call follows. Those that have not begun are not answered."""
        with suppress(Empty):
            while True:
                self._waiting.get_nowait()
        for _ in range(self._count):
            self._waiting.put(None)

    def _run(self) -> None:
        while (asked := self._waiting.get()) is not None:
            call, answer = asked
            if answer.cancelled():
                continue
            found: Any = None
            failure: BaseException | None = None
            try:
                found = call()
            except BaseException as error:
                failure = error
            with suppress(RuntimeError):  # the event loop is closed
                answer.get_loop().call_soon_threadsafe(_set, answer, found, failure)


def _set(answer: asyncio.Future[Any], found: Any, failure: BaseException | None) -> None:
    if answer.cancelled():
        return
    if failure is not None:
        answer.set_exception(failure)
    else:
        answer.set_result(found)

"""Reads of the store for requests, on its threads.

Owns: that no request reads the state or the log on the event loop, but for one retained message of now, and that one
which is given up takes back what a thread has not begun. A store in memory has no thread, and is quick. The threads
of `Service` are for files: they may go on when the state is closed, which would keep it open.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar, final

from embermq.store.errors import StoreError
from embermq.store.history.lanes import IsWanted, ReadLane, never
from embermq.store.history.pieces import HistoryPiece, HistoryRead
from embermq.store.interface import Store

T = TypeVar("T")


async def on_store_thread(store: Store, call: Callable[[], T]) -> T:
    """Call something that reads a part of the store; every other reader waits for its end."""
    reads = store.history.reads()
    return call() if reads is None else await on_lane(reads.lanes.local, lambda _: call())


async def on_lane(lane: ReadLane, find: Callable[[IsWanted], T], is_quick: Callable[[], bool] = never) -> T:
    """What is found on a thread of a lane. When nobody waits for it any more, it is not begun, or not wanted."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def question(is_wanted: IsWanted) -> None:
        try:
            settle = partial(answer.set_result, find(is_wanted))
        except BaseException as error:
            # The frames of a store's error may have an iterator, which would keep the state open.
            failure = error.with_traceback(None) if isinstance(error, StoreError) else error
            settle = partial(answer.set_exception, failure)
        with suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(lambda: None if answer.cancelled() else settle())

    lane.ask(question, lambda: not answer.cancelled(), is_quick)
    return await answer


async def answered(ask: Callable[[HistoryRead], None]) -> HistoryPiece:
    """What a read finds that is asked for here."""
    answer: asyncio.Future[HistoryPiece] = asyncio.get_running_loop().create_future()
    read = _Read(answer)
    ask(read)
    try:
        return await answer
    except asyncio.CancelledError:
        read.is_cancelled = True
        raise


@final
class _Read(HistoryRead):
    """One read, whose answer comes on the event loop."""

    def __init__(self, answer: asyncio.Future[HistoryPiece]) -> None:
        super().__init__()
        self._answer: Final = answer

    def done(self, piece: HistoryPiece | None, error: StoreError | None) -> None:
        if self._answer.done():  # cancelled
            return
        if piece is not None:
            self._answer.set_result(piece)
        else:
            assert error is not None
            self._answer.set_exception(error)

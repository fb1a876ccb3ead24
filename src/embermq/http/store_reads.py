"""Reads of the store for requests, on the thread of the store that reads its history.

Owns: that no request reads the state or the log on the event loop, and that one which is given up takes back what the
thread has not begun. A store in memory has no thread, and is quick. The threads of `Service` are for files: they may go
on when the state is closed, which would keep it open.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar, final

from embermq.store.errors import StoreError
from embermq.store.history.pieces import HistoryPiece, HistoryRead
from embermq.store.interface import Store

T = TypeVar("T")


async def on_store_thread(store: Store, call: Callable[[], T]) -> T:
    """Call something that reads a part of the store; every other reader waits for its end."""
    reads = store.history.reads()
    if reads is None:
        return call()
    found: list[T] = []
    await answered(partial(reads.run, call=lambda: found.append(call())))
    return found[0]


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

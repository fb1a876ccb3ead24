"""The server's event loop: asyncio's own, with a selector that looks after the server's sockets itself.

Not compiled: it derives from a class that is not.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import TypeVarTuple, Unpack, final

from embermq.transport.sockets.poll import Poll, Wake
from embermq.transport.sockets.selector import SocketSelector

Args = TypeVarTuple("Args")


@final
class SocketLoop(asyncio.SelectorEventLoop):
    """Tells its selector when there is something to call, so that this need not return after each turn of the server.

    `wake` lets the store's thread have something called in a turn; asyncio's own way takes several calls of the system.
    """

    def __init__(self) -> None:
        self.poll = Poll(self)
        self.wake = Wake()
        self._socket_selector = SocketSelector(self.poll)
        super().__init__(self._socket_selector)  # type: ignore[arg-type]  # it has the methods, without the base
        self.poll.add(self.wake)

    def call_soon(
        self, callback: Callable[[Unpack[Args]], object], *args: *Args, context: Context | None = None
    ) -> asyncio.Handle:
        self._socket_selector.want_loop()
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Args]], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        self._socket_selector.want_loop()
        return super().call_at(when, callback, *args, context=context)

    def close(self) -> None:
        super().close()  # with the epoll; raises if the loop runs
        self.wake.close()

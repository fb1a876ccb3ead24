"""The event loop of the simulated server: callbacks and timers, run by the world one at a time.

Owns: what the server's shell asks of asyncio.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any, Final

from simulation.clock import CLOCK


class Loop(asyncio.AbstractEventLoop):
    """Only what the server calls; the rest raises NotImplementedError."""

    def __init__(self) -> None:
        self._ready: Final[deque[asyncio.Handle]] = deque()
        self._timers: Final[list[asyncio.TimerHandle]] = []

    def get_debug(self) -> bool:
        return False

    def time(self) -> float:
        return CLOCK.now_us / 1_000_000

    def is_running(self) -> bool:
        return True

    def call_soon(  # type: ignore[override]  # the arguments of a callback are any here
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]  # as above
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]  # as above
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(self.time() + delay, callback, args, self, context)
        heapq.heappush(self._timers, handle)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is passed over when it is due."""

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def run_in_executor(  # type: ignore[override]  # as above
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> Any:
        future = self.create_future()
        future.set_result(func(*args))
        return future

    # -- for the world -------------------------------------------------------------------------------------------------

    def next_due_us(self) -> int | None:
        while self._timers and self._timers[0].cancelled():
            heapq.heappop(self._timers)
        return int(self._timers[0].when() * 1_000_000) + 1 if self._timers else None

    def take_due(self) -> None:
        """Timers that are due become callbacks, in their order."""
        while (due_us := self.next_due_us()) is not None and due_us <= CLOCK.now_us:
            self._ready.append(heapq.heappop(self._timers))

    def run_once(self) -> bool:
        """One pass: what waits now, not what that adds; whether there was anything."""
        self.take_due()
        count = len(self._ready)
        for _ in range(count):
            handle = self._ready.popleft()
            if not handle.cancelled():
                handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]  # errors are the world's
        return count > 0

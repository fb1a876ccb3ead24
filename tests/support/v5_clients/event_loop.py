"""An event loop on a thread of its own, for clients that are written for asyncio."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import TypeVar

from support.client_paths import TIMEOUT_S

T = TypeVar("T")


class EventLoop:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[None, None, T]) -> T:
        """The result of a coroutine; an error if it takes too long."""
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, TIMEOUT_S), self._loop).result()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

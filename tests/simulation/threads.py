"""Threads of the server as greenlets: one runs at a time, and the world says which.

Owns: the stand-ins for `NamedThread`, `SimpleQueue` and `Event`, and where a thread may be interrupted: at each of
their waits, and at each write and sync of the disk (`pause`).
The world itself runs in the main greenlet, and so does the server's loop.
"""

from collections import deque
from collections.abc import Callable
from queue import Empty
from random import Random
from typing import Any, Final

from greenlet import GreenletExit, getcurrent, greenlet

from simulation.clock import CLOCK


class Deadlock(Exception):
    """The broker's thread waits for one that nothing will wake."""


class SimulatedThread:
    """A thread of the server. It runs when the world switches to it, until it waits for something."""

    def __init__(self, target: Callable[..., object], name: str, args: tuple[Any, ...] = ()) -> None:
        self.name: Final = name
        self.wake_us: int | None = None  # when it goes on at the latest
        self.is_ready: Callable[[], bool] | None = None  # it goes on before that if this says so
        self.greenlet: Final = greenlet(lambda: target(*args))
        self._is_started = False

    def start(self) -> None:
        self._is_started = True
        self.wake_us = CLOCK.now_us
        THREADS.alive.append(self)

    def is_alive(self) -> bool:
        return self._is_started and not self.greenlet.dead

    def join(self, timeout: float | None = None) -> None:
        pause(None, lambda: not self.is_alive())

    def may_run(self) -> bool:
        if self.is_ready is not None and self.is_ready():
            return True
        return self.wake_us is not None and self.wake_us <= CLOCK.now_us


class Threads:
    """All threads but the main one, in the order in which they were started."""

    def __init__(self) -> None:
        self.alive: list[SimulatedThread] = []
        self.main = getcurrent()
        self.rng = Random(0)

    def run_one(self) -> bool:
        """Let one of those that may run do so, until it waits; whether there was one."""
        ready = [thread for thread in self.alive if thread.may_run()]
        if not ready:
            return False
        thread = ready[0] if len(ready) == 1 else self.rng.choice(ready)
        thread.wake_us, thread.is_ready = None, None
        thread.greenlet.switch()
        if thread.greenlet.dead:
            self.alive.remove(thread)
        return True

    def next_wake_us(self) -> int | None:
        return min((thread.wake_us for thread in self.alive if thread.wake_us is not None), default=None)

    def kill(self) -> None:
        """The process is gone. What the threads still do while they unwind must find a disk that takes nothing."""
        for thread in self.alive:
            if not thread.greenlet.dead:
                thread.greenlet.throw(GreenletExit)
        self.alive.clear()


THREADS: Final = Threads()


def is_main() -> bool:
    return getcurrent() is THREADS.main


def pause(wake_us: int | None, is_ready: Callable[[], bool] | None = None) -> None:
    """Let others run until an instant or a condition. In the main greenlet the condition must come true."""
    current = getcurrent()
    if current is THREADS.main:
        while is_ready is not None and not is_ready():
            if not THREADS.run_one():
                next_us = THREADS.next_wake_us()
                if next_us is None:
                    raise Deadlock
                CLOCK.move(next_us)
        return
    for thread in THREADS.alive:
        if thread.greenlet is current:
            thread.wake_us, thread.is_ready = wake_us, is_ready
            THREADS.main.switch()
            return
    raise AssertionError("a greenlet that is no thread")


def _deadline_us(timeout_s: float | None) -> int | None:
    return None if timeout_s is None else CLOCK.now_us + int(timeout_s * 1_000_000)


class SimulatedQueue:
    """`queue.SimpleQueue`."""

    def __init__(self) -> None:
        self._items: Final[deque[Any]] = deque()

    def put(self, item: Any) -> None:
        self._items.append(item)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if not self._items and block:
            pause(_deadline_us(timeout), lambda: bool(self._items))
        if not self._items:
            raise Empty
        return self._items.popleft()

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def __class_getitem__(cls, item: object) -> type["SimulatedQueue"]:
        return cls


class SimulatedEvent:
    """`threading.Event`."""

    def __init__(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._is_set:
            if is_main():
                return False  # nothing on the broker's thread waits for time to pass
            pause(_deadline_us(timeout), lambda: self._is_set)
        return self._is_set

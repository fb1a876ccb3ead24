"""The threads that answer what was: one pool, in lanes.

Owns: how many threads each lane has, so that a slow lane keeps no other waiting; what waits in it; and that nothing is
begun, or goes on, that nobody wants any more. The threads start with what is asked of them.
Never: what is read.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Lock
from typing import Final, final

from embermq.named_thread import NamedThread

FETCHING_THREADS: Final = 4
"""How many replays wait for the archive at a time: a slow answer keeps only its own read waiting."""
ARCHIVED_THREADS: Final = 2
"""How many requests wait for the archive at a time."""
WAITING_MAX: Final = 1_000
"""With more questions waiting in a lane, those are removed that nobody wants any more."""
CLOSE_S: Final = 1.0
"""How long the end of the thread that makes past states is waited for: it may wait for the archive."""

IsWanted = Callable[[], bool]
Question = Callable[[IsWanted], object]
"""What a thread calls; it raises nothing. One that takes long asks now and then whether it is wanted."""


def always() -> bool:
    return True


def never() -> bool:
    return False


@final
class _Asked:
    __slots__ = ("question", "is_wanted", "is_quick", "is_begun")

    def __init__(self, question: Question, is_wanted: IsWanted, is_quick: Callable[[], bool]) -> None:
        self.question: Final = question
        self.is_wanted: Final = is_wanted
        self.is_quick: Final = is_quick
        self.is_begun = False

    def begin(self) -> bool:
        """Whether it is to be answered now."""
        is_new, self.is_begun = not self.is_begun, True
        return is_new and self.is_wanted()


@final
class ReadLane:
    """Some threads that answer in the order in which they are asked."""

    __slots__ = ("_name", "_threads_max", "_at_end", "_waiting", "_news", "_starting", "_threads", "_is_closed")

    def __init__(self, name: str, threads_max: int = 1, at_end: Callable[[], None] | None = None) -> None:
        """`at_end` is the last thing that the one thread of a lane does."""
        self._name: Final = name
        self._threads_max: Final = threads_max
        self._at_end: Final = at_end
        self._waiting: Final[deque[_Asked]] = deque()
        self._news: Final[SimpleQueue[None]] = SimpleQueue()  # at least one for each that waits
        self._starting: Final = Lock()
        self._threads: Final[list[NamedThread]] = []
        self._is_closed = False

    def ask(self, question: Question, is_wanted: IsWanted = always, is_quick: Callable[[], bool] = never) -> None:
        """Have a question answered, on any thread of the lane. `is_wanted` and `is_quick` are asked there.

        A quick one is also answered while the one thread of a lane is at another that asks whether it is wanted.
        """
        if len(self._waiting) >= WAITING_MAX:
            self._remove_unwanted()
        self._waiting.append(_Asked(question, is_wanted, is_quick))
        self._news.put(None)
        if len(self._threads) < self._threads_max:
            self._start()

    def close(self, wait_s: float | None) -> None:
        """Wait for the end of the threads; what they have not begun is not answered. None: however long it takes."""
        self._is_closed = True
        self._waiting.clear()
        for _ in self._threads:
            self._news.put(None)
        for thread in self._threads:
            thread.join(wait_s)

    def _start(self) -> None:
        with self._starting:
            if len(self._threads) < self._threads_max and not self._is_closed:
                number = f"-{len(self._threads) + 1}" if self._threads_max > 1 else ""
                self._threads.append(NamedThread(self._run, self._name + number))
                self._threads[-1].start()

    def _remove_unwanted(self) -> None:
        with suppress(IndexError):  # the threads have begun them all
            for _ in range(len(self._waiting)):
                asked = self._waiting.popleft()
                if asked.is_wanted():
                    self._waiting.append(asked)

    # -- the threads ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_closed:
            self._news.get()
            asked = self._next()
            if asked is not None and asked.begin():
                asked.question(partial(self._goes_on, asked))
        if self._at_end is not None:
            self._at_end()

    def _next(self) -> _Asked | None:
        try:
            return self._waiting.popleft()
        except IndexError:  # those that waited were removed
            return None

    def _goes_on(self, asked: _Asked) -> bool:
        for other in list(self._waiting):
            if other.is_quick() and other.begin():
                other.question(partial(self._is_wanted, other))
                break
        return self._is_wanted(asked)

    def _is_wanted(self, asked: _Asked) -> bool:
        return not self._is_closed and asked.is_wanted()


@final
class ReadLanes:
    """The lanes of one store."""

    __slots__ = ("local", "archived", "fetching", "rebuilt")

    def __init__(self, remove_rebuilt: Callable[[], None] | None = None) -> None:
        self.local: Final = ReadLane("ember-history")
        """The state and the log, which are open: its thread has ended before they are closed."""
        self.archived: Final = ReadLane("ember-archived", ARCHIVED_THREADS)
        """Records that only the archive has, for requests."""
        self.fetching: Final = ReadLane("ember-fetch", FETCHING_THREADS)
        """Blocks of the archive for replays. Going through them is for `local`, so that many replays take no more of
        the interpreter from the broker than one."""
        self.rebuilt: Final = ReadLane("ember-as-of", 1, remove_rebuilt)
        """The retained set of instants that only the archive has. To make one may take minutes."""

    def close(self) -> None:
        """End all threads; those that may wait for an archive are not waited for."""
        self.local.close(None)
        self.archived.close(0)
        self.fetching.close(0)
        self.rebuilt.close(CLOSE_S)

"""Reads of the retained set of instants that only the archive has: one thread that answers them.

Owns: the thread, and which read is answered next. What the first read of an instant waits for may take minutes, so that
those are answered before it that need no waiting.
"""

from collections.abc import Callable
from functools import partial
from threading import Condition
from typing import Final, final

from embermq.named_thread import NamedThread
from embermq.store.errors import NotWanted, StoreError
from embermq.store.history.fetchers import WAITING_MAX, Asked, as_store_error
from embermq.store.history.pieces import HistoryPiece
from embermq.store.history.trimmed import TrimmedRetained

PASSED_MAX: Final = 1_000
"""So many later reads are answered before one that needs waiting."""
CLOSE_S: Final = 1.0
"""How long the end of the thread is waited for: it may wait for the archive."""


@final
class PastReader:
    """Answers until it is closed. The thread starts with the first read."""

    def __init__(
        self,
        past: TrimmedRetained,
        call_soon: Callable[[Callable[[], None]], None],
        passed_max: int = PASSED_MAX,
    ) -> None:
        self._past: Final = past
        self._call_soon: Final = call_soon
        self._news: Final = Condition()
        self._waiting: list[Asked] = []  # the longest waiting first
        self._passed_max: Final = passed_max
        self._passed = 0  # how often the first of them was passed over
        self._is_closing = False
        self._worker: NamedThread | None = None

    def add(self, asked: Asked) -> None:
        """Answer a read of a retained set."""
        with self._news:
            if len(self._waiting) > WAITING_MAX:
                self._remove_cancelled()
            self._waiting.append(asked)
            self._news.notify()
        if self._worker is None:
            self._worker = NamedThread(self._run, "ember-as-of")
            self._worker.start()

    def close(self) -> None:
        """End the thread, which removes what was made. Reads that it has not begun are not answered."""
        with self._news:
            self._is_closing = True
            self._news.notify()
        if self._worker is not None:
            self._worker.join(CLOSE_S)

    def _remove_cancelled(self) -> None:
        self._waiting = [asked for asked in self._waiting if not asked.read.is_cancelled]

    # -- the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_closing:
            with self._news:
                asked = self._next()
                if asked is None and not self._is_closing:
                    self._news.wait()
            if asked is not None:
                self._answer(asked)
        self._past.close()

    def _next(self) -> Asked | None:
        """Take the next read off: one that is answered at once, unless the first was passed over too often."""
        self._remove_cancelled()
        if not self._waiting or self._is_closing:
            return None
        number = 0
        if self._passed < self._passed_max:
            for place, asked in enumerate(self._waiting):
                span = asked.retained_span
                if span is not None and self._past.is_made(span.instant_us):
                    number = place
                    break
        self._passed = self._passed + 1 if number else 0
        return self._waiting.pop(number)

    def _answer(self, asked: Asked) -> None:
        span = asked.retained_span
        assert span is not None
        piece: HistoryPiece | None = None
        trouble: StoreError | None = None
        try:
            found = self._past.piece(
                span.topic_filter,
                span.instant_us,
                span.after_topic_name,
                span.limit,
                span.bytes_max,
                partial(self._is_wanted, asked),
            )
            piece = HistoryPiece([], found.found(), 0, found.after_topic_name, False, found.done, True)
        except NotWanted:
            return
        except Exception as error:
            trouble = as_store_error(error)
        self._call_soon(partial(asked.read.done, piece, trouble))

    def _is_wanted(self, asked: Asked) -> bool:
        return not asked.read.is_cancelled and not self._is_closing

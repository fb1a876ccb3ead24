"""Fetchers: threads that wait for the archive, for reads of what the log no longer has.

Owns: these threads, and which reads wait for them.
Never: going through what was fetched; the one thread of the reader does, so that many replays take no more of the
interpreter from the broker than one.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final, final

from embermq.named_thread import NamedThread
from embermq.store.errors import StoreError
from embermq.store.history.pieces import HistoryRead, LogSpan, RetainedSpan
from embermq.store.history.trimmed import Fetched, TrimmedLog
from embermq.store.log.writer import Log

THREADS: Final = 4
"""How many reads wait for the archive at a time: a slow answer keeps only its own read waiting."""
WAITING_MAX: Final = 1_000
"""With more reads waiting, those are removed that nobody wants any more."""

_logger: Final = logging.getLogger("embermq.store")


@final
class Asked:
    """A read and what it is to read: of the log or, without a span of it, of the retained set; else it has a `call`."""

    def __init__(
        self,
        read: HistoryRead,
        log_span: LogSpan | None,
        retained_span: RetainedSpan | None,
        is_archived: bool = False,
        call: Callable[[], object] | None = None,
    ) -> None:
        self.read: Final = read
        self.log_span: Final = log_span
        self.retained_span: Final = retained_span
        self.is_archived: Final = is_archived  # only the archive has what is asked for
        self.call: Final = call
        self.fetched: Fetched | None = None  # set when it has come from there


@final
class Fetchers:
    """Fetches until it is closed. The threads start with the reads."""

    def __init__(self, trimmed: TrimmedLog, log: Log, done: Callable[[Asked, StoreError | None], None]) -> None:
        """`done` is called on one of the threads, with each read for which something was fetched, or could not be."""
        self._trimmed: Final = trimmed
        self._log: Final = log
        self._done: Final = done
        self._waiting: Final[SimpleQueue[Asked | None]] = SimpleQueue()
        self._threads = 0

    def add(self, asked: Asked) -> None:
        """Fetch what a read needs."""
        if self._waiting.qsize() > WAITING_MAX:
            self._remove_cancelled()
        self._waiting.put(asked)
        if self._threads < THREADS:
            self._threads += 1
            # Nobody waits for their end: that of a request to an archive may be far.
            NamedThread(self._run, f"ember-fetch-{self._threads}").start()

    def close(self) -> None:
        """End the threads when they have ended what they do."""
        self._take_all()
        for _ in range(self._threads):
            self._waiting.put(None)

    def _remove_cancelled(self) -> None:
        for asked in self._take_all():
            if not asked.read.is_cancelled:
                self._waiting.put(asked)

    def _take_all(self) -> list[Asked]:
        taken: list[Asked] = []
        with suppress(Empty):
            while True:
                asked = self._waiting.get_nowait()
                if asked is not None:
                    taken.append(asked)
        return taken

    # -- the threads ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            asked = self._waiting.get()
            if asked is None:
                break
            if asked.read.is_cancelled:
                continue
            trouble: StoreError | None = None
            try:
                span = asked.log_span
                assert span is not None
                asked.fetched = self._trimmed.fetch(span.offset, span.from_us, self._log.first_offset)
            except Exception as error:
                trouble = as_store_error(error)
            self._done(asked, trouble)


def as_store_error(error: Exception) -> StoreError:
    """What is said of a read that failed. A bug of ours is logged; it ends one subscription, not a thread."""
    if isinstance(error, StoreError):
        return error.with_traceback(None)  # whose frames may have an iterator, which would keep the state open
    if isinstance(error, OSError):
        return StoreError(f"the history cannot be read: {error}")
    _logger.error("a read of the history failed", exc_info=error)
    return StoreError(f"the history cannot be read: {error!r}")

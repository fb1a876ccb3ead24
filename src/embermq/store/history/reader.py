"""The reader of what was: one thread that answers the reads of all history subscriptions, one after the other.

Owns: the thread, its way through the log, and the answers to the broker's thread.
Never: a decision about a subscription. A read is bounded, so each waits at most for a bounded read of every other.
The thread starts with the first read: a server without history subscriptions has none.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final, final

from embermq.store.errors import StoreError
from embermq.store.history.log_scan import LogScan
from embermq.store.history.pieces import HistoryPiece, HistoryRead, HistoryReads, LogSpan, RetainedSpan
from embermq.store.log.writer import Log
from embermq.store.open_group import OpenGroup
from embermq.store.state.as_of_piece import as_of_piece
from embermq.store.state.history import History

_logger: Final = logging.getLogger("embermq.store")


@final
class _Asked:
    """A read and what it is to read: of the log or, without a span of it, of the retained set."""

    __slots__ = ("read", "log_span", "retained_span")

    def __init__(self, read: HistoryRead, log_span: LogSpan | None, retained_span: RetainedSpan | None) -> None:
        self.read: Final = read
        self.log_span: Final = log_span
        self.retained_span: Final = retained_span


@final
class HistoryReader(HistoryReads):
    """Reads until it is closed."""

    __slots__ = ("_asked", "_call_soon", "_history", "_log", "_open", "_scan", "_worker")

    def __init__(
        self, log: Log, history: History, open_group: OpenGroup, call_soon: Callable[[Callable[[], None]], None]
    ) -> None:
        """`call_soon` runs a function on the broker's thread."""
        self._log: Final = log
        self._history: Final = history
        self._open: Final = open_group
        self._call_soon: Final = call_soon
        self._scan: Final = LogScan(log)
        self._asked: Final[SimpleQueue[_Asked | None]] = SimpleQueue()
        self._worker: Thread | None = None

    def now_us(self) -> int:
        return self._open.now_us

    def log_begins_us(self) -> int:
        return self._log.begins_us()

    def retained_begins_us(self) -> int:
        return self._history.begins_us()

    def durable_offset(self) -> int:
        return self._log.next_offset

    def log_bytes_from(self, offset: int) -> int:
        return self._log.bytes_from(offset)

    def read_log(self, read: HistoryRead, span: LogSpan) -> None:
        self._ask(_Asked(read, span, None))

    def read_retained(self, read: HistoryRead, span: RetainedSpan) -> None:
        self._ask(_Asked(read, None, span))

    def close(self) -> None:
        """End the thread. Reads that it has not begun are not answered."""
        if self._worker is not None:
            with suppress(Empty):
                while True:
                    self._asked.get_nowait()
            self._asked.put(None)
            self._worker.join()

    def _ask(self, asked: _Asked) -> None:
        self._asked.put(asked)
        if self._worker is None:
            self._worker = Thread(target=self._run, name="ember-history", daemon=True)
            self._worker.start()

    # -- the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            asked = self._asked.get()
            if asked is None:
                break
            if asked.read.is_cancelled:
                continue
            piece: HistoryPiece | None = None
            trouble: StoreError | None = None
            try:
                piece = self._piece(asked)
            except StoreError as error:
                trouble = error
            except OSError as failure:
                trouble = StoreError(f"the history cannot be read: {failure}")
            except Exception as fault:  # a bug of ours: it ends this subscription, not the thread
                _logger.exception("a read of the history failed")
                trouble = StoreError(f"the history cannot be read: {fault!r}")
            self._call_soon(partial(asked.read.done, piece, trouble))

    def _piece(self, asked: _Asked) -> HistoryPiece:
        if asked.log_span is not None:
            return self._scan.piece(asked.log_span)
        span = asked.retained_span
        assert span is not None
        found = as_of_piece(
            self._history,
            self._scan,
            span.topic_filter,
            span.instant_us,
            span.before_offset,
            span.after_topic_name,
            span.limit,
            span.bytes_max,
        )
        return HistoryPiece([], found.found, 0, found.after_topic_name, False, found.done)

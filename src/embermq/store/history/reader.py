"""The reader of what was: one thread that answers the reads of all history subscriptions and requests, in turn.

Owns: the thread, its way through the log, and the answers to the broker's thread.
Never: a decision about a subscription. A read is bounded, so each waits at most for a bounded read of every other.
The thread starts with the first read. It has ended before the state is closed, which nobody may read from then on.

What the log no longer has is fetched from the archive by other threads, and then read by this one. The retained set of
an instant that only the archive has is read by one more. So a read that waits for the archive keeps no other waiting.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final, final

from embermq.named_thread import NamedThread
from embermq.store.errors import HistoryTrimmed, StoreError, instant_text
from embermq.store.history.fetchers import Asked, Fetchers, as_store_error
from embermq.store.history.log_scan import LogScan
from embermq.store.history.past_reader import PastReader
from embermq.store.history.pieces import HistoryPiece, HistoryRead, HistoryReads, LogSpan, RetainedSpan
from embermq.store.history.trimmed import TrimmedLog
from embermq.store.log.errors import LogTrimmed
from embermq.store.log.segments import FIRST_OFFSET
from embermq.store.log.writer import Log
from embermq.store.state.history import History
from embermq.store.state.topic_sources import HistoryTopics
from embermq.store.topic_tree import Moments, TopicSource

_TRIMMED_BYTES: Final = 1 << 62


@final
class HistoryReader(HistoryReads):
    """Reads until it is closed."""

    def __init__(
        self,
        log: Log,
        history: History,
        now_us: Callable[[], int],
        call_soon: Callable[[Callable[[], None]], None],
        trimmed: TrimmedLog | None = None,
    ) -> None:
        """`call_soon` runs a function on the broker's thread; `trimmed` has what the log no longer has."""
        self._log: Final = log
        self._history: Final = history
        self._now_us: Final = now_us  # of the broker's turn
        self._call_soon: Final = call_soon
        self._scan: Final = LogScan(log)
        self._asked: Final[SimpleQueue[Asked | None]] = SimpleQueue()
        self._worker: NamedThread | None = None
        self._trimmed: Final = trimmed
        self._fetchers: Final = None if trimmed is None else Fetchers(trimmed, log, self._has_fetched)
        self._past: Final = None if trimmed is None else trimmed.retained()
        self._past_reader: Final = None if self._past is None else PastReader(self._past, call_soon)

    def now_us(self) -> int:
        return self._now_us()

    def log_begins_us(self) -> int:
        begins_us = self._log.begins_us()
        if self._trimmed is None:
            return begins_us
        return min(begins_us, self._trimmed.begins_us(self._log.first_offset))

    def retained_begins_us(self) -> int:
        begins_us = self._history.begins_us()
        return begins_us if self._past is None else min(begins_us, self._past.begins_us())

    def topics(self, moments: Moments) -> TopicSource:
        return HistoryTopics(self._history, moments, self._now_us(), True)

    def durable_offset(self) -> int:
        return self._log.next_offset

    def log_bytes_from(self, offset: int) -> int:
        return self._log.bytes_from(offset) if offset >= self._log.first_offset else _TRIMMED_BYTES

    def read_log(self, read: HistoryRead, span: LogSpan, is_archived: bool) -> None:
        self._ask(Asked(read, span, None, is_archived))

    def read_retained(self, read: HistoryRead, span: RetainedSpan, is_archived: bool) -> None:
        if is_archived:
            assert self._past_reader is not None
            self._past_reader.add(Asked(read, None, span, True))
        else:
            self._ask(Asked(read, None, span))

    def run(self, read: HistoryRead, call: Callable[[], object]) -> None:
        self._ask(Asked(read, None, None, call=call))

    def close(self) -> None:
        """End the thread. Reads that it has not begun are not answered."""
        if self._worker is not None:
            with suppress(Empty):
                while True:
                    self._asked.get_nowait()
            self._asked.put(None)
            self._worker.join()
        if self._fetchers is not None:  # which only that thread has asked
            self._fetchers.close()
        if self._past_reader is not None:
            self._past_reader.close()

    def _ask(self, asked: Asked) -> None:
        self._asked.put(asked)
        if self._worker is None:
            self._worker = NamedThread(self._run, "ember-history")
            self._worker.start()

    # -- the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            asked = self._asked.get()
            if asked is None:
                break
            if asked.read.is_cancelled or self._must_fetch(asked):
                continue
            piece: HistoryPiece | None = None
            trouble: StoreError | None = None
            try:
                piece = self._piece(asked)
            except Exception as error:
                trouble = as_store_error(error)
            self._call_soon(partial(asked.read.done, piece, trouble))

    def _must_fetch(self, asked: Asked) -> bool:
        """Whether a read waits for the archive now: it comes back with what it needs."""
        if not asked.is_archived or asked.fetched is not None:
            return False
        assert self._trimmed is not None and self._fetchers is not None and asked.log_span is not None
        asked.fetched = self._trimmed.in_memory(asked.log_span.offset)
        if asked.fetched is None:
            self._fetchers.add(asked)
            return True
        return False

    def _has_fetched(self, asked: Asked, trouble: StoreError | None) -> None:
        """Called on the threads that fetch."""
        if trouble is None:
            self._asked.put(asked)
            return
        span = asked.log_span
        if span is not None and not span.offset and not span.from_us:
            # It was asked for whatever there is: say what there is without the archive.
            known = instant_text(self._log.begins_us() + 1)  # the archive may have records of that very instant
            trouble = StoreError(f"{trouble}; from {known} on the log itself has everything")
        self._call_soon(partial(asked.read.done, None, trouble))

    def _piece(self, asked: Asked) -> HistoryPiece:
        if asked.log_span is not None:
            return self._log_piece(asked, asked.log_span)
        if asked.call is not None:
            asked.call()
            return HistoryPiece([], [], 0, "", False, True)
        span = asked.retained_span
        assert span is not None
        try:
            found = self._history.piece(
                self._scan,
                span.topic_filter,
                span.instant_us,
                span.before_offset,
                span.after_topic_name,
                span.limit,
                span.bytes_max,
            )
        except HistoryTrimmed:
            if self._past is None:
                raise
            return HistoryPiece([], [], 0, span.after_topic_name, False, False, True)
        return HistoryPiece([], found.found(), 0, found.after_topic_name, False, found.done)

    def _log_piece(self, asked: Asked, span: LogSpan) -> HistoryPiece:
        log = self._log
        if self._trimmed is None:
            return self._scan.piece(span)
        # At the beginning too: what was trimmed may have records of the same instant.
        is_from_beginning = not span.offset and span.from_us <= log.begins_us()
        if asked.is_archived or not is_from_beginning or log.first_offset == FIRST_OFFSET:
            try:
                return self._scan.piece(span, asked.fetched)
            except LogTrimmed as error:
                if asked.is_archived and error.offset >= log.first_offset:
                    raise  # the archive has not got it, nor has the log, although it should
        return HistoryPiece([], [], span.offset, "", False, False, True)

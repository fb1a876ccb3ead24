"""The reader of what was: it answers the reads of all history subscriptions and requests.

Owns: on which lane a read is answered, its way through the log and the archive, and the answer to the broker's thread.
Never: a decision about a subscription. A read is bounded, so each waits at most for a bounded read of every other.

What the log no longer has is fetched from the archive on one lane, and then read on that of the log. The retained set
of an instant that only the archive has is read on a lane of its own. So a read that waits for the archive keeps no
other waiting.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, final

from embermq.store.errors import HistoryTrimmed, NotWanted, StoreError, instant_text
from embermq.store.history.lanes import IsWanted, ReadLane, ReadLanes, never
from embermq.store.history.log_scan import LogScan
from embermq.store.history.pieces import HistoryPiece, HistoryRead, HistoryReads, LogSpan, RetainedSpan
from embermq.store.history.trimmed import Fetched, TrimmedLog
from embermq.store.log.errors import LogTrimmed
from embermq.store.log.segments import FIRST_OFFSET
from embermq.store.log.writer import Log
from embermq.store.state.history import History
from embermq.store.state.topic_sources import HistoryTopics
from embermq.store.topic_tree import Moments, TopicSource

_TRIMMED_BYTES: Final = 1 << 62

_logger: Final = logging.getLogger("embermq.store")


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
        self._trimmed: Final = trimmed
        self._past: Final = None if trimmed is None else trimmed.retained()
        self._lanes: Final = ReadLanes(None if self._past is None else self._past.close)

    @property
    def lanes(self) -> ReadLanes:
        return self._lanes

    @property
    def trimmed(self) -> TrimmedLog | None:
        return self._trimmed

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
        if is_archived:
            self._lanes.local.ask(lambda _: self._read_archived(read, span), lambda: not read.is_cancelled)
        else:
            self._answer(self._lanes.local, read, lambda _: self._log_piece(span))

    def read_retained(self, read: HistoryRead, span: RetainedSpan, is_archived: bool) -> None:
        if is_archived:
            past = self._past
            assert past is not None
            is_made = partial(past.is_made, span.instant_us)
            self._answer(self._lanes.rebuilt, read, partial(self._past_piece, span), is_made)
        else:
            self._answer(self._lanes.local, read, lambda _: self._retained_piece(span))

    def close(self) -> None:
        """End the threads. Reads that they have not begun are not answered."""
        self._lanes.close()

    def _answer(
        self,
        lane: ReadLane,
        read: HistoryRead,
        find: Callable[[IsWanted], HistoryPiece],
        is_quick: Callable[[], bool] = never,
    ) -> None:
        lane.ask(lambda is_wanted: self._find(read, find, is_wanted), lambda: not read.is_cancelled, is_quick)

    # -- on the lanes ----------------------------------------------------------------------------------------------

    def _find(self, read: HistoryRead, find: Callable[[IsWanted], HistoryPiece], is_wanted: IsWanted) -> None:
        piece: HistoryPiece | None = None
        trouble: StoreError | None = None
        try:
            piece = find(is_wanted)
        except NotWanted:
            return
        except Exception as error:
            trouble = as_store_error(error)
        self._call_soon(partial(read.done, piece, trouble))

    def _read_archived(self, read: HistoryRead, span: LogSpan) -> None:
        """Answer a read of what only the archive has, now if that is in memory."""
        assert self._trimmed is not None
        fetched = self._trimmed.in_memory(span.offset)
        if fetched is None:
            self._lanes.fetching.ask(lambda _: self._fetch(read, span), lambda: not read.is_cancelled)
        else:
            self._find(read, lambda _: self._log_piece(span, fetched, True), never)

    def _fetch(self, read: HistoryRead, span: LogSpan) -> None:
        assert self._trimmed is not None
        try:
            fetched = self._trimmed.fetch(span.offset, span.from_us, self._log.first_offset)
        except Exception as error:
            trouble = as_store_error(error)
            if not span.offset and not span.from_us:
                # It was asked for whatever there is: say what there is without the archive.
                known = instant_text(self._log.begins_us() + 1)  # the archive may have records of that very instant
                trouble = StoreError(f"{trouble}; from {known} on the log itself has everything")
            self._call_soon(partial(read.done, None, trouble))
        else:
            self._answer(self._lanes.local, read, lambda _: self._log_piece(span, fetched, True))

    def _log_piece(self, span: LogSpan, fetched: Fetched | None = None, is_archived: bool = False) -> HistoryPiece:
        log = self._log
        if self._trimmed is None:
            return self._scan.piece(span)
        # At the beginning too: what was trimmed may have records of the same instant.
        is_from_beginning = not span.offset and span.from_us <= log.begins_us()
        if is_archived or not is_from_beginning or log.first_offset == FIRST_OFFSET:
            try:
                return self._scan.piece(span, fetched)
            except LogTrimmed as error:
                if is_archived and error.offset >= log.first_offset:
                    raise  # the archive has not got it, nor has the log, although it should
        return HistoryPiece([], [], span.offset, "", False, False, True)

    def _retained_piece(self, span: RetainedSpan) -> HistoryPiece:
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

    def _past_piece(self, span: RetainedSpan, is_wanted: IsWanted) -> HistoryPiece:
        assert self._past is not None
        found = self._past.piece(
            span.topic_filter, span.instant_us, span.after_topic_name, span.limit, span.bytes_max, is_wanted
        )
        return HistoryPiece([], found.found(), 0, found.after_topic_name, False, found.done, True)


def as_store_error(error: Exception) -> StoreError:
    """What is said of a read that failed. A bug of ours is logged; it ends one subscription, not a thread."""
    if isinstance(error, StoreError):
        return error.with_traceback(None)  # whose frames may have an iterator, which would keep the state open
    if isinstance(error, OSError):
        return StoreError(f"the history cannot be read: {error}")
    _logger.error("a read of the history failed", exc_info=error)
    return StoreError(f"the history cannot be read: {error!r}")

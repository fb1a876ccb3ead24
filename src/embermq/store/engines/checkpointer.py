"""The checkpointer: writes checkpoints of the state beside the log, so that the log can be trimmed.

Owns: when a checkpoint is due, the thread that writes one, and which of them the log may be trimmed to.
Never: deleting a segment; the committer does, up to a checkpoint that lies there undamaged.
A checkpoint is taken where a segment begins, from a view of the state at that moment. The log is trimmed to it much
later, when the segments before it have outlived their retention: so trimming does not wait for a checkpoint.
"""

import logging
from collections.abc import Iterator
from contextlib import suppress
from threading import Event
from time import monotonic
from typing import Final, final

from embermq.named_thread import NamedThread
from embermq.store.engines.retention import Retention
from embermq.store.log.checkpoint import Checkpoint, CheckpointWriter, checkpoint_offsets, checkpoint_path
from embermq.store.log.errors import LogError
from embermq.store.log.writer import Log
from embermq.store.state.checkpoint_form import StateView
from embermq.store.state.state import State

RETENTION_PARTS: Final = 8
"""A checkpoint is due after this part of the retention: the log may exceed its retention by as much."""
LOG_PER_CHECKPOINT: Final = 4
"""Between two checkpoints there is this many times as much log as the older one has bytes."""
CHECKPOINTS_MAX: Final = 16
"""Above it every second one is deleted: a session that never returns must not make their number grow."""
NOW_BYTES_MIN: Final = 1024 * 1024
"""No checkpoint is taken for the sake of fewer bytes of the log."""
WORK_SHARE: Final = 0.5
"""How much of the time the thread works; the rest it leaves the interpreter to the other threads."""

_logger: Final = logging.getLogger("embermq.store")


@final
class Checkpointer:
    """All methods are called on the committer's thread, `close` after that has ended."""

    def __init__(self, log: Log, state: State, retention: Retention) -> None:
        self._log: Final = log
        self._state: Final = state
        self._retention: Final = retention
        self._stop = Event()
        self._thread: NamedThread | None = None
        self._is_wanted = False  # a checkpoint, although none is due
        self.remove_superseded()

    def segment_begins(self, now_us: int) -> None:
        """A segment has begun and its records are not applied yet: if a checkpoint is due, take it now."""
        offset = self._log.newest_segment
        if self._is_writing() or self._state.applied_offset() + 1 != offset or not self._is_due(offset, now_us):
            return
        view = self._state.view()
        self._is_wanted = False
        self._stop = Event()
        timestamp_us = self._log.segments()[-2].last_timestamp_us
        thread = NamedThread(self._write, "ember-checkpoint", (view, offset, timestamp_us, self._stop))
        try:
            thread.start()
        except RuntimeError as error:  # the system gives this process no more threads
            _logger.error("the checkpoint of offset %d could not be written: %s", offset, error)
            return
        self._thread = thread

    def newest_between(self, offset: int, last: int) -> int:
        """The first checkpoint from an offset up to a last one; else the newest one before it; 0 if there is none."""
        offsets = [found for found in checkpoint_offsets(self._log.directory) if found <= last]
        return min((found for found in offsets if found >= offset), default=max(offsets, default=0))

    def begin_now(self, now_us: int) -> None:
        """Take a checkpoint at the end of the log, if that lets a trim free more than the checkpoint may take."""
        segments = self._log.segments()
        last = self.newest_up_to(self._log.next_offset)
        last_bytes = 0
        if last:
            with suppress(OSError):
                last_bytes = checkpoint_path(self._log.directory, last).stat().st_size
        since_bytes = sum(segment.size_bytes for segment in segments if segment.first_offset >= last)
        if not self._is_writing() and since_bytes > max(NOW_BYTES_MIN, 2 * last_bytes):
            self._is_wanted = True
            self._log.close_segment()
            self.segment_begins(now_us)

    def abandon(self) -> None:
        """Give up the checkpoint that is being written: it keeps the state's database from being closed."""
        self._stop.set()
        self.wait()

    def wait(self) -> None:
        """Until no checkpoint is being written."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def newest_up_to(self, offset: int) -> int:
        """The newest checkpoint that is not after an offset; 0 if there is none."""
        return max((found for found in checkpoint_offsets(self._log.directory) if found <= offset), default=0)

    def undamaged_up_to(self, offset: int) -> Iterator[int]:
        """Looks for the newest undamaged checkpoint that is not after an offset: 0 after each piece of work, then the
        checkpoint's offset; nothing after the last piece if there is none.
        """
        for found in reversed(checkpoint_offsets(self._log.directory)):
            if not self._log.first_offset < found <= offset:
                continue
            try:
                for _ in Checkpoint(self._log.directory, found).blocks():
                    yield 0
            except (LogError, OSError) as error:
                _logger.error("the log is not trimmed to the checkpoint of offset %d: %s", found, error)
                continue
            yield found
            return

    def remove_superseded(self) -> None:
        """Delete the checkpoints that are not of this log's offsets, and some if there are too many."""
        directory = self._log.directory
        first_offset, next_offset = self._log.first_offset, self._log.next_offset
        offsets = checkpoint_offsets(directory)
        kept = [offset for offset in offsets if first_offset <= offset <= next_offset]
        removed = [offset for offset in offsets if not first_offset <= offset <= next_offset]
        if len(kept) > CHECKPOINTS_MAX:
            removed += [offset for offset in kept[-2:0:-2] if offset != first_offset]
        for offset in removed:
            with suppress(OSError):
                checkpoint_path(directory, offset).unlink(missing_ok=True)

    def _is_writing(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _is_due(self, offset: int, now_us: int) -> bool:
        segments = self._log.segments()
        if len(segments) < 2:
            return False
        last, last_bytes = self.newest_up_to(offset), 0
        if last == offset:
            return False
        if self._is_wanted:
            return True
        if last:
            with suppress(OSError):
                last_bytes = checkpoint_path(self._log.directory, last).stat().st_size
        since = [segment for segment in segments[:-1] if segment.first_offset >= last]
        if not since:
            return True
        since_bytes = sum(segment.size_bytes for segment in since)
        if now_us - since[0].first_timestamp_us >= self._retention.age_s * 1_000_000 // RETENTION_PARTS:
            return True
        return since_bytes >= max(self._retention.size_bytes // RETENTION_PARTS, LOG_PER_CHECKPOINT * last_bytes)

    # -- the thread ----------------------------------------------------------------------------------------------

    def _write(self, view: StateView, offset: int, timestamp_us: int, stop: Event) -> None:
        started_s = monotonic()
        try:
            writer = CheckpointWriter(self._log.directory, offset, timestamp_us)
            try:
                is_complete = _fill(writer, view, timestamp_us, stop)
                if is_complete:
                    writer.finish()
            finally:
                writer.abandon()
            if is_complete:
                self.remove_superseded()
                _logger.info(
                    "wrote the checkpoint of offset %d: %d records, %d bytes, in %.1f s",
                    offset,
                    writer.records,
                    writer.size_bytes,
                    monotonic() - started_s,
                )
        except Exception as error:
            # The log is trimmed to older checkpoints until the next one succeeds.
            _logger.error("the checkpoint of offset %d could not be written: %s", offset, error)


def _fill(writer: CheckpointWriter, view: StateView, timestamp_us: int, stop: Event) -> bool:
    """Write all records, with pauses; False if it was stopped."""
    worked_from_s = monotonic()
    for row in view.rows(timestamp_us):
        if writer.add(row):
            worked_s = monotonic() - worked_from_s
            if stop.wait(worked_s * (1 - WORK_SHARE) / WORK_SHARE):
                return False
            worked_from_s = monotonic()
    return not stop.is_set()

"""The committer: the one thread that makes closed groups durable, in order.

Owns: writing a group, applying it to the state, trying again while the disk fails, and trimming between groups.
Never: the open group. Reports go to the broker's thread.

A group takes five steps, each group after the one before it. While one is in steps 2 and 3, the next gathers records:
1. the journal (`disk`) closes it on the broker's thread, and opens the next one;
2. the log writes it as one block, syncs the block and enters it in the index: now it is durable. In a cluster it is
   ordered in the shared log before, and is durable there;
3. the state applies it: now queries, queues and new subscriptions find what it says;
4. the broker's thread is told, and releases what waits for the group: acknowledgements and deliveries;
5. before the next group, maintenance: the state is flushed, the log is trimmed, free space is looked up.

What a crash loses: before step 2 is complete, the group. Nobody was told, so clients send its messages again; a start
cuts off what was written of the block. After step 2 nothing: a start applies what the state lacks (`state.state`).
What a failing disk does: if step 2 fails, the log gives up the open segment, and the same group goes to a new one. If
step 3 fails, the state is opened again and catches up with the log. Both are tried again until they work, with longer
and longer pauses; the broker is told once, and refuses what must be durable (`refusing`). No group is given up while
the server runs, unless the data directory is lost: then the thread ends, and nothing is reported as durable any more.
"""

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event
from typing import Final, final

from embermq.named_thread import NamedThread
from embermq.store.engines.checkpointer import Checkpointer
from embermq.store.engines.replay import replay
from embermq.store.engines.retention import Archiver, DiskReserve, Retention, TrimLimit
from embermq.store.engines.shared_log import SharedLog
from embermq.store.errors import DirectoryLost, Fenced, StoreError
from embermq.store.interface import CommitTimes
from embermq.store.log.by_topic.indexer import TopicIndexer
from embermq.store.log.writer import Log
from embermq.store.rows import Group
from embermq.store.state.state import State

RETRY_FIRST_S: Final = 0.05
RETRY_MAX_S: Final = 2.0
CHECK_BYTES: Final = 4 * 1024 * 1024
CHECK_S: Final = 10
"""The retention is checked after this many bytes or seconds."""

IDLE_S: Final = 0.05
"""Without a group for this long, what the state has buffered goes to its database, where readers find it faster."""

DIRECTORY_CHECK_US: Final = 1_000_000
"""While groups come, the data directory is looked at after this time; the open segment with every group."""

SHORT_CHECK_S: Final = 1.0
"""The interval at which free space is looked up while little of the disk is left."""

_logger: Final = logging.getLogger("embermq.store")

Done = Callable[[StoreError | None], None]


@final
class Work:
    """A closed group. `finished` is called on the broker's thread: with an error at most once, then with None."""

    def __init__(self, group: Group, finished: Done, trim_before: int) -> None:
        self.group: Final = group
        self.closed_s: Final = time.perf_counter()
        self.finished: Final = finished
        self.trim_before: Final = trim_before  # older records may be trimmed once this group is applied; 0: none

    def report(self) -> None:
        """The group is durable and applied."""
        self.finished(None)


def sync_segments(log: Log, from_offset: int) -> int:
    """Sync what a log without `sync` has written since an offset; returns the offset up to which it did."""
    for segment in log.segments():
        if segment.next_offset > from_offset:
            descriptor = os.open(segment.path, os.O_RDWR)
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
            from_offset = segment.next_offset
    return from_offset


def _ignore(error: StoreError | None) -> None:
    """For work that nobody waits for."""


@final
class Committer:
    """Runs until it is closed."""

    def __init__(
        self,
        log: Log,
        state: State,
        *,
        sync: bool,
        retention: Retention,
        call_soon: Callable[[Callable[[], None]], None],
        want_trim: Callable[[int], None],
        check_directory: Callable[[], None],
        archiver: Archiver | None = None,
    ) -> None:
        """`check_directory` raises `DirectoryLost` when the data directory is not where it was."""
        self._archiver: Final = archiver
        self._log: Final = log
        self._state: Final = state
        self._sync: Final = sync
        self._synced_offset = log.first_offset
        self.trim_limit: Final = TrimLimit(log.directory.parent, retention, archiver)
        self._call_soon: Final = call_soon
        self._want_trim: Final = want_trim  # called on the broker's thread, which answers in `Work.trim_before`
        self._checkpointer: Final = Checkpointer(log, state, retention)
        self._indexer: Final = TopicIndexer(log)
        self._work: Final[SimpleQueue[Work | None]] = SimpleQueue()
        self._trimming: Iterator[None] | None = None
        self._newest_segment = 0
        self._check_directory: Final = check_directory
        self._directory_checked_us = 0
        self._checked_us = 0
        self._unchecked_bytes = 0
        self._closing: Final = Event()
        self._reserve: Final = DiskReserve(log.directory, retention.disk_reserve_bytes)
        self._shared: SharedLog | None = None
        self._standby = ""  # why nothing is made durable on behalf of clients
        self.failing = ""  # why no group can be written
        self.is_full = False  # groups can be written, and the disk has reached its reserve
        self.refusing = ""  # `failing`, or that the disk has reached its reserve: why nothing new is made durable
        self.times: Final = CommitTimes()
        self._worker: Final = NamedThread(self._run, "ember-committer")
        if archiver is not None:
            archiver.begin(log.directory)
        self._worker.start()

    def submit(self, work: Work) -> None:
        self._work.put(work)

    def trim(self, before_offset: int) -> None:
        """Trim without a group, once those that were submitted are applied."""
        self._work.put(Work(Group(0), _ignore, before_offset))

    def stand_by(self, reason: str) -> None:
        """Refuse what clients bring: only what the active server of the cluster has appended is submitted."""
        self._standby = reason
        self._set_failing(self.failing)

    def lead(self, shared: SharedLog) -> None:
        """From the next group on, each is ordered in the log that several servers share."""
        self._shared = shared
        self._standby = ""
        self._set_failing(self.failing)

    def close(self) -> None:
        """Finish what was submitted. While the disk fails, the groups that cannot be written stay unacknowledged."""
        self._work.put(None)
        self._closing.set()
        self._worker.join()
        self._trimming = None  # it may have an open iterator, which would keep the state open
        self._checkpointer.abandon()
        self._indexer.close()
        if self._archiver is not None:
            with suppress(OSError, StoreError):
                self._log.close_segment()
            self._archiver.close()

    def counts(self) -> dict[str, int]:
        """Numbers for the operator, by name."""
        limit = self.trim_limit
        counts = {"log/unread-bytes": limit.unread_bytes, "log/lost-records": limit.lost_records}
        counts["disk/free-bytes"] = self._reserve.free_bytes
        counts["disk/reserve-bytes"] = self._reserve.reserve_bytes
        if self._archiver is not None:
            counts.update(self._archiver.counts())
            counts["archive/lost-records"] = limit.unarchived_records
        return counts

    # -- the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        unreported: Work | None = None
        try:
            while True:
                work = self._next()
                if work is None:
                    return
                if len(work.group) or not work.trim_before:  # else it is only to trim
                    unreported = work
                    if not self._persist(work):
                        return
                    unreported = None
                    self.times.add(len(work.group), time.perf_counter() - work.closed_s)
                    self._call(work.report)
                self._maintain(work)
        except DirectoryLost as lost:  # what was acknowledged before may be gone, and nothing can bring it back
            _logger.error("nothing can be made durable: %s", lost)
            self._stop(str(lost), unreported)
        except Fenced as fenced:
            self._stop(str(fenced), unreported)
        except Exception as error:  # a bug of ours
            _logger.exception("the committer stopped")
            self._stop(f"the committer stopped: {error!r}", unreported)

    def _stop(self, reason: str, unreported: Work | None) -> None:
        """Never acknowledge anything again."""
        self._set_failing(reason)
        if unreported is not None:
            self._report(unreported, StoreError(reason))

    def _look_at_directory(self, now_us: int) -> None:
        if now_us - self._directory_checked_us >= DIRECTORY_CHECK_US:
            self._directory_checked_us = now_us
            self._check_directory()
            self._log.check_directory()

    def _next(self) -> Work | None:
        """The next group; while there is none, trimming continues, and the directory is looked at."""
        while self._trimming is not None:
            try:
                return self._work.get_nowait()
            except Empty:
                self._continue_trim()
        if self._state.has_buffered():
            try:
                return self._work.get(timeout=IDLE_S)
            except Empty:
                with suppress(StoreError):  # the next group meets it again, and says so
                    self._state.write_buffered()
        while True:
            try:
                return self._work.get(timeout=SHORT_CHECK_S if self._reserve.is_short() else CHECK_S)
            except Empty:
                now_us = time.time_ns() // 1000
                if self._archiver is not None:
                    self._close_old_segment(self._archiver)
                with suppress(OSError):  # as above
                    self._look_at_directory(now_us)
                    self._check_reserve(0, now_us)

    def _close_old_segment(self, archiver: Archiver) -> None:
        """While nothing is published: the last records are archived too when their segment is old enough."""
        with suppress(OSError):  # the next group meets it again, and says so
            if self._log.close_old_segment(time.time_ns() // 1000):
                archiver.wake()

    def _persist(self, work: Work) -> bool:
        """Write, sync and apply a group; try again until that works. False: closed while the disk failed."""
        wait_s = RETRY_FIRST_S
        group = work.group
        reported = False
        is_shared = self._shared is None
        while True:
            try:
                self._look_at_directory(group.columns.last_timestamp_us)
                if self._shared is not None and not is_shared:
                    self._log.raise_timestamps(group)  # before the others get it: all logs are the same
                    self._shared.share(group, self._log.first_offset)
                    is_shared = True
                if self._log.next_offset == group.first_offset:
                    self._log.append(group, group.columns.last_timestamp_us)
                    if self._log.newest_segment == group.first_offset:
                        if self._archiver is not None:
                            self._archiver.wake()
                        self._checkpointer.segment_begins(group.columns.last_timestamp_us)
                        self._indexer.segment_begins()
                    self._state.apply(group)
                else:  # the log has the group, only the state failed
                    self._trimming = None
                    self._checkpointer.abandon()
                    self._sync_log()
                    self._state.reopen(partial(replay, self._log))
            except (DirectoryLost, Fenced):
                raise
            except (OSError, StoreError) as error:
                reason = f"{error.strerror or error}" if isinstance(error, OSError) else str(error)
                if not self.failing:
                    _logger.error("nothing can be made durable: %s; trying again until it works", reason)
                self._set_failing(reason)
                if not reported:
                    reported = True
                    self._report(work, StoreError(reason))
                if self._closing.wait(wait_s):
                    return False
                wait_s = min(2 * wait_s, RETRY_MAX_S)
                continue
            if self.failing:
                _logger.warning("durable again at offset %d", group.first_offset)
                self._set_failing("")
            return True

    def _maintain(self, work: Work) -> None:
        """What can wait until the group is reported: flushing the state, and trimming."""
        try:
            if self._state.wants_flush():
                self._check_directory()  # the state would make files in another directory of this name
                self._sync_log()
                self._state.flush(wait=False)
            elif self._state.is_buffer_sealed():  # groups may come that change nothing of the state, and no rest
                self._state.write_buffered()
            if work.trim_before and self._trimming is None:
                self._trimming = self._trim(work.trim_before)
        except (OSError, StoreError) as error:
            _logger.error("the state could not be flushed, this is tried again: %s", error)
        is_trimming = self._trimming is not None
        if is_trimming:
            self._continue_trim()
        if len(work.group):
            with suppress(OSError):  # the next group meets it again, and says so
                if not is_trimming:
                    self._check_retention(work.group)
                self._check_reserve(work.group.size_bytes, work.group.columns.last_timestamp_us)

    def _sync_log(self) -> None:
        """Sync the log before a flush of the state: the state must not be ahead of the log on the disk."""
        if not self._sync:
            self._synced_offset = sync_segments(self._log, self._synced_offset)

    # -- trimming ------------------------------------------------------------------------------------------------

    def _check_retention(self, group: Group) -> None:
        """Ask for a trim if the log has begun another segment and exceeds its retention."""
        self._unchecked_bytes += group.size_bytes
        now_us = group.columns.last_timestamp_us
        if self._unchecked_bytes < CHECK_BYTES and now_us - self._checked_us < CHECK_S * 1_000_000:
            return
        self._unchecked_bytes = 0
        self._checked_us = now_us
        newest = self._log.segments()[-1].first_offset
        if newest == self._newest_segment:
            return
        self._newest_segment = newest
        before_offset = self._checkpointer.newest_up_to(self.trim_limit.offset(self._log.segments(), now_us))
        if before_offset > self._log.first_offset:
            self._call(partial(self._want_trim, before_offset))

    def _check_reserve(self, written_bytes: int, now_us: int) -> None:
        """If little of the disk is left: trim the log as its retention would, and if that is not enough, refuse."""
        reserve = self._reserve
        if not reserve.is_due(written_bytes):
            return
        reserve.look()
        self._set_failing(self.failing)
        if not reserve.is_short() or self._trimming is not None:
            return
        segments = self._log.segments()
        kept_bytes = max(0, sum(segment.size_bytes for segment in segments) - reserve.shortage_bytes())
        last = self.trim_limit.offset(segments, now_us, 0)
        enough = self.trim_limit.offset(segments, now_us, kept_bytes)
        before_offset = self._checkpointer.newest_between(enough, last)
        if before_offset > self._log.first_offset:
            self._call(partial(self._want_trim, before_offset))
        else:
            try:
                self._checkpointer.begin_now(now_us)
            except (OSError, StoreError) as error:
                _logger.error("no checkpoint could be begun: %s", error)

    def _set_failing(self, failing: str) -> None:
        reserve = self._reserve
        self.failing = failing
        self.is_full = not failing and reserve.is_full and not reserve.is_used_up()
        self.refusing = failing or self._standby or reserve.refusal()

    def _trim(self, before_offset: int) -> Iterator[None]:
        """Delete old segments that hold nothing that a session is owed, after the state has copied what it needs.

        It goes up to a checkpoint, with which the log is complete without them.
        """
        for owed in self._state.sessions.owed_offsets():
            if owed is not None:
                before_offset = min(before_offset, owed)
            yield
        end = 0
        for found in self._checkpointer.undamaged_up_to(before_offset):
            end = found
            yield
        trimmed = [segment for segment in self._log.segments()[:-1] if segment.next_offset <= end]
        if not trimmed:
            return
        self._sync_log()
        groups = self._log.groups_from(trimmed[0].first_offset)
        yield from self._state.forget(groups, end, max(segment.last_timestamp_us for segment in trimmed))
        for path in self._log.trim(end):
            _logger.info("trimmed %s", path)
        self.trim_limit.trimmed(trimmed[0].first_offset, end)
        self._checkpointer.remove_superseded()

    def _continue_trim(self) -> None:
        assert self._trimming is not None
        try:
            next(self._trimming)
        except StopIteration:
            self._trimming = None
        except (OSError, StoreError) as error:
            _logger.error("the log could not be trimmed, this is tried again with the next segment: %s", error)
            self._trimming = None

    # -- reporting -----------------------------------------------------------------------------------------------

    def _report(self, work: Work, error: StoreError) -> None:
        self._call(partial(work.finished, error))

    def _call(self, report: Callable[[], None]) -> None:
        try:
            self._call_soon(report)
        except RuntimeError:  # the broker's loop is closed already
            return

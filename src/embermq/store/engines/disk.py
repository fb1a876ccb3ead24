"""The store on disk. Its journal fills a commit group and commits it; the rest answers from what is durable.

Owns: the open group and its commit; the log, the state and the committer are its parts.
Never: a socket, a clock, a decision about a message.
A record is added to the open group, and says what waits for it: nothing (QoS 0, a connection), that it is durable (a
publish at QoS 1), or that it is applied too (a retained message, an entry of a queue: its effect reads the state).
While one group is written and synced on the committer's thread, the next one is filled here: latency is about one sync,
throughput is not bound by it. A group that no effect waits for is written in the background, when the core asks for it.
At most one group of each sort is with the committer, in the order in which they were closed.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, final

from embermq.protocol.packets import Publish
from embermq.protocol.topics import matches
from embermq.store.budgets import BudgetLedger
from embermq.store.engines.committer import Committer, Done, Work, sync_segments
from embermq.store.engines.directory import DataDirectory
from embermq.store.engines.open_group import ClosedGroup, OpenGroup, QueueTail
from embermq.store.engines.opening import JournalSettings, open_log, open_state
from embermq.store.engines.queue import SessionQueue
from embermq.store.engines.replay import Progress
from embermq.store.engines.retention import Archiver
from embermq.store.engines.shared_log import SharedLog
from embermq.store.history.log_scan import LogScan
from embermq.store.history.reader import HistoryReader
from embermq.store.history.trimmed import TrimmedLog
from embermq.store.interface import (
    CommitTimes,
    History,
    NodeStatus,
    Queue,
    Retained,
    RetainedChange,
    RetainedMessages,
    RetainedPiece,
    SavedSession,
    SavedSharedQueue,
    SavedWill,
    Segment,
    Sessions,
    Store,
    StoreError,
)
from embermq.store.log.writer import Log
from embermq.store.records import Published, Received, Record, RetainedRemoved
from embermq.store.rows import RETAIN_FLAG, Group, Kind
from embermq.store.state.state import State
from embermq.store.state.topic_walks import LevelWalk, WordSearch
from embermq.store.topic_tree import WORK_MAX, Moments, NameSearch, TreeWalk

_logger: Final = logging.getLogger("embermq.store")

_PUBLISH: Final = int(Kind.PUBLISH)


STANDBY: Final = "this server is a standby of its cluster"


def _nothing() -> None:
    """For what nobody waits for."""


def _ignore(error: StoreError) -> None:
    """The same."""


@final
class DiskSessions(Sessions):
    """The sessions in the state."""

    def __init__(self, state: State, log: Log, open_group: OpenGroup) -> None:
        self._state: Final = state
        self._log: Final = log
        self._open: Final = open_group
        # Higher than every id there was: ids count up by one, from the offset at a start, and each has a record.
        self._last_id = log.next_offset

    def new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def use_id(self, used: int) -> None:
        """An id has been used, perhaps by another server."""
        self._last_id = max(self._last_id, used)

    def queue(self, session_id: int) -> Queue:
        return self._queue(session_id, 0, 0, set(), False)

    def load(self) -> Iterable[SavedSession]:
        return self._state.sessions.load(self._queue)

    def wills(self) -> list[SavedWill]:
        return self._state.sessions.load_wills()

    def shared_queues(self) -> list[SavedSharedQueue]:
        return self._state.sessions.load_shared_queues(self._queue)

    def _queue(self, session_id: int, acknowledged: int, last: int, released: set[int], has_ids: bool) -> Queue:
        tail = QueueTail(session_id, acknowledged, last, has_ids)
        return SessionQueue(tail, released, self._open, self._state.sessions, self._log)


@final
class DiskRetained(RetainedMessages):
    """The retained messages in the state, at the instant of the open group. `submitted`: groups not applied yet."""

    def __init__(
        self, state: State, open_group: OpenGroup, submitted: list[ClosedGroup], ledger: BudgetLedger, budgeted: bool
    ) -> None:
        self._state: Final = state
        self._open: Final = open_group
        self._submitted: Final = submitted
        self._ledger: Final = ledger
        self._budgeted: Final = budgeted

    def get(self, topic_name: str) -> Retained | None:
        return self._state.retained.get(topic_name, self._open.now_us)

    def piece(
        self, topic_filter: str, after_topic_name: str, limit: int, bytes_max: int, seeks_max: int
    ) -> RetainedPiece:
        now_us = self._open.now_us
        return self._state.retained.piece(topic_filter, after_topic_name, limit, bytes_max, seeks_max, now_us)

    def levels(self, below: str | None, position: str, moments: Moments, work_max: int = WORK_MAX) -> TreeWalk:
        return LevelWalk(self._state.topics(moments, self._open.now_us), below, position, work_max)

    def with_word(self, word: str, position: str, moments: Moments) -> NameSearch:
        return WordSearch(self._state.topics(moments, self._open.now_us), word, position)

    def totals(self) -> tuple[int, int]:
        return self._state.retained.totals()

    def admits(self, topic_name: str, payload_bytes: int) -> str:
        return self._ledger.admits(topic_name, payload_bytes) if self._budgeted else ""

    def budget_totals(self) -> list[tuple[str, int, int]]:
        return self._state.retained.budget_totals()

    def expired(self, now_us: int, limit: int) -> list[str]:
        expired = self._state.retained.expired(now_us, limit)
        if not expired:
            return expired
        # A topic with a pending record is left out: it may be retained again, and a removal would remove that.
        groups = [self._open.group, *[closed.group for closed in self._submitted]]
        pending = {row.topic for group in groups for row in group.rows}
        return [topic_name for topic_name in expired if topic_name.encode() not in pending]


@final
class DiskHistory(History):
    """The history of the state, and the log."""

    def __init__(self, state: State, log: Log, reader: HistoryReader) -> None:
        self._state: Final = state
        self._log: Final = log
        self._reader: Final = reader

    def as_of(self, topic_filter: str, after_topic_name: str, limit: int, instant_us: int) -> list[Retained]:
        return self._state.history.as_of(LogScan(self._log), topic_filter, after_topic_name, limit, instant_us)

    def as_of_pieces(self, topic_filter: str, instant_us: int, after_topic_name: str = "") -> Iterator[list[Retained]]:
        return self._state.history.pieces(self._log, topic_filter, instant_us, after_topic_name)

    def begins_us(self) -> int:
        return self._state.history.begins_us()

    def changes(self, topic_name: str, after_offset: int, limit: int) -> list[RetainedChange]:
        return self._state.history.changes_of(LogScan(self._log), topic_name, after_offset, limit)

    def reads(self) -> HistoryReader:
        return self._reader

    def log_segments(self) -> list[Segment]:
        return self._log.segments()


@final
class DiskStore(Store):
    """The store of one data directory."""

    def __init__(
        self,
        directory: Path,
        call_soon: Callable[[Callable[[], None]], None],
        settings: JournalSettings | None = None,
        progress: Progress | None = None,
        archiver: Archiver | None = None,
        trimmed: Callable[[], TrimmedLog] | None = None,
        shared: SharedLog | None = None,
    ) -> None:
        """`call_soon` runs a function on the broker's thread; `progress` is told how far a start is; `trimmed` makes
        what has what the log no longer has, once the directory is locked. With `shared` it is a standby at first."""
        settings = settings if settings is not None else JournalSettings()
        self._settings: Final = settings
        self._records_all: Final = settings.recording == "everything"
        self._directory: Final = DataDirectory(directory)
        try:
            self._log: Final = open_log(self._directory, settings)
            try:
                self._state: Final = open_state(self._directory, self._log, settings, progress)
            except BaseException:
                self._log.close()
                raise
        except BaseException:
            self._directory.close()
            raise
        self._open: Final = OpenGroup(self._log.next_offset, self._log.last_timestamp_us, self._log.first_offset)
        self._budgeted: Final = bool(settings.budgets)  # without budgets the ledger is not asked
        self._ledger: Final = BudgetLedger(self._state.retained.account(), self._state.retained.size)
        self._committing = False  # a group that effects wait for is being written
        # Called when the group that no effect waits for is written; None: no such group is being written.
        self._background: Callable[[], None] | None = None
        self._submitted: Final[list[ClosedGroup]] = []  # groups that are not applied yet
        self._trim_before = 0
        self._trimmed: Final = None if trimmed is None else trimmed()
        self._history_reader: Final = HistoryReader(
            self._log, self._state.history, self._now_us, call_soon, self._trimmed
        )
        retained = DiskRetained(self._state, self._open, self._submitted, self._ledger, self._budgeted)
        self._disk_sessions: Final = DiskSessions(self._state, self._log, self._open)
        super().__init__(self._disk_sessions, retained, DiskHistory(self._state, self._log, self._history_reader))
        self._committer: Final = Committer(
            self._log,
            self._state,
            sync=settings.durability == "sync",
            retention=settings.retention(),
            call_soon=call_soon,
            want_trim=self._plan_trim,
            check_directory=self._directory.check,
            archiver=archiver,
        )
        self._call_soon: Final = call_soon
        self._shared: Final = shared
        self._is_active = shared is None
        self._when_active: Callable[[], None] = _nothing
        self._when_stopped: Callable[[StoreError], None] = _ignore
        if shared is not None:
            self._committer.stand_by(STANDBY)

    # -- appending -----------------------------------------------------------------------------------------------

    def begin_turn(self, now_us: int) -> None:
        self._open.begin_turn(now_us)

    def _now_us(self) -> int:
        return self._open.now_us

    def next_offset(self) -> int:
        return self._open.next_offset()

    def append_publish(self, message: Publish, client_id: str, qos2_session_id: int = 0) -> int:
        open_group = self._open
        flags = message.qos
        if message.retain:
            flags |= RETAIN_FLAG
            open_group.wait_applied()
        elif flags:
            open_group.wait_durable()
        elif (not self._records_all or self._committer.refusing) and not self._is_recorded(message.topic_name):
            return open_group.next_offset()
        sender = open_group.sender(client_id)
        group, now_us, topic = open_group.group, open_group.now_us, open_group.topic(message.topic_name)
        if not message.retain:
            offset = group.append_unapplied(now_us, _PUBLISH, flags, topic, message.payload, sender, message.properties)
        else:
            offset = group.append(now_us, _PUBLISH, flags, topic, message.payload, sender, message.properties)
            if self._budgeted:
                self._ledger.change(message.topic_name, len(message.payload), offset)
        if qos2_session_id:
            open_group.append(Received(qos2_session_id, client_id, message.packet_id))
        return offset

    def append(self, record: Record) -> int:
        if record.is_optional() and self._committer.refusing:
            return self._open.next_offset()  # while the disk fails, the open group would grow without bound
        self._disk_sessions.use_id(record.opened_queue_id())
        offset = self._open.append(record)
        if self._budgeted:
            if isinstance(record, RetainedRemoved):
                self._ledger.change(record.topic_name, 0, offset)
            elif isinstance(record, Published) and record.message.retain:
                self._ledger.change(record.message.topic_name, len(record.message.payload), offset)
        return offset

    def _is_recorded(self, topic_name: str) -> bool:
        """Whether a QoS 0 publish without RETAIN is recorded."""
        if self._committer.refusing:
            # While the disk fails the open group cannot be written: it would grow without bound.
            return False
        if self._records_all:
            return True
        if self._settings.recording == "acknowledged":
            return False
        return any(matches(topic_filter, topic_name) for topic_filter in self._settings.recording_filters)

    # -- commit --------------------------------------------------------------------------------------------------

    def at_once(self) -> bool:
        return False

    def commit(self, done: Callable[[StoreError | None], None]) -> bool:
        assert not self._committing, "one commit at a time"
        if not self.must_commit():
            return True
        self._committing = True
        self._submit(done)
        return False

    def commit_in_background(self, written: Callable[[], None]) -> None:
        if self._background is None and not self.must_commit() and not self._open.is_empty():
            self._background = written
            self._submit(None)

    def must_commit(self) -> bool:
        return self._open.must_be_applied or (self._open.must_be_durable and self._settings.durability != "none")

    def _submit(self, done: Done | None) -> None:
        assert self._is_active, "a standby appends nothing"
        closed = self._open.close()
        assert len(closed.group), "a submitted group has records"
        self._submitted.append(closed)
        trim_before, self._trim_before = self._trim_before, 0
        self._committer.submit(Work(closed.group, lambda error: self._finished(closed, done, error), trim_before))

    def _finished(self, closed: ClosedGroup, done: Done | None, error: StoreError | None) -> None:
        """A group is durable and applied, or the disk has failed and it is tried again."""
        if error is not None:
            if done is not None:
                done(error)
            return
        self._submitted.remove(closed)
        for tail, last in closed.tails:
            tail.applied(last)
        self._ledger.applied(closed.group.next_offset)
        if done is None:
            written, self._background = self._background, None
            if written is not None:
                written()
        else:
            self._committing = False
            done(None)

    def _plan_trim(self, before_offset: int) -> None:
        """Let no queue refer to records before an offset; with the next group the committer may trim them."""
        if self._shared is not None and not self._is_active:
            # What the active node has trimmed, no queue will refer to. It goes up to a checkpoint of ours before that.
            self._committer.trim(min(before_offset, self._shared.floor()))
            return
        self._open.raise_floor(before_offset)
        if self._open.is_empty():  # nothing may come while the disk is full
            self._committer.trim(before_offset)
        else:
            self._trim_before = before_offset

    # -- several servers -----------------------------------------------------------------------------------------

    def is_active(self) -> bool:
        return self._is_active

    def active_at(self) -> str:
        return "" if self._shared is None else self._shared.active_at()

    def nodes(self) -> list[NodeStatus]:
        return [] if self._shared is None else self._shared.nodes()

    def when_active(self, call: Callable[[], None]) -> None:
        if self._is_active:
            call()
        else:
            self._when_active = call

    def when_stopped(self, call: Callable[[StoreError], None]) -> None:
        self._when_stopped = call

    def follow(self, group: Group, applied: Callable[[], None]) -> None:
        """On a standby, from any thread: apply the next group of the active server. `applied` is called on the
        broker's thread."""

        def finished(error: StoreError | None) -> None:
            if error is None:
                self._open.begin_at(group.next_offset, group.columns.last_timestamp_us, self._log.first_offset)
                applied()

        self._committer.submit(Work(group, finished, 0))

    def lead(self) -> None:
        """From any thread, when all groups there are have been applied: this server is the active one now."""
        self._call_soon(self._lead)

    def _lead(self) -> None:
        assert self._shared is not None
        self._open.begin_at(self._log.next_offset, self._log.last_timestamp_us, self._log.first_offset)
        self._disk_sessions.use_id(self._log.next_offset)
        self._ledger.begin_at(self._state.retained.account())
        self._committer.lead(self._shared)
        self._is_active = True
        self._when_active()

    def stop(self, error: StoreError) -> None:
        """From any thread: the cluster goes on without this server."""
        self._call_soon(lambda: self._when_stopped(error))

    @property
    def directory(self) -> Path:
        """The data directory."""
        return self._directory.path

    def failing_disk(self) -> str:
        """Why groups cannot be written; empty if they can. From any thread."""
        return self._committer.failing

    def log_end(self) -> int:
        """The offset that the log goes on at. From any thread."""
        return self._log.next_offset

    def log_begin(self) -> int:
        """The oldest offset that the log has. From any thread."""
        return self._log.first_offset

    def log_groups(self, offset: int) -> Iterator[Group]:
        """The groups that the log has now, from an offset that begins one. From any thread."""
        return self._log.groups_from(offset)

    def sync_log(self, from_offset: int) -> int:
        """Make the log durable that was written since an offset; returns how far it is. From any thread."""
        return sync_segments(self._log, from_offset)

    # -- for the operator ----------------------------------------------------------------------------------------

    def group_bytes(self) -> int:
        return self._open.group.size_bytes

    def counts(self) -> dict[str, int]:
        counts = self._committer.counts()
        if self._shared is not None:
            counts.update(self._shared.counts())
        if self._trimmed is not None:
            counts["archive/fetched-bytes"] = self._trimmed.fetched_bytes()
        return counts

    def failing(self) -> str:
        return self._committer.refusing

    def commit_times(self) -> CommitTimes:
        return self._committer.times

    def is_full(self) -> bool:
        return self._committer.is_full

    def close(self) -> None:
        if self._shared is not None:
            self._shared.stop_following()
        if self._is_active and not self._open.is_empty():
            self._submit(None)
        self._committer.close()
        if self._shared is not None:
            self._shared.close()
        # Whatever fails now, all that was acknowledged is in the log. It is closed, and so synced, before the state is:
        # a state that is durable ahead of its log is refused at the next start.
        for part in (self._history_reader.close, self._log.close, self._state.close, self._directory.keep_private):
            try:
                part()
            except (OSError, StoreError) as error:
                _logger.error("not closed in order, the next start takes longer: %s", error)
        self._directory.close()

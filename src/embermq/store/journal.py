"""The journal: the store on disk. It fills a commit group, commits it, and answers from what is durable.

Owns: the open group and its commit; the log, the state and the committer are its parts.
Never: a socket, a clock, a decision about a message.
While one group is written and synced on the committer's thread, the next one is filled here: latency is about one sync,
throughput is not bound by it. A group that no effect waits for is written in the background, when the core asks for it.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, final

from embermq.protocol.packets import Publish, SubscriptionRequest, Will
from embermq.protocol.topics import matches
from embermq.store.budgets import BudgetLedger
from embermq.store.commit_times import CommitTimes
from embermq.store.committer import Committer, Done, Work
from embermq.store.directory import DataDirectory
from embermq.store.history.reader import HistoryReader
from embermq.store.interface import (
    LogSegment,
    Queue,
    Retained,
    RetainedChange,
    RetainedPiece,
    RetainedPosition,
    SavedSession,
    SavedSharedQueue,
    SavedWill,
    Store,
    StoreError,
)
from embermq.store.log.records import (
    NO_LOCAL_FLAG,
    RETAIN_AS_PUBLISHED_FLAG,
    RETAIN_FLAG,
    RETAIN_HANDLING_SHIFT,
    RETAINED_OWED_FLAG,
    SESSION,
    SESSION_EXPIRY,
    SESSION_PACKET,
    SESSION_POSITION,
    SESSION_SEQUENCE,
    WILL,
    Kind,
    subscription_id_property,
)
from embermq.store.open_group import ClosedGroup, OpenGroup, QueueTail
from embermq.store.opening import JournalSettings, open_log, open_state
from embermq.store.queue import SessionQueue
from embermq.store.replay import Progress
from embermq.store.retention import Archiver
from embermq.store.state.as_of_piece import as_of_pieces
from embermq.store.state.topic_walks import LevelWalk, WordSearch
from embermq.store.topic_tree import WORK_MAX, Moments, NameSearch, TreeWalk

_logger: Final = logging.getLogger("embermq.store")

_PUBLISH: Final = int(Kind.PUBLISH)


@final
class Journal(Store):
    """The store of one data directory."""

    __slots__ = (
        "_background",
        "_budgeted",
        "_committer",
        "_committing",
        "_directory",
        "_history",
        "_ledger",
        "_log",
        "_open",
        "_records_all",
        "_settings",
        "_state",
        "_submitted",
        "_trim_before",
        "_unrecorded",
    )

    def __init__(
        self,
        directory: Path,
        call_soon: Callable[[Callable[[], None]], None],
        settings: JournalSettings | None = None,
        progress: Progress | None = None,
        archiver: Archiver | None = None,
    ) -> None:
        """`call_soon` runs a function on the broker's thread; `progress` is told how far a start is."""
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
        self._unrecorded = 0
        trimmed = None if archiver is None else archiver.trimmed(self._log.directory)
        self._history: Final = HistoryReader(self._log, self._state.history, self._open, call_soon, trimmed)
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

    # -- appending -----------------------------------------------------------------------------------------------

    def begin_turn(self, now_us: int) -> None:
        if now_us > self._open.now_us:
            self._open.now_us = now_us

    def next_offset(self) -> int:
        return self._open.next_offset()

    def append_publish(self, message: Publish, client_id: str, qos2_session_id: int = 0) -> int:
        open_group = self._open
        flags = message.qos
        if message.retain:
            flags |= RETAIN_FLAG
            open_group.must_be_durable = open_group.must_be_applied = True
        elif flags:
            open_group.must_be_durable = True
        elif (not self._records_all or self._committer.refusing) and not self._is_recorded(message.topic_name):
            return open_group.next_offset()
        sender = open_group.sender(client_id)
        group, now_us, topic = open_group.group, open_group.now_us, open_group.topic(message.topic_name)
        if not message.retain:
            offset = group.append_unapplied(now_us, flags, topic, message.payload, sender, message.properties)
        else:
            offset = group.append(now_us, _PUBLISH, flags, topic, message.payload, sender, message.properties)
            if self._budgeted:
                self._ledger.change(message.topic_name, len(message.payload), offset)
        if qos2_session_id:
            received = SESSION_PACKET.pack(qos2_session_id, message.packet_id)
            open_group.append(Kind.RECEIVED, 0, b"", received, sender)
        return offset

    def append_retained_removed(self, topic_name: str, reason: str) -> None:
        self._open.must_be_durable = self._open.must_be_applied = True
        offset = self._open.append(Kind.RETAINED_REMOVED, 0, topic_name.encode(), reason.encode(), b"")
        if self._budgeted:
            self._ledger.change(topic_name, 0, offset)

    def append_pubrel(self, session_id: int, client_id: str, packet_id: int) -> None:
        self._open.must_be_durable = True
        self._open.append(Kind.PUBREL, 0, b"", SESSION_PACKET.pack(session_id, packet_id), client_id.encode())

    def append_connected(self, client_id: str, user_name: str, persistent: bool, protocol: str, address: str) -> None:
        if self._is_left_out(0):
            return
        text = "\n".join((protocol, address, user_name, "persistent" if persistent else "clean"))
        self._open.append(Kind.CONNECTED, 0, b"", text.encode(), client_id.encode())

    def append_disconnected(self, client_id: str, session_id: int, reason: str, sent: int = 0) -> None:
        if self._is_left_out(session_id):
            return
        payload = SESSION_SEQUENCE.pack(session_id, sent) + reason.encode()
        self._open.append(Kind.DISCONNECTED, 0, b"", payload, client_id.encode())

    def open_session(self, client_id: str, user_name: str, session_expiry_s: int) -> SavedSession:
        self._open.must_be_durable = True
        payload = SESSION_EXPIRY.pack(0, session_expiry_s) + user_name.encode()
        session_id = self._open.append(Kind.SESSION_OPENED, 0, b"", payload, client_id.encode())
        queue = self._queue(session_id, 0, 0, set(), False)
        return SavedSession(session_id, client_id, user_name, session_expiry_s, 0, [], set(), [], queue)

    def append_session_resumed(self, session_id: int, client_id: str, session_expiry_s: int) -> None:
        self._open.must_be_durable = True
        payload = SESSION_EXPIRY.pack(session_id, session_expiry_s)
        self._open.append(Kind.SESSION_RESUMED, 0, b"", payload, client_id.encode())

    def append_session_expiry(self, session_id: int, client_id: str, session_expiry_s: int) -> None:
        self._open.must_be_durable = True
        payload = SESSION_EXPIRY.pack(session_id, session_expiry_s)
        self._open.append(Kind.SESSION_EXPIRY_CHANGED, 0, b"", payload, client_id.encode())

    def end_session(self, session_id: int, client_id: str) -> None:
        self._open.must_be_durable = True
        self._open.forget(session_id)
        self._open.append(Kind.SESSION_ENDED, 0, b"", SESSION.pack(session_id), client_id.encode())

    def append_subscribed(
        self, client_id: str, session_id: int, request: SubscriptionRequest, granted_qos: int, owes_retained: bool
    ) -> None:
        if self._is_left_out(session_id):
            return
        flags = granted_qos | request.retain_handling << RETAIN_HANDLING_SHIFT
        if request.no_local:
            flags |= NO_LOCAL_FLAG
        if request.retain_as_published:
            flags |= RETAIN_AS_PUBLISHED_FLAG
        if owes_retained:
            flags |= RETAINED_OWED_FLAG
        if session_id:
            self._open.must_be_durable = True
        self._open.append(
            Kind.SUBSCRIBED,
            flags,
            request.topic_filter.encode(),
            SESSION.pack(session_id),
            client_id.encode(),
            subscription_id_property(request.subscription_id),
        )

    def append_unsubscribed(self, client_id: str, session_id: int, topic_filter: str) -> None:
        if self._is_left_out(session_id):
            return
        if session_id:
            self._open.must_be_durable = True
        self._open.append(Kind.UNSUBSCRIBED, 0, topic_filter.encode(), SESSION.pack(session_id), client_id.encode())

    def append_position(self, session_id: int, client_id: str, position: RetainedPosition, done: bool) -> None:
        self._open.must_be_durable = True
        payload = SESSION_POSITION.pack(session_id, position.before_offset, position.qos, done)
        self._open.append(
            Kind.POSITION,
            0,
            position.topic_filter.encode(),
            payload + position.after_topic_name.encode(),
            client_id.encode(),
        )

    def append_will(self, client_id: str, session_id: int, user_name: str, will: Will) -> None:
        self._open.must_be_durable = True
        user = user_name.encode()
        self._open.append(
            Kind.WILL_SET,
            will.qos | (RETAIN_FLAG if will.retain else 0),
            will.topic_name.encode(),
            WILL.pack(session_id, will.delay_s, len(user)) + user + will.payload,
            client_id.encode(),
            will.properties,
        )

    def append_will_cleared(self, client_id: str) -> None:
        self._open.must_be_durable = True
        self._open.append(Kind.WILL_CLEARED, 0, b"", b"", client_id.encode())

    def open_shared_queue(self, share_filter: str) -> tuple[int, Queue]:
        self._open.must_be_durable = True
        queue_id = self._open.append(Kind.SHARED_QUEUE_OPENED, 0, share_filter.encode(), b"", b"")
        return queue_id, self._queue(queue_id, 0, 0, set(), False)

    def end_shared_queue(self, queue_id: int, share_filter: str) -> None:
        self._open.must_be_durable = True
        self._open.forget(queue_id)
        self._open.append(Kind.SHARED_QUEUE_ENDED, 0, share_filter.encode(), SESSION.pack(queue_id), b"")

    def _is_left_out(self, session_id: int) -> bool:
        """Whether a record without a session is not appended: while the disk fails, its group cannot be written."""
        return not session_id and bool(self._committer.refusing)

    def _is_recorded(self, topic_name: str) -> bool:
        """Whether a QoS 0 publish without RETAIN is recorded."""
        if self._committer.refusing:
            # While the disk fails the open group cannot be written: it would grow without bound.
            self._unrecorded += 1
            return False
        if self._records_all:
            return True
        if self._settings.recording == "acknowledged":
            return False
        return any(matches(topic_filter, topic_name) for topic_filter in self._settings.recording_filters)

    def unrecorded(self) -> int:
        """How many QoS 0 messages were not recorded because the disk failed."""
        return self._unrecorded

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
            tail.durable = last
        self._ledger.applied(closed.group.first_offset + len(closed.group))
        if done is None:
            written, self._background = self._background, None
            if written is not None:
                written()
        else:
            self._committing = False
            done(None)

    def _plan_trim(self, before_offset: int) -> None:
        """Let no queue refer to records before an offset; with the next group the committer may trim them."""
        self._open.reference_floor = before_offset
        if self._open.is_empty():  # nothing may come while the disk is full
            self._committer.trim(before_offset)
        else:
            self._trim_before = before_offset

    def group_bytes(self) -> int:
        return self._open.group.size_bytes

    def counts(self) -> dict[str, int]:
        return self._committer.counts()

    def failing(self) -> str:
        return self._committer.refusing

    def is_full(self) -> bool:
        return self._committer.is_full

    def close(self) -> None:
        if not self._open.is_empty():
            self._submit(None)
        self._committer.close()
        # Whatever fails now, all that was acknowledged is durable in the log.
        for part in (self._history.close, self._state.close, self._log.close, self._directory.keep_private):
            try:
                part()
            except (OSError, StoreError) as error:
                _logger.error("not closed in order, the next start takes longer: %s", error)
        self._directory.close()

    # -- views ---------------------------------------------------------------------------------------------------

    def retained_get(self, topic_name: str) -> Retained | None:
        return self._state.retained.get(topic_name, self._open.now_us)

    def retained_scan(self, topic_filter: str, after_topic_name: str, limit: int) -> list[Retained]:
        return self._state.retained.scan(topic_filter, after_topic_name, limit, self._open.now_us)

    def retained_piece(
        self, topic_filter: str, after_topic_name: str, limit: int, bytes_max: int, seeks_max: int
    ) -> RetainedPiece:
        now_us = self._open.now_us
        return self._state.retained.piece(topic_filter, after_topic_name, limit, bytes_max, seeks_max, now_us)

    def retained_totals(self) -> tuple[int, int]:
        return self._state.retained.totals()

    def retained_as_of(self, topic_filter: str, after_topic_name: str, limit: int, instant_us: int) -> list[Retained]:
        return self._state.history.as_of(self._log, topic_filter, after_topic_name, limit, instant_us)

    def retained_as_of_pieces(
        self, topic_filter: str, instant_us: int, after_topic_name: str = ""
    ) -> Iterator[list[Retained]]:
        return as_of_pieces(self._state.history, self._log, topic_filter, instant_us, after_topic_name)

    def retained_levels(self, below: str | None, position: str, moments: Moments, work_max: int = WORK_MAX) -> TreeWalk:
        return LevelWalk(self._state.topics(moments, self._open.now_us), below, position, work_max)

    def retained_with_word(self, word: str, position: str, moments: Moments) -> NameSearch:
        return WordSearch(self._state.topics(moments, self._open.now_us), word, position)

    def history_begins_us(self) -> int:
        return self._state.history.begins_us()

    def retained_changes(self, topic_name: str, after_offset: int, limit: int) -> list[RetainedChange]:
        return self._state.history.changes_of(self._log, topic_name, after_offset, limit)

    def retained_admits(self, topic_name: str, payload_bytes: int) -> str:
        return self._ledger.admits(topic_name, payload_bytes) if self._budgeted else ""

    def retained_expired(self, now_us: int, limit: int) -> list[str]:
        expired = self._state.retained.expired(now_us, limit)
        if not expired:
            return expired
        # A topic with a pending record is left out: it may be retained again, and a removal would remove that.
        pending = set(self._open.group.topics).union(*[closed.group.topics for closed in self._submitted])
        return [topic_name for topic_name in expired if topic_name.encode() not in pending]

    def retained_budget_totals(self) -> list[tuple[str, int, int]]:
        return self._state.retained.budget_totals()

    def commit_times(self) -> CommitTimes:
        return self._committer.times

    def history(self) -> HistoryReader:
        return self._history

    def log_segments(self) -> list[LogSegment]:
        return [
            LogSegment(
                segment.first_offset,
                segment.next_offset,
                segment.size_bytes,
                segment.first_timestamp_us if segment.blocks else 0,
                segment.last_timestamp_us if segment.blocks else 0,
            )
            for segment in self._log.segments()
        ]

    def sessions(self) -> Iterable[SavedSession]:
        return self._state.sessions.load(self._queue)

    def wills(self) -> list[SavedWill]:
        return self._state.wills.load()

    def shared_queues(self) -> list[SavedSharedQueue]:
        return self._state.sessions.load_shared_queues(self._queue)

    def _queue(self, session_id: int, acknowledged: int, last: int, released: set[int], has_ids: bool) -> Queue:
        tail = QueueTail(session_id, acknowledged, last, has_ids)
        return SessionQueue(tail, released, self._open, self._state.sessions, self._log)

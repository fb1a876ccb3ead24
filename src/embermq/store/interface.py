"""The store as the broker sees it: records go into an open group, a group becomes durable, then its effects leave.

Owns: the words between `broker` and the engines, and nothing that runs.
The log is the truth: every record has a gapless offset, known as soon as it is appended. What an engine answers
(`retained_*`, `queue`, `sessions`) is a view of the groups that are durable. A group in the making is not seen yet;
the broker asks only after the group is durable, so it needs no overlay (docs/architecture.md).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Final, final

from mypy_extensions import mypyc_attr

from embermq.protocol.packets import Delivery, Publish, SubscriptionRequest, Will
from embermq.store.commit_times import CommitTimes
from embermq.store.errors import StoreError as StoreError  # what the broker catches belongs to the interface
from embermq.store.history.pieces import HistoryReads as HistoryReads
from embermq.store.history.pieces import RetainedChange as RetainedChange
from embermq.store.history.retained_messages import MIXED as MIXED
from embermq.store.history.retained_messages import Retained as Retained
from embermq.store.history.retained_messages import RetainedPiece as RetainedPiece
from embermq.store.log_segment import LogSegment as LogSegment
from embermq.store.topic_tree import WORK_MAX, Moments, NameSearch, TreeWalk

PACKET_IDS: Final = 65_535


def packet_id_of(sequence: int) -> int:
    """The packet identifier of the n-th message that a session is owed: 1 to 65,535, then 1 again."""
    return (sequence - 1) % PACKET_IDS + 1


@mypyc_attr(allow_interpreted_subclasses=True)
class Queue(ABC):
    """What one session, or a share group, is owed, oldest first: from the first unacknowledged message on."""

    __slots__ = ()

    @abstractmethod
    def push(
        self, message: Publish, offset: int, qos: int, retain: bool, subscription_ids: tuple[int, ...] = ()
    ) -> int:
        """Add a message at the end, in the open group; returns its sequence number.

        `offset` is its record in the log; below 0 there is none that lasts (a retained message may be older than the
        log's beginning), and the engine records a copy, with what is left of its Message Expiry Interval, rounded up
        to a second. `read` gives messages with their `expires_us`; it does not leave out what has expired.
        """

    @abstractmethod
    def read(self, after_sequence: int, limit: int) -> list[Delivery]:
        """Up to `limit` durable messages with a sequence number above `after_sequence`, in order."""

    @abstractmethod
    def release(self, sequence: int) -> None:
        """Record that PUBREC has come: PUBREL is owed from now on. Must be durable before PUBREL leaves."""

    @abstractmethod
    def acknowledge(self, sequence: int) -> None:
        """Record that everything up to and including `sequence` is done. Need not be durable before anything."""

    @abstractmethod
    def acknowledged(self) -> int:
        """The highest sequence number below which everything is done; 0 at first."""

    @abstractmethod
    def last(self) -> int:
        """The sequence number of the newest message pushed; 0 at first."""

    def oldest_owed_offset(self) -> int:
        """The lowest record in the log that the queue still needs, of those that are durable; 0 if it needs none."""
        return 0

    @abstractmethod
    def log_bytes(self) -> int:
        """About how many bytes of the log must be kept for what is owed; below 0 if the queue is not in a log."""


@final
class RetainedPosition:
    """How far a subscription's retained messages have been sent: resumable, so it can outlive a connection."""

    __slots__ = ("topic_filter", "qos", "before_offset", "after_topic_name")

    def __init__(self, topic_filter: str, qos: int, before_offset: int, after_topic_name: str = "") -> None:
        self.topic_filter: Final = topic_filter
        self.qos: Final = qos
        self.before_offset: Final = before_offset  # newer ones were live for this subscription
        self.after_topic_name = after_topic_name


@final
class SavedSession:
    """A persistent session as the store remembers it."""

    __slots__ = (
        "session_id",
        "client_id",
        "user_name",
        "session_expiry_s",
        "ended_us",
        "subscriptions",
        "received_ids",
        "positions",
        "queue",
        "sent",
    )

    def __init__(
        self,
        session_id: int,
        client_id: str,
        user_name: str,
        session_expiry_s: int,
        ended_us: int,
        subscriptions: list[tuple[SubscriptionRequest, int]],
        received_ids: set[int],
        positions: list[RetainedPosition],
        queue: Queue | None,
        sent: int = 0,
    ) -> None:
        self.session_id: Final = session_id  # the offset of the record that opened it
        self.client_id: Final = client_id
        self.user_name: Final = user_name
        self.session_expiry_s: Final = session_expiry_s
        self.ended_us: Final = ended_us  # when its connection ended; 0 if it was connected
        self.subscriptions: Final = subscriptions  # each with the offset at which it was made
        self.received_ids: Final = received_ids  # QoS 2 packet identifiers received, PUBREL outstanding
        self.positions: Final = positions
        self.queue: Final = queue  # None: the engine keeps nothing beyond the process; the session has its own
        self.sent: Final = sent  # what may have left before: up to the last disconnection, or all if connected


@final
class SavedWill:
    """A will that was set and not cleared: neither published nor deleted."""

    __slots__ = ("client_id", "user_name", "session_id", "will", "ended_us")

    def __init__(self, client_id: str, user_name: str, session_id: int, will: Will, ended_us: int) -> None:
        self.client_id: Final = client_id
        self.user_name: Final = user_name
        self.session_id: Final = session_id  # 0: the session ends with its connection
        self.will: Final = will
        self.ended_us: Final = ended_us  # when the connection of its session ended; 0 if it was connected, or id 0


@final
class SavedSharedQueue:
    """The queue of a share group as the store remembers it. `share_filter` is the whole `$share/name/filter`."""

    __slots__ = ("queue_id", "share_filter", "queue")

    def __init__(self, queue_id: int, share_filter: str, queue: Queue) -> None:
        self.queue_id: Final = queue_id  # the offset of the record that opened it
        self.share_filter: Final = share_filter
        self.queue: Final = queue


@mypyc_attr(allow_interpreted_subclasses=True)
class Store(ABC):
    """One engine. All methods run on the broker's thread; `commit` may work elsewhere and calls back."""

    __slots__ = ()

    # -- appending to the open group -----------------------------------------------------------------------------

    @abstractmethod
    def begin_turn(self, now_us: int) -> None:
        """Wall-clock time, in microseconds, for all that is appended until the next call. It never runs backwards."""

    @abstractmethod
    def next_offset(self) -> int:
        """The offset that the next record gets."""

    @abstractmethod
    def append_publish(self, message: Publish, client_id: str, qos2_session_id: int = 0) -> int:
        """Record a publish and, with RETAIN, replace or clear its topic's retained message; returns the offset.

        With `qos2_session_id` the packet identifier counts as received by that session until `append_pubrel`.
        """

    @abstractmethod
    def append_retained_removed(self, topic_name: str, reason: str) -> None:
        """Clear a retained message without a publish: it expired, or an operator or a budget took it away."""

    @abstractmethod
    def append_pubrel(self, session_id: int, client_id: str, packet_id: int) -> None:
        """The client released a QoS 2 packet identifier: it may be used for a new message."""

    @abstractmethod
    def append_connected(self, client_id: str, user_name: str, persistent: bool, protocol: str, address: str) -> None:
        """A client has connected; only for readers of the log."""

    @abstractmethod
    def append_disconnected(self, client_id: str, session_id: int, reason: str, sent: int = 0) -> None:
        """A client's connection has ended. With a session id, the session's expiry starts to run.

        `sent` is the sequence number of the newest queued message that has left: above it nothing needs DUP later.
        """

    @abstractmethod
    def open_session(self, client_id: str, user_name: str, session_expiry_s: int) -> SavedSession:
        """Begin a persistent session (any older one of this client id was ended before)."""

    @abstractmethod
    def append_session_resumed(self, session_id: int, client_id: str, session_expiry_s: int) -> None:
        """A persistent session has a connection again; its expiry no longer runs."""

    @abstractmethod
    def append_session_expiry(self, session_id: int, client_id: str, session_expiry_s: int) -> None:
        """The client changed its session's expiry with DISCONNECT (5.0, 3.14.2.2.2)."""

    @abstractmethod
    def end_session(self, session_id: int, client_id: str) -> None:
        """Forget a persistent session and what it was owed."""

    @abstractmethod
    def append_subscribed(
        self, client_id: str, session_id: int, request: SubscriptionRequest, granted_qos: int, owes_retained: bool
    ) -> None:
        """A subscription was made or replaced. `session_id` 0: not persistent, only for readers of the log.

        With `owes_retained`, the session has a `RetainedPosition` until all its retained messages are sent.
        """

    @abstractmethod
    def append_unsubscribed(self, client_id: str, session_id: int, topic_filter: str) -> None:
        """A subscription was given up."""

    @abstractmethod
    def append_position(self, session_id: int, client_id: str, position: RetainedPosition, done: bool) -> None:
        """Retained messages up to `position.after_topic_name` were queued for the session; with `done`, all of them."""

    @abstractmethod
    def append_will(self, client_id: str, session_id: int, user_name: str, will: Will) -> None:
        """A client has set a will with CONNECT, in place of any will before. `session_id` 0: not persistent.

        It must be durable before CONNACK leaves, so that it can be published after a crash of the server.
        """

    @abstractmethod
    def append_will_cleared(self, client_id: str) -> None:
        """The will of a client was published or deleted. Append it in the same turn as the will's PUBLISH: then a crash
        leaves either both or none. It is durable before any effect of this turn leaves.
        """

    @abstractmethod
    def open_shared_queue(self, share_filter: str) -> tuple[int, Queue]:
        """Begin the queue of a share group (any older one of this filter was ended before); its id, and the queue.

        It belongs to no session and stays until `end_shared_queue`. `Queue.acknowledge` goes by the oldest message that
        is not acknowledged: members acknowledge in any order, and after a crash those above it are given again. The
        packet identifiers in what it gives mean nothing: each member has its own.
        """

    @abstractmethod
    def end_shared_queue(self, queue_id: int, share_filter: str) -> None:
        """Forget the queue of a share group and what it holds."""

    # -- commit ------------------------------------------------------------------------------------------------

    @abstractmethod
    def at_once(self) -> bool:
        """Whether what is appended is as safe as it will ever be: no commit has to be waited for, and none can fail."""

    @abstractmethod
    def must_commit(self) -> bool:
        """Whether the open group has a record that something waits for."""

    @abstractmethod
    def commit(self, done: Callable[[StoreError | None], None]) -> bool:
        """Make the open group durable if anything in it must be. True: nothing must, `done` is not called and the group
        stays open until `commit_in_background`.

        False: the group is closed, another is open, and `done` is called on the broker's thread once it is durable
        and applied, or with the error that keeps it from being so; then the store goes on trying and calls again.
        One commit at a time.
        """

    @abstractmethod
    def commit_in_background(self, written: Callable[[], None]) -> None:
        """Write the open group although no effect waits for it (one that effects wait for is left to `commit`).

        One at a time: while one is written, the next gathers, and `written` says that it can follow."""

    @abstractmethod
    def group_bytes(self) -> int:
        """About how many bytes the open group holds: the shell stops reading above its bound."""

    @abstractmethod
    def failing(self) -> str:
        """Why nothing can be made durable right now; empty while all is well."""

    def is_full(self) -> bool:
        """Whether `failing` is about new things only: the disk has reached its reserve."""
        return False

    def counts(self) -> dict[str, int]:
        """Counters of the engine, as topics below `$SYS/broker/store/`."""
        return {}

    @abstractmethod
    def close(self) -> None:
        """Make durable what is open, and let go of the directory."""

    # -- views of what is durable --------------------------------------------------------------------------------

    @abstractmethod
    def retained_get(self, topic_name: str) -> Retained | None:
        """The retained message of one topic. What has expired at the turn's instant is not given, here and below, even
        before `retained_expired` has led to its removal.
        """

    @abstractmethod
    def retained_scan(self, topic_filter: str, after_topic_name: str, limit: int) -> list[Retained]:
        """Up to `limit` retained messages matching a filter, in store order, after a topic ("" = from the start).

        Fewer than `limit` means that there are no more. A leading wildcard does not match `$` topics.
        """

    @abstractmethod
    def retained_piece(
        self, topic_filter: str, after_topic_name: str, limit: int, bytes_max: int, seeks_max: int
    ) -> RetainedPiece:
        """As `retained_scan`, within bounds of work: it ends with the message whose payload makes `bytes_max` in all,
        or after `seeks_max` seeks over topics that did not match, and says where to go on.
        """

    @abstractmethod
    def retained_as_of(self, topic_filter: str, after_topic_name: str, limit: int, instant_us: int) -> list[Retained]:
        """As `retained_scan`, at an earlier instant. A `StoreError` if the history does not reach back so far."""

    @abstractmethod
    def retained_as_of_pieces(
        self, topic_filter: str, instant_us: int, after_topic_name: str = ""
    ) -> Iterator[list[Retained]]:
        """All of `retained_as_of`, in pieces; one may be empty, so that others can have their turn between two."""

    @abstractmethod
    def retained_levels(self, below: str | None, position: str, moments: Moments, work_max: int = WORK_MAX) -> TreeWalk:
        """One level of the topic tree. A `StoreError` as for `retained_as_of`."""

    @abstractmethod
    def retained_with_word(self, word: str, position: str, moments: Moments) -> NameSearch:
        """The topics whose names have a word in them."""

    @abstractmethod
    def retained_totals(self) -> tuple[int, int]:
        """How many messages are retained, and their bytes (topic and payload), with those expired but not removed."""

    @abstractmethod
    def sessions(self) -> Iterable[SavedSession]:
        """Every persistent session, at start."""

    @abstractmethod
    def wills(self) -> list[SavedWill]:
        """Every will that was set and not cleared, at start."""

    @abstractmethod
    def shared_queues(self) -> list[SavedSharedQueue]:
        """Every queue of a share group, at start."""

    @abstractmethod
    def retained_admits(self, topic_name: str, payload_bytes: int) -> str:
        """Why a budget does not allow this retained message; empty if all do."""

    @abstractmethod
    def retained_budget_totals(self) -> list[tuple[str, int, int]]:
        """Filter, count and bytes of each budget."""

    def history_begins_us(self) -> int:
        """Before which instant nothing is known of the retained set; 0: the log has its beginning."""
        return 0

    def retained_changes(self, topic_name: str, after_offset: int, limit: int) -> list[RetainedChange]:
        """The changes of a topic's retained message above an offset, oldest first, as far as the history goes back."""
        return []

    def commit_times(self) -> CommitTimes | None:
        """How long commits have taken; None if the engine has nothing to wait for."""
        return None

    def history(self) -> HistoryReads | None:
        """Reads of what was (`store.history.pieces`); None if the engine has no log."""
        return None

    def log_segments(self) -> list[LogSegment]:
        """The segments of the log, oldest first; none if the engine has no log."""
        return []

    @abstractmethod
    def retained_expired(self, now_us: int, limit: int) -> list[str]:
        """Topic names whose retained message has expired, at most `limit`; each until its removal is appended."""

"""The store as the broker sees it: records go into an open group, a group becomes durable, then its effects leave.

Owns: the words between `broker` and the engines, and nothing that runs.
The log is the truth: every record has a gapless offset, known as soon as it is appended. What an engine answers
(`RetainedMessages`, `Sessions`, `History`) is a view of the groups that are durable. A group in the making is not seen
yet; the broker asks only after the group is durable, so it needs no overlay (docs/architecture.md).
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, final

from mypy_extensions import mypyc_attr

from embermq.protocol.packets import Delivery, Publish, SubscriptionRequest, Will
from embermq.store.errors import StoreError as StoreError  # what the broker catches belongs to the interface
from embermq.store.history.pieces import HistoryReads as HistoryReads
from embermq.store.history.pieces import RetainedChange as RetainedChange
from embermq.store.history.retained_messages import MIXED as MIXED
from embermq.store.history.retained_messages import Retained as Retained
from embermq.store.history.retained_messages import RetainedPiece as RetainedPiece
from embermq.store.records import Record, RetainedPosition
from embermq.store.segment import Segment as Segment
from embermq.store.topic_tree import WORK_MAX, Moments, NameSearch, TreeWalk

COMMIT_BOUNDS_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node of a cluster, as another one or this one has heard of it.

    `state`: active, standby, expelled, or gone: nothing was heard of it for `cluster.node_timeout_ms`. What it said
    last, `heard_ms` ago: its log went on at `next_offset`, and `lag` records of the shared log were not in it. These
    are -1 if it has said nothing.
    """

    node: int
    state: str
    reachable_at: str
    next_offset: int
    lag: int
    heard_ms: int
    is_this: bool


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
        self.session_id: Final = session_id
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
        self.queue_id: Final = queue_id
        self.share_filter: Final = share_filter
        self.queue: Final = queue


@final
class CommitTimes:
    """How many commit groups became durable since the start, and how long each took, for the operator.

    The committer's thread fills it; readers on other threads see numbers that may be one group apart.
    """

    def __init__(self) -> None:
        self.groups = 0
        self.records = 0
        self.sum_s = 0.0
        self._counts: Final = [0] * (len(COMMIT_BOUNDS_S) + 1)

    def add(self, records: int, took_s: float) -> None:
        """A group of so many records is durable, so long after it was closed."""
        self.groups += 1
        self.records += records
        self.sum_s += took_s
        self._counts[bisect_left(COMMIT_BOUNDS_S, took_s)] += 1

    def buckets(self) -> list[tuple[str, float]]:
        """Upper bounds as text, each with how many groups took no longer; the last one is "+Inf"."""
        found: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip((*map(str, COMMIT_BOUNDS_S), "+Inf"), self._counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found


@mypyc_attr(allow_interpreted_subclasses=True)
class Journal(ABC):
    """Records in the order in which they were appended. They become durable in this order, a group at a time.

    The offset that `append` returns is known before the record is durable: by it, the record's place is known to queues
    and subscriptions of the same group.
    """

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

        It does what `append` does with `Published` and `Received`, without making these: it comes with each message.

        With `qos2_session_id` the packet identifier counts as received by that session until `PubrelReceived`.
        """

    @abstractmethod
    def append(self, record: Record) -> int:
        """Append any record; returns its offset. What it says is durable before an effect of this turn leaves.

        Records that are only for readers of the log are left out while the disk fails.
        """

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

    # -- several servers -----------------------------------------------------------------------------------------

    def is_active(self) -> bool:
        """Whether clients are served. On a standby of a cluster nothing may be appended."""
        return True

    def active_at(self) -> str:
        """On a standby: where clients reach the active server; empty if that is not known."""
        return ""

    def nodes(self) -> list[NodeStatus]:
        """The nodes of the cluster, this one among them; none for a single server."""
        return []

    def when_active(self, call: Callable[[], None]) -> None:
        """Have `call` called on the broker's thread once this server may append: at once, unless it is a standby."""
        call()

    def when_stopped(self, call: Callable[[StoreError], None]) -> None:  # noqa: B027, a single server never is
        """Have `call` called on the broker's thread when the cluster goes on without this server."""

    # -- for the operator ----------------------------------------------------------------------------------------

    def commit_times(self) -> CommitTimes | None:
        """How long commits have taken; None if the engine has nothing to wait for."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Make durable what is open, and let go of the directory."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Sessions(ABC):
    """Persistent sessions, the queues of share groups, and wills: what a start finds, and new ones."""

    @abstractmethod
    def new_id(self) -> int:
        """An id for a session or for the queue of a share group, which none had before."""

    @abstractmethod
    def queue(self, session_id: int) -> Queue | None:
        """The queue of a new session or share group, before anything is in it; None: the engine keeps no queues.

        The queue of a share group belongs to no session and stays until its `SharedQueueEnded`. There
        `Queue.acknowledge` goes by the oldest message that is not acknowledged: members acknowledge in any order, and
        after a crash those above it are given again. The packet identifiers in what it gives mean nothing: each member
        has its own.
        """

    @abstractmethod
    def load(self) -> Iterable[SavedSession]:
        """Every persistent session, at start."""

    @abstractmethod
    def wills(self) -> list[SavedWill]:
        """Every will that was set and not cleared, at start."""

    @abstractmethod
    def shared_queues(self) -> list[SavedSharedQueue]:
        """Every queue of a share group, at start."""


@mypyc_attr(allow_interpreted_subclasses=True)
class RetainedMessages(ABC):
    """The retained messages that are durable. What has expired at the turn's instant is not given, even before
    `expired` has led to its removal.
    """

    @abstractmethod
    def get(self, topic_name: str) -> Retained | None:
        """The retained message of one topic."""

    @abstractmethod
    def piece(
        self, topic_filter: str, after_topic_name: str, limit: int, bytes_max: int, seeks_max: int
    ) -> RetainedPiece:
        """Up to `limit` retained messages matching a filter, in store order, after a topic ("" = from the start).

        A leading wildcard does not match `$` topics. It ends with the message whose payload makes `bytes_max` in all,
        or after `seeks_max` seeks over topics that did not match, and says where to go on.
        """

    @abstractmethod
    def levels(self, below: str | None, position: str, moments: Moments, work_max: int = WORK_MAX) -> TreeWalk:
        """One level of the topic tree, at one instant or two. A `StoreError` as for `History.as_of`."""

    @abstractmethod
    def with_word(self, word: str, position: str, moments: Moments) -> NameSearch:
        """The topics whose names have a word in them."""

    @abstractmethod
    def totals(self) -> tuple[int, int]:
        """How many messages are retained, and their bytes (topic and payload), with those expired but not removed."""

    @abstractmethod
    def admits(self, topic_name: str, payload_bytes: int) -> str:
        """Why a budget does not allow this retained message; empty if all do."""

    @abstractmethod
    def budget_totals(self) -> list[tuple[str, int, int]]:
        """Filter, count and bytes of each budget."""

    @abstractmethod
    def expired(self, now_us: int, limit: int) -> list[str]:
        """Topic names whose retained message has expired, at most `limit`; each until its removal is appended."""


class History:
    """Earlier states of the retained messages, and the log. These are the answers of an engine without a log."""

    def as_of(self, topic_filter: str, after_topic_name: str, limit: int, instant_us: int) -> list[Retained]:
        """The retained messages of an earlier instant, as `RetainedMessages.piece` gives those of now. Fewer than
        `limit` if there are no more. A `StoreError` if the history does not reach back so far. On any thread.
        """
        raise StoreError("a store in memory keeps no history")

    def as_of_pieces(self, topic_filter: str, instant_us: int, after_topic_name: str = "") -> Iterator[list[Retained]]:
        """All of `as_of`, in pieces; one may be empty, so that others can have their turn between two."""
        raise StoreError("a store in memory keeps no history")

    def begins_us(self) -> int:
        """Before which instant nothing is known of the retained set; 0: the log has its beginning."""
        return 0

    def changes(self, topic_name: str, after_offset: int, limit: int) -> list[RetainedChange]:
        """The changes of a topic's retained message above an offset, oldest first, as far as the history goes back.

        On any thread.
        """
        return []

    def reads(self) -> HistoryReads | None:
        """Reads of what was (`store.history.pieces`); None if the engine has no log."""
        return None

    def log_segments(self) -> list[Segment]:
        """The segments of the log, oldest first; none if the engine has no log."""
        return []


@mypyc_attr(allow_interpreted_subclasses=True)
class Store(Journal):
    """One engine: the journal, and what is durable of it. All methods run on the broker's thread; `commit` may work
    elsewhere and calls back.
    """

    def __init__(self, sessions: Sessions, retained: RetainedMessages, history: History) -> None:
        self.sessions: Final = sessions
        self.retained: Final = retained
        self.history: Final = history

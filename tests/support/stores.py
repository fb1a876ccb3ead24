"""A store whose commits, failures and answers a test decides."""

from collections.abc import Callable, Iterable, Sequence

from embermq.protocol.packets import Delivery, Publish, packet_id_of
from embermq.store.budgets import RetainedBudget
from embermq.store.engines.memory import MemoryStore
from embermq.store.interface import (
    History,
    Queue,
    Retained,
    RetainedMessages,
    RetainedPiece,
    SavedSession,
    SavedSharedQueue,
    SavedWill,
    Sessions,
    Store,
    StoreError,
)
from embermq.store.records import Published, Received, Record
from embermq.store.topic_tree import WORK_MAX, Moments, NameSearch, TreeWalk


class MemoryQueue(Queue):
    """What one session is owed; acknowledged messages are dropped."""

    def __init__(self) -> None:
        self._messages: dict[int, Delivery] = {}
        self._acknowledged = 0
        self._last = 0

    def push(
        self, message: Publish, offset: int, qos: int, retain: bool, subscription_ids: tuple[int, ...] = ()
    ) -> int:
        self._last += 1
        sequence = self._last
        self._messages[sequence] = Delivery(
            [message], qos, retain, False, packet_id_of(sequence), subscription_ids, sequence
        )
        return sequence

    def read(self, after_sequence: int, limit: int) -> list[Delivery]:
        first = max(after_sequence, self._acknowledged) + 1
        messages = self._messages
        return [messages[sequence] for sequence in range(first, min(first + limit, self._last + 1))]

    def release(self, sequence: int) -> None:
        queued = self._messages.get(sequence)
        if queued is not None:
            queued.released = True

    def acknowledge(self, sequence: int) -> None:
        for done in range(self._acknowledged + 1, min(sequence, self._last) + 1):
            del self._messages[done]
            self._acknowledged = done

    def acknowledged(self) -> int:
        return self._acknowledged

    def last(self) -> int:
        return self._last

    def log_bytes(self) -> int:
        return -1


class ScriptedSessions(Sessions):
    """What it remembers at start, and queues in memory."""

    def __init__(
        self,
        has_queues: bool,
        saved: Sequence[SavedSession],
        wills: Sequence[SavedWill],
        shared_queues: Sequence[SavedSharedQueue],
    ) -> None:
        self._last_id = 0
        self._has_queues = has_queues
        self._saved = list(saved)
        self._wills = list(wills)
        self._shared_queues = list(shared_queues)

    def new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def queue(self, session_id: int) -> Queue | None:
        return MemoryQueue() if self._has_queues else None

    def load(self) -> Iterable[SavedSession]:
        return self._saved

    def wills(self) -> list[SavedWill]:
        return self._wills

    def shared_queues(self) -> list[SavedSharedQueue]:
        return self._shared_queues


class ScriptedRetained(RetainedMessages):
    """The messages of one store in memory, as readers see them, and the budgets of another, which has all appended."""

    def __init__(self, seen: RetainedMessages, newest: RetainedMessages) -> None:
        self._seen = seen
        self._newest = newest
        self.pieces = 0  # read, with the messages and bytes of payload in them
        self.piece_messages = 0
        self.piece_bytes = 0
        self.piece_seeks = 0

    def get(self, topic_name: str) -> Retained | None:
        return self._seen.get(topic_name)

    def piece(
        self, topic_filter: str, after_topic_name: str, limit: int, bytes_max: int, seeks_max: int
    ) -> RetainedPiece:
        piece = self._seen.piece(topic_filter, after_topic_name, limit, bytes_max, seeks_max)
        self.pieces += 1
        self.piece_messages += len(piece)
        self.piece_bytes += piece.size_bytes
        self.piece_seeks += piece.seeks
        return piece

    def levels(self, below: str | None, position: str, moments: Moments, work_max: int = WORK_MAX) -> TreeWalk:
        return self._seen.levels(below, position, moments, work_max)

    def with_word(self, word: str, position: str, moments: Moments) -> NameSearch:
        return self._seen.with_word(word, position, moments)

    def totals(self) -> tuple[int, int]:
        return self._seen.totals()

    def admits(self, topic_name: str, payload_bytes: int) -> str:
        return self._newest.admits(topic_name, payload_bytes)

    def budget_totals(self) -> list[tuple[str, int, int]]:
        return self._newest.budget_totals()

    def expired(self, now_us: int, limit: int) -> list[str]:
        return self._newest.expired(now_us, limit)


class ScriptedStore(Store):
    """Two stores in memory: one has everything that was appended, the other what is durable, as readers of a disk see.

    `late`: a commit takes until the test calls `finish`; else it is done at once.
    `at_once`: whether the store says that nothing has to wait for a commit; as a rule, when it is not `late`.
    `queues`: persistent sessions have a queue in the store, as on a disk.
    `saved`, `saved_wills`, `saved_shared_queues`: what it remembers at start; `sessions` in place of all these.
    """

    def __init__(
        self,
        *,
        late: bool = True,
        at_once: bool | None = None,
        queues: bool = True,
        budgets: Sequence[RetainedBudget] = (),
        saved: Sequence[SavedSession] = (),
        saved_wills: Sequence[SavedWill] = (),
        saved_shared_queues: Sequence[SavedSharedQueue] = (),
        sessions: ScriptedSessions | None = None,
    ) -> None:
        self.done: Callable[[StoreError | None], None] | None = None  # of the commit under way
        self.trouble = ""  # why nothing can be made durable
        self.commits = 0
        self.background_commits = 0
        self.written: Callable[[], None] | None = None  # of the last background commit
        self.gathered_bytes = 0  # of payload in the open group
        self.counts_bytes = False  # whether `group_bytes` tells them
        self.records: list[tuple[int, Record]] = []  # all that was appended, with the next offset before it
        self._late = late
        self._at_once = not late if at_once is None else at_once
        self._newest = MemoryStore(budgets)
        self._durable = MemoryStore(budgets)
        # What readers see: without a late commit, everything.
        self.read = ScriptedRetained((self._durable if late else self._newest).retained, self._newest.retained)
        if sessions is None:
            sessions = ScriptedSessions(queues, saved, saved_wills, saved_shared_queues)
        super().__init__(sessions, self.read, History())
        self._open: list[Callable[[Store], object]] = []  # what the durable store does not have yet, in order
        self._closed: list[Callable[[Store], object]] = []

    def finish(self) -> None:
        """The commit under way is done."""
        assert self.done is not None, "nothing is being committed"
        done, self.done = self.done, None
        self._apply(self._closed)
        self._closed = []
        done(None)

    def fail(self, trouble: str) -> None:
        """The commit under way cannot be done now; the store goes on trying until `finish`."""
        assert self.done is not None, "nothing is being committed"
        self.trouble = trouble
        self.done(StoreError(trouble))

    def _apply(self, changes: list[Callable[[Store], object]]) -> None:
        for change in changes:
            change(self._durable)

    # -- appending to the open group -------------------------------------------------------------------------------

    def begin_turn(self, now_us: int) -> None:
        self._newest.begin_turn(now_us)
        self._open.append(lambda store: store.begin_turn(now_us))

    def next_offset(self) -> int:
        return self._newest.next_offset()

    def append_publish(self, message: Publish, client_id: str, qos2_session_id: int = 0) -> int:
        self.records.append((self._newest.next_offset(), Published(message, client_id)))
        if qos2_session_id:
            self.records.append((self._newest.next_offset(), Received(qos2_session_id, client_id, message.packet_id)))
        self.gathered_bytes += len(message.payload)
        self._open.append(lambda store: store.append_publish(message, client_id, qos2_session_id))
        return self._newest.append_publish(message, client_id, qos2_session_id)

    def append(self, record: Record) -> int:
        self.records.append((self._newest.next_offset(), record))
        self._open.append(lambda store: store.append(record))
        return self._newest.append(record)

    # -- commit ----------------------------------------------------------------------------------------------------

    def must_commit(self) -> bool:
        return self._late

    def at_once(self) -> bool:
        return self._at_once

    def commit(self, done: Callable[[StoreError | None], None]) -> bool:
        assert self.done is None, "one commit at a time"
        self.commits += 1
        self.gathered_bytes = 0
        changes, self._open = self._open, []
        if not self._late:
            self._apply(changes)
            return True
        self._closed = changes
        self.done = done
        return False

    def commit_in_background(self, written: Callable[[], None]) -> None:
        self.background_commits += 1
        self.written = written

    def group_bytes(self) -> int:
        return self.gathered_bytes if self.counts_bytes else 0

    def failing(self) -> str:
        return self.trouble

    def close(self) -> None:
        pass

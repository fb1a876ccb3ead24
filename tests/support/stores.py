"""A store whose commits, failures and answers a test decides."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from embermq.protocol.packets import Publish, SubscriptionRequest, Will
from embermq.store.budgets import RetainedBudget
from embermq.store.interface import (
    Queue,
    Retained,
    RetainedPiece,
    RetainedPosition,
    SavedSession,
    SavedSharedQueue,
    SavedWill,
    Store,
    StoreError,
)
from embermq.store.memory import MemoryStore
from embermq.store.topic_tree import WORK_MAX, Moments, NameSearch, TreeWalk

Record = tuple[object, ...]


class ScriptedStore(Store):
    """Two stores in memory: one has everything that was appended, the other what is durable, as readers of a disk see.

    `late`: a commit takes until the test calls `finish`; else it is done at once.
    `at_once`: whether the store says that nothing has to wait for a commit; as a rule, when it is not `late`.
    `queues`: persistent sessions have a queue in the store, as on a disk.
    `saved`, `saved_wills`, `saved_shared_queues`: what it remembers at start.
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
    ) -> None:
        self.done: Callable[[StoreError | None], None] | None = None  # of the commit under way
        self.trouble = ""  # why nothing can be made durable
        self.commits = 0
        self.background_commits = 0
        self.written: Callable[[], None] | None = None  # of the last background commit
        self.pieces = 0  # read, with the messages and bytes of payload in them
        self.piece_messages = 0
        self.piece_bytes = 0
        self.piece_seeks = 0
        self.gathered_bytes = 0  # of payload in the open group
        self.counts_bytes = False  # whether `group_bytes` tells them
        self.records: list[Record] = []  # all that was appended: next offset, kind, fields
        self._late = late
        self._at_once = not late if at_once is None else at_once
        self._saved = list(saved)
        self._saved_wills = list(saved_wills)
        self._saved_shared_queues = list(saved_shared_queues)
        self._newest = MemoryStore(budgets, queues=queues)
        self._durable = MemoryStore(budgets)
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

    def _append(self, kind: str, *fields: object) -> None:
        self.records.append((self._newest.next_offset(), kind, *fields))

    # -- appending to the open group -------------------------------------------------------------------------------

    def begin_turn(self, now_us: int) -> None:
        self._newest.begin_turn(now_us)
        self._open.append(lambda store: store.begin_turn(now_us))

    def next_offset(self) -> int:
        return self._newest.next_offset()

    def append_publish(self, message: Publish, client_id: str, qos2_session_id: int = 0) -> int:
        fields = (message.topic_name, message.payload, message.qos, message.retain, message.properties)
        self._append("publish", client_id, qos2_session_id, *fields)
        self.gathered_bytes += len(message.payload)
        self._open.append(lambda store: store.append_publish(message, client_id, qos2_session_id))
        return self._newest.append_publish(message, client_id, qos2_session_id)

    def append_retained_removed(self, topic_name: str, reason: str) -> None:
        self._append("retained removed", topic_name, reason)
        self._newest.append_retained_removed(topic_name, reason)
        self._open.append(lambda store: store.append_retained_removed(topic_name, reason))

    def append_pubrel(self, session_id: int, client_id: str, packet_id: int) -> None:
        self._append("pubrel", session_id, client_id, packet_id)

    def append_connected(self, client_id: str, user_name: str, persistent: bool, protocol: str, address: str) -> None:
        self._append("connected", client_id, user_name, persistent, protocol, address)

    def append_disconnected(self, client_id: str, session_id: int, reason: str, sent: int = 0) -> None:
        self._append("disconnected", client_id, session_id, reason, sent)

    def open_session(self, client_id: str, user_name: str, session_expiry_s: int) -> SavedSession:
        self._append("session opened", client_id, user_name, session_expiry_s)
        self._open.append(lambda store: store.open_session(client_id, user_name, session_expiry_s))
        return self._newest.open_session(client_id, user_name, session_expiry_s)

    def append_session_resumed(self, session_id: int, client_id: str, session_expiry_s: int) -> None:
        self._append("session resumed", session_id, client_id, session_expiry_s)

    def append_session_expiry(self, session_id: int, client_id: str, session_expiry_s: int) -> None:
        self._append("session expiry changed", session_id, client_id, session_expiry_s)

    def end_session(self, session_id: int, client_id: str) -> None:
        self._append("session ended", session_id, client_id)

    def append_subscribed(
        self, client_id: str, session_id: int, request: SubscriptionRequest, granted_qos: int, position: bool
    ) -> None:
        self._append("subscribed", client_id, session_id, repr(request), granted_qos, position)

    def append_unsubscribed(self, client_id: str, session_id: int, topic_filter: str) -> None:
        self._append("unsubscribed", client_id, session_id, topic_filter)

    def append_position(self, session_id: int, client_id: str, position: RetainedPosition, done: bool) -> None:
        where = (position.topic_filter, position.qos, position.before_offset, position.after_topic_name)
        self._append("position", session_id, client_id, *where, done)

    def append_will(self, client_id: str, session_id: int, user_name: str, will: Will) -> None:
        self._append("will set", client_id, session_id, user_name, repr(will))

    def append_will_cleared(self, client_id: str) -> None:
        self._append("will cleared", client_id)

    def open_shared_queue(self, share_filter: str) -> tuple[int, Queue]:
        self._append("shared queue opened", share_filter)
        self._open.append(lambda store: store.open_shared_queue(share_filter))
        return self._newest.open_shared_queue(share_filter)

    def end_shared_queue(self, queue_id: int, share_filter: str) -> None:
        self._append("shared queue ended", queue_id, share_filter)

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

    # -- views -----------------------------------------------------------------------------------------------------

    def _view(self) -> MemoryStore:
        """What readers see: without a late commit, everything."""
        return self._durable if self._late else self._newest

    def retained_get(self, topic_name: str) -> Retained | None:
        return self._view().retained_get(topic_name)

    def retained_scan(self, topic_filter: str, after_topic_name: str, limit: int) -> list[Retained]:
        return self._view().retained_scan(topic_filter, after_topic_name, limit)

    def retained_piece(
        self, topic_filter: str, after_topic_name: str, limit: int, bytes_max: int, seeks_max: int
    ) -> RetainedPiece:
        piece = self._view().retained_piece(topic_filter, after_topic_name, limit, bytes_max, seeks_max)
        self.pieces += 1
        self.piece_messages += len(piece)
        self.piece_bytes += piece.size_bytes
        self.piece_seeks += piece.seeks
        return piece

    def retained_as_of(self, topic_filter: str, after_topic_name: str, limit: int, instant_us: int) -> list[Retained]:
        return self._newest.retained_as_of(topic_filter, after_topic_name, limit, instant_us)

    def retained_as_of_pieces(
        self, topic_filter: str, instant_us: int, after_topic_name: str = ""
    ) -> Iterator[list[Retained]]:
        return self._newest.retained_as_of_pieces(topic_filter, instant_us, after_topic_name)

    def retained_levels(self, below: str | None, position: str, moments: Moments, work_max: int = WORK_MAX) -> TreeWalk:
        return self._durable.retained_levels(below, position, moments, work_max)

    def retained_with_word(self, word: str, position: str, moments: Moments) -> NameSearch:
        return self._durable.retained_with_word(word, position, moments)

    def retained_totals(self) -> tuple[int, int]:
        return self._view().retained_totals()

    def sessions(self) -> Iterable[SavedSession]:
        return self._saved

    def wills(self) -> list[SavedWill]:
        return self._saved_wills

    def shared_queues(self) -> list[SavedSharedQueue]:
        return self._saved_shared_queues

    def retained_admits(self, topic_name: str, payload_bytes: int) -> str:
        return self._newest.retained_admits(topic_name, payload_bytes)

    def retained_budget_totals(self) -> list[tuple[str, int, int]]:
        return self._newest.retained_budget_totals()

    def retained_expired(self, now_us: int, limit: int) -> list[str]:
        return self._newest.retained_expired(now_us, limit)

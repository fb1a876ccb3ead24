"""Persistent sessions in the state: who, since when, subscribed to what, and what they are owed; and wills.

Owns: applying the records of sessions, share groups and wills, reading queues, and loading all of it at a start.
Never: what a record or a key means; `store.records` says that.
A session's keys lie together under its id, so forgetting it is one range. Nothing here is read to be changed, with one
exception (how far a queue was cleaned), so applying a record costs the same however much a session holds.
A will is kept apart from its session: it must outlive a crash of the server also if the session would have ended with
its connection. A client has one connection, so it has one will at most.
"""

from array import array
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final, final

from embermq.protocol.packets import SubscriptionRequest
from embermq.store.interface import Queue, SavedSession, SavedSharedQueue, SavedWill
from embermq.store.log.queued_ids import cut_runs, pack_runs, unpack_runs
from embermq.store.records import (
    ACKNOWLEDGED,
    CHUNK,
    CLIENT,
    ENDED,
    EXPIRES,
    ID,
    IDS,
    PAIR,
    QUEUE_ENTRY_BYTES,
    RELEASED,
    SESSIONS,
    SESSIONS_END,
    SHARED,
    SHARED_END,
    WILLS,
    WILLS_END,
    Acknowledged,
    Disconnected,
    PositionMoved,
    Received,
    Released,
    RetainedPosition,
    StateChanges,
    Subscribed,
    number_key,
    opened_session,
    session_key,
    stored_record,
    stored_will,
    unpack,
)
from embermq.store.rows import LogRow
from embermq.store.state.rocks import Rocks
from embermq.store.state.write_buffer import Batch

CHUNK_ENTRIES: Final = 1024
"""The entries of a queue under one key: a queue is read in pieces, and a piece should be about one key."""
CLEAN_EVERY: Final = 1024
"""Keys of acknowledged messages are deleted this many at a time: a tombstone for each range would slow down reads."""

QueueMaker = Callable[[int, int, int, set[int], bool], Queue]
"""Makes the queue of a session: id, acknowledged, last, released, whether entries have Subscription Identifiers."""


@final
class SessionChanges(StateChanges):
    """What the records of one group change."""

    def __init__(self, batch: Batch, chunk_bytes: int) -> None:
        self._batch: Final = batch
        self._chunk_bytes: Final = chunk_bytes
        self.acknowledged: Final[dict[int, int]] = {}  # by session id; put when the group is complete

    def put(self, key: bytes, value: bytes) -> None:
        self._batch.put(key, value)

    def delete(self, key: bytes) -> None:
        self._batch.delete(key)

    def delete_range(self, low: bytes, high: bytes) -> None:
        self._batch.delete_range(low, high)

    def put_queued(self, session_id: int, first_sequence: int, entries: bytes, ids: bytes) -> None:
        chunk_bytes = self._chunk_bytes
        runs = unpack_runs(ids) if ids else []
        for at in range(0, len(entries), chunk_bytes):
            first = at // QUEUE_ENTRY_BYTES
            self._batch.put(number_key(session_id, CHUNK, first_sequence + first), entries[at : at + chunk_bytes])
            if runs:  # cut as the entries are
                cut = pack_runs(cut_runs(runs, first, first + chunk_bytes // QUEUE_ENTRY_BYTES))
                if cut:
                    self._batch.put(number_key(session_id, IDS, first_sequence + first), cut)

    def put_acknowledged(self, session_id: int, sequence: int) -> None:
        self.acknowledged[session_id] = sequence


@final
class SessionState:
    """The part of the state that is about sessions, share groups and wills."""

    def __init__(self, rocks: Rocks, chunk_entries: int = CHUNK_ENTRIES, clean_every: int = CLEAN_EVERY) -> None:
        self._rocks: Final = rocks
        self._chunk_bytes: Final = chunk_entries * QUEUE_ENTRY_BYTES
        self._clean_every: Final = clean_every

    # -- applying ------------------------------------------------------------------------------------------------

    def stage(self, batch: Batch, rows: list[LogRow]) -> None:
        """Put in the batch what these records change."""
        changes = SessionChanges(batch, self._chunk_bytes)
        for row in rows:
            record = unpack(row)
            if record is not None:
                record.apply(changes, row.offset, row.timestamp_us)
        self._stage_acknowledged(batch, changes.acknowledged)

    def _stage_acknowledged(self, batch: Batch, acknowledged: dict[int, int]) -> None:
        if not acknowledged:
            return
        keys = [session_key(session_id, ACKNOWLEDGED) for session_id in acknowledged]
        for key, old, (session_id, sequence) in zip(
            keys, self._rocks.get_many(keys), acknowledged.items(), strict=True
        ):
            _, cleaned = PAIR.unpack(old) if old else (0, 0)
            if sequence - cleaned >= self._clean_every:
                cleaned = sequence
                keep = self._chunk_of(session_id, sequence + 1)
                batch.delete_range(number_key(session_id, CHUNK, 0), number_key(session_id, CHUNK, keep))
                if self._last_key(session_id).startswith(session_key(session_id, IDS)):
                    batch.delete_range(number_key(session_id, IDS, 0), number_key(session_id, IDS, keep))
                batch.delete_range(number_key(session_id, RELEASED, 0), number_key(session_id, RELEASED, sequence + 1))
            batch.put(key, PAIR.pack(sequence, cleaned))

    # -- queues --------------------------------------------------------------------------------------------------

    def queue_entries(self, session_id: int, after_sequence: int, limit: int) -> "array[int]":
        """Entries of a session's queue from `after_sequence` + 1 on, up to `limit`."""
        entries = array("Q")
        start = self._chunk_of(session_id, after_sequence + 1)
        low = number_key(session_id, CHUNK, start)
        for key, value in self._rocks.items(low, session_key(session_id, IDS)):
            (first_sequence,) = ID.unpack_from(key, len(key) - ID.size)
            skip = max(0, after_sequence + 1 - first_sequence) * QUEUE_ENTRY_BYTES
            entries.frombytes(value[skip : skip + (limit - len(entries)) * QUEUE_ENTRY_BYTES])
            if len(entries) >= limit:
                break
        return entries

    def queue_ids(self, session_id: int, after_sequence: int, limit: int) -> dict[int, tuple[int, ...]]:
        """The Subscription Identifiers of such entries, by sequence number; those without any are left out."""
        found: dict[int, tuple[int, ...]] = {}
        last = after_sequence + limit
        low = number_key(session_id, IDS, self._chunk_of(session_id, after_sequence + 1))
        for key, value in self._rocks.items(low, number_key(session_id, IDS, last + 1)):
            first_sequence = int.from_bytes(key[-ID.size :], "big")
            for run in unpack_runs(value):
                first = first_sequence + run.first
                for sequence in range(max(first, after_sequence + 1), min(first + run.length, last + 1)):
                    found[sequence] = run.subscription_ids
        return found

    def _chunk_of(self, session_id: int, sequence: int) -> int:
        """The first sequence of the chunk that a sequence is in, or would be in; 0 if there is none so early."""
        iterator = self._rocks.iterator(SESSIONS_END)
        iterator.seek_for_prev(number_key(session_id, CHUNK, sequence))
        prefix = session_key(session_id, CHUNK)
        if not iterator.valid():
            return 0
        key: bytes = iterator.key()
        return int.from_bytes(key[len(prefix) :], "big") if key.startswith(prefix) else 0

    def owed_offsets(self) -> Iterator[int | None]:
        """For each session and share group the lowest log offset that it is still owed, or None."""
        for session_id in chain(self._ids(), self._shared_ids()):
            entries = array("Q")
            old = self._rocks.get(session_key(session_id, ACKNOWLEDGED))
            sequence = (PAIR.unpack(old)[0] if old else 0) + 1
            low = number_key(session_id, CHUNK, self._chunk_of(session_id, sequence))
            lowest: int | None = None
            for key, value in self._rocks.items(low, session_key(session_id, IDS)):
                first_sequence = int.from_bytes(key[-ID.size :], "big")
                entries = array("Q", value[max(0, sequence - first_sequence) * QUEUE_ENTRY_BYTES :])
                if entries:
                    offset = min(entries) >> 3
                    lowest = offset if lowest is None else min(lowest, offset)
            yield lowest

    # -- loading -------------------------------------------------------------------------------------------------

    def _ids(self) -> Iterator[int]:
        iterator = self._rocks.iterator(SESSIONS_END)
        iterator.seek(SESSIONS)
        while iterator.valid():
            key: bytes = iterator.key()
            (session_id,) = ID.unpack_from(key, 1)
            if key[1 + ID.size :] == CLIENT:
                yield session_id
            iterator.seek(session_key(session_id + 1))

    def _shared_ids(self) -> Iterator[int]:
        for key, _ in self._rocks.items(SHARED, SHARED_END):
            yield int.from_bytes(key[len(SHARED) :], "big")

    def load_shared_queues(self, make_queue: QueueMaker) -> list[SavedSharedQueue]:
        """Every queue of a share group."""
        found: list[SavedSharedQueue] = []
        for queue_id in self._shared_ids():
            share_filter = self._rocks.get(SHARED + ID.pack(queue_id)) or b""
            saved = self._load(queue_id, "", "", 0, make_queue)
            if saved.queue is not None:
                found.append(SavedSharedQueue(queue_id, share_filter.decode(), saved.queue))
        return found

    def load(self, make_queue: QueueMaker) -> Iterator[SavedSession]:
        """Every session. Keys of a session that is gone (written after its end) are passed over."""
        for session_id in self._ids():
            client = self._rocks.get(session_key(session_id, CLIENT)) or b""
            opened = opened_session(session_id, client, self._rocks.get(session_key(session_id, EXPIRES)))
            yield self._load(session_id, opened.client_id, opened.user_name, opened.session_expiry_s, make_queue)

    def _load(
        self, session_id: int, client_id: str, user_name: str, expiry_s: int, make_queue: QueueMaker
    ) -> SavedSession:
        """A session, or what the queue of a share group has of one."""
        ended_us = sent = acknowledged = 0
        subscriptions: list[tuple[SubscriptionRequest, int]] = []
        positions: list[RetainedPosition] = []
        received_ids: set[int] = set()
        released: set[int] = set()
        for key, value in self._rocks.items(session_key(session_id, ENDED), session_key(session_id, CHUNK)):
            stored = stored_record(session_id, client_id, key, value)
            if stored is None:
                continue
            offset, timestamp_us, record = stored
            if isinstance(record, Disconnected):
                ended_us, sent = timestamp_us, record.sent
            elif isinstance(record, Subscribed):
                subscriptions.append((record.request, offset))
            elif isinstance(record, PositionMoved):
                positions.append(record.position)
            elif isinstance(record, Received):
                received_ids.add(record.packet_id)
            elif isinstance(record, Acknowledged):
                acknowledged = record.sequence
            elif isinstance(record, Released):
                released.add(record.sequence)
        last, has_ids = self._queue_end(session_id, acknowledged)
        pending = {sequence for sequence in released if sequence > acknowledged}
        return SavedSession(
            session_id,
            client_id,
            user_name,
            expiry_s,
            ended_us,
            subscriptions,
            received_ids,
            positions,
            make_queue(session_id, acknowledged, last, pending, has_ids),
            sent if ended_us else last,
        )

    def load_wills(self) -> list[SavedWill]:
        """Every will that was set and not cleared."""
        found: list[SavedWill] = []
        for key, value in self._rocks.items(WILLS, WILLS_END):
            stored = stored_will(key, value)
            ended = self._rocks.get(session_key(stored.session_id, ENDED)) if stored.session_id else None
            ended_us = int(PAIR.unpack(ended)[0]) if ended else 0  # 0, too, if there is no such session any more
            found.append(SavedWill(stored.client_id, stored.user_name, stored.session_id, stored.will, ended_us))
        return found

    def _queue_end(self, session_id: int, acknowledged: int) -> tuple[int, bool]:
        """The newest sequence number, and whether entries have Subscription Identifiers."""
        last_key = self._last_key(session_id)
        prefix = session_key(session_id, CHUNK)
        has_ids = last_key.startswith(session_key(session_id, IDS))
        if has_ids:
            first_sequence = self._chunk_of(session_id, 0xFFFF_FFFF_FFFF_FFFF)
        else:
            first_sequence = int.from_bytes(last_key[len(prefix) :], "big") if last_key.startswith(prefix) else 0
        if not first_sequence:
            return acknowledged, has_ids
        chunk = self._rocks.get(number_key(session_id, CHUNK, first_sequence)) or b""
        return max(acknowledged, first_sequence + len(chunk) // QUEUE_ENTRY_BYTES - 1), has_ids

    def _last_key(self, session_id: int) -> bytes:
        """The last key of a session, or one below all of its keys."""
        iterator = self._rocks.iterator(SESSIONS_END)
        iterator.seek_for_prev(session_key(session_id + 1))
        key: bytes = iterator.key() if iterator.valid() else b""
        return key

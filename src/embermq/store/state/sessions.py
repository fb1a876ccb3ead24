"""Persistent sessions in the state: who, since when, subscribed to what, and what they are owed.

Owns: the key space of sessions, what records change in it, and loading it.
A session's keys lie together under its id, so forgetting it is one range. Nothing here is read to be changed, with one
exception (how far a queue was cleaned), so applying a record costs the same however much a session holds.
"""

from array import array
from collections.abc import Callable, Iterator
from itertools import chain
from struct import Struct
from typing import Final, final

from embermq.protocol.packets import SubscriptionRequest
from embermq.store.interface import Queue, RetainedPosition, SavedSession, SavedSharedQueue
from embermq.store.log.queued_ids import cut_runs, pack_runs, unpack_runs
from embermq.store.log.records import (
    NO_LOCAL_FLAG,
    QOS_MASK,
    QUEUE_ENTRY_BYTES,
    RETAIN_AS_PUBLISHED_FLAG,
    RETAIN_HANDLING_SHIFT,
    RETAINED_OWED_FLAG,
    SESSION,
    SESSION_EXPIRY,
    SESSION_PACKET,
    SESSION_POSITION,
    SESSION_SEQUENCE,
    Group,
    Kind,
    subscription_id_of,
)
from embermq.store.state.rocks import Rocks
from embermq.store.state.write_buffer import Batch

SESSIONS: Final = b"S"
SESSIONS_END: Final = b"T"
SHARED: Final = b"G"  # queue id -> share filter; the queue itself lies among the sessions, under this id
SHARED_END: Final = b"H"
CHUNK_ENTRIES: Final = 1024
"""The entries of a queue under one key: a queue is read in pieces, and a piece should be about one key."""
CLEAN_EVERY: Final = 1024
"""Keys of acknowledged messages are deleted this many at a time: a tombstone for each range would slow down reads."""

# What follows the session id in a key, in this order.
CLIENT: Final = b"\x00"  # -> client id length, client id, user name
EXPIRES: Final = b"\x01"  # -> seconds
ENDED: Final = b"\x02"  # -> when its connection ended (us, 0: it has one), newest sequence sent
SUBSCRIPTION: Final = b"\x03"  # filter -> flags, offset, properties of the record
POSITION: Final = b"\x04"  # filter -> before offset, qos, after topic name
RECEIVED: Final = b"\x05"  # packet identifier
ACKNOWLEDGED: Final = b"\x06"  # -> sequence, and what it was when the queue was last cleaned
RELEASED: Final = b"\x07"  # sequence
CHUNK: Final = b"\x08"  # first sequence -> entries
IDS: Final = b"\x09"  # first sequence of a chunk -> the Subscription Identifiers of its entries, if any has some

_ID: Final = Struct(">Q")
_PACKET_ID: Final = Struct(">H")
_LENGTH: Final = Struct("<H")
_SECONDS: Final = Struct("<I")
PAIR: Final = Struct("<QQ")
SUBSCRIPTION_HEAD: Final = Struct("<BQ")
POSITION_HEAD: Final = Struct("<QB")

QueueMaker = Callable[[int, int, int, set[int], bool], Queue]
"""Makes the queue of a session: id, acknowledged, last, released, whether entries have Subscription Identifiers."""


def unpack_client(value: bytes) -> tuple[bytes, bytes]:
    """The client id and the user name of a session."""
    (length,) = _LENGTH.unpack_from(value)
    return value[_LENGTH.size : _LENGTH.size + length], value[_LENGTH.size + length :]


def session_key(session_id: int, space: bytes = b"") -> bytes:
    return SESSIONS + _ID.pack(session_id) + space


def _number_key(session_id: int, space: bytes, number: int) -> bytes:
    return SESSIONS + _ID.pack(session_id) + space + _ID.pack(number)


@final
class SessionState:
    """The sessions' part of the state."""

    __slots__ = ("_chunk_bytes", "_clean_every", "_rocks")

    def __init__(self, rocks: Rocks, chunk_entries: int = CHUNK_ENTRIES, clean_every: int = CLEAN_EVERY) -> None:
        self._rocks: Final = rocks
        self._chunk_bytes: Final = chunk_entries * QUEUE_ENTRY_BYTES
        self._clean_every: Final = clean_every

    # -- applying ------------------------------------------------------------------------------------------------

    def stage(self, batch: Batch, group: Group, rows: list[int]) -> None:
        """Put in the batch what these records change."""
        acknowledged: dict[int, int] = {}
        chunk_bytes = self._chunk_bytes
        for row in rows:
            kind = group.kinds[row]
            payload = group.payloads[row]
            if kind == Kind.QUEUED:
                session_id, first_sequence = SESSION_SEQUENCE.unpack_from(payload)
                if group.properties[row]:
                    self._stage_ids(batch, session_id, first_sequence, payload, group.properties[row])
                for at in range(SESSION_SEQUENCE.size, len(payload), chunk_bytes):
                    batch.put(_number_key(session_id, CHUNK, first_sequence), payload[at : at + chunk_bytes])
                    first_sequence += chunk_bytes // QUEUE_ENTRY_BYTES
            elif kind == Kind.ACKNOWLEDGED:
                session_id, sequence = SESSION_SEQUENCE.unpack(payload)
                acknowledged[session_id] = sequence
            elif kind == Kind.RELEASED:
                session_id, sequence = SESSION_SEQUENCE.unpack(payload)
                batch.put(_number_key(session_id, RELEASED, sequence), b"")
            elif kind == Kind.RECEIVED:
                session_id, packet_id = SESSION_PACKET.unpack(payload)
                batch.put(session_key(session_id, RECEIVED) + _PACKET_ID.pack(packet_id), b"")
            elif kind == Kind.PUBREL:
                session_id, packet_id = SESSION_PACKET.unpack(payload)
                batch.delete(session_key(session_id, RECEIVED) + _PACKET_ID.pack(packet_id))
            else:
                self._stage_change(batch, group, row, kind, payload)
        self._stage_acknowledged(batch, acknowledged)

    def _stage_ids(self, batch: Batch, session_id: int, first_sequence: int, payload: bytes, properties: bytes) -> None:
        """Cut the identifiers of a QUEUED record as its entries are cut."""
        runs = unpack_runs(properties)
        entries = (len(payload) - SESSION_SEQUENCE.size) // QUEUE_ENTRY_BYTES
        step = self._chunk_bytes // QUEUE_ENTRY_BYTES
        for at in range(0, entries, step):
            cut = pack_runs(cut_runs(runs, at, at + step))
            if cut:
                batch.put(_number_key(session_id, IDS, first_sequence + at), cut)

    def _stage_change(self, batch: Batch, group: Group, row: int, kind: int, payload: bytes) -> None:
        """A change of the session itself; these are rare beside messages."""
        if kind == Kind.SESSION_OPENED:
            session_id = group.first_offset + row
            _, expiry_s = SESSION_EXPIRY.unpack_from(payload)
            client_id = group.client_ids[row]
            client = _LENGTH.pack(len(client_id)) + client_id + payload[SESSION_EXPIRY.size :]
            batch.put(session_key(session_id, CLIENT), client)
            batch.put(session_key(session_id, EXPIRES), _SECONDS.pack(expiry_s))
        elif kind == Kind.SESSION_RESUMED:
            session_id, expiry_s = SESSION_EXPIRY.unpack_from(payload)
            batch.put(session_key(session_id, EXPIRES), _SECONDS.pack(expiry_s))
            batch.delete(session_key(session_id, ENDED))
        elif kind == Kind.SESSION_EXPIRY_CHANGED:
            session_id, expiry_s = SESSION_EXPIRY.unpack_from(payload)
            batch.put(session_key(session_id, EXPIRES), _SECONDS.pack(expiry_s))
        elif kind == Kind.SESSION_ENDED:
            (session_id,) = SESSION.unpack_from(payload)
            batch.delete_range(session_key(session_id), session_key(session_id + 1))
        elif kind == Kind.SHARED_QUEUE_OPENED:
            batch.put(SHARED + _ID.pack(group.first_offset + row), group.topics[row])
        elif kind == Kind.SHARED_QUEUE_ENDED:
            (queue_id,) = SESSION.unpack_from(payload)
            batch.delete(SHARED + _ID.pack(queue_id))
            batch.delete_range(session_key(queue_id), session_key(queue_id + 1))
        elif kind == Kind.DISCONNECTED:
            session_id, sent = SESSION_SEQUENCE.unpack_from(payload)
            if session_id:
                batch.put(session_key(session_id, ENDED), PAIR.pack(group.timestamps_us[row], sent))
        elif kind == Kind.SUBSCRIBED:
            self._stage_subscribed(batch, group, row)
        elif kind == Kind.UNSUBSCRIBED:
            (session_id,) = SESSION.unpack_from(payload)
            batch.delete(session_key(session_id, SUBSCRIPTION) + group.topics[row])
            batch.delete(session_key(session_id, POSITION) + group.topics[row])
        elif kind == Kind.POSITION:
            session_id, before_offset, qos, done = SESSION_POSITION.unpack_from(payload)
            key = session_key(session_id, POSITION) + group.topics[row]
            if done:
                batch.delete(key)
            else:
                batch.put(key, POSITION_HEAD.pack(before_offset, qos) + payload[SESSION_POSITION.size :])

    def _stage_subscribed(self, batch: Batch, group: Group, row: int) -> None:
        (session_id,) = SESSION.unpack_from(group.payloads[row])
        if not session_id:
            return
        topic, flags, offset = group.topics[row], group.flags[row], group.first_offset + row
        subscription = SUBSCRIPTION_HEAD.pack(flags, offset) + group.properties[row]
        batch.put(session_key(session_id, SUBSCRIPTION) + topic, subscription)
        if flags & RETAINED_OWED_FLAG:
            batch.put(session_key(session_id, POSITION) + topic, POSITION_HEAD.pack(offset, flags & QOS_MASK))

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
                batch.delete_range(_number_key(session_id, CHUNK, 0), _number_key(session_id, CHUNK, keep))
                if self._last_key(session_id).startswith(session_key(session_id, IDS)):
                    batch.delete_range(_number_key(session_id, IDS, 0), _number_key(session_id, IDS, keep))
                batch.delete_range(
                    _number_key(session_id, RELEASED, 0), _number_key(session_id, RELEASED, sequence + 1)
                )
            batch.put(key, PAIR.pack(sequence, cleaned))

    # -- queues --------------------------------------------------------------------------------------------------

    def queue_entries(self, session_id: int, after_sequence: int, limit: int) -> "array[int]":
        """Entries of a session's queue from `after_sequence` + 1 on, up to `limit`."""
        entries = array("Q")
        start = self._chunk_of(session_id, after_sequence + 1)
        low = _number_key(session_id, CHUNK, start)
        for key, value in self._rocks.items(low, session_key(session_id, IDS)):
            (first_sequence,) = _ID.unpack_from(key, len(key) - _ID.size)
            skip = max(0, after_sequence + 1 - first_sequence) * QUEUE_ENTRY_BYTES
            entries.frombytes(value[skip : skip + (limit - len(entries)) * QUEUE_ENTRY_BYTES])
            if len(entries) >= limit:
                break
        return entries

    def queue_ids(self, session_id: int, after_sequence: int, limit: int) -> dict[int, tuple[int, ...]]:
        """The Subscription Identifiers of such entries, by sequence number; those without any are left out."""
        found: dict[int, tuple[int, ...]] = {}
        last = after_sequence + limit
        low = _number_key(session_id, IDS, self._chunk_of(session_id, after_sequence + 1))
        for key, value in self._rocks.items(low, _number_key(session_id, IDS, last + 1)):
            first_sequence = int.from_bytes(key[-_ID.size :], "big")
            for run in unpack_runs(value):
                first = first_sequence + run.first
                for sequence in range(max(first, after_sequence + 1), min(first + run.length, last + 1)):
                    found[sequence] = run.subscription_ids
        return found

    def _chunk_of(self, session_id: int, sequence: int) -> int:
        """The first sequence of the chunk that a sequence is in, or would be in; 0 if there is none so early."""
        iterator = self._rocks.iterator(SESSIONS_END)
        iterator.seek_for_prev(_number_key(session_id, CHUNK, sequence))
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
            low = _number_key(session_id, CHUNK, self._chunk_of(session_id, sequence))
            lowest: int | None = None
            for key, value in self._rocks.items(low, session_key(session_id, IDS)):
                first_sequence = int.from_bytes(key[-_ID.size :], "big")
                entries = array("Q", value[max(0, sequence - first_sequence) * QUEUE_ENTRY_BYTES :])
                if entries:
                    offset = min(entries) >> 3
                    lowest = offset if lowest is None else min(lowest, offset)
            yield lowest

    def ended_us(self, session_id: int) -> int:
        """When the connection of a session ended; 0 if it has one, or there is no such session."""
        ended = self._rocks.get(session_key(session_id, ENDED))
        return int(PAIR.unpack(ended)[0]) if ended else 0

    # -- loading -------------------------------------------------------------------------------------------------

    def _ids(self) -> Iterator[int]:
        iterator = self._rocks.iterator(SESSIONS_END)
        iterator.seek(SESSIONS)
        while iterator.valid():
            key: bytes = iterator.key()
            (session_id,) = _ID.unpack_from(key, 1)
            if key[1 + _ID.size :] == CLIENT:
                yield session_id
            iterator.seek(session_key(session_id + 1))

    def _shared_ids(self) -> Iterator[int]:
        for key, _ in self._rocks.items(SHARED, SHARED_END):
            yield int.from_bytes(key[len(SHARED) :], "big")

    def load_shared_queues(self, make_queue: QueueMaker) -> list[SavedSharedQueue]:
        """Every queue of a share group."""
        found: list[SavedSharedQueue] = []
        for key, share_filter in self._rocks.items(SHARED, SHARED_END):
            queue_id = int.from_bytes(key[len(SHARED) :], "big")
            old = self._rocks.get(session_key(queue_id, ACKNOWLEDGED))
            acknowledged = int(PAIR.unpack(old)[0]) if old else 0
            low = _number_key(queue_id, RELEASED, acknowledged + 1)
            released = {
                int.from_bytes(released_key[-_ID.size :], "big")
                for released_key, _ in self._rocks.items(low, session_key(queue_id, CHUNK))
            }
            last, has_ids = self._queue_end(queue_id, acknowledged)
            queue = make_queue(queue_id, acknowledged, last, released, has_ids)
            found.append(SavedSharedQueue(queue_id, share_filter.decode(), queue))
        return found

    def load(self, make_queue: QueueMaker) -> Iterator[SavedSession]:
        """Every session. Keys of a session that is gone (written after its end) are passed over."""
        for session_id in self._ids():
            yield self._load_session(session_id, make_queue)

    def _load_session(self, session_id: int, make_queue: QueueMaker) -> SavedSession:
        client_id = user_name = ""
        expiry_s = ended_us = sent = acknowledged = 0
        subscriptions: list[tuple[SubscriptionRequest, int]] = []
        positions: list[RetainedPosition] = []
        received_ids: set[int] = set()
        released: set[int] = set()
        at = 1 + _ID.size + 1
        for key, value in self._rocks.items(session_key(session_id), session_key(session_id, CHUNK)):
            space = key[at - 1 : at]
            if space == CLIENT:
                client, user = unpack_client(value)
                client_id, user_name = client.decode(), user.decode()
            elif space == EXPIRES:
                (expiry_s,) = _SECONDS.unpack(value)
            elif space == ENDED:
                ended_us, sent = PAIR.unpack(value)
            elif space == SUBSCRIPTION:
                flags, offset = SUBSCRIPTION_HEAD.unpack_from(value)
                request = _subscription(key[at:].decode(), flags, value[SUBSCRIPTION_HEAD.size :])
                subscriptions.append((request, offset))
            elif space == POSITION:
                before_offset, qos = POSITION_HEAD.unpack_from(value)
                after_topic_name = value[POSITION_HEAD.size :].decode()
                positions.append(RetainedPosition(key[at:].decode(), qos, before_offset, after_topic_name))
            elif space == RECEIVED:
                received_ids.add(int.from_bytes(key[at:], "big"))
            elif space == ACKNOWLEDGED:
                acknowledged, _ = PAIR.unpack(value)
            elif space == RELEASED:
                released.add(int.from_bytes(key[at:], "big"))
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
        chunk = self._rocks.get(_number_key(session_id, CHUNK, first_sequence)) or b""
        return max(acknowledged, first_sequence + len(chunk) // QUEUE_ENTRY_BYTES - 1), has_ids

    def _last_key(self, session_id: int) -> bytes:
        """The last key of a session, or one below all of its keys."""
        iterator = self._rocks.iterator(SESSIONS_END)
        iterator.seek_for_prev(session_key(session_id + 1))
        key: bytes = iterator.key() if iterator.valid() else b""
        return key


def _subscription(topic_filter: str, flags: int, properties: bytes) -> SubscriptionRequest:
    return SubscriptionRequest(
        topic_filter,
        flags & QOS_MASK,
        bool(flags & NO_LOCAL_FLAG),
        bool(flags & RETAIN_AS_PUBLISHED_FLAG),
        flags >> RETAIN_HANDLING_SHIFT & 0b11,
        subscription_id_of(properties),
    )

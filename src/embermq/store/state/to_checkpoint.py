"""The state as the records of a checkpoint (docs/log-format.md, "Checkpoints").

Owns: which records stand for what the state holds, so that applying them to an empty state makes the same one.
Never: the history before the checkpoint, which ends with the records that it came from.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple, final

from embermq.store.log.records import (
    QUEUE_ENTRY_BYTES,
    RETAIN_FLAG,
    RETAINED_OWED_FLAG,
    SESSION,
    SESSION_EXPIRY,
    SESSION_PACKET,
    SESSION_POSITION,
    SESSION_SEQUENCE,
    Kind,
)
from embermq.store.state import sessions
from embermq.store.state.retained_keys import RETAINED, RETAINED_END, SEPARATOR
from embermq.store.state.retained_values import HEAD
from embermq.store.state.rocks import Rocks
from embermq.store.state.sessions import SESSIONS, SESSIONS_END, SHARED, SHARED_END, session_key
from embermq.store.state.wills import WILL_HEAD, WILLS, WILLS_END
from embermq.store.state.write_buffer import StateIterator

KEYS_END: Final = b"\xff"

_ID: Final = Struct(">Q")
_PACKET_ID: Final = Struct(">H")
_SPACE_AT: Final = 1 + _ID.size  # in a key of a session: what follows its id


class CheckpointRecord(NamedTuple):
    """A record and the offset that it has in the log; 0 if the state does not know it."""

    offset: int
    timestamp_us: int
    kind: int
    flags: int
    topic: bytes
    payload: bytes
    client_id: bytes
    properties: bytes = b""


@final
class StateView:
    """The state as it is now, whatever is applied later. Release it before the database is closed."""

    __slots__ = ("_lookup", "_seen")

    def __init__(self, rocks: Rocks) -> None:
        rocks.write_buffered()  # what is buffered an iterator sees in one key space only
        # An iterator sees the database as it was when the iterator was made.
        self._seen: StateIterator = rocks.iterator(KEYS_END)
        self._lookup: StateIterator = rocks.iterator(KEYS_END)

    def records(self, timestamp_us: int) -> Iterator[CheckpointRecord]:
        """All records; those whose instant the state does not know have `timestamp_us`."""
        shared: set[int] = set()
        for key, share_filter in self._items(SHARED, SHARED_END):
            queue_id = int.from_bytes(key[len(SHARED) :], "big")
            shared.add(queue_id)
            yield CheckpointRecord(queue_id, timestamp_us, Kind.SHARED_QUEUE_OPENED, 0, share_filter, b"", b"")
        for key, value in self._items(RETAINED, RETAINED_END):
            yield _retained(key, value)
        yield from self._sessions(timestamp_us, shared)
        for key, value in self._items(WILLS, WILLS_END):
            yield _will(key, value, timestamp_us)

    def _items(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        iterator = self._seen
        iterator.seek(low)
        while iterator.valid():
            key: bytes = iterator.key()
            if key >= high:
                return
            yield key, iterator.value()
            iterator.next()

    def _sessions(self, timestamp_us: int, shared: set[int]) -> Iterator[CheckpointRecord]:
        """Keys of a session that is gone (written after its end) are passed over."""
        current, is_there = -1, False
        client_id = b""
        acknowledged = 0
        expiry_s = 0
        for key, value in self._items(SESSIONS, SESSIONS_END):
            (session_id,) = _ID.unpack_from(key, 1)
            space = key[_SPACE_AT : _SPACE_AT + 1]
            if session_id != current:
                current, acknowledged, client_id = session_id, 0, b""
                is_there = session_id in shared or space == sessions.CLIENT
                expiry_s = self._expiry_s(session_id)
            if not is_there:
                continue
            if space == sessions.CLIENT:
                client_id, user_name = sessions.unpack_client(value)
                payload = SESSION_EXPIRY.pack(0, expiry_s) + user_name
                yield CheckpointRecord(session_id, timestamp_us, Kind.SESSION_OPENED, 0, b"", payload, client_id)
            elif space == sessions.ACKNOWLEDGED:
                acknowledged, _ = sessions.PAIR.unpack(value)
                payload = SESSION_SEQUENCE.pack(session_id, acknowledged)
                yield CheckpointRecord(0, timestamp_us, Kind.ACKNOWLEDGED, 0, b"", payload, b"")
            elif space == sessions.CHUNK:
                record = self._queued(session_id, key, value, acknowledged, timestamp_us)
                if record is not None:
                    yield record
            else:
                record = _of_session(session_id, space, key, value, client_id, timestamp_us)
                if record is not None:
                    yield record

    def _expiry_s(self, session_id: int) -> int:
        value = self._get(session_key(session_id, sessions.EXPIRES))
        return int.from_bytes(value, "little") if value else 0

    def _queued(
        self, session_id: int, key: bytes, value: bytes, acknowledged: int, timestamp_us: int
    ) -> CheckpointRecord | None:
        """Entries of a queue, unless all of them are acknowledged."""
        first_sequence = int.from_bytes(key[_SPACE_AT + 1 :], "big")
        if first_sequence + len(value) // QUEUE_ENTRY_BYTES - 1 <= acknowledged:
            return None
        ids = self._get(session_key(session_id, sessions.IDS) + key[_SPACE_AT + 1 :]) or b""
        payload = SESSION_SEQUENCE.pack(session_id, first_sequence) + value
        return CheckpointRecord(0, timestamp_us, Kind.QUEUED, 0, b"", payload, b"", ids)

    def _get(self, key: bytes) -> bytes | None:
        self._lookup.seek(key)
        if not self._lookup.valid() or self._lookup.key() != key:
            return None
        value: bytes = self._lookup.value()
        return value


def _retained(key: bytes, value: bytes) -> CheckpointRecord:
    offset, timestamp_us, _, qos, client_id_bytes, property_bytes = HEAD.unpack_from(value)
    client_id_end = HEAD.size + client_id_bytes
    payload_at = client_id_end + property_bytes
    return CheckpointRecord(
        offset,
        timestamp_us,
        Kind.PUBLISH,
        qos | RETAIN_FLAG,
        key[len(RETAINED) :].replace(SEPARATOR, b"/"),
        value[payload_at:],
        value[HEAD.size : client_id_end],
        value[client_id_end:payload_at],
    )


def _will(key: bytes, value: bytes, timestamp_us: int) -> CheckpointRecord:
    flags, topic_bytes, property_bytes = WILL_HEAD.unpack_from(value)
    properties_at = WILL_HEAD.size + topic_bytes
    payload_at = properties_at + property_bytes
    topic, properties = value[WILL_HEAD.size : properties_at], value[properties_at:payload_at]
    client_id = key[len(WILLS) :]
    return CheckpointRecord(0, timestamp_us, Kind.WILL_SET, flags, topic, value[payload_at:], client_id, properties)


def _of_session(
    session_id: int, space: bytes, key: bytes, value: bytes, client_id: bytes, timestamp_us: int
) -> CheckpointRecord | None:
    """What one key of a session says, except those that need others to be told."""
    rest = key[_SPACE_AT + 1 :]
    if space == sessions.ENDED:
        ended_us, sent = sessions.PAIR.unpack(value)
        payload = SESSION_SEQUENCE.pack(session_id, sent)
        return CheckpointRecord(0, ended_us, Kind.DISCONNECTED, 0, b"", payload, client_id)
    if space == sessions.SUBSCRIPTION:
        flags, offset = sessions.SUBSCRIPTION_HEAD.unpack_from(value)
        flags &= ~RETAINED_OWED_FLAG  # a POSITION says what is still owed
        properties = value[sessions.SUBSCRIPTION_HEAD.size :]
        payload = SESSION.pack(session_id)
        return CheckpointRecord(offset, timestamp_us, Kind.SUBSCRIBED, flags, rest, payload, client_id, properties)
    if space == sessions.POSITION:
        before_offset, qos = sessions.POSITION_HEAD.unpack_from(value)
        after_topic_name = value[sessions.POSITION_HEAD.size :]
        payload = SESSION_POSITION.pack(session_id, before_offset, qos, 0) + after_topic_name
        return CheckpointRecord(0, timestamp_us, Kind.POSITION, 0, rest, payload, client_id)
    if space == sessions.RECEIVED:
        payload = SESSION_PACKET.pack(session_id, _PACKET_ID.unpack(rest)[0])
        return CheckpointRecord(0, timestamp_us, Kind.RECEIVED, 0, b"", payload, client_id)
    if space == sessions.RELEASED:
        payload = SESSION_SEQUENCE.pack(session_id, int.from_bytes(rest, "big"))
        return CheckpointRecord(0, timestamp_us, Kind.RELEASED, 0, b"", payload, b"")
    return None  # EXPIRES is part of SESSION_OPENED, IDS of QUEUED

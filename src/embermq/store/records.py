"""The records of the log by kind: what each says, its bytes in the log, and its keys in the state, in both directions.

Owns: the payload of every kind of record that is not a message (docs/log-format.md), and the state's keys of sessions,
share groups and wills.
Never: a file or a database. `log` writes groups of rows, `state` keeps the keys.
A record becomes a row of a group when it is appended. A group that is applied to the state is unpacked, and each record
changes keys there. From these keys come the records of a checkpoint (`LoggedRecord`), and what a start loads.
A PUBLISH with RETAIN and RETAINED_REMOVED change the retained messages: `state.retained` applies them, many at a time.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple, final

from librt.strings import read_i64_le

from embermq.protocol.mqtt.fields import ONE_BYTE, Fields, variable_byte_integer
from embermq.protocol.packets import Publish, SubscriptionRequest, Will
from embermq.store.rows import DUP_FLAG, QOS_MASK, RETAIN_FLAG, Kind, LogRow

# The flags of SUBSCRIBED: the options of MQTT 5 (3.8.3.1), and whether retained messages are owed for it.
NO_LOCAL_FLAG: Final = 0b100
RETAIN_AS_PUBLISHED_FLAG: Final = 0b1000
RETAIN_HANDLING_SHIFT: Final = 4
RETAINED_OWED_FLAG: Final = 0b100_0000

QUEUE_ENTRY_BYTES: Final = 8

# What payloads begin with.
SESSION: Final = Struct("<Q")
SESSION_EXPIRY: Final = Struct("<QI")
SESSION_SEQUENCE: Final = Struct("<QQ")
SESSION_PACKET: Final = Struct("<QH")
SESSION_POSITION: Final = Struct("<QQBB")
WILL: Final = Struct("<QIH")

# The state's keys: the first byte is the key space.
SESSIONS: Final = b"S"  # session id, then one of those below; the queue of a share group is here too, under its id
SESSIONS_END: Final = b"T"
SHARED: Final = b"G"  # queue id -> share filter
SHARED_END: Final = b"H"
WILLS: Final = b"W"  # client id -> head, topic name, properties, the record's payload
WILLS_END: Final = b"X"

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

ID: Final = Struct(">Q")
PAIR: Final = Struct("<QQ")
SPACE_AT: Final = 1 + ID.size  # in a key of a session: what follows its id

_PACKET_ID: Final = Struct(">H")
_LENGTH: Final = Struct("<H")
_SECONDS: Final = Struct("<I")
_SUBSCRIPTION_HEAD: Final = Struct("<BQ")
_POSITION_HEAD: Final = Struct("<QB")
_WILL_HEAD: Final = Struct("<BHI")  # flags of the record, lengths: topic name, properties
_SUBSCRIPTION_ID: Final = 0x0B  # the property identifier (5.0, table 2-4)

_RECEIVED: Final = int(Kind.RECEIVED)  # converted once: a member of an enum is converted at each use
_PUBREL: Final = int(Kind.PUBREL)
_QUEUED: Final = int(Kind.QUEUED)
_ACKNOWLEDGED: Final = int(Kind.ACKNOWLEDGED)
_RELEASED: Final = int(Kind.RELEASED)


def queue_entry(offset: int, qos: int, retain: bool) -> int:
    """One message of a QUEUED record."""
    return offset << 3 | (RETAIN_FLAG if retain else 0) | qos


def session_key(session_id: int, space: bytes = b"") -> bytes:
    return SESSIONS + ID.pack(session_id) + space


def number_key(session_id: int, space: bytes, number: int) -> bytes:
    return SESSIONS + ID.pack(session_id) + space + ID.pack(number)


class StateChanges(ABC):
    """What a record may change in the state."""

    @abstractmethod
    def put(self, key: bytes, value: bytes) -> None: ...

    @abstractmethod
    def delete(self, key: bytes) -> None: ...

    @abstractmethod
    def delete_range(self, low: bytes, high: bytes) -> None:
        """Delete the keys from `low` up to but without `high`."""

    @abstractmethod
    def put_queued(self, session_id: int, first_sequence: int, entries: bytes, ids: bytes) -> None:
        """Put entries at the end of a queue; how many are under one key is the state's choice."""

    @abstractmethod
    def put_acknowledged(self, session_id: int, sequence: int) -> None:
        """Note how far a queue is done; keys of what is done may go."""


class Record(ABC):
    """One record. Its fields do not change; two are equal if the log has the same bytes of them."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self._columns() == other._columns()

    def __hash__(self) -> int:
        return hash(self._columns())

    def _columns(self) -> tuple[int, int, bytes, bytes, bytes, bytes]:
        row = self.row(0, 0)
        return row.kind, row.flags, row.topic, row.payload, row.client_id, row.properties

    @abstractmethod
    def row(self, offset: int, timestamp_us: int) -> LogRow:
        """As the log has it at an offset."""

    def apply(self, state: StateChanges, offset: int, timestamp_us: int) -> None:  # noqa: B027  # most change something
        """Change the state as it says."""

    def is_waited_for(self) -> bool:
        """Whether an effect of it waits until it is durable."""
        return True

    def is_optional(self) -> bool:
        """Whether it is only for readers of the log, and may be left out while the disk fails."""
        return False

    def is_read_back(self) -> bool:
        """Whether an effect of it reads what it has changed in the state."""
        return False

    def opened_queue_id(self) -> int:
        """The id of the session or share group whose queue begins with this record; 0: none."""
        return 0

    def ended_queue_id(self) -> int:
        """The id of the session or share group whose queue ends with this record; 0: none."""
        return 0


class LoggedRecord(NamedTuple):
    """A record with its offset and its timestamp in the log; 0 where the state does not know them."""

    offset: int
    timestamp_us: int
    record: Record


# -- messages ----------------------------------------------------------------------------------------------------------


@final
class Published(Record):
    """A message that a client, or the server, has published."""

    def __init__(self, message: Publish, client_id: str) -> None:
        self.message: Final = message
        self.client_id: Final = client_id

    def is_waited_for(self) -> bool:
        return self.message.retain or self.message.qos > 0

    def is_read_back(self) -> bool:
        return self.message.retain

    def row(self, offset: int, timestamp_us: int) -> LogRow:
        message, sender = self.message, self.client_id.encode()
        flags, topic = message_flags(message), message.topic_name.encode()
        return LogRow(offset, timestamp_us, Kind.PUBLISH, flags, topic, message.payload, sender, message.properties)

    @staticmethod
    def unpack(row: LogRow) -> "Published":
        return Published(_message(row), row.client_id.decode())


@final
class RetainedCopy(Record):
    """A message again, for queues: the record that it had may be trimmed before they are done with it."""

    def __init__(self, message: Publish) -> None:
        self.message: Final = message

    def row(self, offset: int, timestamp_us: int) -> LogRow:
        message = self.message
        flags, topic = message_flags(message), message.topic_name.encode()
        return LogRow(offset, timestamp_us, Kind.RETAINED_COPY, flags, topic, message.payload, b"", message.properties)

    @staticmethod
    def unpack(row: LogRow) -> "RetainedCopy":
        return RetainedCopy(_message(row))


@final
class RetainedRemoved(Record):
    """A retained message was cleared without a publish: it expired, or an operator or a budget removed it."""

    def __init__(self, topic_name: str, reason: str) -> None:
        self.topic_name: Final = topic_name
        self.reason: Final = reason

    def is_read_back(self) -> bool:
        return True

    def row(self, offset: int, timestamp_us: int) -> LogRow:
        topic = self.topic_name.encode()
        return LogRow(offset, timestamp_us, Kind.RETAINED_REMOVED, 0, topic, self.reason.encode(), b"")

    @staticmethod
    def unpack(row: LogRow) -> "RetainedRemoved":
        return RetainedRemoved(row.topic.decode(), _text(row.payload))


def message_flags(message: Publish) -> int:
    """The flags of the record of a message."""
    return message.qos | RETAIN_FLAG if message.retain else message.qos


def _message(row: LogRow) -> Publish:
    flags = row.flags
    return Publish(
        row.topic.decode(),
        row.payload,
        flags & QOS_MASK,
        bool(flags & RETAIN_FLAG),
        bool(flags & DUP_FLAG),
        0,
        row.properties,
    )


# -- connections and sessions ------------------------------------------------------------------------------------------


@final
class Connected(Record):
    """A client has connected."""

    def __init__(self, client_id: str, user_name: str, persistent: bool, protocol: str, address: str) -> None:
        self.client_id: Final = client_id
        self.user_name: Final = user_name
        self.persistent: Final = persistent
        self.protocol: Final = protocol
        self.address: Final = address

    def is_waited_for(self) -> bool:
        return False

    def is_optional(self) -> bool:
        return True

    def row(self, offset: int, timestamp_us: int) -> LogRow:
        kind_of_session = "persistent" if self.persistent else "clean"
        text = "\n".join((self.protocol, self.address, self.user_name, kind_of_session))
        return LogRow(offset, timestamp_us, Kind.CONNECTED, 0, b"", text.encode(), self.client_id.encode())

    @staticmethod
    def unpack(row: LogRow) -> "Connected":
        protocol, address, *user_name, session = _text(row.payload).split("\n")  # a user name may have lines
        client_id, user = row.client_id.decode(), "\n".join(user_name)
        return Connected(client_id, user, session == "persistent", protocol, address)


@final
class Disconnected(Record):
    """A client's connection has ended. With a session id, the session's expiry starts to run.

    `sent` is the sequence number of the newest queued message that has left: above it nothing needs DUP later.
    """

    def __init__(self, client_id: str, session_id: int, reason: str, sent: int = 0) -> None:
        self.client_id: Final = client_id
        self.session_id: Final = session_id
        self.reason: Final = reason
        self.sent: Final = sent

    def is_waited_for(self) -> bool:
        return False

    def is_optional(self) -> bool:
        return not self.session_id

    def row(self, offset: int, timestamp_us: int) -> LogRow:
        payload = SESSION_SEQUENCE.pack(self.session_id, self.sent) + self.reason.encode()
        return LogRow(offset, timestamp_us, Kind.DISCONNECTED, 0, b"", payload, self.client_id.encode())

    @staticmethod
    def unpack(row: LogRow) -> "Disconnected":
        payload = row.payload
        session_id, sent = SESSION_SEQUENCE.unpack_from(payload)
        reason = _text(payload[SESSION_SEQUENCE.size :])
        return Disconnected(row.client_id.decode(), session_id, reason, sent)

    def apply(self, state: StateChanges, offset: int, timestamp_us: int) -> None:
        if self.session_id:
            state.put(session_key(self.session_id, ENDED), PAIR.pack(timestamp_us, self.sent))


@final
class SessionOpened(Record):
    """A persistent session has begun; any older one of this client id was ended before."""

    def __init__(self, session_id: int, client_id: str, user_name: str, session_expiry_s: int) -> None:
        self.session_id: Final = session_id
        self.client_id: Final = client_id
        self.user_name: Final = user_name
        self.session_expiry_s: Final = session_expiry_s

    def opened_queue_id(self) -> int:
        return self.session_id

    def row(self, offset: int, timestamp_us: int) -> LogRow:
        payload = SESSION_EXPIRY.pack(self.session_id, self.session_expiry_s) + self.user_name.encode()
        return LogRow(offset, timestamp_us, Kind.SESSION_OPENED, 0, b"", payload, self.client_id.encode())

    @staticmethod
    def unpack(row: LogRow) -> "SessionOpened":
        payload = row.payload
        session_id, expiry_s = SESSION_EXPIRY.unpack_from(payload)
        user_name = _text(payload[SESSION_EXPIRY.size :])
        # 0 in records of older versions: there the id of a session is the offset of the record that opened it.
        return SessionOpened(session_id or row.offset, row.client_id.decode(), user_name, expiry_s)

    def apply(self, state: StateChanges, offset: int, timestamp_us: int) -> None:
        client_id = self.client_id.encode()
        client = _LENGTH.pack(len(client_id)) + client_id + self.user_name.encode()
        state.put(session_key(self.session_id, CLIENT), client)
        state.put(session_key(self.session_id, EXPIRES), _SECONDS.pack(self.session_expiry_s))


@final
class SessionResumed(Record):
    """A persistent session has a connection again; its expiry no longer runs."""

    def __init__(self, session_id: int, client_id: str, session_expiry_s: int) -> None:
        self.session_id: Final = session_id
        self.client_id: Final = client_id
        self.session_expiry_s: Final = session_expiry_s

    def row(self, offset: int, timestamp_us: int) -> LogRow:
        payload = SESSION_EXPIRY.pack(self.session_id, self.session_expiry_s)
        return LogRow(offset, timestamp_us, Kind.SESSION_RESUMED, 0, b"", payload, self.client_id.encode())

    @staticmethod
    def unpack(row: LogRow) -> "SessionResumed":
        session_id, expiry_s = SESSION_EXPIRY.unpack_from(row.payload)
        return SessionResumed(session_id, row.client_id.decode(), expiry_s)

    def apply(self, state: StateChanges, offset: int, timestamp_us: int) -> None:
        state.put(session_key(self.session_id, EXPIRES), _SECONDS.pack(self.session_expiry_s))
        state.delete(session_key(self.session_id, ENDED))


@final
class SessionExpiryChanged(Record):
    """The client changed its session's expiry with DISCONNECT (5.0, 3.14.2.2.2)."""

    def __init__(self, session_id: int, client_id: str, session_expiry_s: int) -> None:
        self.session_id: Final = session_id
        self.client_id: Final = client_id
        self.session_expiry_s: Final = session_expiry_s

    def row(self, offset: int, timestamp_us: int) -> LogRow:
        payload = SESSION_EXPIRY.pack(self.session_id, self.session_expiry_s)
        return LogRow(offset, timestamp_us, Kind.SESSION_EXPIRY_CHANGED, 0, b"", payload, self.client_id.encode())

    @staticmethod
    def unpack(row: LogRow) -> "SessionExpiryChanged":
        session_id, expiry_s = SESSION_EXPIRY.unpack_from(row.payload)
        return SessionExpiryChanged(session_id, row.client_id.decode(), expiry_s)

    def apply(self, state: StateChanges, offset: int, timestamp_us: int) -> None:
        state.put(session_key(self.session_id, EXPIRES), _SECONDS.pack(self.session_expiry_s))


@final
class SessionEnded(Record):
    """A persistent session is forgotten, with what it was owed."""

    def __init__(self, session_id: int, client_id: str) -> None:
        self.session_id: Final = session_id
        self.client_id: Final = client_id

    def ended_queue_id(self) -> int:
        return self.session_id

    def row(self, offset: int, timestamp_us: int) -> LogRow:
        payload = SESSION.pack(self.session_id)
        return LogRow(offset, timestamp_us, Kind.SESSION_ENDED, 0, b"", payload, self.client_id.encode())

    @staticmethod
    def unpack(row: LogRow) -> "SessionEnded":
        return SessionEnded(_session_id(row), row.client_id.decode())

    def apply(self, state: StateChanges, offset: int, timestamp_us: int) -> None:
        state.delete_range(session_key(self.session_id), session_key(self.session_id + 1))


# -- subscriptions -----------------------------------------------------------------------------------------------------


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
class Subscribed(Record):
    """A subscription was made or replaced, with the QoS granted. `session_id` 0: the session is not persistent.

    With `owes_retained`, the session has a `RetainedPosition` until all its retained messages are sent.
    """

    def __init__(self, client_id: str, session_id: int, request: SubscriptionRequest, owes_retained: bool) -> None:
        self.client_id: Final = client_id
        self.session_id: Final = session_id
        self.request: Final = request
        self.owes_retained: Final = owes_retained

    def is_waited_for(self) -> bool:
        return self.session_id != 0

    def is_optional(self) -> bool:
        return not self.session_id

    def _flags(self) -> int:
        request = self.request
        flags = request.qos | request.retain_handling << RETAIN_HANDLING_SHIFT
        if request.no_local:
            flags |= NO_LOCAL_FLAG
        if request.retain_as_published:
            flags |= RETAIN_AS_PUBLISHED_FLAG
        return flags | RETAINED_OWED_FLAG if self.owes_retained else flags

    def row(self, offset: int, timestamp_us: int) -> LogRow:
        topic, payload = self.request.topic_filter.encode(), SESSION.pack(self.session_id)
        properties = _subscription_id_property(self.request.subscription_id)
        client_id = self.client_id.encode()
        return LogRow(offset, timestamp_us, Kind.SUBSCRIBED, self._flags(), topic, payload, client_id, properties)

    @staticmethod
    def unpack(row: LogRow) -> "Subscribed":
        flags = row.flags
        request = _subscription_request(row.topic, flags, row.properties)
        client_id = row.client_id.decode()
        return Subscribed(client_id, _session_id(row), request, bool(flags & RETAINED_OWED_FLAG))

    def apply(self, state: StateChanges, offset: int, timestamp_us: int) -> None:
        if not self.session_id:
            return
        request = self.request
        topic = request.topic_filter.encode()
        head = _SUBSCRIPTION_HEAD.pack(self._flags(), offset)
        properties = _subscription_id_property(request.subscription_id)
        state.put(session_key(self.session_id, SUBSCRIPTION) + topic, head + properties)
        if self.owes_retained:
            state.put(session_key(self.session_id, POSITION) + topic, _POSITION_HEAD.pack(offset, request.qos))


@final
class Unsubscribed(Record):
    """A subscription was given up."""

    def __init__(self, client_id: str, session_id: int, topic_filter: str) -> None:
        self.client_id: Final = client_id
        self.session_id: Final = session_id
        self.topic_filter: Final = topic_filter

    def is_waited_for(self) -> bool:
        return self.session_id != 0

    def is_optional(self) -> bool:
        return not self.session_id

    def row(self, offset: int, timestamp_us: int) -> LogRow:
        topic, payload = self.topic_filter.encode(), SESSION.pack(self.session_id)
        return LogRow(offset, timestamp_us, Kind.UNSUBSCRIBED, 0, topic, payload, self.client_id.encode())

    @staticmethod
    def unpack(row: LogRow) -> "Unsubscribed":
        return Unsubscribed(row.client_id.decode(), _session_id(row), row.topic.decode())

    def apply(self, state: StateChanges, offset: int, timestamp_us: int) -> None:
        topic = self.topic_filter.encode()
        state.delete(session_key(self.session_id, SUBSCRIPTION) + topic)
        state.delete(session_key(self.session_id, POSITION) + topic)


@final
class PositionMoved(Record):
    """Retained messages up to `position.after_topic_name` were queued for the session; with `done`, all of them."""

    def __init__(self, session_id: int, client_id: str, position: RetainedPosition, done: bool) -> None:
        self.session_id: Final = session_id
        self.client_id: Final = client_id
        self.position: Final = position
        self.done: Final = done

    def row(self, offset: int, timestamp_us: int) -> LogRow:
        position = self.position
        head = SESSION_POSITION.pack(self.session_id, position.before_offset, position.qos, self.done)
        payload, topic = head + position.after_topic_name.encode(), position.topic_filter.encode()
        return LogRow(offset, timestamp_us, Kind.POSITION, 0, topic, payload, self.client_id.encode())

    @staticmethod
    def unpack(row: LogRow) -> "PositionMoved":
        payload = row.payload
        session_id, before_offset, qos, done = SESSION_POSITION.unpack_from(payload)
        after_topic_name = payload[SESSION_POSITION.size :].decode()
        position = RetainedPosition(row.topic.decode(), qos, before_offset, after_topic_name)
        return PositionMoved(session_id, row.client_id.decode(), position, bool(done))

    def apply(self, state: StateChanges, offset: int, timestamp_us: int) -> None:
        position = self.position
        key = session_key(self.session_id, POSITION) + position.topic_filter.encode()
        if self.done:
            state.delete(key)
        else:
            head = _POSITION_HEAD.pack(position.before_offset, position.qos)
            state.put(key, head + position.after_topic_name.encode())


def _subscription_id_property(subscription_id: int) -> bytes:
    """The properties of a SUBSCRIBED record: the Subscription Identifier (5.0, 3.8.2.1.2), if there is one."""
    if not subscription_id:
        return b""
    return ONE_BYTE[_SUBSCRIPTION_ID] + variable_byte_integer(subscription_id)


def _subscription_request(topic: bytes, flags: int, properties: bytes) -> SubscriptionRequest:
    subscription_id = 0
    if properties and properties[0] == _SUBSCRIPTION_ID:
        subscription_id = Fields(properties, 1, len(properties)).variable_byte_integer()
    return SubscriptionRequest(
        topic.decode(),
        flags & QOS_MASK,
        bool(flags & NO_LOCAL_FLAG),
        bool(flags & RETAIN_AS_PUBLISHED_FLAG),
        flags >> RETAIN_HANDLING_SHIFT & 0b11,
        subscription_id,
    )


# -- queues, of sessions and of share groups ---------------------------------------------------------------------------


@final
class SharedQueueOpened(Record):
    """The queue of a share group has begun; any older one of this filter was ended before."""

    def __init__(self, queue_id: int, share_filter: str) -> None:
        self.queue_id: Final = queue_id
        self.share_filter: Final = share_filter

    def opened_queue_id(self) -> int:
        return self.queue_id

    def row(self, offset: int, timestamp_us: int) -> LogRow:
        topic, payload = self.share_filter.encode(), SESSION.pack(self.queue_id)
        return LogRow(offset, timestamp_us, Kind.SHARED_QUEUE_OPENED, 0, topic, payload, b"")

    @staticmethod
    def unpack(row: LogRow) -> "SharedQueueOpened":
        # Records of older versions have no payload: there the offset is the id.
        queue_id = _session_id(row) if row.payload else row.offset
        return SharedQueueOpened(queue_id, row.topic.decode())

    def apply(self, state: StateChanges, offset: int, timestamp_us: int) -> None:
        state.put(SHARED + ID.pack(self.queue_id), self.share_filter.encode())


@final
class SharedQueueEnded(Record):
    """The queue of a share group is forgotten, with what is in it."""

    def __init__(self, queue_id: int, share_filter: str) -> None:
        self.queue_id: Final = queue_id
        self.share_filter: Final = share_filter

    def ended_queue_id(self) -> int:
        return self.queue_id

    def row(self, offset: int, timestamp_us: int) -> LogRow:
        topic, payload = self.share_filter.encode(), SESSION.pack(self.queue_id)
        return LogRow(offset, timestamp_us, Kind.SHARED_QUEUE_ENDED, 0, topic, payload, b"")

    @staticmethod
    def unpack(row: LogRow) -> "SharedQueueEnded":
        return SharedQueueEnded(_session_id(row), row.topic.decode())

    def apply(self, state: StateChanges, offset: int, timestamp_us: int) -> None:
        state.delete(SHARED + ID.pack(self.queue_id))
        state.delete_range(session_key(self.queue_id), session_key(self.queue_id + 1))


@final
class Queued(Record):
    """Messages at the end of a queue: `entries` of `queue_entry`, 8 bytes each, with their Subscription Identifiers."""

    def __init__(self, session_id: int, first_sequence: int, entries: bytes, ids: bytes) -> None:
        self.session_id: Final = session_id
        self.first_sequence: Final = first_sequence
        self.entries: Final = entries
        self.ids: Final = ids

    def is_read_back(self) -> bool:
        return True

    def row(self, offset: int, timestamp_us: int) -> LogRow:
        payload = SESSION_SEQUENCE.pack(self.session_id, self.first_sequence) + self.entries
        return LogRow(offset, timestamp_us, _QUEUED, 0, b"", payload, b"", self.ids)

    @staticmethod
    def unpack(row: LogRow) -> "Queued":
        payload = row.payload
        entries = payload[SESSION_SEQUENCE.size :]
        return Queued(read_i64_le(payload, 0), read_i64_le(payload, 8), entries, row.properties)

    def apply(self, state: StateChanges, offset: int, timestamp_us: int) -> None:
        state.put_queued(self.session_id, self.first_sequence, self.entries, self.ids)


@final
class Released(Record):
    """PUBREC has come for a message of a queue: PUBREL is owed from now on."""

    def __init__(self, session_id: int, sequence: int) -> None:
        self.session_id: Final = session_id
        self.sequence: Final = sequence

    def row(self, offset: int, timestamp_us: int) -> LogRow:
        payload = SESSION_SEQUENCE.pack(self.session_id, self.sequence)
        return LogRow(offset, timestamp_us, _RELEASED, 0, b"", payload, b"")

    @staticmethod
    def unpack(row: LogRow) -> "Released":
        payload = row.payload
        return Released(read_i64_le(payload, 0), read_i64_le(payload, 8))

    def apply(self, state: StateChanges, offset: int, timestamp_us: int) -> None:
        state.put(number_key(self.session_id, RELEASED, self.sequence), b"")


@final
class Acknowledged(Record):
    """Everything in a queue up to and including a sequence number is done."""

    def __init__(self, session_id: int, sequence: int) -> None:
        self.session_id: Final = session_id
        self.sequence: Final = sequence

    def is_waited_for(self) -> bool:
        return False

    def row(self, offset: int, timestamp_us: int) -> LogRow:
        payload = SESSION_SEQUENCE.pack(self.session_id, self.sequence)
        return LogRow(offset, timestamp_us, _ACKNOWLEDGED, 0, b"", payload, b"")

    @staticmethod
    def unpack(row: LogRow) -> "Acknowledged":
        payload = row.payload
        return Acknowledged(read_i64_le(payload, 0), read_i64_le(payload, 8))

    def apply(self, state: StateChanges, offset: int, timestamp_us: int) -> None:
        state.put_acknowledged(self.session_id, self.sequence)


# -- packet identifiers of QoS 2 ---------------------------------------------------------------------------------------


@final
class Received(Record):
    """A QoS 2 message was taken: its packet identifier counts as received until PUBREL."""

    def __init__(self, session_id: int, client_id: str, packet_id: int) -> None:
        self.session_id: Final = session_id
        self.client_id: Final = client_id
        self.packet_id: Final = packet_id

    def row(self, offset: int, timestamp_us: int) -> LogRow:
        payload = SESSION_PACKET.pack(self.session_id, self.packet_id)
        return LogRow(offset, timestamp_us, _RECEIVED, 0, b"", payload, self.client_id.encode())

    @staticmethod
    def unpack(row: LogRow) -> "Received":
        payload = row.payload
        return Received(read_i64_le(payload, 0), row.client_id.decode(), payload[8] | payload[9] << 8)

    def apply(self, state: StateChanges, offset: int, timestamp_us: int) -> None:
        state.put(session_key(self.session_id, RECEIVED) + _PACKET_ID.pack(self.packet_id), b"")


@final
class PubrelReceived(Record):
    """The client released a QoS 2 packet identifier: it may be used for a new message."""

    def __init__(self, session_id: int, client_id: str, packet_id: int) -> None:
        self.session_id: Final = session_id
        self.client_id: Final = client_id
        self.packet_id: Final = packet_id

    def row(self, offset: int, timestamp_us: int) -> LogRow:
        payload = SESSION_PACKET.pack(self.session_id, self.packet_id)
        return LogRow(offset, timestamp_us, _PUBREL, 0, b"", payload, self.client_id.encode())

    @staticmethod
    def unpack(row: LogRow) -> "PubrelReceived":
        payload = row.payload
        return PubrelReceived(read_i64_le(payload, 0), row.client_id.decode(), payload[8] | payload[9] << 8)

    def apply(self, state: StateChanges, offset: int, timestamp_us: int) -> None:
        state.delete(session_key(self.session_id, RECEIVED) + _PACKET_ID.pack(self.packet_id))


# -- wills -------------------------------------------------------------------------------------------------------------


@final
class WillSet(Record):
    """A client has set a will with CONNECT, in place of any will before. `session_id` 0: the session is not persistent.

    It must be durable before CONNACK leaves, so that it can be published after a crash of the server.
    """

    def __init__(self, client_id: str, session_id: int, user_name: str, will: Will) -> None:
        self.client_id: Final = client_id
        self.session_id: Final = session_id
        self.user_name: Final = user_name
        self.will: Final = will

    def _flags(self) -> int:
        return self.will.qos | RETAIN_FLAG if self.will.retain else self.will.qos

    def _payload(self) -> bytes:
        user_name = self.user_name.encode()
        return WILL.pack(self.session_id, self.will.delay_s, len(user_name)) + user_name + self.will.payload

    def row(self, offset: int, timestamp_us: int) -> LogRow:
        topic, payload, properties = self.will.topic_name.encode(), self._payload(), self.will.properties
        client_id = self.client_id.encode()
        return LogRow(offset, timestamp_us, Kind.WILL_SET, self._flags(), topic, payload, client_id, properties)

    @staticmethod
    def unpack(row: LogRow) -> "WillSet":
        topic, payload, properties = row.topic, row.payload, row.properties
        return _will_set(row.client_id, row.flags, topic, payload, properties)

    def apply(self, state: StateChanges, offset: int, timestamp_us: int) -> None:
        topic, properties = self.will.topic_name.encode(), self.will.properties
        head = _WILL_HEAD.pack(self._flags(), len(topic), len(properties))
        state.put(WILLS + self.client_id.encode(), head + topic + properties + self._payload())


@final
class WillCleared(Record):
    """The will of a client was published or deleted.

    Append it in the same turn as the will's PUBLISH: then a crash leaves either both or none.
    """

    def __init__(self, client_id: str) -> None:
        self.client_id: Final = client_id

    def row(self, offset: int, timestamp_us: int) -> LogRow:
        return LogRow(offset, timestamp_us, Kind.WILL_CLEARED, 0, b"", b"", self.client_id.encode())

    @staticmethod
    def unpack(row: LogRow) -> "WillCleared":
        return WillCleared(row.client_id.decode())

    def apply(self, state: StateChanges, offset: int, timestamp_us: int) -> None:
        state.delete(WILLS + self.client_id.encode())


def _will_set(client_id: bytes, flags: int, topic: bytes, payload: bytes, properties: bytes) -> WillSet:
    session_id, delay_s, user_name_bytes = WILL.unpack_from(payload)
    message_at = WILL.size + user_name_bytes
    retain = bool(flags & RETAIN_FLAG)
    will = Will(topic.decode(), payload[message_at:], flags & QOS_MASK, retain, delay_s, properties)
    return WillSet(client_id.decode(), session_id, payload[WILL.size : message_at].decode(), will)


def _session_id(row: LogRow) -> int:
    session_id: int = SESSION.unpack_from(row.payload)[0]
    return session_id


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


# -- any kind ----------------------------------------------------------------------------------------------------------

_UNPACK: Final[dict[int, Callable[[LogRow], Record]]] = {
    Kind.PUBLISH: Published.unpack,
    Kind.RETAINED_REMOVED: RetainedRemoved.unpack,
    Kind.CONNECTED: Connected.unpack,
    Kind.DISCONNECTED: Disconnected.unpack,
    Kind.SESSION_OPENED: SessionOpened.unpack,
    Kind.SESSION_RESUMED: SessionResumed.unpack,
    Kind.SESSION_ENDED: SessionEnded.unpack,
    Kind.SUBSCRIBED: Subscribed.unpack,
    Kind.UNSUBSCRIBED: Unsubscribed.unpack,
    Kind.QUEUED: Queued.unpack,
    Kind.RETAINED_COPY: RetainedCopy.unpack,
    Kind.RELEASED: Released.unpack,
    Kind.ACKNOWLEDGED: Acknowledged.unpack,
    Kind.RECEIVED: Received.unpack,
    Kind.PUBREL: PubrelReceived.unpack,
    Kind.POSITION: PositionMoved.unpack,
    Kind.WILL_SET: WillSet.unpack,
    Kind.WILL_CLEARED: WillCleared.unpack,
    Kind.SESSION_EXPIRY_CHANGED: SessionExpiryChanged.unpack,
    Kind.SHARED_QUEUE_OPENED: SharedQueueOpened.unpack,
    Kind.SHARED_QUEUE_ENDED: SharedQueueEnded.unpack,
}


def unpack(row: LogRow) -> Record | None:
    """The record in a row of the log; None if a newer EmberMQ has added its kind. ValueError: bytes are missing."""
    kind = row.kind
    try:
        if kind == _RECEIVED:  # the two kinds that come with each message of QoS 2: a direct call takes less time
            return Received.unpack(row)
        if kind == _PUBREL:
            return PubrelReceived.unpack(row)
        made = _UNPACK.get(kind)
        return None if made is None else made(row)
    except (StructError, IndexError) as error:
        raise ValueError(f"the payload of a record of kind {kind} is too short") from error


# -- from the keys of the state ----------------------------------------------------------------------------------------


def opened_session(session_id: int, client: bytes, expires: bytes | None) -> SessionOpened:
    """The record that two keys of a session stand for."""
    (length,) = _LENGTH.unpack_from(client)
    at = _LENGTH.size + length
    expiry_s = int.from_bytes(expires, "little") if expires else 0
    return SessionOpened(session_id, client[_LENGTH.size : at].decode(), client[at:].decode(), expiry_s)


def stored_record(session_id: int, client_id: str, key: bytes, value: bytes) -> LoggedRecord | None:
    """The record that one key of a session, or of the queue of a share group, stands for.

    None for those that are part of another: CLIENT and EXPIRES (`opened_session`), CHUNK and IDS (`Queued`).
    """
    space, rest = key[SPACE_AT : SPACE_AT + 1], key[SPACE_AT + 1 :]
    if space == ENDED:
        ended_us, sent = PAIR.unpack(value)
        return LoggedRecord(0, ended_us, Disconnected(client_id, session_id, "", sent))
    if space == SUBSCRIPTION:
        flags, offset = _SUBSCRIPTION_HEAD.unpack_from(value)
        request = _subscription_request(rest, flags, value[_SUBSCRIPTION_HEAD.size :])
        # Whether retained messages are still owed, a position says.
        return LoggedRecord(offset, 0, Subscribed(client_id, session_id, request, False))
    if space == POSITION:
        before_offset, qos = _POSITION_HEAD.unpack_from(value)
        position = RetainedPosition(rest.decode(), qos, before_offset, value[_POSITION_HEAD.size :].decode())
        return LoggedRecord(0, 0, PositionMoved(session_id, client_id, position, False))
    if space == RECEIVED:
        return LoggedRecord(0, 0, Received(session_id, client_id, int.from_bytes(rest, "big")))
    if space == ACKNOWLEDGED:
        return LoggedRecord(0, 0, Acknowledged(session_id, PAIR.unpack(value)[0]))
    if space == RELEASED:
        return LoggedRecord(0, 0, Released(session_id, int.from_bytes(rest, "big")))
    return None


def stored_will(key: bytes, value: bytes) -> WillSet:
    """The record that the key of a will stands for."""
    flags, topic_bytes, property_bytes = _WILL_HEAD.unpack_from(value)
    properties_at = _WILL_HEAD.size + topic_bytes
    payload_at = properties_at + property_bytes
    topic, properties = value[_WILL_HEAD.size : properties_at], value[properties_at:payload_at]
    return _will_set(key[len(WILLS) :], flags, topic, value[payload_at:], properties)

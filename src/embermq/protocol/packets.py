"""The control packets as classes: one model for every dialect, with MQTT 5's meaning.

Owns: what a packet says. How it is written on a wire is the dialect's (`mqtt`, `sn`).
3.1.1's Clean Session is `clean_start` with a session expiry of 0 or never; its return codes are reason codes.
Packets that come often have explicit constructors, since those of dataclasses take mypyc five times as long; a CONNECT
counts as often. Slots are for what there are many of at a time, where Python runs uncompiled.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Final, final

from embermq.protocol.reasons import ReasonCode

PACKET_IDS: Final = 65_535
"""How many packet identifiers there are, and so how many messages may be unacknowledged (2.2.1)."""
SESSION_NEVER_EXPIRES: Final = 0xFFFF_FFFF

KEEP_ALIVE_UNCAPPED_S: Final = 65_535

# The control packet types (2.2.1; AUTH: 5.0). An `Acknowledgement` names its type by these.
CONNECT: Final = 1
CONNACK: Final = 2
PUBLISH: Final = 3
PUBACK: Final = 4
PUBREC: Final = 5
PUBREL: Final = 6
PUBCOMP: Final = 7
SUBSCRIBE: Final = 8
SUBACK: Final = 9
UNSUBSCRIBE: Final = 10
UNSUBACK: Final = 11
PINGREQ: Final = 12
PINGRESP: Final = 13
DISCONNECT: Final = 14
AUTH: Final = 15


class Packet:
    """What every control packet is; only for typing, it carries nothing."""

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return False
        return all(getattr(self, name) == getattr(other, name) for name in _fields(self))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in _fields(self))
        return f"{type(self).__name__}({fields})"

    # Mutable in principle, compared by value in tests only. Of the class: else each compiled packet would carry it.
    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # how Python spells it


def _fields(packet: Packet) -> tuple[str, ...]:
    """The names of a packet's fields; a compiled class keeps them elsewhere than its slots or a dictionary."""
    names: tuple[str, ...] | None = getattr(packet, "__mypyc_attrs__", None)
    return (packet.__slots__ or tuple(vars(packet))) if names is None else names


@final
@dataclass
class Will(Packet):
    """The message to publish if the client is lost (3.1.2.5)."""

    topic_name: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    delay_s: int = 0
    properties: bytes = b""


@final
class Connect(Packet):
    """A client asks for a session (3.1). `protocol_level` is 3, 4 or 5 on a stream, and a profile's own for SN.

    What follows `protocol_level` exists in MQTT 5 only (5.0, 3.1.2.11). `maximum_packet_size` is the largest packet
    that the client takes, 0: any; `topic_alias_maximum` is how many aliases it takes.
    """

    def __init__(
        self,
        client_id: str,
        clean_start: bool = True,
        keep_alive_s: int = 0,
        will: Will | None = None,
        user_name: str | None = None,
        password: bytes | None = None,
        session_expiry_s: int = 0,
        receive_maximum: int = 65_535,
        protocol_level: int = 4,
        maximum_packet_size: int = 0,
        topic_alias_maximum: int = 0,
        request_problem_information: bool = True,
        request_response_information: bool = False,
        authentication_method: str | None = None,
        authentication_data: bytes | None = None,
        user_properties: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.client_id: Final = client_id
        self.clean_start: Final = clean_start
        self.keep_alive_s: Final = keep_alive_s
        self.will: Final = will
        self.user_name: Final = user_name
        self.password: Final = password
        self.session_expiry_s: Final = session_expiry_s
        self.receive_maximum: Final = receive_maximum
        self.protocol_level: Final = protocol_level
        self.maximum_packet_size: Final = maximum_packet_size
        self.topic_alias_maximum: Final = topic_alias_maximum
        self.request_problem_information: Final = request_problem_information
        self.request_response_information: Final = request_response_information
        self.authentication_method: Final = authentication_method
        self.authentication_data: Final = authentication_data
        self.user_properties: Final = user_properties

    def __repr__(self) -> str:
        """Without the password: a packet may end up in a log line."""
        return f"Connect(client_id={self.client_id!r}, user_name={self.user_name!r}, level={self.protocol_level})"


def capped_keep_alive_s(asked_s: int, keep_alive_max_s: int) -> int:
    """The keep alive that the server enforces; 0 is none. With a cap, a client that asked for none gets the cap."""
    if keep_alive_max_s >= KEEP_ALIVE_UNCAPPED_S:
        return asked_s
    return min(asked_s, keep_alive_max_s) if asked_s else keep_alive_max_s


@final
class Connack(Packet):
    """The server's answer to CONNECT (3.2). `reason` is a `ReasonCode` value.

    What follows `reason` exists in MQTT 5 only (5.0, 3.2.2.3). `session_expiry_s` and `server_keep_alive_s` below 0: as
    the client asked. From `receive_maximum` on it is what the connection itself decides, and fills in for the core.
    """

    def __init__(
        self,
        session_present: bool,
        reason: int = 0,
        assigned_client_id: str = "",
        session_expiry_s: int = -1,
        server_keep_alive_s: int = -1,
        response_information: str = "",
        server_reference: str = "",
        reason_string: str = "",
        has_shared_subscriptions: bool = True,
        receive_maximum: int = 65_535,
        maximum_packet_size: int = 0,
        topic_alias_maximum: int = 0,
        authentication_method: str | None = None,
        authentication_data: bytes | None = None,
    ) -> None:
        self.session_present: Final = session_present
        self.reason: Final = reason
        self.assigned_client_id: Final = assigned_client_id
        self.session_expiry_s: Final = session_expiry_s
        self.server_keep_alive_s: Final = server_keep_alive_s
        self.response_information: Final = response_information
        self.server_reference: Final = server_reference
        self.reason_string: Final = reason_string
        self.has_shared_subscriptions: Final = has_shared_subscriptions
        self.receive_maximum: Final = receive_maximum
        self.maximum_packet_size: Final = maximum_packet_size
        self.topic_alias_maximum: Final = topic_alias_maximum
        self.authentication_method: Final = authentication_method
        self.authentication_data: Final = authentication_data


@final
class Publish(Packet):
    """An application message, in either direction (3.3).

    `properties` holds MQTT 5's, in their wire form. In a message that the server has taken, a Message Expiry Interval
    is the first of them, and `expires_us` is the instant at which it has passed, in microseconds since 1970; 0: never.
    """

    __slots__ = ("topic_name", "payload", "qos", "retain", "dup", "packet_id", "properties", "expires_us")

    def __init__(
        self,
        topic_name: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        packet_id: int = 0,
        properties: bytes = b"",
        expires_us: int = 0,
    ) -> None:
        self.topic_name: Final = topic_name
        self.payload: Final = payload
        self.qos: Final = qos
        self.retain: Final = retain
        self.dup: Final = dup
        self.packet_id: Final = packet_id
        self.properties: Final = properties
        self.expires_us: Final = expires_us

    def size_bytes(self) -> int:
        """What the message counts wherever messages in memory are bounded: topic name, payload and properties."""
        return len(self.topic_name) + len(self.payload) + len(self.properties)


@final
@dataclass
class RefusedPublish(Packet):
    """What is left of a PUBLISH at QoS 1 or 2 that is wrong in itself: its PUBACK or PUBREC says why it is not taken.

    It is no `Publish`, so that nothing can deliver it.
    """

    topic_name: str
    payload_bytes: int
    qos: int
    packet_id: int
    reason: ReasonCode
    detail: str


@final
class Columns(Packet):
    """Messages without properties as a store reads them: their topic names, encoded, and their payloads."""

    __slots__ = ("topics", "payloads")

    def __init__(self, topics: list[bytes], payloads: list[bytes]) -> None:
        self.topics: Final = topics
        self.payloads: Final = payloads


@final
class Delivery(Packet):
    """A run: messages on their way to one client, one behind the other. A lone message is a run of one.

    `messages` may differ in everything of their own; all of them are sent with the same QoS, RETAIN, DUP and
    Subscription Identifiers (MQTT 5, 3.3.2.3.8). `columns` has them instead if a store gave them like that.
    At QoS 1 and 2 the same object is what the session is owed until the client has acknowledged it. `packet_id` and
    `sequence`, its place among what the session is owed, from 1 on, are those of the first message; both count up by
    one. `released`: PUBREC has come for all of them, so that PUBREL is what to send (again).
    `is_sent`: the client has been sent them over its present connection.
    """

    __slots__ = (
        "messages",
        "qos",
        "retain",
        "dup",
        "packet_id",
        "subscription_ids",
        "sequence",
        "released",
        "columns",
        "is_sent",
    )

    def __init__(
        self,
        messages: list[Publish],
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        packet_id: int = 0,
        subscription_ids: tuple[int, ...] = (),
        sequence: int = 0,
        released: bool = False,
        columns: Columns | None = None,
        is_sent: bool = True,
    ) -> None:
        self.messages: Final = messages
        self.qos: Final = qos
        self.retain: Final = retain
        self.dup: Final = dup
        self.packet_id: Final = packet_id
        self.subscription_ids: Final = subscription_ids
        self.sequence: Final = sequence
        self.released = released
        self.columns: Final = columns
        self.is_sent = is_sent

    def __len__(self) -> int:
        columns = self.columns
        return len(self.messages) if columns is None else len(columns.topics)

    def size_bytes(self) -> int:
        """What its messages count wherever messages in memory are bounded."""
        size_bytes = 0
        columns = self.columns
        if columns is not None:
            for row in range(len(columns.topics)):
                size_bytes += len(columns.topics[row]) + len(columns.payloads[row])
        for message in self.messages:
            size_bytes += message.size_bytes()
        return size_bytes

    def part(self, start: int, end: int) -> "Delivery":
        """The messages from one on and before another, as a run of their own."""
        columns = self.columns
        if columns is not None:
            columns = Columns(columns.topics[start:end], columns.payloads[start:end])
        packet_id = self.packet_id + start if self.qos else 0
        return Delivery(
            self.messages[start:end],
            self.qos,
            self.retain,
            self.dup,
            packet_id,
            self.subscription_ids,
            self.sequence + start,
            self.released,
            columns,
            self.is_sent,
        )

    def unpacked(self) -> list[Publish]:
        """Its messages, each as an object."""
        columns = self.columns
        if columns is None:
            return self.messages
        found = [columns.topics[row].decode() for row in range(len(columns.topics))]
        return [Publish(name, columns.payloads[row], self.qos, self.retain) for row, name in enumerate(found)]

    def repeated(self) -> "Delivery":
        """The same with DUP, for when it is sent again."""
        return Delivery(
            self.messages,
            self.qos,
            self.retain,
            True,
            self.packet_id,
            self.subscription_ids,
            self.sequence,
            self.released,
            self.columns,
        )

    def release(self) -> None:
        """PUBREC has come."""
        self.released = True

    def set_sent(self, is_sent: bool) -> None:
        """The client has been sent it over its present connection; False: the connection has ended."""
        self.is_sent = is_sent


def packet_id_of(sequence: int) -> int:
    """The packet identifier of the n-th message that a session is owed: 1 to 65,535, then 1 again."""
    return (sequence - 1) % PACKET_IDS + 1


@final
class Acknowledgement(Packet):
    """PUBACK, PUBREC, PUBREL or PUBCOMP (3.4 to 3.7): one of them, or several that follow each other.

    `packet_type` says which of the four. There are `count` of them, all with the same `reason`: their packet
    identifiers count up by one from `packet_id` on. Most clients acknowledge messages in the order they came.
    """

    __slots__ = ("packet_type", "packet_id", "count", "reason")

    def __init__(self, packet_type: int, packet_id: int, count: int = 1, reason: int = 0) -> None:
        self.packet_type: Final = packet_type
        self.packet_id: Final = packet_id
        self.count: Final = count
        self.reason: Final = reason


@final
class SubscriptionRequest(Packet):
    """One filter of a SUBSCRIBE with its options (5.0, 3.8.3.1). 3.1.1 has only the QoS; the rest is 0.

    `subscription_id` is the SUBSCRIBE's Subscription Identifier (5.0, 3.8.2.1.2), one for all its filters; 0: none.
    """

    def __init__(
        self,
        topic_filter: str,
        qos: int = 0,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
        subscription_id: int = 0,
    ) -> None:
        self.topic_filter: Final = topic_filter
        self.qos: Final = qos
        self.no_local: Final = no_local
        self.retain_as_published: Final = retain_as_published
        self.retain_handling: Final = retain_handling
        self.subscription_id: Final = subscription_id


@final
class Subscribe(Packet):
    """Ask for subscriptions (3.8)."""

    def __init__(self, packet_id: int, requests: list[SubscriptionRequest]) -> None:
        self.packet_id: Final = packet_id
        self.requests: Final = requests


@final
class Suback(Packet):
    """Granted QoS or a refusal for each filter, in order (3.9); in MQTT 5 one Reason String for all of them."""

    def __init__(self, packet_id: int, reasons: list[int], reason_string: str = "") -> None:
        self.packet_id: Final = packet_id
        self.reasons: Final = reasons
        self.reason_string: Final = reason_string


@final
@dataclass
class Unsubscribe(Packet):
    """Give up subscriptions (3.10)."""

    packet_id: int
    topic_filters: list[str]


@final
@dataclass
class Unsuback(Packet):
    """The answer to UNSUBSCRIBE (3.11). 3.1.1 writes no reasons."""

    packet_id: int
    reasons: list[int] = field(default_factory=list)


@final
@dataclass
class Pingreq(Packet):
    """Are you there (3.12)."""


@final
@dataclass
class Pingresp(Packet):
    """I am here (3.13)."""


@final
class Disconnect(Packet):
    """The end of a connection, with its reason in MQTT 5 (3.14).

    `session_expiry_s` below 0 leaves the session's expiry as it was. `server_reference` is from a server only.
    """

    def __init__(
        self, reason: int = 0, session_expiry_s: int = -1, reason_string: str = "", server_reference: str = ""
    ) -> None:
        self.reason: Final = reason
        self.session_expiry_s: Final = session_expiry_s
        self.reason_string: Final = reason_string
        self.server_reference: Final = server_reference


@final
@dataclass
class Auth(Packet):
    """One message of enhanced authentication (5.0, 3.15)."""

    reason: int
    method: str
    data: bytes | None = None
    reason_string: str = ""

    def __repr__(self) -> str:
        """Without the data: a packet may end up in a log line."""
        return f"Auth(reason={self.reason:#04x}, method={self.method!r})"

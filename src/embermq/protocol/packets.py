"""The control packets as slotted classes: one model for every dialect, with MQTT 5's meaning.

Owns: what a packet says. How it is written on a wire is the dialect's (`mqtt`, `sn`).
3.1.1's Clean Session is `clean_start` with a session expiry of 0 or never; its return codes are reason codes.
Slotted classes with explicit constructors, because mypyc compiles those best.
"""

from typing import ClassVar, Final, final

SESSION_NEVER_EXPIRES: Final = 0xFFFF_FFFF

KEEP_ALIVE_UNCAPPED_S: Final = 65_535

# The control packet types (2.2.1; AUTH: 5.0). `Link.acknowledge` names an acknowledgement by its type.
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
    """The names of a packet's fields; a compiled class keeps them elsewhere."""
    names: tuple[str, ...] | None = getattr(packet, "__mypyc_attrs__", None)
    return packet.__slots__ if names is None else names


@final
class Will(Packet):
    """The message to publish if the client is lost (3.1.2.5)."""

    __slots__ = ("topic_name", "payload", "qos", "retain", "delay_s", "properties")

    def __init__(
        self,
        topic_name: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        delay_s: int = 0,
        properties: bytes = b"",
    ) -> None:
        self.topic_name: Final = topic_name
        self.payload: Final = payload
        self.qos: Final = qos
        self.retain: Final = retain
        self.delay_s: Final = delay_s
        self.properties: Final = properties


@final
class Connect(Packet):
    """A client asks for a session (3.1). `protocol_level` is 3, 4 or 5 on a stream, and a profile's own for SN.

    What follows `protocol_level` exists in MQTT 5 only (5.0, 3.1.2.11). `maximum_packet_size` is the largest packet
    that the client takes, 0: any; `topic_alias_maximum` is how many aliases it takes.
    """

    __slots__ = (
        "client_id",
        "clean_start",
        "keep_alive_s",
        "will",
        "user_name",
        "password",
        "session_expiry_s",
        "receive_maximum",
        "protocol_level",
        "maximum_packet_size",
        "topic_alias_maximum",
        "request_problem_information",
        "request_response_information",
        "authentication_method",
        "authentication_data",
        "user_properties",
    )

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

    __slots__ = (
        "session_present",
        "reason",
        "assigned_client_id",
        "session_expiry_s",
        "server_keep_alive_s",
        "response_information",
        "server_reference",
        "reason_string",
        "has_shared_subscriptions",
        "receive_maximum",
        "maximum_packet_size",
        "topic_alias_maximum",
        "authentication_method",
        "authentication_data",
    )

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


@final
class Delivery(Packet):
    """A message on its way to one client, with what differs from client to client.

    `subscription_ids` are the identifiers of the client's subscriptions that matched (MQTT 5, 3.3.2.3.8).
    At QoS 1 and 2 the same object is what the session is owed until the client has acknowledged it: `sequence` is its
    place among them, from 1 on, and `released` says that PUBREC has come, so that PUBREL is what to send (again).
    """

    __slots__ = ("message", "qos", "retain", "dup", "packet_id", "subscription_ids", "sequence", "released")

    def __init__(
        self,
        message: Publish,
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        packet_id: int = 0,
        subscription_ids: tuple[int, ...] = (),
        sequence: int = 0,
        released: bool = False,
    ) -> None:
        self.message: Final = message
        self.qos: Final = qos
        self.retain: Final = retain
        self.dup: Final = dup
        self.packet_id: Final = packet_id
        self.subscription_ids: Final = subscription_ids
        self.sequence: Final = sequence
        self.released = released

    def repeated(self) -> "Delivery":
        """The same message with DUP, for when it is sent again."""
        return Delivery(
            self.message,
            self.qos,
            self.retain,
            True,
            self.packet_id,
            self.subscription_ids,
            self.sequence,
            self.released,
        )


@final
class Puback(Packet):
    """QoS 1, the answer (3.4)."""

    __slots__ = ("packet_id", "reason")

    def __init__(self, packet_id: int, reason: int = 0) -> None:
        self.packet_id: Final = packet_id
        self.reason: Final = reason


@final
class Pubrec(Packet):
    """QoS 2, part 1 (3.5)."""

    __slots__ = ("packet_id", "reason")

    def __init__(self, packet_id: int, reason: int = 0) -> None:
        self.packet_id: Final = packet_id
        self.reason: Final = reason


@final
class Pubrel(Packet):
    """QoS 2, part 2 (3.6)."""

    __slots__ = ("packet_id", "reason")

    def __init__(self, packet_id: int, reason: int = 0) -> None:
        self.packet_id: Final = packet_id
        self.reason: Final = reason


@final
class Pubcomp(Packet):
    """QoS 2, part 3 (3.7)."""

    __slots__ = ("packet_id", "reason")

    def __init__(self, packet_id: int, reason: int = 0) -> None:
        self.packet_id: Final = packet_id
        self.reason: Final = reason


@final
class SubscriptionRequest(Packet):
    """One filter of a SUBSCRIBE with its options (5.0, 3.8.3.1). 3.1.1 has only the QoS; the rest is 0.

    `subscription_id` is the SUBSCRIBE's Subscription Identifier (5.0, 3.8.2.1.2), one for all its filters; 0: none.
    """

    __slots__ = ("topic_filter", "qos", "no_local", "retain_as_published", "retain_handling", "subscription_id")

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

    __slots__ = ("packet_id", "requests")

    def __init__(self, packet_id: int, requests: list[SubscriptionRequest]) -> None:
        self.packet_id: Final = packet_id
        self.requests: Final = requests


@final
class Suback(Packet):
    """Granted QoS or a refusal for each filter, in order (3.9); in MQTT 5 one Reason String for all of them."""

    __slots__ = ("packet_id", "reasons", "reason_string")

    def __init__(self, packet_id: int, reasons: list[int], reason_string: str = "") -> None:
        self.packet_id: Final = packet_id
        self.reasons: Final = reasons
        self.reason_string: Final = reason_string


@final
class Unsubscribe(Packet):
    """Give up subscriptions (3.10)."""

    __slots__ = ("packet_id", "topic_filters")

    def __init__(self, packet_id: int, topic_filters: list[str]) -> None:
        self.packet_id: Final = packet_id
        self.topic_filters: Final = topic_filters


@final
class Unsuback(Packet):
    """The answer to UNSUBSCRIBE (3.11). 3.1.1 writes no reasons."""

    __slots__ = ("packet_id", "reasons")

    def __init__(self, packet_id: int, reasons: list[int] | None = None) -> None:
        self.packet_id: Final = packet_id
        self.reasons: Final = reasons if reasons is not None else []


@final
class Pingreq(Packet):
    """Are you there (3.12)."""

    __slots__ = ()


@final
class Pingresp(Packet):
    """I am here (3.13)."""

    __slots__ = ()


@final
class Disconnect(Packet):
    """The end of a connection, with its reason in MQTT 5 (3.14).

    `session_expiry_s` below 0 leaves the session's expiry as it was. `server_reference` is from a server only.
    """

    __slots__ = ("reason", "session_expiry_s", "reason_string", "server_reference")

    def __init__(
        self, reason: int = 0, session_expiry_s: int = -1, reason_string: str = "", server_reference: str = ""
    ) -> None:
        self.reason: Final = reason
        self.session_expiry_s: Final = session_expiry_s
        self.reason_string: Final = reason_string
        self.server_reference: Final = server_reference


@final
class Auth(Packet):
    """One message of enhanced authentication (5.0, 3.15)."""

    __slots__ = ("reason", "method", "data", "reason_string")

    def __init__(self, reason: int, method: str, data: bytes | None = None, reason_string: str = "") -> None:
        self.reason: Final = reason
        self.method: Final = method
        self.data: Final = data
        self.reason_string: Final = reason_string

    def __repr__(self) -> str:
        """Without the data: a packet may end up in a log line."""
        return f"Auth(reason={self.reason:#04x}, method={self.method!r})"

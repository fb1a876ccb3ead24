"""What follows the fixed header, packet by packet, in MQTT 5 (5.0, 3.1 to 3.15): bytes to packets.

Owns: the meaning of each body that has properties or reason codes. PINGREQ and PINGRESP are those of `readers`.
Never: what depends on a connection, such as an alias above the maximum. A PUBLISH with properties that belong to its
connection is returned as a `WirePublish`, for the decoder to resolve.

Errors name the statements of 5.0. Those of fields that older levels have too are named by their ids in 3.1.1, and the
dialect translates them.
"""

from typing import TYPE_CHECKING, Final, final

from embermq.protocol.errors import MalformedPacket, ProtocolError
from embermq.protocol.mqtt.fields import SHARE_PREFIX, VIOLATION, Fields, check_filter_count, text_of, topic_filter_of
from embermq.protocol.mqtt.properties import (
    CLIENT,
    EITHER,
    SERVER,
    WILL,
    Properties,
    is_utf8,
    read_message_section,
    read_section,
)
from embermq.protocol.mqtt.reason_codes import (
    AUTH_BY_CLIENT,
    AUTH_BY_SERVER,
    CODES,
    DISCONNECT_BY_CLIENT,
    DISCONNECT_BY_SERVER,
    FAILURE,
)
from embermq.protocol.packets import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
    Will,
)
from embermq.protocol.reasons import ReasonCode

if TYPE_CHECKING:
    from embermq.protocol.mqtt.dialect import Dialect

MESSAGE_EXPIRY_INTERVAL: Final = 0x02
_SHARE_PREFIX_BYTES: Final = SHARE_PREFIX.encode()


@final
class WirePublish(Packet):
    """A PUBLISH with what concerns its connection: an alias, identifiers of subscriptions, or an expiry to count from.

    The topic name of `message` is empty if only the alias stands for it; an alias of 0 is none.
    `has_wrong_payload`: the payload is not of the format that the properties say.
    """

    __slots__ = ("message", "topic_alias", "subscription_ids", "has_wrong_payload")

    def __init__(
        self,
        message: Publish,
        topic_alias: int = 0,
        subscription_ids: tuple[int, ...] = (),
        has_wrong_payload: bool = False,
    ) -> None:
        self.message: Final = message
        self.topic_alias: Final = topic_alias
        self.subscription_ids: Final = subscription_ids
        self.has_wrong_payload: Final = has_wrong_payload


# -- CONNECT and CONNACK ---------------------------------------------------------------------------------------------


def read_connect(fields: Fields, dialect: "Dialect") -> Connect:
    """CONNECT behind its protocol name and level (5.0, 3.1)."""
    flags = fields.byte()
    _check_connect_flags(flags)
    keep_alive_s = fields.integer()
    found = _Found(read_section(fields, CONNECT, CLIENT))
    method = found.optional_text("authentication_method")
    data = found.optional_binary("authentication_data")
    if data is not None and method is None:
        raise ProtocolError("authentication data without a method", VIOLATION)
    client_id = fields.text()
    will = _read_will(fields, flags) if flags & 0x04 else None
    user_name = fields.text() if flags & 0x80 else None
    password = fields.binary() if flags & 0x40 else None
    fields.end()
    return Connect(
        client_id,
        flags & 0x02 != 0,
        keep_alive_s,
        will,
        user_name,
        password,
        found.number("session_expiry_interval", 0),
        found.number("receive_maximum", 65_535),
        dialect.level,
        found.number("maximum_packet_size", 0),
        found.number("topic_alias_maximum", 0),
        found.number("request_problem_information", 1) == 1,
        found.number("request_response_information", 0) == 1,
        method,
        data,
        found.user_properties(),
    )


def _check_connect_flags(flags: int) -> None:
    if flags & 0x01:
        raise MalformedPacket("reserved CONNECT flag is set", "MQTT-3.1.2-3")
    if flags & 0x04:
        if flags & 0x18 == 0x18:
            raise MalformedPacket("will QoS 3", "MQTT-3.1.2-12")
    elif flags & 0x18:
        raise MalformedPacket("will QoS without a will", "MQTT-3.1.2-11")
    elif flags & 0x20:
        raise MalformedPacket("will retain without a will", "MQTT-3.1.2-13")


def _read_will(fields: Fields, flags: int) -> Will:
    properties = read_message_section(fields, WILL, CLIENT)
    try:
        topic_name = fields.topic_name()
    except ProtocolError as error:
        if error.clause != "MQTT-3.3.2-2":
            raise
        raise ProtocolError(error.detail, "MQTT-4.7.0-1", error.reason) from None
    payload = fields.binary()
    if properties.is_text and not is_utf8(payload):
        raise ProtocolError("the payload of the will is not UTF-8", "", ReasonCode.PAYLOAD_FORMAT_INVALID)
    return Will(topic_name, payload, flags >> 3 & 3, flags & 0x20 != 0, properties.will_delay_s, properties.canonical)


def read_connack(fields: Fields, dialect: "Dialect") -> Packet:
    """CONNACK (5.0, 3.2). What a server does not have is not kept: this server has it, and its clients ask for all."""
    flags = fields.byte()
    if flags > 1:
        raise MalformedPacket("reserved CONNACK flag is set", "MQTT-3.2.2-1")
    reason = _known(fields.byte(), CODES[CONNACK], "CONNACK", "MQTT-3.2.2-8")
    found = _Found(read_section(fields, CONNACK, SERVER))
    fields.end()
    if flags and reason:
        raise ProtocolError("a refusal with a session", "MQTT-3.2.2-6")
    method = found.optional_text("authentication_method")
    data = found.optional_binary("authentication_data")
    if data is not None and method is None:
        raise ProtocolError("authentication data without a method", VIOLATION)
    return Connack(
        flags == 1,
        reason,
        found.optional_text("assigned_client_identifier") or "",
        found.number("session_expiry_interval", -1),
        found.number("server_keep_alive", -1),
        found.optional_text("response_information") or "",
        found.optional_text("server_reference") or "",
        found.optional_text("reason_string") or "",
        found.number("shared_subscription_available", 1) == 1,
        found.number("receive_maximum", 65_535),
        found.number("maximum_packet_size", 0),
        found.number("topic_alias_maximum", 0),
        method,
        data,
    )


# -- PUBLISH and its acknowledgements --------------------------------------------------------------------------------


def read_publish_of_client(fields: Fields, dialect: "Dialect") -> Packet:
    """PUBLISH to a server (5.0, 3.3)."""
    return _read_publish(fields, CLIENT, "MQTT-2.2.1-3")


def read_publish_of_server(fields: Fields, dialect: "Dialect") -> Packet:
    """PUBLISH to a client (5.0, 3.3)."""
    return _read_publish(fields, SERVER, "MQTT-2.2.1-4")


def _read_publish(fields: Fields, sender: int, packet_id_clause: str) -> Packet:
    flags = fields.flags
    qos = flags >> 1 & 3
    if qos == 3:
        raise MalformedPacket("QoS 3", "MQTT-3.3.1-4")
    if flags & 8 and qos == 0:
        raise MalformedPacket("DUP at QoS 0", "MQTT-3.3.1-2")
    topic_name = fields.optional_topic_name()
    packet_id = _packet_id(fields, packet_id_clause) if qos else 0
    properties = read_message_section(fields, PUBLISH, sender)
    canonical = properties.canonical
    topic_alias = properties.topic_alias
    if not topic_name and not topic_alias:
        raise ProtocolError("neither a topic name nor an alias", VIOLATION)
    message = Publish(topic_name, fields.rest(), qos, flags & 1 == 1, flags & 8 == 8, packet_id, canonical)
    if properties.is_text and sender == CLIENT and not is_utf8(message.payload):
        return WirePublish(message, topic_alias, properties.subscription_ids, True)
    if topic_alias or properties.subscription_ids or (canonical and canonical[0] == MESSAGE_EXPIRY_INTERVAL):
        return WirePublish(message, topic_alias, properties.subscription_ids)
    return message


def read_puback(fields: Fields, dialect: "Dialect") -> Packet:
    """PUBACK (5.0, 3.4)."""
    packet_id = _packet_id(fields, "MQTT-2.2.1-5")
    return Puback(packet_id, _acknowledgement(fields, PUBACK, "MQTT-3.4.2-1"))


def read_pubrec(fields: Fields, dialect: "Dialect") -> Packet:
    """PUBREC (5.0, 3.5)."""
    packet_id = _packet_id(fields, "MQTT-2.2.1-5")
    return Pubrec(packet_id, _acknowledgement(fields, PUBREC, "MQTT-3.5.2-1"))


def read_pubrel(fields: Fields, dialect: "Dialect") -> Packet:
    """PUBREL (5.0, 3.6)."""
    packet_id = _packet_id(fields, "MQTT-2.2.1-5")
    return Pubrel(packet_id, _acknowledgement(fields, PUBREL, "MQTT-3.6.2-1"))


def read_pubcomp(fields: Fields, dialect: "Dialect") -> Packet:
    """PUBCOMP (5.0, 3.7)."""
    packet_id = _packet_id(fields, "MQTT-2.2.1-5")
    return Pubcomp(packet_id, _acknowledgement(fields, PUBCOMP, "MQTT-3.7.2-1"))


def _acknowledgement(fields: Fields, packet_type: int, clause: str) -> int:
    """The reason code; without one it is 0, and properties may be left out as well (5.0, 3.4.2.1)."""
    if not fields.more():
        return ReasonCode.SUCCESS
    reason = _known(fields.byte(), CODES[packet_type], "an acknowledgement", clause)
    if fields.more():
        read_section(fields, packet_type, EITHER)
    fields.end()
    return reason


# -- subscriptions ---------------------------------------------------------------------------------------------------


def read_subscribe(fields: Fields, dialect: "Dialect") -> Packet:
    """SUBSCRIBE (5.0, 3.8)."""
    packet_id = _packet_id(fields, "MQTT-2.2.1-3")
    found = _Found(read_section(fields, SUBSCRIBE, CLIENT))
    subscription_id = found.number("subscription_identifier", 0)
    if not fields.more():
        raise ProtocolError("SUBSCRIBE without a topic filter", "MQTT-3.8.3-2")
    requests: list[SubscriptionRequest] = []
    while fields.more():
        topic_filter = _topic_filter(fields)
        options = fields.byte()
        if options & 0xC0:
            raise MalformedPacket(f"reserved subscription options {options:#04x}", "MQTT-3.8.3-5")
        if options & 3 == 3 or options & 0x30 == 0x30:
            raise ProtocolError(f"subscription options {options:#04x}", VIOLATION)
        no_local = options & 4 != 0
        if no_local and topic_filter.startswith(SHARE_PREFIX):
            raise ProtocolError("No Local on a shared subscription", "MQTT-3.8.3-4")
        requests.append(
            SubscriptionRequest(topic_filter, options & 3, no_local, options & 8 != 0, options >> 4, subscription_id)
        )
        check_filter_count(len(requests))
    return Subscribe(packet_id, requests)


def read_suback(fields: Fields, dialect: "Dialect") -> Packet:
    """SUBACK (5.0, 3.9)."""
    packet_id = _packet_id(fields, "MQTT-2.2.1-6")
    found = _Found(read_section(fields, SUBACK, SERVER))
    if not fields.more():
        raise ProtocolError("SUBACK without a reason code", "MQTT-3.8.4-6")
    reasons = _reasons(fields, SUBACK, "SUBACK", "MQTT-3.9.3-2")
    return Suback(packet_id, reasons, found.optional_text("reason_string") or "")


def read_unsubscribe(fields: Fields, dialect: "Dialect") -> Packet:
    """UNSUBSCRIBE (5.0, 3.10)."""
    packet_id = _packet_id(fields, "MQTT-2.2.1-3")
    read_section(fields, UNSUBSCRIBE, CLIENT)
    if not fields.more():
        raise ProtocolError("UNSUBSCRIBE without a topic filter", "MQTT-3.10.3-2")
    topic_filters: list[str] = []
    while fields.more():
        topic_filters.append(_topic_filter(fields))
        check_filter_count(len(topic_filters))
    return Unsubscribe(packet_id, topic_filters)


def read_unsuback(fields: Fields, dialect: "Dialect") -> Packet:
    """UNSUBACK (5.0, 3.11)."""
    packet_id = _packet_id(fields, "MQTT-2.2.1-6")
    read_section(fields, UNSUBACK, SERVER)
    if not fields.more():
        raise ProtocolError("UNSUBACK without a reason code", "MQTT-3.11.3-2")
    return Unsuback(packet_id, _reasons(fields, UNSUBACK, "UNSUBACK", "MQTT-3.11.3-2"))


def _topic_filter(fields: Fields) -> str:
    """A topic filter, or that of a shared subscription with its share name (5.0, 4.8.2)."""
    raw = fields.binary()
    if not raw.startswith(_SHARE_PREFIX_BYTES):
        return topic_filter_of(raw)
    text = text_of(raw)
    name, slash, topic_filter = text[len(SHARE_PREFIX) :].partition("/")
    if not name:
        raise ProtocolError("shared subscription without a name", "MQTT-4.8.2-1", ReasonCode.TOPIC_FILTER_INVALID)
    if "+" in name or "#" in name or not slash or not topic_filter:
        raise ProtocolError("shared subscription without a filter", "MQTT-4.8.2-2", ReasonCode.TOPIC_FILTER_INVALID)
    topic_filter_of(topic_filter.encode())
    return text


def _reasons(fields: Fields, packet_type: int, name: str, clause: str) -> list[int]:
    codes = CODES[packet_type]
    reasons: list[int] = []
    while fields.more():
        reasons.append(_known(fields.byte(), codes, name, clause))
    return reasons


# -- DISCONNECT and AUTH ---------------------------------------------------------------------------------------------


def read_disconnect_of_client(fields: Fields, dialect: "Dialect") -> Packet:
    """DISCONNECT to a server (5.0, 3.14)."""
    return _read_disconnect(fields, CLIENT, DISCONNECT_BY_CLIENT)


def read_disconnect_of_server(fields: Fields, dialect: "Dialect") -> Packet:
    """DISCONNECT to a client (5.0, 3.14)."""
    return _read_disconnect(fields, SERVER, DISCONNECT_BY_SERVER)


def _read_disconnect(fields: Fields, sender: int, codes: frozenset[int]) -> Packet:
    if not fields.more():
        return Disconnect()
    reason = _known(fields.byte(), codes, "DISCONNECT", "MQTT-3.14.2-1")
    found = _Found(read_section(fields, DISCONNECT, sender) if fields.more() else [])
    fields.end()
    return Disconnect(
        reason,
        found.number("session_expiry_interval", -1),
        found.optional_text("reason_string") or "",
        found.optional_text("server_reference") or "",
    )


def read_auth_of_client(fields: Fields, dialect: "Dialect") -> Packet:
    """AUTH to a server (5.0, 3.15)."""
    return _read_auth(fields, CLIENT, AUTH_BY_CLIENT)


def read_auth_of_server(fields: Fields, dialect: "Dialect") -> Packet:
    """AUTH to a client (5.0, 3.15)."""
    return _read_auth(fields, SERVER, AUTH_BY_SERVER)


def _read_auth(fields: Fields, sender: int, codes: frozenset[int]) -> Packet:
    if not fields.more():  # the short form of Success, which has no place for the method that is required
        raise ProtocolError("AUTH without a method", "MQTT-4.12.0-5")
    reason = _known(fields.byte(), codes, "AUTH", "MQTT-3.15.2-1")
    found = _Found(read_section(fields, AUTH, sender))
    fields.end()
    method = found.optional_text("authentication_method")
    if method is None:
        raise ProtocolError("AUTH without a method", "MQTT-4.12.0-5")
    data = found.optional_binary("authentication_data")
    return Auth(reason, method, data, found.optional_text("reason_string") or "")


# -- parts -----------------------------------------------------------------------------------------------------------


@final
class _Found:
    """Properties by name."""

    __slots__ = ("_properties",)

    def __init__(self, properties: Properties) -> None:
        self._properties: Final = properties

    def number(self, name: str, default: int) -> int:
        for found, value in self._properties:
            if found == name and isinstance(value, int):
                return value
        return default

    def optional_text(self, name: str) -> str | None:
        for found, value in self._properties:
            if found == name and isinstance(value, str):
                return value
        return None

    def optional_binary(self, name: str) -> bytes | None:
        for found, value in self._properties:
            if found == name and isinstance(value, bytes):
                return value
        return None

    def user_properties(self) -> tuple[tuple[str, str], ...]:
        return tuple([value for _, value in self._properties if isinstance(value, tuple)])


def _packet_id(fields: Fields, clause: str) -> int:
    packet_id = fields.integer()
    if packet_id == 0:
        raise ProtocolError("packet identifier 0", clause)
    return packet_id


def _known(reason: int, codes: frozenset[int], name: str, clause: str) -> int:
    if reason not in codes:
        kind = "failure" if reason >= FAILURE else "reason"
        raise ProtocolError(f"{kind} code {reason:#04x} in {name}", clause)
    return reason

"""What follows the fixed header, packet by packet (3.1 to 3.15): bytes to packets.

Owns: the meaning of each body. Where versions differ, the dialect's traits decide; a version without properties simply
has none to read.
Never: a stream or a remainder of one; a body handed in here is complete. Nor what depends on a connection, such as an
alias above the maximum: a PUBLISH with properties that belong to its connection is returned as a `WirePublish`, for the
decoder to resolve. Which of these readers a dialect has, and by which first byte, is its table in `dialect`.

Errors name statements by their ids in 3.1.1, which the dialect translates, and by those in 5.0 what only that has.
"""

from typing import TYPE_CHECKING, Final, final

from embermq.protocol.errors import MalformedPacket, ProtocolError
from embermq.protocol.mqtt.fields import (
    SHARE_PREFIX,
    VIOLATION,
    Fields,
    check_filter_count,
    text_of,
    topic_filter_of,
    topic_name_of,
)
from embermq.protocol.mqtt.properties import (
    CLIENT,
    EITHER,
    NO_MESSAGE_PROPERTIES,
    SERVER,
    WILL,
    MessageProperties,
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
    PUBLISH,
    SESSION_NEVER_EXPIRES,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
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

# Subscription options (5.0, 3.8.3.1).
_NO_LOCAL: Final = 0x04
_RETAIN_AS_PUBLISHED: Final = 0x08

# 3.1.1 CONNACK return code -> MQTT 5 reason (3.2.2.3).
REASON_OF_RETURN_CODE: Final[list[ReasonCode]] = [
    ReasonCode.SUCCESS,
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
    ReasonCode.SERVER_UNAVAILABLE,
    ReasonCode.BAD_USER_NAME_OR_PASSWORD,
    ReasonCode.NOT_AUTHORIZED,
]


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
    """CONNECT (3.1) behind its protocol name and level, which have decided the dialect."""
    flags = fields.byte()
    _check_connect_flags(flags, dialect)
    keep_alive_s = fields.integer()
    found = _properties(fields, dialect, CONNECT, CLIENT)
    method, data = found.authentication()
    client_id = fields.text()
    will = _read_will(fields, dialect, flags) if flags & 0x04 else None
    user_name: str | None = None
    password: bytes | None = None
    if flags & 0x80 and (not dialect.may_omit_credentials or fields.more()):
        user_name = fields.text()
    if flags & 0x40 and (not dialect.may_omit_credentials or fields.more()):
        password = fields.binary()
    fields.end()
    clean = flags & 0x02 != 0
    return Connect(
        client_id,
        clean,
        keep_alive_s,
        will,
        user_name,
        password,
        found.number("session_expiry_interval", 0 if clean or dialect.has_properties else SESSION_NEVER_EXPIRES),
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


def _check_connect_flags(flags: int, dialect: "Dialect") -> None:
    if flags & 0x01 and dialect.has_reserved_connect_flag:
        raise MalformedPacket("reserved CONNECT flag is set", "MQTT-3.1.2-3")
    if flags & 0x04:
        if flags & 0x18 == 0x18:
            raise MalformedPacket("will QoS 3", "MQTT-3.1.2-14")
    elif flags & 0x18:
        raise MalformedPacket("will QoS without a will", "MQTT-3.1.2-13")
    elif flags & 0x20:
        raise MalformedPacket("will retain without a will", "MQTT-3.1.2-15")
    if flags & 0xC0 == 0x40 and not dialect.has_properties:  # MQTT 5 allows it
        raise MalformedPacket("password without a user name", "MQTT-3.1.2-22")


def _read_will(fields: Fields, dialect: "Dialect", flags: int) -> Will:
    properties = _message_properties(fields, dialect, WILL)
    topic_name = topic_name_of(fields.binary(), "MQTT-4.7.0-1" if dialect.has_properties else "MQTT-3.3.2-2")
    payload = fields.binary()
    if properties.is_text and not is_utf8(payload):
        raise ProtocolError("the payload of the will is not UTF-8", "", ReasonCode.PAYLOAD_FORMAT_INVALID)
    return Will(topic_name, payload, flags >> 3 & 3, flags & 0x20 != 0, properties.will_delay_s, properties.canonical)


def read_connack(fields: Fields, dialect: "Dialect") -> Packet:
    """CONNACK (3.2). What a server does not have is not kept: this server has it, and its clients ask for all."""
    flags = fields.byte()
    if flags > 1:
        clause = "MQTT-3.2.2-1" if dialect.has_properties else VIOLATION
        raise MalformedPacket("reserved CONNACK flag is set", clause)
    reason = fields.byte()
    if dialect.has_properties:
        _check_reason(reason, CODES[CONNACK], "CONNACK", "MQTT-3.2.2-8")
    elif reason < len(REASON_OF_RETURN_CODE):
        reason = REASON_OF_RETURN_CODE[reason]
    else:
        raise MalformedPacket(f"CONNACK return code {reason}", VIOLATION)
    found = _properties(fields, dialect, CONNACK, SERVER)
    fields.end()
    if flags and reason:
        raise ProtocolError("a refusal with a session", "MQTT-3.2.2-4")
    method, data = found.authentication()
    return Connack(
        flags == 1,
        reason,
        found.text("assigned_client_identifier"),
        found.number("session_expiry_interval", -1),
        found.number("server_keep_alive", -1),
        found.text("response_information"),
        found.text("server_reference"),
        found.text("reason_string"),
        found.number("shared_subscription_available", 1) == 1,
        found.number("receive_maximum", 65_535),
        found.number("maximum_packet_size", 0),
        found.number("topic_alias_maximum", 0),
        method,
        data,
    )


# -- PUBLISH and its acknowledgements --------------------------------------------------------------------------------


def read_publish(fields: Fields, dialect: "Dialect") -> Packet:
    """PUBLISH (3.3)."""
    flags = fields.first & 15
    qos = flags >> 1 & 3
    if qos == 3:
        raise MalformedPacket("QoS 3", "MQTT-3.3.1-4")
    if flags & 8 and qos == 0:
        raise MalformedPacket("DUP at QoS 0", "MQTT-3.3.1-2")
    topic_name = fields.optional_topic_name() if dialect.has_properties else fields.topic_name()
    is_of_client = fields.sender == CLIENT
    packet_id = _packet_id(fields, dialect, "MQTT-2.2.1-3" if is_of_client else "MQTT-2.2.1-4") if qos else 0
    properties = _message_properties(fields, dialect, PUBLISH)
    canonical = properties.canonical
    topic_alias = properties.topic_alias
    if not topic_name and not topic_alias:
        raise ProtocolError("neither a topic name nor an alias", VIOLATION)
    message = Publish(topic_name, fields.rest(), qos, flags & 1 == 1, flags & 8 == 8, packet_id, canonical)
    if properties.is_text and is_of_client and not is_utf8(message.payload):
        return WirePublish(message, topic_alias, properties.subscription_ids, True)
    if topic_alias or properties.subscription_ids or (canonical and canonical[0] == MESSAGE_EXPIRY_INTERVAL):
        return WirePublish(message, topic_alias, properties.subscription_ids)
    return message


def read_acknowledgement(fields: Fields, dialect: "Dialect") -> Packet:
    """PUBACK, PUBREC, PUBREL or PUBCOMP (3.4 to 3.7).

    Without a reason code it is 0, and properties may be left out as well (5.0, 3.4.2.1).
    """
    packet_type = fields.first >> 4
    packet_id = _packet_id(fields, dialect, "MQTT-2.2.1-5")
    reason = 0
    if dialect.has_properties and fields.more():
        reason = fields.byte()
        _check_reason(reason, CODES[packet_type], "an acknowledgement", f"MQTT-3.{packet_type}.2-1")
        if fields.more():
            read_section(fields, packet_type, EITHER)
    fields.end()
    return Acknowledgement(packet_type, packet_id, 1, reason)


# -- subscriptions ---------------------------------------------------------------------------------------------------


def read_subscribe(fields: Fields, dialect: "Dialect") -> Packet:
    """SUBSCRIBE (3.8)."""
    packet_id = _packet_id(fields, dialect, "MQTT-2.2.1-3")
    subscription_id = _properties(fields, dialect, SUBSCRIBE, CLIENT).number("subscription_identifier", 0)
    if not fields.more():
        raise ProtocolError("SUBSCRIBE without a topic filter", "MQTT-3.8.3-3")
    requests: list[SubscriptionRequest] = []
    while fields.more():
        requests.append(_read_request(fields, dialect, subscription_id))
        check_filter_count(len(requests))
    return Subscribe(packet_id, requests)


def _read_request(fields: Fields, dialect: "Dialect", subscription_id: int) -> SubscriptionRequest:
    topic_filter = _topic_filter(fields, dialect)
    is_shared = topic_filter.startswith(SHARE_PREFIX)
    options = fields.byte()
    if not dialect.has_properties:
        if options > 2:
            raise MalformedPacket(f"requested QoS byte {options:#04x}", "MQTT-3.8.3-4")
        if dialect.is_bridge:
            options |= _RETAIN_AS_PUBLISHED if is_shared else _RETAIN_AS_PUBLISHED | _NO_LOCAL
    elif options & 0xC0:
        raise MalformedPacket(f"reserved subscription options {options:#04x}", "MQTT-3.8.3-5")
    elif options & 3 == 3 or options & 0x30 == 0x30:
        raise ProtocolError(f"subscription options {options:#04x}", VIOLATION)
    elif options & _NO_LOCAL and is_shared:
        raise ProtocolError("No Local on a shared subscription", "MQTT-3.8.3-4")
    no_local = options & _NO_LOCAL != 0
    retain_as_published = options & _RETAIN_AS_PUBLISHED != 0
    return SubscriptionRequest(topic_filter, options & 3, no_local, retain_as_published, options >> 4, subscription_id)


def read_suback(fields: Fields, dialect: "Dialect") -> Packet:
    """SUBACK (3.9)."""
    packet_id = _packet_id(fields, dialect, "MQTT-2.2.1-6")
    found = _properties(fields, dialect, SUBACK, SERVER)
    if not fields.more():
        raise ProtocolError("SUBACK without a reason code", "MQTT-3.8.4-5")
    reasons: list[int] = []
    while fields.more():
        reason = fields.byte()
        if dialect.has_properties:
            _check_reason(reason, CODES[SUBACK], "SUBACK", "MQTT-3.9.3-2")
        elif reason > 2 and reason != FAILURE:
            raise MalformedPacket(f"SUBACK return code {reason:#04x}", "MQTT-3.9.3-2")
        reasons.append(reason)
    return Suback(packet_id, reasons, found.text("reason_string"))


def read_unsubscribe(fields: Fields, dialect: "Dialect") -> Packet:
    """UNSUBSCRIBE (3.10)."""
    packet_id = _packet_id(fields, dialect, "MQTT-2.2.1-3")
    _properties(fields, dialect, UNSUBSCRIBE, CLIENT)
    if not fields.more():
        raise ProtocolError("UNSUBSCRIBE without a topic filter", "MQTT-3.10.3-2")
    topic_filters: list[str] = []
    while fields.more():
        topic_filters.append(_topic_filter(fields, dialect))
        check_filter_count(len(topic_filters))
    return Unsubscribe(packet_id, topic_filters)


def read_unsuback(fields: Fields, dialect: "Dialect") -> Packet:
    """UNSUBACK (3.11); before MQTT 5 it has no reason codes."""
    packet_id = _packet_id(fields, dialect, "MQTT-2.2.1-6")
    _properties(fields, dialect, UNSUBACK, SERVER)
    reasons: list[int] = []
    if not dialect.has_properties:
        fields.end()
    elif not fields.more():
        raise ProtocolError("UNSUBACK without a reason code", "MQTT-3.11.3-2")
    while fields.more():
        reason = fields.byte()
        _check_reason(reason, CODES[UNSUBACK], "UNSUBACK", "MQTT-3.11.3-2")
        reasons.append(reason)
    return Unsuback(packet_id, reasons)


def _topic_filter(fields: Fields, dialect: "Dialect") -> str:
    """A topic filter; in MQTT 5 that of a shared subscription must have a share name (5.0, 4.8.2)."""
    raw = fields.binary()
    if not dialect.has_properties or not raw.startswith(_SHARE_PREFIX_BYTES):
        return topic_filter_of(raw)
    text = text_of(raw)
    name, slash, topic_filter = text[len(SHARE_PREFIX) :].partition("/")
    if not name:
        raise ProtocolError("shared subscription without a name", "MQTT-4.8.2-1", ReasonCode.TOPIC_FILTER_INVALID)
    if "+" in name or "#" in name or not slash or not topic_filter:
        raise ProtocolError("shared subscription without a filter", "MQTT-4.8.2-2", ReasonCode.TOPIC_FILTER_INVALID)
    topic_filter_of(topic_filter.encode())
    return text


# -- PINGREQ, PINGRESP, DISCONNECT and AUTH --------------------------------------------------------------------------


def read_pingreq(fields: Fields, dialect: "Dialect") -> Packet:
    """PINGREQ (3.12)."""
    fields.end()
    return Pingreq()


def read_pingresp(fields: Fields, dialect: "Dialect") -> Packet:
    """PINGRESP (3.13)."""
    fields.end()
    return Pingresp()


def read_disconnect(fields: Fields, dialect: "Dialect") -> Packet:
    """DISCONNECT (3.14); reason and properties may be left out, and before MQTT 5 there are none."""
    if not dialect.has_properties:
        fields.end()
    if not fields.more():
        return Disconnect()
    reason = fields.byte()
    codes = DISCONNECT_BY_CLIENT if fields.sender == CLIENT else DISCONNECT_BY_SERVER
    _check_reason(reason, codes, "DISCONNECT", "MQTT-3.14.2-1")
    found = _Found(read_section(fields, DISCONNECT, fields.sender) if fields.more() else [])
    fields.end()
    expiry_s = found.number("session_expiry_interval", -1)
    return Disconnect(reason, expiry_s, found.text("reason_string"), found.text("server_reference"))


def read_auth(fields: Fields, dialect: "Dialect") -> Packet:
    """AUTH (5.0, 3.15)."""
    if not fields.more():  # the short form of Success, which has no place for the method that is required
        raise ProtocolError("AUTH without a method", "MQTT-4.12.0-5")
    reason = fields.byte()
    codes = AUTH_BY_CLIENT if fields.sender == CLIENT else AUTH_BY_SERVER
    _check_reason(reason, codes, "AUTH", "MQTT-3.15.2-1")
    found = _properties(fields, dialect, AUTH, fields.sender)
    fields.end()
    method = found.optional_text("authentication_method")
    if method is None:
        raise ProtocolError("AUTH without a method", "MQTT-4.12.0-5")
    return Auth(reason, method, found.optional_binary("authentication_data"), found.text("reason_string"))


# -- parts -----------------------------------------------------------------------------------------------------------


@final
class _Found:
    """Properties by name."""

    def __init__(self, properties: Properties) -> None:
        self._properties: Final = properties

    def number(self, name: str, default: int) -> int:
        for found, value in self._properties:
            if found == name and isinstance(value, int):
                return value
        return default

    def text(self, name: str) -> str:
        return self.optional_text(name) or ""

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

    def authentication(self) -> tuple[str | None, bytes | None]:
        """Method and data of CONNECT and CONNACK."""
        method = self.optional_text("authentication_method")
        data = self.optional_binary("authentication_data")
        if data is not None and method is None:
            raise ProtocolError("authentication data without a method", VIOLATION)
        return method, data

    def user_properties(self) -> tuple[tuple[str, str], ...]:
        return tuple([value for _, value in self._properties if isinstance(value, tuple)])


_NONE_FOUND: Final = _Found([])


def _properties(fields: Fields, dialect: "Dialect", packet_type: int, sender: int) -> _Found:
    return _Found(read_section(fields, packet_type, sender)) if dialect.has_properties else _NONE_FOUND


def _message_properties(fields: Fields, dialect: "Dialect", packet_type: int) -> MessageProperties:
    return read_message_section(fields, packet_type, fields.sender) if dialect.has_properties else NO_MESSAGE_PROPERTIES


def _packet_id(fields: Fields, dialect: "Dialect", clause: str) -> int:
    """A packet identifier; `clause` is what 5.0 says about that of this packet."""
    packet_id = fields.integer()
    if packet_id == 0:
        raise ProtocolError("packet identifier 0", clause if dialect.has_properties else "MQTT-2.3.1-1")
    return packet_id


def _check_reason(reason: int, codes: frozenset[int], name: str, clause: str) -> None:
    if reason not in codes:
        kind = "failure" if reason >= FAILURE else "reason"
        raise ProtocolError(f"{kind} code {reason:#04x} in {name}", clause)

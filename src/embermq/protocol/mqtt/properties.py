"""The properties of MQTT 5 (5.0, 2.2.2): one table, and how a property section is read and written.

Owns: which property may stand in which packet, from which side, how often, and with which values.
Never: what a property causes; that is decided where its packet is handled.

`PROPERTIES` is the table. A reader takes the packet type and the sender, and is strict (5.0, 2.2.2.2):
- an identifier that is unknown or not valid for the packet type: malformed packet (0x81);
- a property that may stand once and comes twice, that only the other side may send, or whose value is forbidden:
  protocol error (0x82), or the reason code that the standard names for the property.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, TypeAlias, final

from embermq.protocol.errors import MalformedPacket, ProtocolError
from embermq.protocol.mqtt.fields import VIOLATION, Fields, binary_field, text_field, variable_byte_integer
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
)
from embermq.protocol.reasons import ReasonCode

WILL: Final = 0
"""The will properties in the payload of CONNECT (5.0, 3.1.3.2): their own section, beside the packet types."""

# Who sends.
CLIENT: Final = 1
SERVER: Final = 2
EITHER: Final = CLIENT | SERVER

# Data types (5.0, 1.5).
BYTE: Final = 1
TWO_BYTE_INTEGER: Final = 2
FOUR_BYTE_INTEGER: Final = 4
VARIABLE_BYTE_INTEGER: Final = 5
TEXT: Final = 6
BINARY: Final = 7
TEXT_PAIR: Final = 8

Value: TypeAlias = int | str | bytes | tuple[str, str]
Properties: TypeAlias = list[tuple[str, Value]]
"""Names and values in the order of the wire; the order of user properties is kept (5.0, 3.3.2.3.7)."""

_ANY_VALUE: Final = 0xFFFF_FFFF


@final
@dataclass
class Property:
    """One row of the table.

    `senders`: packet type -> who may send it there (CLIENT, SERVER or EITHER). `many_in`: where it may stand more than
    once. `lowest` and `highest` bound a number.
    """

    identifier: int
    name: str
    data_type: int
    senders: dict[int, int]
    many_in: Collection[int] = ()
    lowest: int = 0
    highest: int = _ANY_VALUE


_MESSAGE: Final = {PUBLISH: EITHER, WILL: CLIENT}
_CONNECT: Final = {CONNECT: CLIENT}
_CONNACK: Final = {CONNACK: SERVER}
_HANDSHAKE: Final = {CONNECT: CLIENT, CONNACK: SERVER}
_AUTHENTICATION: Final = {CONNECT: CLIENT, CONNACK: SERVER, AUTH: EITHER}
_ANSWERS: Final = {
    CONNACK: SERVER,
    PUBACK: EITHER,
    PUBREC: EITHER,
    PUBREL: EITHER,
    PUBCOMP: EITHER,
    SUBACK: SERVER,
    UNSUBACK: SERVER,
    DISCONNECT: EITHER,
    AUTH: EITHER,
}
_ALL: Final = {**_ANSWERS, **_MESSAGE, CONNECT: CLIENT, SUBSCRIBE: CLIENT, UNSUBSCRIBE: CLIENT}

# Identifier, name, data type, where and from whom, and what is particular (5.0, table 2-4).
_ROWS: Final = [
    Property(0x01, "payload_format_indicator", BYTE, _MESSAGE, highest=1),
    Property(0x02, "message_expiry_interval", FOUR_BYTE_INTEGER, _MESSAGE),
    Property(0x03, "content_type", TEXT, _MESSAGE),
    Property(0x08, "response_topic", TEXT, _MESSAGE),
    Property(0x09, "correlation_data", BINARY, _MESSAGE),
    # A message can match several subscriptions of its receiver.
    Property(
        0x0B,
        "subscription_identifier",
        VARIABLE_BYTE_INTEGER,
        {PUBLISH: SERVER, SUBSCRIBE: CLIENT},
        many_in=(PUBLISH,),
        lowest=1,
    ),
    Property(
        0x11, "session_expiry_interval", FOUR_BYTE_INTEGER, {CONNECT: CLIENT, CONNACK: SERVER, DISCONNECT: CLIENT}
    ),
    Property(0x12, "assigned_client_identifier", TEXT, _CONNACK),
    Property(0x13, "server_keep_alive", TWO_BYTE_INTEGER, _CONNACK),
    Property(0x15, "authentication_method", TEXT, _AUTHENTICATION),
    Property(0x16, "authentication_data", BINARY, _AUTHENTICATION),
    Property(0x17, "request_problem_information", BYTE, _CONNECT, highest=1),
    Property(0x18, "will_delay_interval", FOUR_BYTE_INTEGER, {WILL: CLIENT}),
    Property(0x19, "request_response_information", BYTE, _CONNECT, highest=1),
    Property(0x1A, "response_information", TEXT, _CONNACK),
    Property(0x1C, "server_reference", TEXT, {CONNACK: SERVER, DISCONNECT: SERVER}),
    Property(0x1F, "reason_string", TEXT, _ANSWERS),
    Property(0x21, "receive_maximum", TWO_BYTE_INTEGER, _HANDSHAKE, lowest=1),
    Property(0x22, "topic_alias_maximum", TWO_BYTE_INTEGER, _HANDSHAKE),
    Property(0x23, "topic_alias", TWO_BYTE_INTEGER, {PUBLISH: EITHER}, lowest=1),
    Property(0x24, "maximum_qos", BYTE, _CONNACK, highest=1),
    Property(0x25, "retain_available", BYTE, _CONNACK, highest=1),
    Property(0x26, "user_property", TEXT_PAIR, _ALL, many_in=_ALL),
    Property(0x27, "maximum_packet_size", FOUR_BYTE_INTEGER, _HANDSHAKE, lowest=1),
    Property(0x28, "wildcard_subscription_available", BYTE, _CONNACK, highest=1),
    Property(0x29, "subscription_identifier_available", BYTE, _CONNACK, highest=1),
    Property(0x2A, "shared_subscription_available", BYTE, _CONNACK, highest=1),
]
PROPERTIES: Final[dict[int, Property]] = {row.identifier: row for row in _ROWS}
BY_NAME: Final[dict[str, Property]] = {row.name: row for row in _ROWS}

# The statement about a property from the wrong side, where there is one.
_SENDER_CLAUSES: Final = {
    (PUBLISH, "subscription_identifier"): "MQTT-3.3.4-6",
    (DISCONNECT, "session_expiry_interval"): "MQTT-3.14.2-2",
}


@final
class MessageProperties:
    """The properties of a PUBLISH or a will.

    `canonical` is what belongs to the message, as bytes: the Message Expiry Interval first, then the rest in the order
    in which it came. What belongs to one connection, or to the will, is not part of it: `topic_alias` (0: none),
    `subscription_ids`, `will_delay_s`. `is_text`: the Payload Format Indicator says that the payload is UTF-8.
    """

    def __init__(
        self,
        canonical: bytes = b"",
        topic_alias: int = 0,
        subscription_ids: tuple[int, ...] = (),
        will_delay_s: int = 0,
        is_text: bool = False,
    ) -> None:
        self.canonical: Final = canonical
        self.topic_alias: Final = topic_alias
        self.subscription_ids: Final = subscription_ids
        self.will_delay_s: Final = will_delay_s
        self.is_text: Final = is_text


NO_MESSAGE_PROPERTIES: Final = MessageProperties()


def read_message_section(fields: Fields, packet_type: int, sender: int) -> MessageProperties:
    """The property section of a PUBLISH, or of the will in a CONNECT."""
    section = _section(fields)
    if not section.more():
        return NO_MESSAGE_PROPERTIES
    starts: list[int] = []
    found = read_properties(section, packet_type, sender, starts)
    starts.append(section.position())
    expiry = b""
    rest: list[bytes] = []
    topic_alias = will_delay_s = 0
    is_text = False
    subscription_ids: list[int] = []
    for place, (name, value) in enumerate(found):
        if name == "topic_alias" and isinstance(value, int):
            topic_alias = value
        elif name == "subscription_identifier" and isinstance(value, int):
            subscription_ids.append(value)
        elif name == "will_delay_interval" and isinstance(value, int):
            will_delay_s = value
        elif name == "message_expiry_interval":
            expiry = section.between(starts[place], starts[place + 1])
        else:
            if name == "payload_format_indicator":
                is_text = value == 1
            rest.append(section.between(starts[place], starts[place + 1]))
    return MessageProperties(expiry + b"".join(rest), topic_alias, tuple(subscription_ids), will_delay_s, is_text)


def is_utf8(payload: bytes) -> bool:
    """Whether a payload is what a Payload Format Indicator of 1 says: UTF-8, any characters (5.0, 3.3.2.3.2)."""
    if payload.isascii():
        return True
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def read_section(fields: Fields, packet_type: int, sender: int) -> Properties:
    """A property length and that many bytes of properties."""
    return read_properties(_section(fields), packet_type, sender)


def _section(fields: Fields) -> Fields:
    length = fields.variable_byte_integer()
    section = fields.part(length)
    if length > fields.settings.properties_bytes_max:
        raise ProtocolError(f"{length} bytes of properties", VIOLATION, ReasonCode.QUOTA_EXCEEDED)
    return section


def read_properties(fields: Fields, packet_type: int, sender: int, starts: list[int] | None = None) -> Properties:
    """Properties up to the end of `fields`, as a record of the log holds them; `starts` gets where each begins."""
    found: Properties = []
    properties_max = fields.settings.properties_max
    while fields.more():
        if len(found) >= properties_max:
            raise ProtocolError(f"more than {properties_max} properties", VIOLATION, ReasonCode.QUOTA_EXCEEDED)
        if starts is not None:
            starts.append(fields.position())
        identifier = fields.variable_byte_integer()
        row = PROPERTIES.get(identifier)
        senders = row.senders.get(packet_type) if row is not None else None
        if row is None or senders is None:
            raise MalformedPacket(f"property {identifier:#04x} in packet type {packet_type}", VIOLATION)
        if not senders & sender:
            clause = _SENDER_CLAUSES.get((packet_type, row.name), VIOLATION)
            raise ProtocolError(f"property {row.name} from the wrong side", clause)
        if packet_type not in row.many_in and any(name == row.name for name, _ in found):
            raise ProtocolError(f"property {row.name} twice", VIOLATION)
        found.append((row.name, _read_value(fields, row)))
    return found


def _read_value(fields: Fields, row: Property) -> Value:
    data_type = row.data_type
    if data_type == TEXT:
        text = fields.text()
        if row.name == "response_topic" and ("+" in text or "#" in text):
            raise ProtocolError("wildcard in a response topic", "MQTT-3.3.2-14")
        return text
    if data_type == BINARY:
        return fields.binary()
    if data_type == TEXT_PAIR:
        name = fields.text()
        return name, fields.text()
    if data_type == VARIABLE_BYTE_INTEGER:
        number = fields.variable_byte_integer()
    elif data_type == FOUR_BYTE_INTEGER:
        number = fields.four_byte_integer()
    elif data_type == TWO_BYTE_INTEGER:
        number = fields.integer()
    else:
        number = fields.byte()
    if not row.lowest <= number <= row.highest:
        if row.name == "topic_alias":
            raise ProtocolError(f"topic alias {number}", "MQTT-3.3.2-8", ReasonCode.TOPIC_ALIAS_INVALID)
        raise ProtocolError(f"property {row.name} is {number}", VIOLATION)
    return number


def write_section(properties: Properties) -> bytes:
    """Properties with their length in front."""
    body = write_properties(properties)
    return variable_byte_integer(len(body)) + body


def write_properties(properties: Properties) -> bytes:
    """Properties without a length, as a record of the log holds them."""
    return b"".join(
        variable_byte_integer(BY_NAME[name].identifier) + _write_value(BY_NAME[name], value)
        for name, value in properties
    )


def _write_value(row: Property, value: Value) -> bytes:
    """Raises TypeError for a value that is not of the property's type, which is our own bug."""
    data_type = row.data_type
    if isinstance(value, int):
        if data_type == VARIABLE_BYTE_INTEGER:
            return variable_byte_integer(value)
        if data_type <= FOUR_BYTE_INTEGER:  # these types are named by their size
            return value.to_bytes(data_type, "big")
    elif isinstance(value, str):
        if data_type == TEXT:
            return text_field(value)
    elif isinstance(value, bytes):
        if data_type == BINARY:
            return binary_field(value)
    elif data_type == TEXT_PAIR:
        name, text = value
        return text_field(name) + text_field(text)
    raise TypeError(f"{type(value).__name__} is not a value of the property {row.name}")

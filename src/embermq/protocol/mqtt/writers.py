"""Packets to the bytes of their fixed header and body, packet by packet (3.1 to 3.15).

Owns: how each packet is written, and what of MQTT 5's vocabulary an older level can express. A property at its default
is left out.
Never: a decision. A packet that the dialect cannot express becomes no bytes at all; a reason that a packet of MQTT 5
does not have is replaced before (`reason_codes.sendable`).
A dialect's table maps the class of a packet to its writer here (`dialect`).
"""

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter, write_i32_be
from mypy_extensions import i32, i64

from embermq.protocol.mqtt.fields import (
    ONE_BYTE,
    VARIABLE_BYTE_INTEGER_MAX,
    binary_field,
    text_field,
    variable_byte_integer,
)
from embermq.protocol.mqtt.properties import Properties, Value, write_properties, write_section
from embermq.protocol.mqtt.readers import WirePublish
from embermq.protocol.packets import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Delivery,
    Disconnect,
    Packet,
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

ACKNOWLEDGEMENT_BYTES: Final = 4
"""PUBACK, PUBREC, PUBREL or PUBCOMP with reason 0."""
ACKNOWLEDGEMENT_HEADERS: Final = {PUBACK: b"\x40\x02", PUBREC: b"\x50\x02", PUBREL: b"\x62\x02", PUBCOMP: b"\x70\x02"}
"""Type of an acknowledgement -> what precedes its packet identifier, if nothing follows that."""


def _packet(first: int, body: bytes) -> bytes:
    return ONE_BYTE[first] + variable_byte_integer(len(body)) + body


def _section(dialect: "Dialect", values: list[tuple[str, Value | None, Value | None]]) -> bytes:
    """The property section of a packet from names, values and defaults; nothing if the dialect has no properties."""
    if not dialect.has_properties:
        return b""
    return write_section([(name, value) for name, value, default in values if value is not None and value != default])


# -- CONNECT and CONNACK ---------------------------------------------------------------------------------------------


def write_connect(packet: Packet, dialect: "Dialect") -> bytes:
    """CONNECT (3.1); it must be of this dialect."""
    assert isinstance(packet, Connect)
    if packet.protocol_level != dialect.level:
        raise ValueError(f"a CONNECT of level {packet.protocol_level} has no form in {dialect.name}")
    flags = 0x02 if packet.clean_start else 0
    payload = text_field(packet.client_id)
    will = packet.will
    if will is not None:
        flags |= 0x04 | will.qos << 3 | (0x20 if will.retain else 0)
        payload += _will_section(will, dialect) + text_field(will.topic_name) + binary_field(will.payload)
    if packet.user_name is not None:
        flags |= 0x80
        payload += text_field(packet.user_name)
    if packet.password is not None:
        flags |= 0x40
        payload += binary_field(packet.password)
    start = binary_field(dialect.protocol_name) + bytes((dialect.level, flags)) + packet.keep_alive_s.to_bytes(2, "big")
    return _packet(0x10, start + _connect_section(packet, dialect) + payload)


def _connect_section(packet: Connect, dialect: "Dialect") -> bytes:
    return _section(
        dialect,
        [
            ("session_expiry_interval", packet.session_expiry_s, 0),
            ("receive_maximum", packet.receive_maximum, 65_535),
            ("maximum_packet_size", packet.maximum_packet_size, 0),
            ("topic_alias_maximum", packet.topic_alias_maximum, 0),
            ("request_response_information", int(packet.request_response_information), 0),
            ("request_problem_information", int(packet.request_problem_information), 1),
            *[("user_property", pair, None) for pair in packet.user_properties],
            ("authentication_method", packet.authentication_method, None),
            ("authentication_data", packet.authentication_data, None),
        ],
    )


def _will_section(will: Will, dialect: "Dialect") -> bytes:
    if not dialect.has_properties:
        return b""
    section = write_properties([("will_delay_interval", will.delay_s)] if will.delay_s else []) + will.properties
    return variable_byte_integer(len(section)) + section


def write_connack(packet: Packet, dialect: "Dialect") -> bytes:
    """CONNACK (3.2); nothing for a reason that the dialect has no return code for."""
    assert isinstance(packet, Connack)
    code = packet.reason if dialect.has_properties else dialect.return_codes.get(packet.reason)
    if code is None:
        return b""
    # A refusal never has a session (MQTT-3.2.2-4; 5.0, MQTT-3.2.2-6).
    session_present = packet.session_present and code == 0 and dialect.has_session_present
    section = _section(
        dialect,
        [
            ("session_expiry_interval", packet.session_expiry_s, -1),
            ("receive_maximum", packet.receive_maximum, 65_535),
            ("maximum_packet_size", packet.maximum_packet_size, 0),
            ("assigned_client_identifier", packet.assigned_client_id, ""),
            ("topic_alias_maximum", packet.topic_alias_maximum, 0),
            ("reason_string", packet.reason_string, ""),
            ("shared_subscription_available", int(packet.has_shared_subscriptions), 1),
            ("server_keep_alive", packet.server_keep_alive_s, -1),
            ("response_information", packet.response_information, ""),
            ("server_reference", packet.server_reference, ""),
            ("authentication_method", packet.authentication_method, None),
            ("authentication_data", packet.authentication_data, None),
        ],
    )
    return _packet(0x20, ONE_BYTE[session_present] + ONE_BYTE[code] + section)


# -- PUBLISH ---------------------------------------------------------------------------------------------------------


def write_publish_head(writer: BytesWriter, topic: bytes, rest_bytes: int, qos: int, retain: bool, dup: bool) -> None:
    """A PUBLISH up to its packet identifier, which QoS 0 does not have; `rest_bytes` follow behind that."""
    writer.append(0x30 | qos << 1 | (1 if retain else 0) | (8 if dup else 0))
    length = 2 + len(topic) + rest_bytes + (2 if qos else 0)
    if length > VARIABLE_BYTE_INTEGER_MAX:
        raise ValueError(f"a PUBLISH of {length} bytes is too large")
    while length > 127:
        writer.append(length & 0x7F | 0x80)
        length >>= 7
    writer.append(length)
    writer.append(len(topic) >> 8)
    writer.append(len(topic) & 0xFF)
    writer.write(topic)


def publish_head(topic_name: str, rest_bytes: int, qos: int, retain: bool, dup: bool) -> bytes:
    """The same as bytes."""
    writer = BytesWriter()
    write_publish_head(writer, topic_name.encode(), rest_bytes, qos, retain, dup)
    return writer.getvalue()


def publish_start(delivery: Delivery, topic_name: str, payload: bytes, section: bytes) -> bytes:
    """The PUBLISH of a lone message up to its payload, with a property section where the dialect has one.

    `topic_name` is empty if an alias in the section stands for it.
    """
    rest_bytes = len(section) + len(payload)
    head = publish_head(topic_name, rest_bytes, delivery.qos, delivery.retain, delivery.dup)
    return head + delivery.packet_id.to_bytes(2, "big") + section if delivery.qos else head + section


def publish_section(topic_alias: int, subscription_ids: tuple[int, ...], canonical: bytes) -> bytes:
    """The property section of a PUBLISH: what is the connection's, and behind it what is the message's."""
    own: Properties = [("topic_alias", topic_alias)] if topic_alias else []
    for subscription_id in subscription_ids:
        own.append(("subscription_identifier", subscription_id))
    section = write_properties(own) + canonical if own else canonical
    return variable_byte_integer(len(section)) + section


def write_publish(packet: Packet, dialect: "Dialect") -> bytes:
    """PUBLISH (3.3), also with what concerns its connection."""
    wire = packet if isinstance(packet, WirePublish) else None
    message = packet if wire is None else wire.message
    assert isinstance(message, Publish)
    section = b""
    if wire is not None:
        section = publish_section(wire.topic_alias, wire.subscription_ids, message.properties)
    elif dialect.has_properties:
        section = publish_section(0, (), message.properties)
    lone = Delivery([message], message.qos, message.retain, message.dup, message.packet_id)
    return publish_start(lone, message.topic_name, message.payload, section) + message.payload


# -- acknowledgements ------------------------------------------------------------------------------------------------


def acknowledgement(packet_type: int, packet_id: int, reason: int = 0, reason_string: str = "") -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP (3.4 to 3.7) by the number of its type; reason 0 and no string are left out."""
    header = ACKNOWLEDGEMENT_HEADERS[packet_type]
    body = packet_id.to_bytes(2, "big")
    if not reason and not reason_string:
        return header + body
    body += ONE_BYTE[reason]
    if reason_string:
        body += write_section([("reason_string", reason_string)])
    return _packet(header[0], body)


def write_acknowledgement(packet: Packet, dialect: "Dialect") -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP (3.4 to 3.7); before MQTT 5 they cannot carry the reason."""
    assert isinstance(packet, Acknowledgement)
    reason = packet.reason if dialect.has_properties else 0
    if packet.reason >= ReasonCode.UNSPECIFIED_ERROR and packet.packet_type == PUBREL and not dialect.has_properties:
        return b""  # an unknown packet identifier, which can only be said by its reason
    if not reason:
        return acknowledgements(packet.packet_type, packet.packet_id, packet.count)
    ids = range(packet.packet_id, packet.packet_id + packet.count)
    return b"".join([acknowledgement(packet.packet_type, packet_id, reason) for packet_id in ids])


def acknowledgements(packet_type: int, packet_id: int, count: int) -> bytes:
    """Several of one type with reason 0, one behind the other; their packet identifiers count up."""
    writer = BytesWriter()
    word: i32 = int.from_bytes(ACKNOWLEDGEMENT_HEADERS[packet_type], "big") << 16 | packet_id
    left: i64 = count
    while left > 0:
        write_i32_be(writer, word)
        word += 1
        left -= 1
    return writer.getvalue()


# -- subscriptions ---------------------------------------------------------------------------------------------------


def write_subscribe(packet: Packet, dialect: "Dialect") -> bytes:
    """SUBSCRIBE (3.8); in MQTT 5 the identifier of the first request is that of all."""
    assert isinstance(packet, Subscribe)
    section = _section(dialect, [("subscription_identifier", packet.requests[0].subscription_id, 0)])
    filters = [text_field(request.topic_filter) + ONE_BYTE[_options(request, dialect)] for request in packet.requests]
    return _packet(0x82, packet.packet_id.to_bytes(2, "big") + section + b"".join(filters))


def _options(request: SubscriptionRequest, dialect: "Dialect") -> int:
    if not dialect.has_properties:
        return request.qos
    no_local = 4 if request.no_local else 0
    retain_as_published = 8 if request.retain_as_published else 0
    return request.qos | no_local | retain_as_published | request.retain_handling << 4


def write_suback(packet: Packet, dialect: "Dialect") -> bytes:
    """SUBACK (3.9)."""
    assert isinstance(packet, Suback)
    reasons = packet.reasons
    if not dialect.has_properties:
        reasons = [reason if reason <= 2 else dialect.suback_failure for reason in reasons]
    section = _section(dialect, [("reason_string", packet.reason_string, "")])
    return _packet(0x90, packet.packet_id.to_bytes(2, "big") + section + bytes(reasons))


def write_unsubscribe(packet: Packet, dialect: "Dialect") -> bytes:
    """UNSUBSCRIBE (3.10)."""
    assert isinstance(packet, Unsubscribe)
    topic_filters = [text_field(topic_filter) for topic_filter in packet.topic_filters]
    return _packet(0xA2, packet.packet_id.to_bytes(2, "big") + _section(dialect, []) + b"".join(topic_filters))


def write_unsuback(packet: Packet, dialect: "Dialect") -> bytes:
    """UNSUBACK (3.11); before MQTT 5 it has no reason codes."""
    assert isinstance(packet, Unsuback)
    reasons = bytes(packet.reasons) if dialect.has_properties else b""
    return _packet(0xB0, packet.packet_id.to_bytes(2, "big") + _section(dialect, []) + reasons)


# -- PINGREQ, PINGRESP, DISCONNECT and AUTH --------------------------------------------------------------------------


def write_pingreq(packet: Packet, dialect: "Dialect") -> bytes:
    """PINGREQ (3.12)."""
    return b"\xc0\x00"


def write_pingresp(packet: Packet, dialect: "Dialect") -> bytes:
    """PINGRESP (3.13)."""
    return b"\xd0\x00"


def write_disconnect(packet: Packet, dialect: "Dialect") -> bytes:
    """DISCONNECT (3.14); reason 0 and no properties are left out.

    Before MQTT 5 only a client sends it, and it carries no reason.
    """
    assert isinstance(packet, Disconnect)
    if not dialect.has_properties:
        return b"\xe0\x00" if packet.reason == ReasonCode.SUCCESS else b""
    section = _section(
        dialect,
        [
            ("session_expiry_interval", packet.session_expiry_s, -1),
            ("reason_string", packet.reason_string, ""),
            ("server_reference", packet.server_reference, ""),
        ],
    )
    has_properties = len(section) > 1
    body = ONE_BYTE[packet.reason] if packet.reason or has_properties else b""
    return _packet(0xE0, body + section if has_properties else body)


def write_auth(packet: Packet, dialect: "Dialect") -> bytes:
    """AUTH (5.0, 3.15)."""
    assert isinstance(packet, Auth)
    section = _section(
        dialect,
        [
            ("authentication_method", packet.method, None),
            ("authentication_data", packet.data, None),
            ("reason_string", packet.reason_string, ""),
        ],
    )
    return _packet(0xF0, ONE_BYTE[packet.reason] + section)

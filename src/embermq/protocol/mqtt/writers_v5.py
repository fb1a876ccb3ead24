"""Packets to bytes in MQTT 5 (5.0, 3.1 to 3.15).

Owns: how each packet that has properties or reason codes is written; a property at its default is left out. PINGREQ and
PINGRESP are those of `writers`.
Never: a decision. A reason that a packet does not have is replaced before (`reason_codes.sendable`).
"""

from typing import TYPE_CHECKING, Final

from embermq.protocol.mqtt.fields import ONE_BYTE, binary_field, text_field, variable_byte_integer
from embermq.protocol.mqtt.properties import Properties, write_properties, write_section
from embermq.protocol.mqtt.readers_v5 import WirePublish
from embermq.protocol.packets import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
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

if TYPE_CHECKING:
    from embermq.protocol.mqtt.dialect import Dialect

_ACKNOWLEDGEMENTS: Final = {PUBACK: 0x40, PUBREC: 0x50, PUBREL: 0x62, PUBCOMP: 0x70}
_NO_PROPERTIES: Final = b"\x00"


def _packet(first: int, body: bytes) -> bytes:
    return ONE_BYTE[first] + variable_byte_integer(len(body)) + body


# -- CONNECT and CONNACK ---------------------------------------------------------------------------------------------


def write_connect(packet: Packet, dialect: "Dialect") -> bytes:
    """CONNECT (5.0, 3.1)."""
    assert isinstance(packet, Connect)
    if packet.protocol_level != dialect.level:
        raise ValueError(f"a CONNECT of level {packet.protocol_level} has no form in {dialect.name}")
    flags = 0x02 if packet.clean_start else 0
    payload = text_field(packet.client_id)
    will = packet.will
    if will is not None:
        flags |= 0x04 | will.qos << 3 | (0x20 if will.retain else 0)
        payload += _will_section(will) + text_field(will.topic_name) + binary_field(will.payload)
    if packet.user_name is not None:
        flags |= 0x80
        payload += text_field(packet.user_name)
    if packet.password is not None:
        flags |= 0x40
        payload += binary_field(packet.password)
    start = binary_field(dialect.protocol_name) + bytes((dialect.level, flags)) + packet.keep_alive_s.to_bytes(2, "big")
    return _packet(0x10, start + write_section(_connect_properties(packet)) + payload)


def _connect_properties(packet: Connect) -> Properties:
    properties: Properties = []
    if packet.session_expiry_s:
        properties.append(("session_expiry_interval", packet.session_expiry_s))
    if packet.receive_maximum < 65_535:
        properties.append(("receive_maximum", packet.receive_maximum))
    if packet.maximum_packet_size:
        properties.append(("maximum_packet_size", packet.maximum_packet_size))
    if packet.topic_alias_maximum:
        properties.append(("topic_alias_maximum", packet.topic_alias_maximum))
    if packet.request_response_information:
        properties.append(("request_response_information", 1))
    if not packet.request_problem_information:
        properties.append(("request_problem_information", 0))
    for pair in packet.user_properties:
        properties.append(("user_property", pair))
    if packet.authentication_method is not None:
        properties.append(("authentication_method", packet.authentication_method))
    if packet.authentication_data is not None:
        properties.append(("authentication_data", packet.authentication_data))
    return properties


def _will_section(will: Will) -> bytes:
    delay: Properties = [("will_delay_interval", will.delay_s)] if will.delay_s else []
    section = write_properties(delay) + will.properties
    return variable_byte_integer(len(section)) + section


def write_connack(packet: Packet, dialect: "Dialect") -> bytes:
    """CONNACK (5.0, 3.2)."""
    assert isinstance(packet, Connack)
    # A refusal never has a session (5.0, MQTT-3.2.2-6).
    session_present = packet.session_present and packet.reason == 0
    return _packet(
        0x20, ONE_BYTE[session_present] + ONE_BYTE[packet.reason] + write_section(_connack_properties(packet))
    )


def _connack_properties(packet: Connack) -> Properties:
    properties: Properties = []
    if packet.session_expiry_s >= 0:
        properties.append(("session_expiry_interval", packet.session_expiry_s))
    if packet.receive_maximum < 65_535:
        properties.append(("receive_maximum", packet.receive_maximum))
    if packet.maximum_packet_size:
        properties.append(("maximum_packet_size", packet.maximum_packet_size))
    if packet.assigned_client_id:
        properties.append(("assigned_client_identifier", packet.assigned_client_id))
    if packet.topic_alias_maximum:
        properties.append(("topic_alias_maximum", packet.topic_alias_maximum))
    if packet.reason_string:
        properties.append(("reason_string", packet.reason_string))
    if not packet.has_shared_subscriptions:
        properties.append(("shared_subscription_available", 0))
    if packet.server_keep_alive_s >= 0:
        properties.append(("server_keep_alive", packet.server_keep_alive_s))
    if packet.response_information:
        properties.append(("response_information", packet.response_information))
    if packet.server_reference:
        properties.append(("server_reference", packet.server_reference))
    if packet.authentication_method is not None:
        properties.append(("authentication_method", packet.authentication_method))
    if packet.authentication_data is not None:
        properties.append(("authentication_data", packet.authentication_data))
    return properties


# -- PUBLISH and its acknowledgements --------------------------------------------------------------------------------


def publish_section(topic_alias: int, subscription_ids: tuple[int, ...], canonical: bytes) -> bytes:
    """The property section of a PUBLISH: what is the connection's, and behind it what is the message's."""
    section = b"\x23" + topic_alias.to_bytes(2, "big") if topic_alias else b""
    for subscription_id in subscription_ids:
        section += b"\x0b" + variable_byte_integer(subscription_id)
    section += canonical
    return variable_byte_integer(len(section)) + section


def publish_start(topic_name: str, rest_bytes: int, qos: int, retain: bool, dup: bool, packet_id: int) -> bytes:
    """A PUBLISH up to its property section; `rest_bytes` follow: that section and the payload."""
    topic_field = text_field(topic_name)
    if qos:
        topic_field += packet_id.to_bytes(2, "big")
    first = 0x30 | qos << 1 | (1 if retain else 0) | (8 if dup else 0)
    return ONE_BYTE[first] + variable_byte_integer(len(topic_field) + rest_bytes) + topic_field


def write_publish(packet: Packet, dialect: "Dialect") -> bytes:
    """PUBLISH (5.0, 3.3)."""
    assert isinstance(packet, Publish)
    return write_wire_publish(WirePublish(packet), dialect)


def write_wire_publish(packet: Packet, dialect: "Dialect") -> bytes:
    """PUBLISH with what concerns its connection."""
    assert isinstance(packet, WirePublish)
    message = packet.message
    section = publish_section(packet.topic_alias, packet.subscription_ids, message.properties)
    start = publish_start(
        message.topic_name,
        len(section) + len(message.payload),
        message.qos,
        message.retain,
        message.dup,
        message.packet_id,
    )
    return start + section + message.payload


def acknowledgement(packet_type: int, packet_id: int, reason: int, reason_string: str = "") -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP (5.0, 3.4 to 3.7); reason 0 and no properties are left out."""
    body = packet_id.to_bytes(2, "big")
    if reason or reason_string:
        body += ONE_BYTE[reason]
    if reason_string:
        body += write_section([("reason_string", reason_string)])
    return _packet(_ACKNOWLEDGEMENTS[packet_type], body)


def write_puback(packet: Packet, dialect: "Dialect") -> bytes:
    """PUBACK (5.0, 3.4)."""
    assert isinstance(packet, Puback)
    return acknowledgement(PUBACK, packet.packet_id, packet.reason)


def write_pubrec(packet: Packet, dialect: "Dialect") -> bytes:
    """PUBREC (5.0, 3.5)."""
    assert isinstance(packet, Pubrec)
    return acknowledgement(PUBREC, packet.packet_id, packet.reason)


def write_pubrel(packet: Packet, dialect: "Dialect") -> bytes:
    """PUBREL (5.0, 3.6)."""
    assert isinstance(packet, Pubrel)
    return acknowledgement(PUBREL, packet.packet_id, packet.reason)


def write_pubcomp(packet: Packet, dialect: "Dialect") -> bytes:
    """PUBCOMP (5.0, 3.7)."""
    assert isinstance(packet, Pubcomp)
    return acknowledgement(PUBCOMP, packet.packet_id, packet.reason)


# -- subscriptions ---------------------------------------------------------------------------------------------------


def write_subscribe(packet: Packet, dialect: "Dialect") -> bytes:
    """SUBSCRIBE (5.0, 3.8); the identifier of the first request is that of all."""
    assert isinstance(packet, Subscribe)
    subscription_id = packet.requests[0].subscription_id
    properties: Properties = [("subscription_identifier", subscription_id)] if subscription_id else []
    filters = [text_field(request.topic_filter) + ONE_BYTE[_options(request)] for request in packet.requests]
    return _packet(0x82, packet.packet_id.to_bytes(2, "big") + write_section(properties) + b"".join(filters))


def _options(request: SubscriptionRequest) -> int:
    no_local = 4 if request.no_local else 0
    retain_as_published = 8 if request.retain_as_published else 0
    return request.qos | no_local | retain_as_published | request.retain_handling << 4


def write_suback(packet: Packet, dialect: "Dialect") -> bytes:
    """SUBACK (5.0, 3.9)."""
    assert isinstance(packet, Suback)
    section = write_section([("reason_string", packet.reason_string)]) if packet.reason_string else _NO_PROPERTIES
    return _packet(0x90, packet.packet_id.to_bytes(2, "big") + section + bytes(packet.reasons))


def write_unsubscribe(packet: Packet, dialect: "Dialect") -> bytes:
    """UNSUBSCRIBE (5.0, 3.10)."""
    assert isinstance(packet, Unsubscribe)
    topic_filters = [text_field(topic_filter) for topic_filter in packet.topic_filters]
    return _packet(0xA2, packet.packet_id.to_bytes(2, "big") + _NO_PROPERTIES + b"".join(topic_filters))


def write_unsuback(packet: Packet, dialect: "Dialect") -> bytes:
    """UNSUBACK (5.0, 3.11)."""
    assert isinstance(packet, Unsuback)
    return _packet(0xB0, packet.packet_id.to_bytes(2, "big") + _NO_PROPERTIES + bytes(packet.reasons))


# -- DISCONNECT and AUTH ---------------------------------------------------------------------------------------------


def write_disconnect(packet: Packet, dialect: "Dialect") -> bytes:
    """DISCONNECT (5.0, 3.14); reason 0 and no properties are left out."""
    assert isinstance(packet, Disconnect)
    properties: Properties = []
    if packet.session_expiry_s >= 0:
        properties.append(("session_expiry_interval", packet.session_expiry_s))
    if packet.reason_string:
        properties.append(("reason_string", packet.reason_string))
    if packet.server_reference:
        properties.append(("server_reference", packet.server_reference))
    body = ONE_BYTE[packet.reason] if packet.reason or properties else b""
    if properties:
        body += write_section(properties)
    return _packet(0xE0, body)


def write_auth(packet: Packet, dialect: "Dialect") -> bytes:
    """AUTH (5.0, 3.15)."""
    assert isinstance(packet, Auth)
    properties: Properties = [("authentication_method", packet.method)]
    if packet.data is not None:
        properties.append(("authentication_data", packet.data))
    if packet.reason_string:
        properties.append(("reason_string", packet.reason_string))
    return _packet(0xF0, ONE_BYTE[packet.reason] + write_section(properties))

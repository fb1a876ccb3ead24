"""Packets to the bytes of their fixed header and body, packet by packet (3.1 to 3.14).

Owns: how each packet is written, and what of MQTT 5's vocabulary an older level can express.
Never: a decision. A packet that the dialect cannot express becomes no bytes at all.
A dialect's table maps the class of a packet to its writer here (`dialect`).
"""

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter, write_i16_be, write_i32_be
from mypy_extensions import i16, i32, i64

from embermq.protocol.mqtt.fields import ONE_BYTE, binary_field, text_field, variable_byte_integer
from embermq.protocol.packets import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
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
    Unsuback,
    Unsubscribe,
)
from embermq.protocol.reasons import ReasonCode

if TYPE_CHECKING:
    from embermq.protocol.mqtt.dialect import Dialect

ACKNOWLEDGEMENT_HEADERS: Final = {PUBACK: b"\x40\x02", PUBREC: b"\x50\x02", PUBREL: b"\x62\x02", PUBCOMP: b"\x70\x02"}


def publish_head(topic_name: str, rest_bytes: int, qos: int, retain: bool, dup: bool) -> bytes:
    """A PUBLISH up to its packet identifier, which QoS 0 does not have; `rest_bytes` follow behind that."""
    topic_field = text_field(topic_name)
    first = 0x30 | qos << 1
    if retain:
        first |= 1
    if dup:
        first |= 8
    length = len(topic_field) + rest_bytes + (2 if qos else 0)
    return ONE_BYTE[first] + variable_byte_integer(length) + topic_field


def write_publish_head(writer: BytesWriter, first: int, topic: bytes, rest_bytes: int) -> None:
    """A PUBLISH from its first byte to its topic name, behind which `rest_bytes` follow."""
    writer.append(first)
    length = 2 + len(topic) + rest_bytes
    while length > 127:
        writer.append(length & 0x7F | 0x80)
        length >>= 7
    writer.append(length)
    writer.append(len(topic) >> 8)
    writer.append(len(topic) & 0xFF)
    writer.write(topic)


def retained_publishes(
    topics: list[bytes], payloads: list[bytes], has_properties: bool, qos: int, packet_id: int
) -> bytes:
    """PUBLISH packets with RETAIN; at QoS 1 and 2 their packet identifiers count up from `packet_id`.

    `has_properties`: each has a property length, of 0 (MQTT 5).
    """
    writer = BytesWriter()
    extra = (1 if has_properties else 0) + (2 if qos else 0)
    first = 0x31 | qos << 1
    for row in range(len(topics)):
        payload = payloads[row]
        write_publish_head(writer, first, topics[row], extra + len(payload))
        if qos:
            write_i16_be(writer, i16(packet_id if packet_id < 0x8000 else packet_id - 0x10000))
            packet_id += 1
        if has_properties:
            writer.append(0)
        writer.write(payload)
    return writer.getvalue()


def write_publish(packet: Packet, dialect: "Dialect") -> bytes:
    """PUBLISH (3.3)."""
    assert isinstance(packet, Publish)
    payload = packet.payload
    head = publish_head(packet.topic_name, len(payload), packet.qos, packet.retain, packet.dup)
    if packet.qos:
        head += packet.packet_id.to_bytes(2, "big")
    return head + payload


def acknowledgement(packet_type: int, packet_id: int) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP (3.4 to 3.7) by the number of its type."""
    return ACKNOWLEDGEMENT_HEADERS[packet_type] + packet_id.to_bytes(2, "big")


def acknowledgements(packet_type: int, packet_ids: list[int] | range) -> bytes:
    """Several of one type, one behind the other."""
    if isinstance(packet_ids, range):
        return _counting_up(packet_type, packet_ids.start, len(packet_ids))
    writer = BytesWriter()
    head = (packet_type << 4 | (2 if packet_type == PUBREL else 0)) << 24 | 2 << 16
    for packet_id in packet_ids:
        write_i32_be(writer, head | packet_id)
    return writer.getvalue()


def _counting_up(packet_type: int, first_id: int, count: int) -> bytes:
    """Several of one type whose packet identifiers count up."""
    writer = BytesWriter()
    word: i32 = (packet_type << 4 | (2 if packet_type == PUBREL else 0)) << 24 | 2 << 16 | first_id
    left: i64 = count
    while left > 0:
        write_i32_be(writer, word)
        word += 1
        left -= 1
    return writer.getvalue()


def write_puback(packet: Packet, dialect: "Dialect") -> bytes:
    """PUBACK (3.4)."""
    assert isinstance(packet, Puback)
    return acknowledgement(PUBACK, packet.packet_id)


def write_pubrec(packet: Packet, dialect: "Dialect") -> bytes:
    """PUBREC (3.5)."""
    assert isinstance(packet, Pubrec)
    return acknowledgement(PUBREC, packet.packet_id)


def write_pubrel(packet: Packet, dialect: "Dialect") -> bytes:
    """PUBREL (3.6)."""
    assert isinstance(packet, Pubrel)
    if packet.reason >= ReasonCode.UNSPECIFIED_ERROR:
        return b""  # an unknown packet identifier: before MQTT 5 the server cannot say so
    return acknowledgement(PUBREL, packet.packet_id)


def write_pubcomp(packet: Packet, dialect: "Dialect") -> bytes:
    """PUBCOMP (3.7)."""
    assert isinstance(packet, Pubcomp)
    return acknowledgement(PUBCOMP, packet.packet_id)


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
        payload += text_field(will.topic_name) + binary_field(will.payload)
    if packet.user_name is not None:
        flags |= 0x80
        payload += text_field(packet.user_name)
    if packet.password is not None:
        flags |= 0x40
        payload += binary_field(packet.password)
    start = binary_field(dialect.protocol_name) + bytes((dialect.level, flags)) + packet.keep_alive_s.to_bytes(2, "big")
    return _packet(0x10, start + payload)


def write_connack(packet: Packet, dialect: "Dialect") -> bytes:
    """CONNACK (3.2); nothing for a reason that the dialect has no return code for."""
    assert isinstance(packet, Connack)
    return_code = dialect.return_codes.get(packet.reason)
    if return_code is None:
        return b""
    # A refusal never has a session (MQTT-3.2.2-4).
    session_present = packet.session_present and return_code == 0 and dialect.has_session_present
    return b"\x20\x02" + ONE_BYTE[session_present] + ONE_BYTE[return_code]


def write_subscribe(packet: Packet, dialect: "Dialect") -> bytes:
    """SUBSCRIBE (3.8)."""
    assert isinstance(packet, Subscribe)
    requests = [text_field(request.topic_filter) + ONE_BYTE[request.qos] for request in packet.requests]
    return _packet(0x82, packet.packet_id.to_bytes(2, "big") + b"".join(requests))


def write_suback(packet: Packet, dialect: "Dialect") -> bytes:
    """SUBACK (3.9)."""
    assert isinstance(packet, Suback)
    return_codes = bytes([reason if reason <= 2 else dialect.suback_failure for reason in packet.reasons])
    return _packet(0x90, packet.packet_id.to_bytes(2, "big") + return_codes)


def write_unsubscribe(packet: Packet, dialect: "Dialect") -> bytes:
    """UNSUBSCRIBE (3.10)."""
    assert isinstance(packet, Unsubscribe)
    topic_filters = [text_field(topic_filter) for topic_filter in packet.topic_filters]
    return _packet(0xA2, packet.packet_id.to_bytes(2, "big") + b"".join(topic_filters))


def write_unsuback(packet: Packet, dialect: "Dialect") -> bytes:
    """UNSUBACK (3.11)."""
    assert isinstance(packet, Unsuback)
    return _packet(0xB0, packet.packet_id.to_bytes(2, "big"))


def write_pingreq(packet: Packet, dialect: "Dialect") -> bytes:
    """PINGREQ (3.12)."""
    return b"\xc0\x00"


def write_pingresp(packet: Packet, dialect: "Dialect") -> bytes:
    """PINGRESP (3.13)."""
    return b"\xd0\x00"


def write_disconnect(packet: Packet, dialect: "Dialect") -> bytes:
    """DISCONNECT (3.14): before MQTT 5 only a client sends it, and it carries no reason."""
    assert isinstance(packet, Disconnect)
    return b"\xe0\x00" if packet.reason == ReasonCode.SUCCESS else b""


def _packet(first: int, body: bytes) -> bytes:
    return ONE_BYTE[first] + variable_byte_integer(len(body)) + body

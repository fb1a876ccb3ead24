"""Packets to the bytes of a 3.1 or 3.1.1 stream.

Owns: how each packet is written, and what of MQTT 5's vocabulary an older level can say.
Never: a decision. A packet that the level cannot express becomes no bytes at all.
Fan-out does not go through `encode`: QoS 0 is the same for every receiver, and a large payload is not copied.
"""

from typing import Final

from embermq.protocol.mqtt.fields import ONE_BYTE, binary_field, text_field, variable_byte_integer
from embermq.protocol.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
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

TOPIC_CACHE_MAX: Final = 16_384
# A longer name is encoded each time: long and rare must not fill the memory.
TOPIC_CACHE_CHARS_MAX: Final = 256

# MQTT 5 reason -> 3.1.1 CONNACK return code (3.2.2.3). A reason not listed closes the connection unanswered.
RETURN_CODE_311: Final[dict[int, int]] = {
    ReasonCode.SUCCESS: 0,
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION: 1,
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: 2,
    ReasonCode.SERVER_UNAVAILABLE: 3,
    ReasonCode.SERVER_BUSY: 3,
    ReasonCode.SERVER_SHUTTING_DOWN: 3,
    ReasonCode.QUOTA_EXCEEDED: 3,
    ReasonCode.BAD_USER_NAME_OR_PASSWORD: 4,
    ReasonCode.NOT_AUTHORIZED: 5,
}
SUBACK_FAILURE: Final = 0x80

_ACKNOWLEDGEMENT_HEADS: Final = {4: b"\x40\x02", 5: b"\x50\x02", 6: b"\x62\x02", 7: b"\x70\x02"}
_topic_fields: Final[dict[str, bytes]] = {}


def acknowledgement(packet_type: int, packet_id: int) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP as bytes (3.4 to 3.7), by the number of its type: 4 to 7."""
    return _ACKNOWLEDGEMENT_HEADS[packet_type] + packet_id.to_bytes(2, "big")


def publish_qos0(topic_name: str, payload: bytes, retain: bool) -> bytes:
    """A whole PUBLISH of QoS 0: the same bytes for every receiver."""
    topic_field = _topic_fields.get(topic_name)
    if topic_field is None:
        topic_field = _learn_topic_field(topic_name)
    length = len(topic_field) + len(payload)
    first = b"\x31" if retain else b"\x30"
    if length < 128:
        return first + ONE_BYTE[length] + topic_field + payload
    return first + variable_byte_integer(length) + topic_field + payload


def publish_head(topic_name: str, payload_bytes: int, qos: int, retain: bool, dup: bool) -> bytes:
    """A PUBLISH up to its packet identifier; at QoS 0, which has none, up to its payload."""
    topic_field = _topic_fields.get(topic_name)
    if topic_field is None:
        topic_field = _learn_topic_field(topic_name)
    first = 0x30 | qos << 1
    if retain:
        first |= 1
    if dup:
        first |= 8
    length = len(topic_field) + payload_bytes + (2 if qos else 0)
    if length < 128:
        return ONE_BYTE[first] + ONE_BYTE[length] + topic_field
    return ONE_BYTE[first] + variable_byte_integer(length) + topic_field


def encode(packet: Packet, level: int = 4) -> bytes:
    """Any packet as bytes for a peer that speaks `level`; b"" if the level has no such packet."""
    if isinstance(packet, Publish):
        payload = packet.payload
        head = publish_head(packet.topic_name, len(payload), packet.qos, packet.retain, packet.dup)
        if packet.qos:
            head += packet.packet_id.to_bytes(2, "big")
        return head + payload
    if isinstance(packet, Puback):
        return acknowledgement(4, packet.packet_id)
    if isinstance(packet, Pubrec):
        return acknowledgement(5, packet.packet_id)
    if isinstance(packet, Pubrel):
        return acknowledgement(6, packet.packet_id)
    if isinstance(packet, Pubcomp):
        return acknowledgement(7, packet.packet_id)
    if isinstance(packet, Connack):
        return _connack(packet, level)
    if isinstance(packet, Suback):
        return _suback(packet, level)
    if isinstance(packet, Unsuback):
        return _frame(0xB0, packet.packet_id.to_bytes(2, "big"))
    if isinstance(packet, Pingresp):
        return b"\xd0\x00"
    return _encode_from_client(packet)


def _encode_from_client(packet: Packet) -> bytes:
    if isinstance(packet, Connect):
        return _connect(packet)
    if isinstance(packet, Subscribe):
        requests = [text_field(request.topic_filter) + ONE_BYTE[request.qos] for request in packet.requests]
        return _frame(0x82, packet.packet_id.to_bytes(2, "big") + b"".join(requests))
    if isinstance(packet, Unsubscribe):
        topic_filters = [text_field(topic_filter) for topic_filter in packet.topic_filters]
        return _frame(0xA2, packet.packet_id.to_bytes(2, "big") + b"".join(topic_filters))
    if isinstance(packet, Pingreq):
        return b"\xc0\x00"
    if isinstance(packet, Disconnect):
        # Only a client says it before MQTT 5, and only to part in peace: a reason has no form here.
        return b"\xe0\x00" if packet.reason == ReasonCode.SUCCESS else b""
    raise TypeError(f"{type(packet).__name__} is no control packet")


def _connect(packet: Connect) -> bytes:
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
    protocol_name = b"MQIsdp" if packet.protocol_level == 3 else b"MQTT"
    start = binary_field(protocol_name) + bytes((packet.protocol_level, flags)) + packet.keep_alive_s.to_bytes(2, "big")
    return _frame(0x10, start + payload)


def _connack(packet: Connack, level: int) -> bytes:
    return_code = RETURN_CODE_311.get(packet.reason)
    if return_code is None:
        return b""
    # Session Present came with 3.1.1, and a refusal never has one (3.2.2-4).
    session_present = packet.session_present and return_code == 0 and level > 3
    return b"\x20\x02" + ONE_BYTE[session_present] + ONE_BYTE[return_code]


def _suback(packet: Suback, level: int) -> bytes:
    # 3.1 cannot refuse: all it can say is the lowest QoS.
    failure = SUBACK_FAILURE if level > 3 else 0
    return_codes = bytes([reason if reason <= 2 else failure for reason in packet.reasons])
    return _frame(0x90, packet.packet_id.to_bytes(2, "big") + return_codes)


def _frame(first: int, body: bytes) -> bytes:
    return ONE_BYTE[first] + variable_byte_integer(len(body)) + body


def _learn_topic_field(topic_name: str) -> bytes:
    topic_field = text_field(topic_name)
    if len(topic_name) <= TOPIC_CACHE_CHARS_MAX:
        if len(_topic_fields) >= TOPIC_CACHE_MAX:
            _topic_fields.clear()
        _topic_fields[topic_name] = topic_field
    return topic_field

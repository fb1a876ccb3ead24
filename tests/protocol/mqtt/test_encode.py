"""The stream encoder: every vector, what an older level cannot say, and the parts that fan-out joins."""

import pytest

from embermq.protocol.mqtt import encode as encoding
from embermq.protocol.mqtt.decode import Decoder
from embermq.protocol.mqtt.encode import (
    acknowledgement,
    encode,
    publish_head,
    publish_qos0,
)
from embermq.protocol.mqtt.fields import VARIABLE_BYTE_INTEGER_MAX, variable_byte_integer
from embermq.protocol.packets import Connack, Disconnect, Packet, Publish, Suback, Will
from embermq.protocol.reasons import ReasonCode
from support.clauses import v311
from support.vectors import V31, VECTORS, Vector


@pytest.mark.parametrize(
    "vector", [pytest.param(vector, id=vector.name, marks=[v311(*vector.proves)]) for vector in VECTORS]
)
def test_the_packet_becomes_its_bytes(vector: Vector) -> None:
    assert encode(vector.packet, vector.level) == vector.wire


@pytest.mark.parametrize(
    ("length", "wire"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (16_383, "ff7f"),
        (16_384, "808001"),
        (2_097_151, "ffff7f"),
        (2_097_152, "80808001"),
        (VARIABLE_BYTE_INTEGER_MAX, "ffffff7f"),
    ],
)
def test_a_remaining_length_takes_one_to_four_bytes(length: int, wire: str) -> None:
    assert variable_byte_integer(length) == bytes.fromhex(wire)


def test_a_longer_packet_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="268435456"):
        variable_byte_integer(VARIABLE_BYTE_INTEGER_MAX + 1)


@v311("MQTT-3.2.2-4")
def test_a_refusal_never_has_a_session() -> None:
    assert encode(Connack(True, ReasonCode.NOT_AUTHORIZED)) == bytes.fromhex("20 02 00 05")


def test_31_knows_no_session_present() -> None:
    assert encode(Connack(True), V31) == bytes.fromhex("20 02 00 00")


@pytest.mark.parametrize(
    ("reason", "return_code"),
    [
        (ReasonCode.SERVER_BUSY, 3),
        (ReasonCode.SERVER_SHUTTING_DOWN, 3),
        (ReasonCode.QUOTA_EXCEEDED, 3),
    ],
)
def test_a_younger_refusal_takes_the_nearest_return_code(reason: ReasonCode, return_code: int) -> None:
    assert encode(Connack(False, reason)) == bytes((0x20, 2, 0, return_code))


@v311("MQTT-3.2.2-6")
@pytest.mark.parametrize("reason", [ReasonCode.MALFORMED_PACKET, ReasonCode.PROTOCOL_ERROR])
def test_a_refusal_without_a_return_code_is_not_written(reason: ReasonCode) -> None:
    assert encode(Connack(False, reason)) == b""


@v311("MQTT-3.9.3-2", "MQTT-3.9.3-1")
def test_every_refused_filter_is_0x80_in_its_place() -> None:
    refused = [ReasonCode.NOT_AUTHORIZED, 1, ReasonCode.QUOTA_EXCEEDED, 0, ReasonCode.UNSPECIFIED_ERROR, 2]
    assert encode(Suback(5, refused)) == bytes.fromhex("90 08 0005 80 01 80 00 80 02")


def test_31_cannot_refuse_a_filter() -> None:
    assert encode(Suback(5, [ReasonCode.NOT_AUTHORIZED, 2]), V31) == bytes.fromhex("90 04 0005 00 02")


def test_a_disconnect_of_the_server_is_not_written() -> None:
    assert encode(Disconnect(ReasonCode.SESSION_TAKEN_OVER)) == b""


def test_what_is_no_control_packet_is_our_bug() -> None:
    with pytest.raises(TypeError, match="Will"):
        encode(Will("a", b""))


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("dup", [False, True])
@pytest.mark.parametrize("payload", [b"", b"hi", b"x" * 118, b"x" * 119, b"x" * 20_000])
def test_head_and_payload_make_the_packet(qos: int, retain: bool, dup: bool, payload: bytes) -> None:
    wire = publish_head("a/é", len(payload), qos, retain, dup) + (513).to_bytes(2, "big") + payload
    (packet,) = Decoder(1_000_000).feed(wire)
    assert packet == Publish("a/é", payload, qos, retain, dup, 513)
    assert wire == encode(packet)


@v311("MQTT-2.3.1-5", "MQTT-4.3.1-1")
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("payload", [b"", b"hi", b"x" * 121, b"x" * 122, b"x" * 123, b"x" * 20_000])
def test_qos0_is_one_piece(retain: bool, payload: bytes) -> None:
    packet: Packet = Publish("a/é", payload, 0, retain)
    assert publish_qos0("a/é", payload, retain) == encode(packet)
    assert publish_head("a/é", len(payload), 0, retain, False) + payload == encode(packet)


@pytest.mark.parametrize("packet_id", [1, 255, 256, 65_535])
def test_acknowledgements_name_their_packet(packet_id: int) -> None:
    tail = packet_id.to_bytes(2, "big")
    assert acknowledgement(4, packet_id) == b"\x40\x02" + tail
    assert acknowledgement(5, packet_id) == b"\x50\x02" + tail
    assert acknowledgement(6, packet_id) == b"\x62\x02" + tail
    assert acknowledgement(7, packet_id) == b"\x70\x02" + tail


def test_the_topic_cache_is_bounded() -> None:
    cache = encoding._topic_fields
    for number in range(encoding.TOPIC_CACHE_MAX + 10):
        name = f"bounded/{number:05}"
        assert publish_qos0(name, b"", False) == b"\x30\x0f\x00\x0d" + name.encode()
        assert len(cache) <= encoding.TOPIC_CACHE_MAX
    assert publish_qos0("bounded/00000", b"", False) == b"\x30\x0f\x00\x0dbounded/00000"
    long_name = "x" * (encoding.TOPIC_CACHE_CHARS_MAX + 1)
    assert len(publish_qos0(long_name, b"", False)) == len(long_name) + 5
    assert long_name not in cache

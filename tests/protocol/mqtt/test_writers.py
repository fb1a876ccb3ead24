"""The writers: what an older level cannot say, and the parts of a PUBLISH. `test_vectors.py` has every packet."""

import pytest

from embermq.protocol.mqtt.decode import Decoder
from embermq.protocol.mqtt.dialect import MQTT_31
from embermq.protocol.mqtt.encode import encode
from embermq.protocol.mqtt.writers import acknowledgement, acknowledgements, publish_head
from embermq.protocol.packets import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Publish,
    Suback,
)
from embermq.protocol.reasons import ReasonCode
from support.clauses import v311


@v311("MQTT-3.2.2-4")
def test_a_refusal_never_has_a_session() -> None:
    assert encode(Connack(True, ReasonCode.NOT_AUTHORIZED)) == bytes.fromhex("20 02 00 05")


def test_31_knows_no_session_present() -> None:
    assert encode(Connack(True), MQTT_31) == bytes.fromhex("20 02 00 00")


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
    assert encode(Suback(5, [ReasonCode.NOT_AUTHORIZED, 2]), MQTT_31) == bytes.fromhex("90 04 0005 00 02")


def test_a_disconnect_of_the_server_is_not_written() -> None:
    assert encode(Disconnect(ReasonCode.SESSION_TAKEN_OVER)) == b""


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
def test_qos0_has_no_packet_id(retain: bool, payload: bytes) -> None:
    packet: Packet = Publish("a/é", payload, 0, retain)
    assert publish_head("a/é", len(payload), 0, retain, False) + payload == encode(packet)


@pytest.mark.parametrize("packet_id", [1, 255, 256, 65_535])
def test_acknowledgements_name_their_packet(packet_id: int) -> None:
    tail = packet_id.to_bytes(2, "big")
    assert acknowledgement(PUBACK, packet_id) == b"\x40\x02" + tail
    assert acknowledgement(PUBREC, packet_id) == b"\x50\x02" + tail
    assert acknowledgement(PUBREL, packet_id) == b"\x62\x02" + tail
    assert acknowledgement(PUBCOMP, packet_id) == b"\x70\x02" + tail


def test_a_connect_of_another_level_is_our_bug() -> None:
    with pytest.raises(ValueError, match=r"level 4 has no form in MQTT 3\.1"):
        encode(Connect("c"), MQTT_31)


def test_acknowledgements_of_a_run_count_up() -> None:
    assert acknowledgements(PUBACK, 0x0102, 3) == bytes.fromhex("40020102 40020103 40020104")

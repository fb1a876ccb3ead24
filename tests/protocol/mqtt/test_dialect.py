"""The dialects: which packets each has, what differs, and which one a CONNECT asks for."""

import pytest

from embermq.protocol.errors import MalformedPacket, PeerError, ProtocolError
from embermq.protocol.mqtt.dialect import (
    CLIENT_ID_CHARACTERS_MAX,
    DIALECTS,
    LEVELS,
    MQTT_5,
    MQTT_31,
    MQTT_31_BRIDGE,
    MQTT_311,
    MQTT_311_BRIDGE,
    requested_dialect,
    unexpected,
)
from embermq.protocol.mqtt.fields import Fields, binary_field, text_field
from embermq.protocol.packets import Subscribe, SubscriptionRequest
from embermq.protocol.reasons import ReasonCode


def connect(name: bytes, level: int, rest: bytes = b"") -> Fields:
    data = binary_field(name) + bytes((level,)) + rest
    return Fields(data, 0, len(data))


def test_name_and_level_together_decide() -> None:
    assert requested_dialect(connect(b"MQTT", 4)) is MQTT_311
    assert requested_dialect(connect(b"MQIsdp", 3)) is MQTT_31
    assert requested_dialect(connect(b"MQTT", 5), (5,)) is MQTT_5
    assert {dialect.level for dialect in DIALECTS.values()} == {3, 4, 5}


def test_the_highest_bit_of_an_older_level_is_that_of_a_bridge() -> None:
    assert requested_dialect(connect(b"MQTT", 132)) is MQTT_311_BRIDGE
    assert requested_dialect(connect(b"MQIsdp", 131)) is MQTT_31_BRIDGE
    for name, level, levels in ((b"MQTT", 133, LEVELS), (b"MQTT", 131, LEVELS), (b"MQTT", 132, (3, 5))):
        with pytest.raises(ProtocolError):
            requested_dialect(connect(name, level), levels)


def test_subscriptions_of_a_bridge_keep_retain_and_do_not_return_what_it_published() -> None:
    body = b"\x00\x01" + text_field("a/#") + b"\x01" + text_field("$share/g/a") + b"\x02"
    for dialect, first in ((MQTT_311_BRIDGE, 0x82), (MQTT_31_BRIDGE, 0x82), (MQTT_31_BRIDGE, 0x8A)):
        packet = dialect.readers_from_client[first](Fields(body, 0, len(body)), dialect)
        assert packet == Subscribe(
            1,
            [
                SubscriptionRequest("a/#", 1, no_local=True, retain_as_published=True),
                SubscriptionRequest("$share/g/a", 2, retain_as_published=True),
            ],
        )


@pytest.mark.parametrize("name", [b"", b"mqtt", b"MQTT5", b"HTTP"])
def test_another_protocol_is_an_error(name: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        requested_dialect(connect(name, 4))
    assert caught.value.clause == "MQTT-3.1.2-1"
    assert caught.value.reason == ReasonCode.PROTOCOL_ERROR


HEAD = b"\x02\x00\x3c"  # flags and keep alive


@pytest.mark.parametrize(
    ("name", "level", "rest", "sentence"),
    [
        (
            b"MQTT",
            5,
            HEAD + b"\x00" + text_field("pump-7"),
            "MQTT 5 is not supported; connect with MQTT 3.1.1 (client 'pump-7')",
        ),
        (
            b"MQTT",
            5,
            HEAD + b"\x05\x11\x00\x00\x00\x0a" + text_field("with properties"),
            "MQTT 5 is not supported; connect with MQTT 3.1.1 (client 'with properties')",
        ),
        (b"MQTT", 5, HEAD + b"\x00" + text_field(""), "MQTT 5 is not supported; connect with MQTT 3.1.1 (client '')"),
        (b"MQTT", 5, b"", "MQTT 5 is not supported; connect with MQTT 3.1.1"),
        (b"MQTT", 5, HEAD + b"\xff\xff\xff\xff", "MQTT 5 is not supported; connect with MQTT 3.1.1"),
        (b"MQTT", 5, HEAD + b"\x00\x00\x01\xff", "MQTT 5 is not supported; connect with MQTT 3.1.1"),
        (b"MQTT", 3, HEAD + text_field("c"), "level 3 of MQTT is not supported; connect with MQTT 3.1.1 (client 'c')"),
        (
            b"MQIsdp",
            4,
            HEAD + text_field("c"),
            "level 4 of MQIsdp is not supported; connect with MQTT 3.1.1 (client 'c')",
        ),
        (b"MQTT", 134, HEAD + b"\x00", "level 134 of MQTT is not supported; connect with MQTT 3.1.1"),
    ],
)
def test_another_level_is_told_what_to_do(name: bytes, level: int, rest: bytes, sentence: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        requested_dialect(connect(name, level, rest))
    assert caught.value.detail == sentence
    assert caught.value.reason == ReasonCode.UNSUPPORTED_PROTOCOL_VERSION
    assert caught.value.clause == "MQTT-3.1.2-2"


def test_the_name_of_such_a_client_cannot_fill_or_forge_a_log_line() -> None:
    with pytest.raises(ProtocolError) as caught:
        requested_dialect(connect(b"MQTT", 5, HEAD + b"\x00" + text_field("a\nb" + "x" * 60_000)))
    assert "\n" not in caught.value.detail
    assert len(caught.value.detail) < CLIENT_ID_CHARACTERS_MAX + 80


def test_31_takes_a_packet_again_with_its_dup_flag() -> None:
    again = {0x6A, 0x8A, 0xAA}
    assert set(MQTT_31.readers_from_client) - set(MQTT_311.readers_from_client) == again
    for first in again:
        assert MQTT_31.readers_from_client[first] is MQTT_31.readers_from_client[first & 0xF7]


def test_what_31_cannot_say() -> None:
    assert (MQTT_31.suback_failure, MQTT_311.suback_failure) == (0, 0x80)
    assert (MQTT_31.has_session_present, MQTT_311.has_session_present) == (False, True)
    assert not MQTT_31.has_properties and not MQTT_311.has_properties


@pytest.mark.parametrize(
    ("first", "error", "clause"),
    [
        (0x00, MalformedPacket, "MQTT-4.8.0-1"),
        (0xF0, MalformedPacket, "MQTT-4.8.0-1"),
        (0x41, MalformedPacket, "MQTT-2.2.2-2"),
        (0x60, MalformedPacket, "MQTT-3.6.1-1"),
        (0x80, MalformedPacket, "MQTT-3.8.1-1"),
        (0xA0, MalformedPacket, "MQTT-3.10.1-1"),
        (0xE1, MalformedPacket, "MQTT-3.14.1-1"),
        (0x20, ProtocolError, "MQTT-4.8.0-1"),
    ],
)
def test_a_first_byte_without_a_reader_has_its_reason(first: int, error: type[PeerError], clause: str) -> None:
    assert first not in MQTT_311.readers_from_client
    found = unexpected(first, MQTT_311.readers_from_client)
    assert (type(found), found.clause) == (error, clause)

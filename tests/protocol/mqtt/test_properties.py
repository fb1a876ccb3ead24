"""The property table of MQTT 5 and its sections: both ways, and every way to be wrong with its reason code."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embermq.protocol.errors import MalformedPacket, PeerError, ProtocolError
from embermq.protocol.mqtt import properties as table
from embermq.protocol.mqtt.fields import Fields, variable_byte_integer
from embermq.protocol.mqtt.properties import (
    BINARY,
    BYTE,
    CLIENT,
    EITHER,
    FOUR_BYTE_INTEGER,
    PROPERTIES,
    SERVER,
    TEXT,
    TEXT_PAIR,
    VARIABLE_BYTE_INTEGER,
    WILL,
    Properties,
    Property,
    Value,
    read_message_section,
    read_properties,
    read_section,
    write_properties,
    write_section,
)
from embermq.protocol.mqtt.settings import PROPERTIES_BYTES_MAX, PROPERTIES_MAX, Mqtt5Settings
from embermq.protocol.packets import AUTH, CONNACK, CONNECT, DISCONNECT, PINGREQ, PUBACK, PUBLISH, SUBSCRIBE
from embermq.protocol.reasons import ReasonCode
from support.clauses import v5
from support.packet_strategies import texts

# The wire beside its meaning: packet type, sender, bytes without the length, properties.
SECTIONS: Final = [
    (PUBLISH, CLIENT, "", []),
    (PUBLISH, CLIENT, "01 01", [("payload_format_indicator", 1)]),
    (PUBLISH, CLIENT, "02 0000003c 23 0001", [("message_expiry_interval", 60), ("topic_alias", 1)]),
    (PUBLISH, CLIENT, "03 0004 6a736f6e", [("content_type", "json")]),
    (PUBLISH, CLIENT, "08 0003 722f74 09 0002 00ff", [("response_topic", "r/t"), ("correlation_data", b"\x00\xff")]),
    (PUBLISH, SERVER, "0b 01 0b 8001", [("subscription_identifier", 1), ("subscription_identifier", 128)]),
    (SUBSCRIBE, CLIENT, "0b ffffff7f", [("subscription_identifier", 268_435_455)]),
    (
        PUBACK,
        SERVER,
        "1f 0002 6e6f 26 0001 61 0001 62 26 0001 61 0000",
        [("reason_string", "no"), ("user_property", ("a", "b")), ("user_property", ("a", ""))],
    ),
    (
        CONNECT,
        CLIENT,
        "11 ffffffff 21 0014 27 00000400",
        [("session_expiry_interval", 0xFFFF_FFFF), ("receive_maximum", 20), ("maximum_packet_size", 1024)],
    ),
    (CONNACK, SERVER, "24 01 25 00", [("maximum_qos", 1), ("retain_available", 0)]),
    (WILL, CLIENT, "18 00000005", [("will_delay_interval", 5)]),
    (DISCONNECT, SERVER, "1c 0001 61", [("server_reference", "a")]),
    (AUTH, SERVER, "15 0001 6d 16 0000", [("authentication_method", "m"), ("authentication_data", b"")]),
]

MALFORMED: Final = ReasonCode.MALFORMED_PACKET
PROTOCOL: Final = ReasonCode.PROTOCOL_ERROR

# Packet type, sender, bytes, the reason code that the standard names, its statement.
BAD: Final = [
    pytest.param(PUBLISH, CLIENT, "04 00", MALFORMED, "MQTT-4.8.0-1", id="unknown"),
    pytest.param(PUBLISH, CLIENT, "ff01 00", MALFORMED, "MQTT-4.8.0-1", id="unknown-of-two-bytes"),
    pytest.param(PUBLISH, CLIENT, "21 0001", MALFORMED, "MQTT-4.8.0-1", id="not-in-this-packet"),
    pytest.param(CONNECT, CLIENT, "18 00000005", MALFORMED, "MQTT-4.8.0-1", id="will-property-in-connect"),
    pytest.param(PINGREQ, CLIENT, "26 0000 0000", MALFORMED, "MQTT-4.8.0-1", id="packet-without-properties"),
    pytest.param(PUBLISH, CLIENT, "01 00 01 00", PROTOCOL, "MQTT-4.8.0-1", id="twice"),
    pytest.param(
        PUBLISH, CLIENT, "03 0000 26 0000 0000 03 0000", PROTOCOL, "MQTT-4.8.0-1", id="twice-with-one-between"
    ),
    pytest.param(SUBSCRIBE, CLIENT, "0b 01 0b 02", PROTOCOL, "MQTT-4.8.0-1", id="subscription-id-twice-in-subscribe"),
    pytest.param(PUBLISH, CLIENT, "0b 01", PROTOCOL, "MQTT-3.3.4-6", id="subscription-id-of-a-client"),
    pytest.param(DISCONNECT, SERVER, "11 00000000", PROTOCOL, "MQTT-3.14.2-2", id="session-expiry-of-a-server"),
    pytest.param(PUBLISH, SERVER, "0b 00", PROTOCOL, "MQTT-4.8.0-1", id="subscription-id-0"),
    pytest.param(CONNECT, CLIENT, "21 0000", PROTOCOL, "MQTT-4.8.0-1", id="receive-maximum-0"),
    pytest.param(CONNECT, CLIENT, "27 00000000", PROTOCOL, "MQTT-4.8.0-1", id="maximum-packet-size-0"),
    pytest.param(CONNECT, CLIENT, "17 02", PROTOCOL, "MQTT-4.8.0-1", id="neither-0-nor-1"),
    pytest.param(PUBLISH, CLIENT, "23 0000", ReasonCode.TOPIC_ALIAS_INVALID, "MQTT-3.3.2-8", id="topic-alias-0"),
    pytest.param(PUBLISH, CLIENT, "01", MALFORMED, "MQTT-4.8.0-1", id="without-a-value"),
    pytest.param(PUBLISH, CLIENT, "02 000000", MALFORMED, "MQTT-4.8.0-1", id="number-cut"),
    pytest.param(PUBLISH, CLIENT, "03 0002 61", MALFORMED, "MQTT-4.8.0-1", id="text-cut"),
    pytest.param(PUBLISH, CLIENT, "26 0001 61", MALFORMED, "MQTT-4.8.0-1", id="pair-cut"),
    pytest.param(PUBLISH, CLIENT, "03 0001 ff", MALFORMED, "MQTT-1.5.3-1", id="not-utf8"),
    pytest.param(PUBLISH, SERVER, "0b 8100", MALFORMED, "MQTT-1.5.5-1", id="longer-number-than-needed"),
    pytest.param(PUBLISH, SERVER, "0b 8080808001", MALFORMED, "MQTT-4.8.0-1", id="number-of-five-bytes"),
]


def fields(data: bytes) -> Fields:
    return Fields(data, 0, len(data))


@pytest.mark.parametrize(("packet_type", "sender", "wire", "found"), SECTIONS)
def test_sections_are_read_and_written(packet_type: int, sender: int, wire: str, found: Properties) -> None:
    data = bytes.fromhex(wire)
    assert read_properties(fields(data), packet_type, sender) == found
    assert write_properties(found) == data
    section = variable_byte_integer(len(data)) + data
    assert write_section(found) == section
    rest = fields(section + b"\x07")
    assert read_section(rest, packet_type, sender) == found
    assert rest.byte() == 7


@pytest.mark.parametrize(("packet_type", "sender", "wire", "reason", "clause"), BAD)
def test_a_bad_section_has_its_reason(
    packet_type: int, sender: int, wire: str, reason: ReasonCode, clause: str
) -> None:
    with pytest.raises(PeerError) as caught:
        read_properties(fields(bytes.fromhex(wire)), packet_type, sender)
    assert (caught.value.reason, caught.value.clause) == (reason, clause)
    assert type(caught.value) is (MalformedPacket if reason == MALFORMED else ProtocolError)


def test_a_section_does_not_reach_beyond_its_packet() -> None:
    with pytest.raises(MalformedPacket, match="longer than its packet"):
        read_section(fields(b"\x03\x01\x00"), PUBLISH, CLIENT)


def test_a_section_ends_where_its_length_says() -> None:
    with pytest.raises(MalformedPacket):
        read_section(fields(b"\x01\x01\x00"), PUBLISH, CLIENT)


def test_the_table_is_that_of_the_standard() -> None:
    assert sorted(PROPERTIES) == [
        *(0x01, 0x02, 0x03, 0x08, 0x09, 0x0B, 0x11, 0x12, 0x13, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1A, 0x1C, 0x1F),
        *range(0x21, 0x2B),
    ]
    assert len(table.BY_NAME) == len(PROPERTIES)
    assert [row.name for row in PROPERTIES.values() if row.many_in] == ["subscription_identifier", "user_property"]
    in_publish = [row.identifier for row in PROPERTIES.values() if PUBLISH in row.senders]
    assert in_publish == [0x01, 0x02, 0x03, 0x08, 0x09, 0x0B, 0x23, 0x26]
    in_connect = [row.identifier for row in PROPERTIES.values() if CONNECT in row.senders]
    assert in_connect == [0x11, 0x15, 0x16, 0x17, 0x19, 0x21, 0x22, 0x26, 0x27]


@pytest.mark.parametrize("value", ["60", b"60", ("6", "0")])
def test_a_value_of_another_type_is_our_bug(value: Value) -> None:
    with pytest.raises(TypeError, match="message_expiry_interval"):
        write_properties([("message_expiry_interval", value)])


def values(row: Property) -> st.SearchStrategy[Value]:
    if row.data_type == TEXT:
        return texts.map(lambda text: text.replace("+", "").replace("#", ""))
    if row.data_type == BINARY:
        return st.binary(max_size=40)
    if row.data_type == TEXT_PAIR:
        return st.tuples(texts, texts)
    highest = {BYTE: 255, FOUR_BYTE_INTEGER: 0xFFFF_FFFF, VARIABLE_BYTE_INTEGER: 268_435_455}.get(row.data_type, 65_535)
    return st.integers(row.lowest, min(row.highest, highest))


@given(st.data())
def test_what_is_written_is_read(data: st.DataObject) -> None:
    packet_type = data.draw(st.sampled_from([CONNECT, CONNACK, PUBLISH, WILL, SUBSCRIBE, DISCONNECT, AUTH]))
    rows = [row for row in PROPERTIES.values() if packet_type in row.senders]
    chosen = data.draw(st.lists(st.sampled_from(rows), max_size=6, unique_by=lambda row: row.identifier))
    written: Properties = [(row.name, data.draw(values(row))) for row in chosen]
    assert read_section(fields(write_section(written)), packet_type, EITHER) == written


@given(st.binary(max_size=40), st.integers(0, 15))
def test_random_bytes_are_properties_or_an_error_of_the_peer(data: bytes, packet_type: int) -> None:
    try:
        found = read_properties(fields(data), packet_type, EITHER)
    except PeerError:
        return
    assert write_properties(found) == data


# -- the properties of a message -------------------------------------------------------------------------------------


@v5("MQTT-3.3.2-18", "MQTT-3.3.2-17")
def test_what_belongs_to_the_message_is_kept_with_its_expiry_first() -> None:
    user = "26 0001 62 0001 31", "26 0001 61 0001 32", "26 0001 62 0001 31"
    section = bytes.fromhex(f"01 01 {user[0]} 0b 05 23 0007 {user[1]} 02 0000003c {user[2]} 0b 06")
    found = read_message_section(fields(variable_byte_integer(len(section)) + section), PUBLISH, SERVER)
    assert found.canonical == bytes.fromhex(f"02 0000003c 01 01 {' '.join(user)}")
    assert (found.topic_alias, found.subscription_ids, found.will_delay_s) == (7, (5, 6), 0)


def test_the_delay_of_a_will_is_not_its_messages() -> None:
    found = read_message_section(fields(bytes.fromhex("07 18 00000005 01 00")), WILL, CLIENT)
    assert (found.canonical, found.will_delay_s) == (b"\x01\x00", 5)


def test_how_many_properties_and_bytes_a_section_may_have() -> None:
    one = bytes.fromhex("26 0000 0000")
    section = one * PROPERTIES_MAX
    assert len(read_section(fields(variable_byte_integer(len(section)) + section), PUBLISH, CLIENT)) == 1_024
    for too_much in (one * (PROPERTIES_MAX + 1), bytes(PROPERTIES_BYTES_MAX + 1)):
        with pytest.raises(ProtocolError) as caught:
            read_section(fields(variable_byte_integer(len(too_much)) + too_much), PUBLISH, CLIENT)
        assert caught.value.reason == ReasonCode.QUOTA_EXCEEDED


@pytest.mark.parametrize("bounds", [Mqtt5Settings(properties_max=2), Mqtt5Settings(properties_bytes_max=14)])
def test_the_bounds_of_a_section_can_be_lower(bounds: Mqtt5Settings) -> None:
    one = bytes.fromhex("26 0000 0000")
    for count, is_right in ((2, True), (3, False)):
        section = variable_byte_integer(len(one) * count) + one * count
        given = Fields(section, 0, len(section), 0, bounds)
        if is_right:
            assert len(read_section(given, PUBLISH, CLIENT)) == count
        else:
            with pytest.raises(ProtocolError) as caught:
                read_section(given, PUBLISH, CLIENT)
            assert caught.value.reason == ReasonCode.QUOTA_EXCEEDED

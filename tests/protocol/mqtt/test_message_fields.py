"""The properties of a message as fields, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embermq.protocol.mqtt.message_fields import FieldValue, message_fields, message_properties
from support.clauses import v5
from support.packet_strategies_v5 import message_properties as random_properties

ALL: dict[str, FieldValue] = {
    "expiry": 60,
    "payload_format": 1,
    "content_type": "text/plain",
    "response_topic": "r/1",
    "correlation_data": b"\x00\xff",
    "user_properties": [("b", "1"), ("a", ""), ("b", "1")],
}


@v5("MQTT-3.3.2-18")
def test_every_property_is_a_field_and_user_properties_keep_their_order() -> None:
    assert message_fields(message_properties(ALL)) == ALL
    assert message_fields(b"") == {}
    assert message_properties({}) == b""


@given(st.booleans().flatmap(random_properties))
def test_what_is_read_writes_the_same_bytes(properties: bytes) -> None:
    assert message_properties(message_fields(properties)) == properties


def test_the_expiry_comes_first_whatever_the_order() -> None:
    assert message_properties(message_fields(bytes.fromhex("03 0001 78 02 0000003c"))) == bytes.fromhex(
        "02 0000003c 03 0001 78"
    )


@pytest.mark.parametrize("properties", ["01", "01 02", "23 0001", "0b 01", "11 00000001", "08 0001 2b", "ff"])
def test_other_bytes_are_refused(properties: str) -> None:
    with pytest.raises(ValueError, match=r"property|packet|wildcard|field"):
        message_fields(bytes.fromhex(properties))


@pytest.mark.parametrize(
    "fields",
    [
        {"expiry": -1},
        {"expiry": 1 << 32},
        {"payload_format": 2},
        {"content_type": 5},
        {"content_type": "x" * 65_536},
        {"content_type": "\0"},
        {"response_topic": "a/#"},
        {"correlation_data": "text"},
        {"user_properties": [("a" * 65_536, "")]},
        {"content_type": "\ud800"},
    ],
)
def test_what_mqtt_cannot_express_is_refused(fields: dict[str, FieldValue]) -> None:
    with pytest.raises(ValueError):
        message_properties(fields)

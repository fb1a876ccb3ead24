"""Properties in JSON lines and for people, and what an import refuses."""

import json

import pytest

from embermq.commands.text.property_text import properties_from, properties_object, properties_text
from embermq.protocol.mqtt.message_fields import message_properties

PROPERTIES = message_properties(
    {
        "expiry": 60,
        "payload_format": 1,
        "content_type": "text/plain",
        "correlation_data": b"\xff",
        "user_properties": [("b", "1"), ("a", "2"), ("b", "1")],
    }
)


def test_an_object_has_all_fields_and_leads_back() -> None:
    shown = properties_object(PROPERTIES)
    assert shown == {
        "properties": {
            "message_expiry_interval": 60,
            "payload_format_indicator": 1,
            "content_type": "text/plain",
            "correlation_data_base64": "/w==",
            "user_properties": [("b", "1"), ("a", "2"), ("b", "1")],
        }
    }
    assert properties_from(json.loads(json.dumps(shown))) == PROPERTIES
    text = message_properties({"correlation_data": b"id-7"})
    assert properties_object(text) == {"properties": {"correlation_data": "id-7"}}
    assert properties_from(properties_object(text)) == text
    assert (properties_object(b""), properties_from({})) == ({}, b"")


def test_a_line_names_user_properties_by_their_names() -> None:
    assert properties_text(PROPERTIES) == (
        "[message_expiry_interval=60, payload_format_indicator=1, content_type=text/plain,"
        " correlation_data_base64=/w==, b=1, a=2, b=1]"
    )
    assert properties_text(b"") == ""


def test_the_bytes_of_an_older_export_are_read() -> None:
    assert properties_from({"properties_base64": "AQE="}) == b"\x01\x01"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"properties": []}, "expected properties as an object"),
        ({"properties": {"expires": 1}}, "expected properties among payload_format_indicator, .*, not expires"),
        ({"properties": {"message_expiry_interval": "1"}}, "expected message_expiry_interval as a number"),
        ({"properties": {"message_expiry_interval": True}}, "expected message_expiry_interval as a number"),
        ({"properties": {"content_type": 1}}, "expected content_type as a text"),
        ({"properties": {"correlation_data": 1}}, "expected correlation_data as a text"),
        ({"properties": {"correlation_data_base64": "?"}}, "expected correlation_data_base64 as base64"),
        ({"properties": {"user_properties": {"a": "b"}}}, "expected user_properties as a list"),
        ({"properties": {"user_properties": [["a"]]}}, "expected user_properties as a list"),
        ({"properties": {"payload_format_indicator": 2}}, "payload_format_indicator is 2"),
        ({"properties_base64": 5}, "expected properties_base64 as base64"),
        ({"properties_base64": "AQI="}, "payload_format_indicator is 2"),
    ],
)
def test_what_is_no_property_is_named(given: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        properties_from(given)

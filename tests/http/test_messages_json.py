"""Messages as JSON: what is written is what the models of the OpenAPI document say."""

from embermq.http.messages_json import PROPERTY_NAMES, InstantTexts, retained_json
from embermq.http.resources.message_models import MessageProperties, RetainedMessage
from embermq.instants import utc_text
from embermq.store.interface import Retained


def test_the_names_of_properties_are_those_of_the_model() -> None:
    assert tuple(MessageProperties.model_fields) == PROPERTY_NAMES


def test_a_line_is_an_object_of_the_model() -> None:
    properties = b"\x26\x00\x01k\x00\x01v\x03\x00\x01t"
    line = retained_json(Retained('a/"ü'.encode(), b"\x1b[31m\n", 1, properties, 7, 1_000_001, b"c\\", 2_000_000))
    assert line.isascii() and "\n" not in line
    found = RetainedMessage.model_validate_json(line)
    assert (found.topic, found.payload, found.payload_bytes, found.qos) == ('a/"ü', "\x1b[31m\n", 6, 1)
    assert (found.offset, found.client_id, found.timestamp) == (7, "c\\", "1970-01-01T00:00:01.000001Z")
    assert found.expires == "1970-01-01T00:00:02.000000Z"
    assert found.properties is not None and found.properties.content_type == "t"


def test_instants_are_written_as_everywhere() -> None:
    texts = InstantTexts()
    for instant_us in (0, 1, 999_999, 1_000_000, 1_700_000_000_000_010, 1_700_000_000_123_456, 5):
        assert texts.text(instant_us) == utc_text(instant_us)

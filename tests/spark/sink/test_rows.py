"""Rows as parts of packets: properties."""

import pyarrow as pa
import pytest

from embermq.protocol.mqtt.message_fields import message_fields
from embermq.spark.sink.publisher import PublishFailed
from embermq.spark.sink.rows import properties_of

PAIRS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())]))


def test_the_columns_of_properties_become_properties_of_each_row() -> None:
    batch = pa.record_batch(
        {
            "topic": ["a", "b"],
            "expiry": pa.array([60, None], pa.int64()),
            "payload_format": pa.array([1, None], pa.int8()),
            "content_type": ["text/plain", None],
            "correlation_data": ["id", None],
            "user_properties": pa.array(
                [[{"name": "b", "value": "1"}, {"name": "a", "value": ""}, {"name": "b", "value": "1"}], []], PAIRS
            ),
        }
    )
    found = properties_of(batch)
    assert found is not None
    assert message_fields(found[0]) == {
        "expiry": 60,
        "payload_format": 1,
        "content_type": "text/plain",
        "correlation_data": b"id",
        "user_properties": [("b", "1"), ("a", ""), ("b", "1")],
    }
    assert found[1] == b""


def test_rows_without_such_columns_have_none() -> None:
    assert properties_of(pa.record_batch({"topic": ["a"], "payload": [b"x"]})) is None


def test_a_row_that_mqtt_cannot_express_is_named() -> None:
    batch = pa.record_batch({"topic": ["a", "b"], "expiry": [1, -1]})
    with pytest.raises(PublishFailed, match="the row of topic 'b': no value of a property"):
        properties_of(batch)

"""The encoder, and bytes that are used again: equal to what the general path writes, bounded, and not copied."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embermq.protocol.mqtt import encode as encoding
from embermq.protocol.mqtt.dialect import MQTT_31, MQTT_311
from embermq.protocol.mqtt.encode import SHARED_BYTES_MIN, EncodedMessages, Encodings, encode, joined
from embermq.protocol.packets import Publish, Will
from support.packet_strategies import payloads, topic_names


def test_what_is_no_control_packet_is_our_bug() -> None:
    with pytest.raises(TypeError, match="Will"):
        encode(Will("a", b""))


@given(topic_names, payloads, st.integers(0, 2))
def test_kept_bytes_are_those_of_the_general_path(topic_name: str, payload: bytes, qos: int) -> None:
    message = Publish(topic_name, payload)
    general = EncodedMessages(MQTT_311, is_reused=False)
    kept = EncodedMessages(MQTT_311, is_reused=True)
    assert not general.keep(message)
    expected = encode(message)
    for _ in range(2):
        assert kept.keep(message)
        assert kept.message is message
        assert kept.forwarded == expected
        assert kept.head(topic_name, len(payload), qos) == general.head(topic_name, len(payload), qos)


def test_a_message_is_not_taken_for_the_one_before() -> None:
    kept = EncodedMessages(MQTT_311, is_reused=True)
    for payload in (b"one", b"two", b"three"):
        message = Publish("t", payload)
        assert kept.keep(message)
        assert kept.forwarded == encode(message)


def test_a_large_message_is_not_kept() -> None:
    kept = EncodedMessages(MQTT_311, is_reused=True)
    small, large = Publish("t", b"x"), Publish("t", bytes(SHARED_BYTES_MIN))
    assert kept.keep(small)
    assert not kept.keep(large)
    assert kept.message is small


def test_nothing_is_kept_if_nothing_is_to_be_reused() -> None:
    general = EncodedMessages(MQTT_311, is_reused=False)
    message = Publish("t", b"x")
    assert not general.keep(message)
    general.head("t", 1, 1)
    assert general.message is None
    assert general.heads == [[], [], []]


def test_each_dialect_has_its_own() -> None:
    encodings = Encodings()
    assert encodings.of(MQTT_31) is encodings.of(MQTT_31)
    assert encodings.of(MQTT_31) is not encodings.of(MQTT_311)


def test_the_heads_that_are_kept_are_bounded() -> None:
    kept = EncodedMessages(MQTT_311, is_reused=True)

    def count() -> int:
        return sum(len(by_topic_name) for by_length in kept.heads for by_topic_name in by_length)

    for number in range(encoding.HEADS_MAX + 10):
        kept.head(f"bounded/{number:05}", number % 100, number % 3)
        assert kept._heads_count <= encoding.HEADS_MAX
    assert count() == 10
    kept.head("x" * (encoding.HEADS_TOPIC_CHARS_MAX + 1), 1, 0)
    kept.head("x", encoding.HEADS_PAYLOAD_BYTES_MAX + 1, 0)
    assert count() == 10
    kept.head("x", encoding.HEADS_PAYLOAD_BYTES_MAX, 0)
    assert count() == 11


def test_what_is_small_is_joined_and_what_is_large_is_not_copied() -> None:
    large = bytes(SHARED_BYTES_MIN)
    assert joined([]) == []
    assert joined([b"a", b"b"]) == [b"ab"]
    writes = joined([b"a", b"b", large, large, b"c"])
    assert writes == [b"ab", large, large, b"c"]
    assert writes[1] is large and writes[2] is large

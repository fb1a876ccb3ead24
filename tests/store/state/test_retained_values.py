"""A retained message as bytes: its layout, and messages that stay packed."""

from random import Random

import pytest

from embermq.store.history.retained_messages import MIXED, Retained, RetainedPiece
from embermq.store.rows import LogRow
from embermq.store.state.retained_values import (
    HEAD,
    PackedMessages,
    PackedPiece,
    packed_row,
    unpack_retained,
    value_offset,
    value_size,
)


def test_a_message_is_packed_as_its_layout_says() -> None:
    row = LogRow(40, 1 << 50, 1, 0b110, b"a", b"payload", b"c" * 40_000, b"pp")
    head = HEAD.pack(40, 1 << 50, 9, 2, 40_000, 2)
    assert packed_row(row, expires_us=9) == head + b"c" * 40_000 + b"pp" + b"payload"


def test_a_packed_message_is_read_again() -> None:
    row = LogRow(40, 1 << 50, 1, 0b110, b"a/b", b"payload", b"client", b"pp")
    value = packed_row(row, expires_us=9)
    found = unpack_retained(b"a\x00b", value)
    assert (found.topic_name, found.payload, found.qos, found.properties) == ("a/b", b"payload", 2, b"pp")
    assert (found.offset, found.timestamp_us, found.client_id, found.expires_us) == (40, 1 << 50, "client", 9)
    assert value_offset(value) == 40
    assert value_size(b"a\x00b", value) == 3 + 7


def fields(message: Retained) -> tuple[object, ...]:
    names = ("topic", "payload", "qos", "properties", "offset", "timestamp_us", "sender", "expires_us")
    return tuple(getattr(message, name) for name in names)


def both_pieces(random: Random, count: int) -> tuple[PackedPiece, RetainedPiece]:
    """The same messages, packed and each as an object."""
    packed = PackedMessages()
    found = []
    qos_most, with_properties = random.choice([0, 1, 2]), random.random() < 0.3
    for number in range(count):
        topic = f"größe/{random.randrange(100)}/{number}".encode()
        qos = random.choice([qos_most, qos_most, random.randrange(3)])
        properties = random.choice([b"", b"", b"\x23\x00\x01"]) if with_properties else b""
        client_id = random.choice([b"", b"client"])
        row = LogRow(100 + number, 7, 1, qos, topic, bytes(number), client_id, properties)
        value = packed_row(row, random.choice([0, 1 << 51]))
        key = topic.replace(b"/", b"\0")
        packed.add(b"r" + key, value)
        found.append(unpack_retained(key, value))
    size_bytes = sum(len(message.topic) + len(message.payload) for message in found)
    return PackedPiece(packed, "z", False), RetainedPiece(found, "z", False, size_bytes, 0)


@pytest.mark.parametrize("seed", range(200))
def test_a_packed_piece_tells_the_same_as_one_of_objects(seed: int) -> None:
    random = Random(seed)
    count = random.randrange(6)
    packed, objects = both_pieces(random, count)
    assert (len(packed), packed.size_bytes, packed.seeks) == (count, objects.size_bytes, 0)
    assert (packed.after_topic_name, packed.done) == ("z", False)
    assert (packed.topics(), packed.payloads()) == (objects.topics(), objects.payloads())
    for granted in (0, 1, 2):
        for before_offset in (0, 100, 99 + count, 100 + count, 1_000):
            assert packed.sent_qos(before_offset, granted) == objects.sent_qos(before_offset, granted)
    for first in range(count + 1):
        for end in range(first, count + 1):
            assert packed.queued_bytes(first, end) == objects.queued_bytes(first, end)
    assert [fields(message) for message in packed.found()] == [fields(message) for message in objects.found()]


def test_messages_are_sent_in_one_way_if_all_have_a_qos_and_no_properties() -> None:
    def sent_qos(*messages: tuple[int, bytes], granted: int = 1, before_offset: int = 10) -> int:
        packed = PackedMessages()
        for offset, (qos, properties) in enumerate(messages):
            packed.add(b"rt", packed_row(LogRow(offset, 0, 1, qos, b"t", b"p", b"c", properties)))
        return PackedPiece(packed, "", True).sent_qos(before_offset, granted)

    assert sent_qos((1, b""), (2, b"")) == 1
    assert sent_qos((1, b""), (2, b""), granted=2) == MIXED
    assert sent_qos((0, b""), (1, b"")) == MIXED
    assert sent_qos((0, b""), (1, b""), granted=0) == 0
    assert sent_qos((1, b""), (1, b"\x01\x00")) == MIXED
    assert sent_qos((1, b""), (1, b""), before_offset=1) == MIXED
    assert sent_qos() == MIXED

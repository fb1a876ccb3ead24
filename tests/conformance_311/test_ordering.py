"""Message ordering (4.6)."""

import pytest

from support import wire
from support.clauses import v311
from support.wire import PUBACK, PUBCOMP, PUBREC, PUBREL, Join

ENGINES = ("memory", "directory")


@v311("MQTT-4.6.0-5", "MQTT-4.6.0-6")
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_messages_of_one_publisher_arrive_in_their_order(join: Join, space: str, published: int, granted: int) -> None:
    reader, writer = join(), join()
    reader.subscribe((f"{space}/a", granted))
    expected = [b"%d" % number for number in range(60)]
    for number, payload in enumerate(expected):
        writer.send(wire.publish(f"{space}/a", payload, qos=published, packet_id=number + 1))
    if published == 2:
        for number in range(
            len(expected)
        ):  # all of them first: a PUBCOMP may come before the PUBREC of another message
            writer.expect(PUBREC, number + 1)
        for number in range(len(expected)):
            writer.send(wire.ack(PUBREL, number + 1))
    assert [reader.receive_message().payload for _ in expected] == expected


@v311("MQTT-4.6.0-6")
def test_the_order_holds_for_each_of_many_publishers_at_once(join: Join, space: str) -> None:
    reader, writers = join(), [join() for _ in range(5)]
    reader.subscribe((f"{space}/a", 0))
    for number in range(50):
        for index, writer in enumerate(writers):
            writer.send(wire.publish(f"{space}/a", b"%d:%d" % (index, number)))
    received = [reader.receive_message().payload for _ in range(250)]
    for index in range(5):
        prefix = b"%d:" % index
        assert [p for p in received if p.startswith(prefix)] == [prefix + b"%d" % number for number in range(50)]


@v311("MQTT-4.6.0-2")
def test_pubacks_come_in_the_order_of_the_messages(join: Join, space: str) -> None:
    writer = join()
    ids = [7, 3, 65_535, 1, 500, 2]
    writer.send(*(wire.publish(f"{space}/a", b"x", qos=1, packet_id=packet_id) for packet_id in ids))
    assert [writer.expect(PUBACK).packet_id for _ in ids] == ids


@v311("MQTT-4.6.0-3")
def test_pubrecs_come_in_the_order_of_the_messages(join: Join, space: str) -> None:
    writer = join()
    ids = [7, 3, 65_535, 1, 500, 2]
    writer.send(*(wire.publish(f"{space}/a", b"x", qos=2, packet_id=packet_id) for packet_id in ids))
    assert [writer.expect(PUBREC).packet_id for _ in ids] == ids
    writer.send(*(wire.ack(PUBREL, packet_id) for packet_id in reversed(ids)))
    assert [writer.expect(PUBCOMP).packet_id for _ in ids] == ids[::-1]


@v311("MQTT-4.6.0-4")
def test_pubrels_come_in_the_order_of_the_pubrecs(join: Join, space: str) -> None:
    reader, writer = join(), join()
    reader.subscribe((f"{space}/a", 2))
    for number in range(6):
        writer.publish(f"{space}/a", b"%d" % number, qos=2)
    ids = [reader.receive_message(answer=False).packet_id for _ in range(6)]
    shuffled = [ids[index] for index in (3, 0, 5, 1, 4, 2)]
    reader.send(*(wire.ack(PUBREC, packet_id) for packet_id in shuffled))
    assert [reader.expect(PUBREL).packet_id for _ in ids] == shuffled


@v311("MQTT-4.6.0-1")
def test_open_messages_are_sent_again_in_their_first_order(join: Join, space: str) -> None:
    reader, writer = join("r", clean=False), join()
    reader.subscribe((f"{space}/a", 2))
    for number in range(8):
        writer.publish(f"{space}/a", b"%d" % number, qos=1 + number % 2)
    first = [reader.receive_message(answer=False) for _ in range(8)]
    for _ in range(2):
        reader.drop()
        reader = join("r", clean=False, session_present=1)
        again = [reader.receive_message(answer=False) for _ in range(8)]
        assert again == [message._replace(dup=True) for message in first]

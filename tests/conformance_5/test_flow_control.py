"""Flow control (4.9) and the order of messages (4.6)."""

import pytest

from support import wire, wire_v5
from support.clauses import v5
from support.wire import PUBACK, PUBCOMP, PUBREC, PUBREL
from support.wire_v5 import RECEIVE_MAXIMUM, Join

ENGINES = ("memory", "directory")


@v5("MQTT-4.9.0-1", "MQTT-4.9.0-2", "MQTT-3.3.4-9")
@pytest.mark.parametrize("maximum", [1, 3, 10])
@pytest.mark.parametrize("qos", [1, 2])
def test_no_more_messages_are_open_than_the_client_allows(join: Join, space: str, maximum: int, qos: int) -> None:
    reader, writer = join(properties=[(RECEIVE_MAXIMUM, maximum)]), join()
    reader.subscribe(f"{space}/a")
    for number in range(25):
        writer.publish(f"{space}/a", b"%d" % number, qos=qos)
    opened = reader.peek_messages()
    payloads: list[bytes] = []
    while opened:
        assert len(opened) == min(maximum, 25 - len(payloads))
        # Each exchange that is complete makes room for one message.
        message = opened.pop(0)
        payloads.append(message.payload)
        reader.answer(message)
        if len(payloads) + len(opened) < 25:
            opened.append(reader.receive_message(answer=False))
        reader.assert_silent()
    assert payloads == [b"%d" % number for number in range(25)]


@v5("MQTT-4.9.0-3", "MQTT-3.3.4-10")
def test_with_no_room_everything_else_goes_on(join: Join, space: str) -> None:
    client, other = join(properties=[(RECEIVE_MAXIMUM, 1)]), join()
    client.subscribe((f"{space}/a", 2))
    other.subscribe(f"{space}/from-client")
    for _ in range(3):
        other.publish(f"{space}/a", b"waits", qos=1)
    first = client.receive_message(answer=False)
    # QoS 0 to it, and every packet of it.
    other.publish(f"{space}/a", b"qos 0")
    assert client.receive_message().payload == b"qos 0"
    client.ping()
    assert client.subscribe((f"{space}/b", 1)) == [1]
    assert client.unsubscribe(f"{space}/b") == [0]
    for qos in (0, 1, 2):
        assert client.publish(f"{space}/from-client", b"%d" % qos, qos=qos) == 0
    assert [m.payload for m in other.take_messages()] == [b"0", b"1", b"2"]
    client.send(wire.ack(PUBREC, 999))
    assert client.expect_reason(PUBREL, 999) == 0x92
    client.send(wire.ack(PUBREL, 998))
    assert client.expect_reason(PUBCOMP, 998) == 0x92
    client.assert_silent()
    client.answer(first)
    assert client.receive_message().payload == b"waits"


@v5("MQTT-3.3.4-9", "MQTT-4.4.0-1")
def test_a_session_that_continues_with_less_room_is_sent_no_more_than_that(join: Join, space: str) -> None:
    reader, writer = join("r", clean=False, expiry=100), join()
    reader.subscribe((f"{space}/a", 1))
    for number in range(5):
        writer.publish(f"{space}/a", b"%d" % number, qos=1)
    first = [reader.receive_message(answer=False) for _ in range(5)]
    reader.drop()
    reader = join("r", clean=False, expiry=100, session_present=1, properties=[(RECEIVE_MAXIMUM, 2)])
    opened = reader.peek_messages()
    assert opened == [message._replace(dup=True) for message in first[:2]]
    for message in opened:
        reader.answer(message)
    assert [reader.receive_message(answer=False).payload for _ in range(2)] == [b"2", b"3"]
    reader.assert_silent()


# -- order -------------------------------------------------------------------------------------------------------------


@v5("MQTT-4.6.0-5", "MQTT-4.6.0-6")
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_messages_of_one_publisher_arrive_in_their_order(join: Join, space: str, published: int, granted: int) -> None:
    reader, writer = join(), join()
    reader.subscribe((f"{space}/a", granted))
    expected = [b"%d" % number for number in range(60)]
    for number, payload in enumerate(expected):
        writer.send(wire_v5.publish(f"{space}/a", payload, qos=published, packet_id=number + 1))
    if published == 2:
        for number in range(
            len(expected)
        ):  # all of them first: a PUBCOMP may come before the PUBREC of another message
            writer.expect(PUBREC, number + 1)
        for number in range(len(expected)):
            writer.send(wire.ack(PUBREL, number + 1))
    assert [reader.receive_message().payload for _ in expected] == expected


@v5("MQTT-4.6.0-6", "MQTT-4.6.0-5")
def test_the_order_holds_for_each_of_many_publishers_at_once(join: Join, space: str) -> None:
    reader, writers = join(), [join() for _ in range(5)]
    reader.subscribe((f"{space}/#", 1))
    for number in range(30):
        for index, writer in enumerate(writers):
            name = f"{space}/{number % 2}"
            writer.send(wire_v5.publish(name, b"%d:%d" % (index, number), qos=1, packet_id=number + 1))
    received = [reader.receive_message() for _ in range(150)]
    for index in range(5):
        for parity in (0, 1):
            prefix = b"%d:" % index
            mine = [m.payload for m in received if m.topic_name[-1] == str(parity) and m.payload.startswith(prefix)]
            assert mine == [prefix + b"%d" % number for number in range(parity, 30, 2)]


def test_answers_come_in_the_order_of_the_messages(join: Join, space: str) -> None:
    """The statements of 4.6 about the order of answers bind clients; our answers keep it all the same."""
    writer = join()
    ids = [7, 3, 65_535, 1, 500, 2]
    for qos, kind in ((1, PUBACK), (2, PUBREC)):
        writer.send(*(wire_v5.publish(f"{space}/a", b"x", qos=qos, packet_id=packet_id) for packet_id in ids))
        assert [writer.expect(kind).packet_id for _ in ids] == ids
    writer.send(*(wire.ack(PUBREL, packet_id) for packet_id in reversed(ids)))
    assert [writer.expect(PUBCOMP).packet_id for _ in ids] == ids[::-1]

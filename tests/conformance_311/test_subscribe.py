"""SUBSCRIBE and SUBACK (3.8, 3.9)."""

import pytest

from support import wire
from support.clauses import v311
from support.wire import SUBACK, Join, Message


@v311("MQTT-3.8.4-1", "MQTT-3.8.4-2", "MQTT-2.3.1-7")
@pytest.mark.parametrize("packet_id", [1, 0x1234, 65_535])
def test_a_subscribe_is_answered_with_a_suback_of_its_id(join: Join, space: str, packet_id: int) -> None:
    client = join()
    client.send(wire.subscribe(packet_id, (f"{space}/a", 0)))
    assert client.receive() == (SUBACK, 0, packet_id.to_bytes(2) + b"\x00")


@v311("MQTT-3.8.4-4", "MQTT-3.8.4-5", "MQTT-3.9.3-1", "MQTT-3.9.3-2")
def test_many_filters_get_one_suback_with_a_code_for_each_in_order(join: Join, space: str) -> None:
    client = join()
    asked = [(f"{space}/{number}", qos) for number, qos in enumerate((2, 0, 1, 1, 0, 2, 2))]
    client.send(wire.subscribe(9, *asked))
    assert client.expect(SUBACK, 9).body[2:] == bytes([2, 0, 1, 1, 0, 2, 2])
    publisher = join()
    for topic_name, qos in asked:
        publisher.publish(topic_name, b"hi", qos=2)
        assert client.receive_message()[:3] == (topic_name, b"hi", qos)
    client.assert_silent()


@v311("MQTT-3.8.4-4")
def test_filters_of_one_packet_work_as_if_they_came_in_a_row(join: Join, space: str) -> None:
    join().publish(f"{space}/a", b"state", retain=True, qos=1)
    client = join()
    # The same filter twice: the later one counts, and each sends the retained message.
    assert client.subscribe((f"{space}/a", 0), (f"{space}/a", 1)) == [0, 1]
    messages = client.take_messages()
    assert [(m.payload, m.retain) for m in messages] == [(b"state", True)] * 2
    join().publish(f"{space}/a", b"live", qos=1)
    assert [(m.payload, m.qos) for m in client.take_messages()] == [(b"live", 1)]


@v311("MQTT-3.9.3-2", "MQTT-3.8.4-5")
def test_a_granted_qos_is_never_above_the_one_asked_for(join: Join, space: str) -> None:
    client = join()
    for qos in (0, 1, 2):
        (code,) = client.subscribe((f"{space}/{qos}", qos))
        assert code in (0, 1, 2, 0x80)
        assert code == 0x80 or code <= qos


@v311("MQTT-3.8.3-2")
@pytest.mark.parametrize("topic_filter", ["#", "+", "{}/#", "{}/+", "+/a", "{}/+/#", "/+", "+/+/#"])
def test_wildcards_are_granted(join: Join, space: str, topic_filter: str) -> None:
    assert join().subscribe((topic_filter.format(space), 1)) == [1]


@v311("MQTT-3.8.4-3")
@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 0), (1, 1), (2, 1)])
def test_the_same_filter_again_replaces_the_subscription(join: Join, space: str, before: int, after: int) -> None:
    client = join()
    client.subscribe((f"{space}/a", before))
    client.subscribe((f"{space}/a", after))
    join().publish(f"{space}/a", b"hi", qos=2)
    assert [(m.payload, m.qos) for m in client.take_messages()] == [(b"hi", after)]
    client.unsubscribe(f"{space}/a")
    join().publish(f"{space}/a", b"hi", qos=2)
    client.assert_silent()


@v311("MQTT-3.8.4-3")
def test_replacing_a_subscription_sends_retained_messages_again(join: Join, space: str) -> None:
    join().publish(f"{space}/a", b"state", qos=1, retain=True)
    client = join()
    for _ in range(2):
        client.subscribe((f"{space}/+", 0))
        assert client.take_messages() == [Message(f"{space}/a", b"state", 0, retain=True)]


@v311("MQTT-3.8.4-3")
def test_replacing_a_subscription_interrupts_no_flow(join: Join, space: str) -> None:
    client, publisher = join(), join()
    client.subscribe((f"{space}/a", 1))
    for number in range(50):
        publisher.send(wire.publish(f"{space}/a", b"%d" % number, qos=1, packet_id=number + 1))
        if number % 5 == 0:
            client.send(wire.subscribe(1000 + number, (f"{space}/a", 1)))
    payloads: list[bytes] = []
    while len(payloads) < 50:
        received = client.receive()
        if received.kind == wire.PUBLISH:
            message = wire.message_of(received)
            client.answer(message)
            payloads.append(message.payload)
    assert payloads == [b"%d" % number for number in range(50)]


@v311("MQTT-3.8.3-1", "MQTT-3.8.3-3", "MQTT-4.8.0-1")
@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(wire.subscribe(1), id="no-filter"),
        pytest.param(wire.subscribe(1, (b"\xff", 0)), id="not-utf8"),
        pytest.param(wire.subscribe(1, ("a", 0), (b"b\xed\xbf\xbf", 0)), id="second-filter-not-utf8"),
        pytest.param(wire.packet(wire.SUBSCRIBE, 2, b"\x00\x01" + wire.string("a")), id="no-qos"),
    ],
)
def test_a_subscribe_without_a_proper_filter_ends_the_connection(join: Join, bad: bytes) -> None:
    client = join()
    client.send(bad)
    client.assert_closed()


@v311("MQTT-3.8.3-4")
@pytest.mark.parametrize("options", [3, 4, 8, 0x10, 0x20, 0x40, 0x80, 0xFF])
def test_reserved_bits_beside_the_qos_end_the_connection(join: Join, space: str, options: int) -> None:
    client = join()
    client.send(wire.subscribe(1, (f"{space}/a", options)))
    client.assert_closed()


@v311("MQTT-3.8.1-1", "MQTT-2.2.2-2")
@pytest.mark.parametrize("flags", [0, 1, 3, 4, 6, 8, 10, 15])
def test_a_subscribe_with_other_flags_ends_the_connection(join: Join, space: str, flags: int) -> None:
    client = join()
    client.send(wire.packet(wire.SUBSCRIBE, flags, wire.subscribe(1, (f"{space}/a", 0))[2:]))
    client.assert_closed()


@v311("MQTT-3.8.3-4", "MQTT-3.8.4-4")
def test_a_malformed_filter_spoils_the_whole_packet(join: Join, space: str) -> None:
    client = join("c", clean=False)
    client.send(wire.subscribe(1, (f"{space}/a", 1), (f"{space}/b", 3)))
    client.assert_closed()
    join().publish(f"{space}/a", b"hi", qos=1)
    join("c", clean=False, session_present=1).assert_silent()


@v311("MQTT-3.8.4-5")
def test_a_shared_subscription_without_a_filter_is_refused_and_one_with_a_filter_is_served(
    join: Join, space: str
) -> None:
    client = join()
    assert client.subscribe(("$share/group", 1), (f"$share/group/{space}", 1)) == [0x80, 1]
    join().publish(space, b"hi", qos=1)
    assert client.receive_message().payload == b"hi"

"""UNSUBSCRIBE and UNSUBACK (3.10, 3.11)."""

import pytest

from support import wire
from support.clauses import v311
from support.wire import PUBACK, PUBCOMP, PUBREC, PUBREL, UNSUBACK, Join


@v311("MQTT-3.10.4-4", "MQTT-2.3.1-7")
@pytest.mark.parametrize("packet_id", [1, 0x1234, 65_535])
def test_an_unsubscribe_is_answered_with_an_unsuback_of_its_id(join: Join, space: str, packet_id: int) -> None:
    client = join()
    client.subscribe(f"{space}/a")
    client.send(wire.unsubscribe(packet_id, f"{space}/a"))
    assert client.receive() == (UNSUBACK, 0, packet_id.to_bytes(2))


@v311("MQTT-3.10.4-5")
def test_an_unsubscribe_that_ends_nothing_is_answered_too(join: Join, space: str) -> None:
    client = join()
    client.send(wire.unsubscribe(7, f"{space}/never", f"{space}/#"))
    client.expect(UNSUBACK, 7)


@v311("MQTT-3.10.4-2")
def test_an_ended_subscription_gets_no_new_messages(join: Join, space: str) -> None:
    client, publisher = join(), join()
    client.subscribe((f"{space}/a", 1))
    publisher.publish(f"{space}/a", b"before", qos=1)
    assert client.receive_message().payload == b"before"
    client.unsubscribe(f"{space}/a")
    publisher.publish(f"{space}/a", b"after", qos=1)
    client.assert_silent()


@v311("MQTT-3.10.4-1")
@pytest.mark.parametrize("other", ["A", "a/", "/a", "a/#", "+", "#", "a ", "aa"])
def test_only_the_very_same_filter_is_ended(join: Join, space: str, other: str) -> None:
    client, publisher = join(), join()
    client.subscribe(f"{space}/a")
    client.unsubscribe(f"{space}/{other}")
    publisher.publish(f"{space}/a", b"still here")
    assert client.receive_message().payload == b"still here"


@v311("MQTT-3.10.4-1")
@pytest.mark.parametrize("topic_filter", ["+", "#", "a/#", "+/#", "a/+", "/", "a b", "ä"])
def test_filters_with_wildcards_are_ended_by_their_own_text(join: Join, space: str, topic_filter: str) -> None:
    client, publisher = join(), join()
    client.subscribe((f"{space}/{topic_filter}", 0), (f"{space}/kept", 0))
    client.unsubscribe(f"{space}/{topic_filter}")
    for name in ("x", "a/x", "a", "/", "a b", "ä", "kept"):
        publisher.publish(f"{space}/{name}", b"hi")
    assert [m.topic_name for m in client.take_messages()] == [f"{space}/kept"]


@v311("MQTT-3.10.4-6")
def test_many_filters_get_one_unsuback(join: Join, space: str) -> None:
    client, publisher = join(), join()
    client.subscribe(f"{space}/a", f"{space}/b", f"{space}/c")
    client.send(wire.unsubscribe(3, f"{space}/a", f"{space}/unknown", f"{space}/c"))
    client.expect(UNSUBACK, 3)
    for name in ("a", "b", "c"):
        publisher.publish(f"{space}/{name}", b"hi")
    assert [m.topic_name for m in client.take_messages()] == [f"{space}/b"]


@v311("MQTT-3.10.4-3")
def test_a_qos_1_delivery_under_way_is_completed(join: Join, space: str) -> None:
    client = join("c", clean=False)
    client.subscribe((f"{space}/a", 1))
    join().publish(f"{space}/a", b"hi", qos=1)
    first = client.receive_message(answer=False)
    client.unsubscribe(f"{space}/a")
    client.drop()
    client = join("c", clean=False, session_present=1)
    assert client.receive_message(answer=False) == first._replace(dup=True)
    client.send(wire.ack(PUBACK, first.packet_id))
    client.assert_silent()


@v311("MQTT-3.10.4-3")
def test_a_qos_2_delivery_under_way_is_completed(join: Join, space: str) -> None:
    client = join()
    client.subscribe((f"{space}/a", 2))
    join().publish(f"{space}/a", b"hi", qos=2)
    message = client.receive_message(answer=False)
    client.unsubscribe(f"{space}/a")
    client.send(wire.ack(PUBREC, message.packet_id))
    client.expect(PUBREL, message.packet_id)
    client.send(wire.ack(PUBCOMP, message.packet_id))
    client.assert_silent()


@v311("MQTT-3.10.4-1")
def test_the_subscriptions_of_other_clients_stay(join: Join, space: str) -> None:
    one, other = join(), join()
    one.subscribe(f"{space}/a")
    other.subscribe(f"{space}/a")
    one.unsubscribe(f"{space}/a")
    join().publish(f"{space}/a", b"hi")
    assert other.receive_message().payload == b"hi"
    one.assert_silent()


@v311("MQTT-3.10.3-1", "MQTT-3.10.3-2", "MQTT-4.8.0-1")
@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(wire.unsubscribe(1), id="no-filter"),
        pytest.param(wire.unsubscribe(1, b"\xff"), id="not-utf8"),
        pytest.param(wire.unsubscribe(1, "a", b"\xc3"), id="second-filter-not-utf8"),
        pytest.param(wire.packet(wire.UNSUBSCRIBE, 2, b"\x00\x01\x00\x02a"), id="cut-filter"),
        pytest.param(wire.packet(wire.UNSUBSCRIBE, 2, b"\x00\x01\x00\x01a\x00"), id="a-byte-behind"),
    ],
)
def test_an_unsubscribe_without_a_proper_filter_ends_the_connection(join: Join, bad: bytes) -> None:
    client = join()
    client.send(bad)
    client.assert_closed()


@v311("MQTT-3.10.1-1", "MQTT-2.2.2-2")
@pytest.mark.parametrize("flags", [0, 1, 3, 4, 6, 8, 10, 15])
def test_an_unsubscribe_with_other_flags_ends_the_connection(join: Join, space: str, flags: int) -> None:
    client = join()
    client.send(wire.packet(wire.UNSUBSCRIBE, flags, wire.unsubscribe(1, f"{space}/a")[2:]))
    client.assert_closed()

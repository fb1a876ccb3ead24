"""UNSUBSCRIBE and UNSUBACK (3.10, 3.11)."""

import pytest

from support import wire, wire_v5
from support.clauses import v5
from support.wire import PUBACK, PUBCOMP, PUBREC, PUBREL, UNSUBACK
from support.wire_v5 import USER_PROPERTY, Join, answer_of


@v5("MQTT-3.10.4-4", "MQTT-3.10.4-5", "MQTT-2.2.1-6")
@pytest.mark.parametrize("packet_id", [1, 0x1234, 65_535])
def test_an_unsubscribe_is_answered_with_an_unsuback_of_its_id(join: Join, space: str, packet_id: int) -> None:
    client = join()
    client.subscribe(f"{space}/a")
    for reason in (0, 0x11):
        client.send(wire_v5.unsubscribe(packet_id, f"{space}/a", properties=[(USER_PROPERTY, ("k", "v"))]))
        assert answer_of(client.expect(UNSUBACK, packet_id)) == ([reason], [])


@v5("MQTT-3.10.4-6", "MQTT-3.11.3-1", "MQTT-3.11.3-2")
def test_many_filters_get_one_unsuback_with_a_reason_each(join: Join, space: str) -> None:
    client, publisher = join(), join()
    client.subscribe(f"{space}/a", f"{space}/b", f"{space}/c")
    assert client.unsubscribe(f"{space}/a", f"{space}/x", f"{space}/c", f"{space}/a") == [0, 0x11, 0, 0x11]
    for name in ("a", "b", "c"):
        publisher.publish(f"{space}/{name}", b"hi")
    assert [m.topic_name for m in client.take_messages()] == [f"{space}/b"]


@v5("MQTT-3.10.4-2")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_an_ended_subscription_gets_no_new_messages(join: Join, space: str, qos: int) -> None:
    client, publisher = join(), join()
    client.subscribe(f"{space}/a")
    publisher.publish(f"{space}/a", b"before", qos=qos)
    assert client.receive_message().payload == b"before"
    client.unsubscribe(f"{space}/a")
    publisher.publish(f"{space}/a", b"after", qos=qos)
    client.assert_silent()


@v5("MQTT-3.10.4-1")
@pytest.mark.parametrize("other", ["A", "a/", "/a", "a/#", "+", "#", "a ", "aa", "a\u0301"])
def test_only_the_very_same_filter_is_ended(join: Join, space: str, other: str) -> None:
    client, publisher = join(), join()
    client.subscribe(f"{space}/a")
    assert client.unsubscribe(f"{space}/{other}", f"$share/g/{space}/a") == [0x11, 0x11]
    publisher.publish(f"{space}/a", b"still here")
    assert client.receive_message().payload == b"still here"


@v5("MQTT-3.10.4-1")
@pytest.mark.parametrize("topic_filter", ["+", "#", "a/#", "a/+", "/", "a b", "ä"])
def test_filters_with_wildcards_are_ended_by_their_own_text(join: Join, space: str, topic_filter: str) -> None:
    client, publisher = join(), join()
    client.subscribe((f"{space}/{topic_filter}", 0), (f"{space}/kept", 0))
    assert client.unsubscribe(f"{space}/{topic_filter}") == [0]
    for name in ("x", "a/x", "a", "/", "a b", "ä", "kept"):
        publisher.publish(f"{space}/{name}", b"hi")
    assert [m.topic_name for m in client.take_messages()] == [f"{space}/kept"]


@v5("MQTT-3.10.4-3")
def test_a_qos_1_delivery_under_way_is_completed(join: Join, space: str) -> None:
    client = join("c", clean=False, expiry=100)
    client.subscribe((f"{space}/a", 1))
    join().publish(f"{space}/a", b"hi", qos=1)
    first = client.receive_message(answer=False)
    client.unsubscribe(f"{space}/a")
    client.drop()
    client = join("c", clean=False, expiry=100, session_present=1)
    assert client.receive_message(answer=False) == first._replace(dup=True)
    client.send(wire.ack(PUBACK, first.packet_id))
    client.assert_silent()


@v5("MQTT-3.10.4-3")
def test_a_qos_2_delivery_under_way_is_completed(join: Join, space: str) -> None:
    client = join()
    client.subscribe((f"{space}/a", 2))
    join().publish(f"{space}/a", b"hi", qos=2)
    message = client.receive_message(answer=False)
    client.unsubscribe(f"{space}/a")
    client.send(wire.ack(PUBREC, message.packet_id))
    assert client.expect_reason(PUBREL, message.packet_id) == 0
    client.send(wire.ack(PUBCOMP, message.packet_id))
    client.assert_silent()

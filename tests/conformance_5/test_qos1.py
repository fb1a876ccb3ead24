"""QoS 1 (4.3.2) and QoS 0 (4.3.1), in both directions."""

import pytest

from support import wire, wire_v5
from support.clauses import v5
from support.wire import PUBACK
from support.wire_v5 import RECEIVE_MAXIMUM, Join


@v5("MQTT-4.3.1-1", "MQTT-2.2.1-2", "MQTT-3.3.4-1", "MQTT-3.3.1-2")
def test_a_qos_0_message_is_sent_once_and_not_answered(join: Join, space: str) -> None:
    reader, writer = join(), join()
    reader.subscribe((f"{space}/a", 2))
    writer.publish(f"{space}/a", b"hi")
    writer.assert_silent()
    message = reader.receive_message(answer=False)
    assert (message.qos, message.dup, message.packet_id) == (0, False, 0)
    reader.assert_silent()


@v5("MQTT-4.3.2-4", "MQTT-3.3.4-1", "MQTT-2.2.1-5")
def test_a_message_is_accepted_with_a_puback_of_its_id(join: Join, space: str) -> None:
    reader, writer = join(), join()
    reader.subscribe(f"{space}/a")
    for packet_id in (1, 256, 65_535):
        writer.send(wire_v5.publish(f"{space}/a", b"hi", qos=1, packet_id=packet_id))
        assert writer.expect_reason(PUBACK, packet_id) == 0


@v5("MQTT-4.3.2-4")
def test_a_message_that_nobody_wants_is_accepted_too(join: Join, space: str) -> None:
    assert join().publish(f"{space}/a", b"hi", qos=1) == 0x10


@v5("MQTT-4.3.2-5")
def test_the_same_id_after_the_puback_is_a_new_message_even_with_dup(join: Join, space: str) -> None:
    reader, writer = join(), join()
    reader.subscribe((f"{space}/a", 1))
    for dup in (False, True, False):
        writer.send(wire_v5.publish(f"{space}/a", b"again", qos=1, packet_id=5, dup=dup))
        writer.expect(PUBACK, 5)
    assert [message.payload for message in reader.take_messages()] == [b"again"] * 3


@v5("MQTT-4.3.2-1", "MQTT-4.3.2-2", "MQTT-2.2.1-4")
def test_open_deliveries_have_different_ids_and_no_dup(join: Join, space: str) -> None:
    reader, writer = join(), join()
    reader.subscribe((f"{space}/a", 1))
    for number in range(10):
        writer.publish(f"{space}/a", b"%d" % number, qos=1)
    messages = [reader.receive_message(answer=False) for _ in range(10)]
    assert len({message.packet_id for message in messages}) == 10
    assert all(message.packet_id and not message.dup and message.qos == 1 for message in messages)


@v5("MQTT-4.3.2-3", "MQTT-4.3.2-1")
def test_a_delivery_is_open_until_its_puback(join: Join, space: str) -> None:
    """With room for one, the second message comes when the first is acknowledged, and by no other packet."""
    reader, writer = join(properties=[(RECEIVE_MAXIMUM, 1)]), join()
    reader.subscribe((f"{space}/a", 1))
    for payload in (b"one", b"two", b"three"):
        writer.publish(f"{space}/a", payload, qos=1)
    first = reader.receive_message(answer=False)
    reader.send(wire.ack(PUBACK, first.packet_id ^ 0x1000))
    reader.assert_silent()
    reader.send(wire.ack(PUBACK, first.packet_id))
    second = reader.receive_message(answer=False)
    assert (first.payload, second.payload) == (b"one", b"two")
    reader.send(wire_v5.ack(PUBACK, second.packet_id, 0x80))
    assert reader.receive_message().payload == b"three"


@v5("MQTT-4.4.0-2")
@pytest.mark.parametrize("reason", [0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99])
def test_a_message_that_the_client_refuses_is_not_sent_again(join: Join, space: str, reason: int) -> None:
    reader = join("r", clean=False, expiry=100)
    reader.subscribe((f"{space}/a", 1))
    join().publish(f"{space}/a", b"unwanted", qos=1)
    message = reader.receive_message(answer=False)
    reader.send(wire_v5.ack(PUBACK, message.packet_id, reason))
    reader.ping()
    reader.drop()
    join("r", clean=False, expiry=100, session_present=1).assert_silent()


def test_a_puback_for_an_unknown_id_is_ignored(join: Join, space: str) -> None:
    client = join()
    client.subscribe((f"{space}/a", 1))
    client.send(wire_v5.ack(PUBACK, 4711))
    client.publish(f"{space}/a", b"goes on", qos=1)
    assert client.receive_message().payload == b"goes on"

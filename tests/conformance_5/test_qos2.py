"""QoS 2 (4.3.3): exactly once, in both directions."""

import pytest

from support import wire, wire_v5
from support.clauses import v5
from support.wire import PUBCOMP, PUBREC, PUBREL
from support.wire_v5 import MESSAGE_EXPIRY, RECEIVE_MAXIMUM, Join

ENGINES = ("memory", "directory")


@v5("MQTT-4.3.3-8", "MQTT-4.3.3-11", "MQTT-3.3.4-1", "MQTT-2.2.1-5")
def test_the_whole_exchange_of_a_publisher(join: Join, space: str) -> None:
    reader, writer = join(), join()
    reader.subscribe((f"{space}/a", 2))
    writer.send(wire_v5.publish(f"{space}/a", b"hi", qos=2, packet_id=0x0102))
    assert writer.expect_reason(PUBREC, 0x0102) == 0
    writer.send(wire_v5.ack(PUBREL, 0x0102))
    assert writer.expect_reason(PUBCOMP, 0x0102) == 0
    assert reader.receive_message().payload == b"hi"
    reader.assert_silent()
    writer.assert_silent()


@v5("MQTT-4.3.3-10")
def test_repetitions_before_pubrel_are_answered_but_not_delivered(join: Join, space: str) -> None:
    reader, writer = join(), join()
    reader.subscribe((f"{space}/a", 2))
    for dup in (False, True, True, False):
        writer.send(wire_v5.publish(f"{space}/a", b"once", qos=2, packet_id=9, dup=dup))
        assert writer.expect_reason(PUBREC, 9) == 0
    writer.send(wire.ack(PUBREL, 9))
    assert writer.expect_reason(PUBCOMP, 9) == 0
    assert [message.payload for message in reader.take_messages()] == [b"once"]


@v5("MQTT-4.3.3-10", "MQTT-4.1.0-1")
def test_a_message_that_was_taken_stays_taken_over_a_reconnect(join: Join, space: str) -> None:
    watcher = join()
    watcher.subscribe((f"{space}/a", 2))
    client = join("c", clean=False, expiry=100)
    client.send(wire_v5.publish(f"{space}/a", b"once", qos=2, packet_id=7))
    client.expect(PUBREC, 7)
    client.drop()
    client = join("c", clean=False, expiry=100, session_present=1)
    client.send(wire_v5.publish(f"{space}/a", b"once", qos=2, packet_id=7, dup=True))
    assert client.expect_reason(PUBREC, 7) == 0
    client.send(wire.ack(PUBREL, 7))
    assert client.expect_reason(PUBCOMP, 7) == 0
    assert [message.payload for message in watcher.take_messages()] == [b"once"]


@v5("MQTT-4.3.3-12")
def test_the_same_id_after_pubcomp_is_a_new_message(join: Join, space: str) -> None:
    reader, writer = join(), join()
    reader.subscribe((f"{space}/a", 2))
    for payload, dup in ((b"one", False), (b"two", True)):
        writer.send(wire_v5.publish(f"{space}/a", payload, qos=2, packet_id=9, dup=dup))
        writer.expect(PUBREC, 9)
        writer.send(wire.ack(PUBREL, 9))
        writer.expect(PUBCOMP, 9)
    assert [message.payload for message in reader.take_messages()] == [b"one", b"two"]


@v5("MQTT-4.3.3-11", "MQTT-3.7.2-1")
def test_a_pubrel_of_an_unknown_id_is_answered_with_the_reason(join: Join) -> None:
    client = join()
    client.send(wire.ack(PUBREL, 4711))
    assert client.expect_reason(PUBCOMP, 4711) == 0x92
    client.assert_silent()


@v5("MQTT-3.6.2-1")
def test_a_pubrec_of_an_unknown_id_is_answered_with_the_reason(join: Join, space: str) -> None:
    client = join()
    client.send(wire.ack(PUBREC, 4712), wire.ack(PUBCOMP, 4713))
    assert client.expect_reason(PUBREL, 4712) == 0x92
    client.subscribe((f"{space}/a", 2))
    client.publish(f"{space}/a", b"goes on", qos=2)
    assert client.receive_message().payload == b"goes on"


@v5("MQTT-4.3.3-1", "MQTT-4.3.3-2", "MQTT-4.3.3-4", "MQTT-2.2.1-4", "MQTT-2.2.1-5")
def test_the_whole_exchange_of_a_subscriber(join: Join, space: str) -> None:
    reader, writer = join(), join()
    reader.subscribe((f"{space}/a", 2))
    for number in range(5):
        writer.publish(f"{space}/a", b"%d" % number, qos=2)
    messages = [reader.receive_message(answer=False) for _ in range(5)]
    assert len({message.packet_id for message in messages}) == 5
    for message in messages:
        assert (message.qos, message.dup) == (2, False)
        reader.send(wire.ack(PUBREC, message.packet_id))
        assert reader.expect_reason(PUBREL, message.packet_id) == 0
        reader.send(wire.ack(PUBCOMP, message.packet_id))
    reader.assert_silent()


@v5("MQTT-4.3.3-3", "MQTT-3.3.1-1", "MQTT-4.4.0-1")
def test_a_publish_without_pubrec_is_open_and_comes_again(join: Join, space: str) -> None:
    reader = join("r", clean=False, expiry=100)
    reader.subscribe((f"{space}/a", 2))
    join().publish(f"{space}/a", b"hi", qos=2)
    first = reader.receive_message(answer=False)
    reader.assert_silent()
    reader.drop()
    reader = join("r", clean=False, expiry=100, session_present=1)
    assert reader.receive_message() == first._replace(dup=True)
    reader.assert_silent()


@v5("MQTT-4.3.3-5", "MQTT-4.3.3-6", "MQTT-4.4.0-1")
def test_a_pubrel_without_pubcomp_is_open_and_comes_again_without_its_publish(join: Join, space: str) -> None:
    reader = join("r", clean=False, expiry=100)
    reader.subscribe((f"{space}/a", 2))
    join().publish(f"{space}/a", b"hi", qos=2)
    message = reader.receive_message(answer=False)
    reader.send(wire.ack(PUBREC, message.packet_id))
    reader.expect(PUBREL, message.packet_id)
    for _ in range(2):
        reader.drop()
        reader = join("r", clean=False, expiry=100, session_present=1)
        assert reader.expect_reason(PUBREL, message.packet_id) == 0
        reader.assert_silent()
    reader.send(wire.ack(PUBCOMP, message.packet_id))
    reader.ping()
    reader.drop()
    join("r", clean=False, expiry=100, session_present=1).assert_silent()


@v5("MQTT-4.3.3-5", "MQTT-4.9.0-2")
def test_an_exchange_takes_its_room_until_pubcomp(join: Join, space: str) -> None:
    reader, writer = join(properties=[(RECEIVE_MAXIMUM, 1)]), join()
    reader.subscribe((f"{space}/a", 2))
    for payload in (b"one", b"two"):
        writer.publish(f"{space}/a", payload, qos=2)
    first = reader.receive_message(answer=False)
    reader.send(wire.ack(PUBREC, first.packet_id))
    reader.expect(PUBREL, first.packet_id)
    reader.assert_silent()
    reader.send(wire.ack(PUBCOMP, first.packet_id))
    assert reader.receive_message().payload == b"two"


@v5("MQTT-4.3.3-4", "MQTT-4.4.0-2")
def test_a_message_that_the_client_refuses_is_over(join: Join, space: str) -> None:
    reader = join("r", clean=False, expiry=100, properties=[(RECEIVE_MAXIMUM, 1)])
    reader.subscribe((f"{space}/a", 2))
    writer = join()
    for payload in (b"unwanted", b"wanted"):
        writer.publish(f"{space}/a", payload, qos=2)
    message = reader.receive_message(answer=False)
    reader.send(wire_v5.ack(PUBREC, message.packet_id, 0x97))
    assert reader.receive_message().payload == b"wanted"
    reader.ping()
    reader.drop()
    join("r", clean=False, expiry=100, session_present=1).assert_silent()


@v5("MQTT-4.3.3-7", "MQTT-4.3.3-13")
@pytest.mark.parametrize("got_pubrec", [False, True])
def test_an_exchange_is_completed_although_the_message_has_expired(join: Join, space: str, got_pubrec: bool) -> None:
    reader, writer = join("r", clean=False, expiry=100), join()
    reader.subscribe((f"{space}/a", 2))
    writer.publish(f"{space}/a", b"sent", qos=2, properties=[(MESSAGE_EXPIRY, 3)])
    message = reader.receive_message(answer=False)
    if got_pubrec:
        reader.send(wire.ack(PUBREC, message.packet_id))
        reader.expect(PUBREL, message.packet_id)
    reader.drop()
    # A retained message that lives as long and was published later shows when the time is over.
    writer.publish(f"{space}/b", b"probe", qos=1, retain=True, properties=[(MESSAGE_EXPIRY, 3)])
    while True:
        probe = join()
        probe.subscribe(f"{space}/b")
        if not probe.take_messages():
            break
        probe.close()
    reader = join("r", clean=False, expiry=100, session_present=1)
    if got_pubrec:
        reader.expect(PUBREL, message.packet_id)
        reader.send(wire.ack(PUBCOMP, message.packet_id))
    else:
        again = reader.receive_message()
        assert (again.payload, again.packet_id, again.dup) == (b"sent", message.packet_id, True)
    reader.assert_silent()

"""QoS 2 (4.3.3): exactly once, in both directions."""

from support import wire
from support.clauses import v311
from support.wire import PUBCOMP, PUBREC, PUBREL, Join

ENGINES = ("memory", "directory")


@v311("MQTT-4.3.3-2", "MQTT-2.3.1-6")
def test_the_whole_exchange_of_a_publisher(join: Join, space: str) -> None:
    reader, writer = join(), join()
    reader.subscribe((f"{space}/a", 2))
    writer.send(wire.publish(f"{space}/a", b"hi", qos=2, packet_id=0x0102))
    assert writer.receive() == (PUBREC, 0, b"\x01\x02")
    writer.send(wire.ack(PUBREL, 0x0102))
    assert writer.receive() == (PUBCOMP, 0, b"\x01\x02")
    assert reader.receive_message().payload == b"hi"
    reader.assert_silent()
    writer.assert_silent()


@v311("MQTT-4.3.3-2")
def test_repetitions_before_pubrel_are_answered_but_not_delivered(join: Join, space: str) -> None:
    reader, writer = join(), join()
    reader.subscribe((f"{space}/a", 2))
    for dup in (False, True, True, False):
        writer.send(wire.publish(f"{space}/a", b"once", qos=2, packet_id=9, dup=dup))
        writer.expect(PUBREC, 9)
    writer.send(wire.ack(PUBREL, 9))
    writer.expect(PUBCOMP, 9)
    assert [message.payload for message in reader.take_messages()] == [b"once"]


@v311("MQTT-4.3.3-2")
def test_the_same_id_after_pubcomp_is_a_new_message(join: Join, space: str) -> None:
    reader, writer = join(), join()
    reader.subscribe((f"{space}/a", 2))
    for payload in (b"one", b"two"):
        writer.send(wire.publish(f"{space}/a", payload, qos=2, packet_id=9))
        writer.expect(PUBREC, 9)
        writer.send(wire.ack(PUBREL, 9))
        writer.expect(PUBCOMP, 9)
    assert [message.payload for message in reader.take_messages()] == [b"one", b"two"]


@v311("MQTT-4.3.3-2")
def test_a_repeated_pubrel_is_answered_each_time_and_delivers_nothing_more(join: Join, space: str) -> None:
    reader, writer = join(), join()
    reader.subscribe((f"{space}/a", 2))
    writer.send(wire.publish(f"{space}/a", b"once", qos=2, packet_id=9))
    writer.expect(PUBREC, 9)
    for _ in range(3):
        writer.send(wire.ack(PUBREL, 9))
        writer.expect(PUBCOMP, 9)
    assert [message.payload for message in reader.take_messages()] == [b"once"]


@v311("MQTT-4.3.3-2")
def test_a_pubrel_for_an_unknown_id_gets_its_pubcomp(join: Join) -> None:
    client = join()
    client.send(wire.ack(PUBREL, 4711))
    client.expect(PUBCOMP, 4711)
    client.assert_silent()


def test_a_pubrec_or_pubcomp_for_an_unknown_id_does_no_harm(join: Join, space: str) -> None:
    client = join()
    client.send(wire.ack(PUBCOMP, 4711), wire.ack(PUBREC, 4712))
    client.ping()
    client.subscribe((f"{space}/a", 2))
    client.publish(f"{space}/a", b"goes on", qos=2)
    assert client.receive_message().payload == b"goes on"


@v311("MQTT-4.3.3-1", "MQTT-2.3.1-1", "MQTT-2.3.1-4", "MQTT-2.3.1-6", "MQTT-2.2.2-1")
def test_the_whole_exchange_of_a_subscriber(join: Join, space: str) -> None:
    reader = join()
    reader.subscribe((f"{space}/a", 2))
    join().publish(f"{space}/a", b"hi", qos=2)
    message = reader.receive_message(answer=False)
    assert (message.qos, message.dup) == (2, False)
    reader.send(wire.ack(PUBREC, message.packet_id))
    assert reader.receive() == (PUBREL, 2, message.packet_id.to_bytes(2))
    reader.send(wire.ack(PUBCOMP, message.packet_id))
    reader.assert_silent()


@v311("MQTT-4.3.3-1")
def test_open_deliveries_have_different_ids(join: Join, space: str) -> None:
    reader, writer = join(), join()
    reader.subscribe((f"{space}/#", 2))
    for number in range(10):
        writer.publish(f"{space}/a", b"%d" % number, qos=1 + number % 2)
    messages = [reader.receive_message(answer=False) for _ in range(10)]
    assert len({message.packet_id for message in messages}) == 10
    assert [message.qos for message in messages] == [1, 2] * 5


@v311("MQTT-4.3.3-1")
def test_a_repeated_pubrec_is_answered_with_pubrel_again(join: Join, space: str) -> None:
    reader = join()
    reader.subscribe((f"{space}/a", 2))
    join().publish(f"{space}/a", b"hi", qos=2)
    message = reader.receive_message(answer=False)
    for _ in range(2):
        reader.send(wire.ack(PUBREC, message.packet_id))
        reader.expect(PUBREL, message.packet_id)
    reader.send(wire.ack(PUBCOMP, message.packet_id))
    reader.assert_silent()


@v311("MQTT-2.3.1-4")
def test_both_sides_may_use_the_same_id_at_the_same_time(join: Join, space: str) -> None:
    client = join()
    client.subscribe((f"{space}/in", 1))
    join().publish(f"{space}/in", b"from the server", qos=1)
    message = client.receive_message(answer=False)
    client.send(wire.publish(f"{space}/out", b"from the client", qos=1, packet_id=message.packet_id))
    client.expect(wire.PUBACK, message.packet_id)
    client.send(wire.ack(wire.PUBACK, message.packet_id))
    client.assert_silent()

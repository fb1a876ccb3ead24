"""PUBLISH (3.3): what goes through the server unchanged, and what the server decides itself."""

import pytest

from support import wire
from support.clauses import v311
from support.wire import PUBACK, PUBCOMP, PUBREC, PUBREL, Dial, Join, Message


@v311("MQTT-3.3.4-1", "MQTT-2.3.1-6")
def test_a_publish_is_answered_as_its_qos_asks(join: Join, space: str) -> None:
    client = join()
    client.send(wire.publish(f"{space}/a", b"0"))
    client.assert_silent()
    client.send(wire.publish(f"{space}/a", b"1", qos=1, packet_id=0x1234))
    assert client.expect(PUBACK, 0x1234).body == b"\x12\x34"
    client.send(wire.publish(f"{space}/a", b"2", qos=2, packet_id=0xFFFF))
    assert client.expect(PUBREC, 0xFFFF).body == b"\xff\xff"
    client.send(wire.ack(PUBREL, 0xFFFF))
    assert client.expect(PUBCOMP, 0xFFFF).body == b"\xff\xff"
    client.assert_silent()


@v311("MQTT-3.3.1-2", "MQTT-2.3.1-5", "MQTT-4.3.1-1")
def test_a_qos_0_message_is_one_publish_without_dup_and_without_packet_id(join: Join, space: str) -> None:
    reader = join()
    reader.subscribe((f"{space}/a", 0))
    join().publish(f"{space}/a", b"hi", qos=0)
    assert reader.receive() == (wire.PUBLISH, 0, wire.string(f"{space}/a") + b"hi")
    reader.assert_silent()


@v311("MQTT-3.8.4-6")
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_a_message_comes_at_the_lower_of_both_qos(join: Join, space: str, published: int, granted: int) -> None:
    reader = join()
    assert reader.subscribe((f"{space}/a", granted)) == [granted]
    join().publish(f"{space}/a", b"hi", qos=published)
    assert reader.receive_message()._replace(packet_id=0) == Message(f"{space}/a", b"hi", min(published, granted))
    reader.assert_silent()


@v311("MQTT-3.3.1-3")
@pytest.mark.parametrize("qos", [1, 2])
def test_dup_of_the_publisher_is_not_handed_on(join: Join, space: str, qos: int) -> None:
    reader = join()
    reader.subscribe((f"{space}/a", qos))
    join().publish(f"{space}/a", b"hi", qos=qos, dup=True)
    assert not reader.receive_message().dup


@v311("MQTT-3.3.1-2")
@pytest.mark.parametrize("retain", [False, True])
def test_dup_at_qos_0_ends_the_connection(join: Join, space: str, retain: bool) -> None:
    reader = join()
    reader.subscribe((f"{space}/a", 2))
    writer = join()
    writer.send(wire.publish(f"{space}/a", b"hi", qos=0, dup=True, retain=retain))
    writer.assert_closed()
    reader.assert_silent()


@v311("MQTT-3.3.5-1")
def test_overlapping_filters_deliver_at_the_highest_qos_granted(join: Join, space: str) -> None:
    reader = join()
    reader.subscribe((f"{space}/#", 0), (f"{space}/a/+", 2), (f"{space}/+/b", 1), (f"{space}/a/b", 0))
    join().publish(f"{space}/a/b", b"hi", qos=2)
    assert max(message.qos for message in reader.take_messages()) == 2


def test_overlapping_filters_deliver_one_copy(join: Join, space: str) -> None:
    reader = join()
    reader.subscribe((f"{space}/#", 0), (f"{space}/a/+", 1), (f"{space}/a/b", 2))
    publisher = join()
    for qos in (0, 1, 2):
        publisher.publish(f"{space}/a/b", b"hi", qos=qos)
        assert [message.qos for message in reader.take_messages()] == [qos]


@v311("MQTT-3.3.2-3")
def test_only_matching_messages_are_sent_and_under_their_own_topic_name(join: Join, space: str) -> None:
    reader = join()
    reader.subscribe(f"{space}/+/b")
    publisher = join()
    for name in ("a", "a/b", "b", "a/b/c", "x/b", "a/c"):
        publisher.publish(f"{space}/{name}", name.encode())
    assert [(m.topic_name, m.payload) for m in reader.take_messages()] == [
        (f"{space}/a/b", b"a/b"),
        (f"{space}/x/b", b"x/b"),
    ]


def test_a_publisher_receives_its_own_message(join: Join, space: str) -> None:
    client = join()
    client.subscribe(f"{space}/a")
    client.publish(f"{space}/a", b"echo", qos=2)
    assert client.receive_message().payload == b"echo"


@v311("MQTT-4.5.0-1")
def test_every_client_with_a_matching_subscription_gets_the_message(join: Join, space: str) -> None:
    readers = [join() for _ in range(10)]
    for reader in readers:
        reader.subscribe((f"{space}/a", 1))
    bystander = join()
    bystander.subscribe(f"{space}/b")
    join().publish(f"{space}/a", b"hi", qos=1)
    assert [reader.receive_message().payload for reader in readers] == [b"hi"] * 10
    bystander.assert_silent()


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152 + 10])
def test_payloads_around_each_length_of_the_length_field_come_through(join: Join, space: str, size: int) -> None:
    payload = bytes(index * 31 & 0xFF for index in range(min(size, 997))) * (size // 997 + 1)
    reader = join()
    reader.subscribe(f"{space}/a")
    writer = join()
    writer.send(wire.publish(f"{space}/a", payload[:size]))
    assert reader.receive_message().payload == payload[:size]


def test_packets_that_come_byte_by_byte_are_processed(dial: Dial, space: str) -> None:
    client = dial()
    stream = (
        wire.connect(space)
        + wire.subscribe(1, (f"{space}/#", 2))
        + wire.publish(f"{space}/a", b"slow", qos=2, packet_id=2)
        + wire.ack(PUBREL, 2)
        + wire.unsubscribe(3, f"{space}/#")
    )
    for byte in stream:
        client.send(bytes([byte]))
    client.expect(wire.CONNACK)
    client.expect(wire.SUBACK, 1)
    kinds = {}
    for _ in range(4):
        received = client.receive()
        kinds[received.kind] = received
    assert set(kinds) == {wire.PUBREC, wire.PUBLISH, wire.PUBCOMP, wire.UNSUBACK}
    assert wire.message_of(kinds[wire.PUBLISH])[:3] == (f"{space}/a", b"slow", 2)


@pytest.mark.parametrize("cut", [1, 2, 7, 64, 1000])
def test_a_stream_cut_into_pieces_of_any_size_is_the_same_stream(join: Join, space: str, cut: int) -> None:
    reader, writer = join(), join()
    reader.subscribe((f"{space}/a", 0))
    stream = b"".join(wire.publish(f"{space}/a", b"%d" % number * 20) for number in range(100))
    for start in range(0, len(stream), cut):
        writer.send(stream[start : start + cut])
    assert [reader.receive_message().payload for _ in range(100)] == [b"%d" % number * 20 for number in range(100)]

"""QoS 1 (4.3.2): at least once, in both directions."""

from support import wire
from support.clauses import v311
from support.wire import PUBACK, Join


@v311("MQTT-4.3.2-2", "MQTT-2.3.1-6")
def test_a_message_is_accepted_with_a_puback_of_its_id(join: Join, space: str) -> None:
    client = join()
    for packet_id in (1, 256, 65_535):
        client.send(wire.publish(f"{space}/a", b"hi", qos=1, packet_id=packet_id))
        assert client.receive() == (PUBACK, 0, packet_id.to_bytes(2))


@v311("MQTT-4.3.2-2")
def test_the_same_id_after_the_puback_is_a_new_message_even_with_dup(join: Join, space: str) -> None:
    reader, writer = join(), join()
    reader.subscribe((f"{space}/a", 1))
    for dup in (False, True, False):
        writer.send(wire.publish(f"{space}/a", b"again", qos=1, packet_id=5, dup=dup))
        writer.expect(PUBACK, 5)
    assert [message.payload for message in reader.take_messages()] == [b"again"] * 3


@v311("MQTT-4.3.2-1", "MQTT-2.3.1-1", "MQTT-2.3.1-4")
def test_open_deliveries_have_different_ids_and_no_dup(join: Join, space: str) -> None:
    reader, writer = join(), join()
    reader.subscribe((f"{space}/a", 1))
    for number in range(10):
        writer.publish(f"{space}/a", b"%d" % number, qos=1)
    messages = [reader.receive_message(answer=False) for _ in range(10)]
    assert len({message.packet_id for message in messages}) == 10
    assert all(message.packet_id and not message.dup and message.qos == 1 for message in messages)


@v311("MQTT-4.3.2-1")
def test_nothing_is_sent_again_while_the_connection_lasts(join: Join, space: str) -> None:
    reader = join()
    reader.subscribe((f"{space}/a", 1))
    join().publish(f"{space}/a", b"hi", qos=1)
    reader.receive_message(answer=False)
    reader.assert_silent()


@v311("MQTT-2.3.1-4")
def test_more_messages_than_there_are_packet_ids_get_through(join: Join, space: str) -> None:
    """An id is free again after its PUBACK, so 65,535 of them are enough for any number of messages."""
    count, burst = 66_000, 1_000
    reader, writer = join(), join()
    reader.subscribe((f"{space}/a", 1))
    ids = range(1, burst + 1)
    messages = b"".join(wire.publish(f"{space}/a", b"%d" % packet_id, qos=1, packet_id=packet_id) for packet_id in ids)
    replies = b"".join(wire.ack(PUBACK, packet_id) for packet_id in ids)
    used: set[int] = set()
    for _ in range(count // burst):
        writer.send(messages)
        open_ids: list[int] = []
        for packet_id in ids:
            message = reader.receive_message(answer=False)
            assert message.payload == b"%d" % packet_id
            assert message.packet_id not in open_ids
            open_ids.append(message.packet_id)
            if not reader.readable_within(0):
                used.update(open_ids)
                reader.send(*(wire.ack(PUBACK, open_id) for open_id in open_ids))
                open_ids.clear()
        assert writer.read(len(replies)) == replies
    assert 0 not in used


def test_a_puback_for_an_unknown_id_is_ignored(join: Join, space: str) -> None:
    client = join()
    client.subscribe((f"{space}/a", 1))
    client.send(wire.ack(PUBACK, 4711))
    client.publish(f"{space}/a", b"goes on", qos=1)
    assert client.receive_message().payload == b"goes on"


def test_a_reader_that_never_acknowledges_gets_the_rest_after_its_acknowledgements(join: Join, space: str) -> None:
    """The window of open deliveries fills; what is beyond it waits and is not lost."""
    count = 300
    reader, writer = join(), join()
    reader.subscribe((f"{space}/a", 1))
    for number in range(count):
        writer.send(wire.publish(f"{space}/a", b"%d" % number, qos=1, packet_id=number + 1))
    for number in range(count):
        writer.expect(PUBACK, number + 1)
    assert [reader.receive_message().payload for _ in range(count)] == [b"%d" % number for number in range(count)]
    reader.assert_silent()

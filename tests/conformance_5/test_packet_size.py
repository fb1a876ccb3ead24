"""Maximum Packet Size (3.1.2.11.4): what a client cannot take is not sent, and answers go without what may be left out.

The client checks every packet that it gets (`WireV5.receive`).
"""

import pytest

from support import wire, wire_v5
from support.clauses import v5
from support.wire import PUBACK, PUBCOMP, PUBREC, PUBREL, SUBACK, UNSUBACK
from support.wire_v5 import REASON_STRING, USER_PROPERTY, Answer, Join, answer_of

# The sizes around an answer without and with its reason string; CONNACK needs 13 bytes.
LIMITS = [13, 14, 20, 30, 40, 200]
GIVEN = [(USER_PROPERTY, ("key", "value"))] * 3


def assert_fits(received: wire.Packet, reasons: list[int], limit: int, bare_bytes: int) -> None:
    """The answer has its reasons, a reason string only where it fits, and no user property."""
    answer = answer_of(received)
    assert answer.reasons == reasons
    assert USER_PROPERTY not in dict(answer.properties)
    if REASON_STRING in dict(answer.properties):
        assert bare_bytes < limit
    if limit == 200 and reasons[0] >= 0x80 and received.kind in (PUBACK, PUBREC, PUBCOMP):
        assert REASON_STRING in dict(answer.properties)


@v5("MQTT-3.4.2-2", "MQTT-3.4.2-3", "MQTT-3.5.2-2", "MQTT-3.5.2-3")
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize(("qos", "kind"), [(1, PUBACK), (2, PUBREC)], ids=["PUBACK", "PUBREC"])
def test_the_refusal_of_a_message_fits(join: Join, limit: int, qos: int, kind: int) -> None:
    client = join(maximum_packet_size=limit)
    client.send(wire_v5.publish("$SYS/mine", b"x", qos=qos, packet_id=1, properties=GIVEN))
    assert_fits(client.expect(kind, 1), [0x90], limit, 5)


@v5("MQTT-3.6.2-2", "MQTT-3.6.2-3", "MQTT-3.7.2-2", "MQTT-3.7.2-3")
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize(("sent", "kind"), [(PUBREC, PUBREL), (PUBREL, PUBCOMP)], ids=["PUBREL", "PUBCOMP"])
def test_the_answer_to_an_unknown_id_fits(join: Join, limit: int, sent: int, kind: int) -> None:
    client = join(maximum_packet_size=limit)
    reason_string: tuple[int, str] = (REASON_STRING, "why " * 20)
    client.send(wire_v5.ack(sent, 7, 0, [reason_string, *GIVEN]))
    assert_fits(client.expect(kind, 7), [0x92], limit, 5)


@v5("MQTT-3.9.2-1", "MQTT-3.9.2-2", "MQTT-3.11.2-1", "MQTT-3.11.2-2")
@pytest.mark.parametrize("limit", LIMITS)
def test_suback_and_unsuback_fit(join: Join, space: str, limit: int) -> None:
    client = join(maximum_packet_size=limit)
    too_deep = "/".join(["x"] * 200)
    client.send(wire_v5.subscribe(1, (too_deep, 1), (f"{space}/a", 1), properties=GIVEN))
    assert_fits(client.expect(SUBACK, 1), [0x8F, 1], limit, 7)
    client.send(wire_v5.unsubscribe(2, too_deep, f"{space}/a", properties=GIVEN))
    assert_fits(client.expect(UNSUBACK, 2), [0x11, 0], limit, 7)


@v5("MQTT-3.14.2-3", "MQTT-3.14.2-4")
@pytest.mark.parametrize("limit", LIMITS)
def test_disconnect_fits(join: Join, limit: int) -> None:
    client = join(maximum_packet_size=limit)
    client.send(wire_v5.publish("a/#", b"x", properties=GIVEN))
    assert_fits(client.expect(wire.DISCONNECT), [0x90], limit, 3)
    client.assert_closed()


@v5("MQTT-3.1.2-24")
def test_an_answer_that_cannot_be_made_smaller_ends_the_connection(join: Join, space: str) -> None:
    client, bystander = join(maximum_packet_size=20), join()
    client.send(wire_v5.subscribe(1, *[(f"{space}/{number}", 0) for number in range(30)]))
    client.assert_disconnected(0x95)
    bystander.assert_silent()


@v5("MQTT-3.1.2-24", "MQTT-3.1.2-25")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_that_is_too_large_for_one_client_is_dropped_for_it_alone(join: Join, space: str, qos: int) -> None:
    small, large, writer = join("small", maximum_packet_size=60, clean=False, expiry=100), join(), join()
    for reader in (small, large):
        reader.subscribe(f"{space}/a")
    for payload in (b"one", bytes(60), b"two"):
        assert writer.publish(f"{space}/a", payload, qos=qos) == 0
    assert [m.payload for m in large.take_messages()] == [b"one", bytes(60), b"two"]
    assert [m.payload for m in small.take_messages()] == [b"one", b"two"]
    # It counts as delivered: it does not come when the client has more room.
    small.drop()
    join("small", clean=False, expiry=100, session_present=1).assert_silent()


@v5("MQTT-3.1.2-25")
def test_a_retained_message_that_is_too_large_is_dropped_and_the_others_come(join: Join, space: str) -> None:
    writer = join()
    for name, payload in (("a", b"fits"), ("b", bytes(100)), ("c", b"fits")):
        writer.publish(f"{space}/{name}", payload, qos=1, retain=True)
    small = join(maximum_packet_size=60)
    small.subscribe(f"{space}/+")
    assert sorted(m.topic_name[-1] for m in small.take_messages()) == ["a", "c"]


def test_a_packet_larger_than_the_server_takes_ends_the_connection(join: Join, space: str) -> None:
    client, bystander = join(), join()
    client.send(b"\x30" + wire.remaining_length(16 * 1024 * 1024))
    client.assert_disconnected(0x95)
    bystander.assert_silent()


def test_the_reason_string_names_the_failure(join: Join) -> None:
    client = join()
    client.send(wire_v5.publish("$SYS/mine", b"x", qos=1, packet_id=1))
    assert answer_of(client.expect(PUBACK, 1)) == Answer([0x90], [(REASON_STRING, "Topic name invalid")])

"""SUBSCRIBE and SUBACK (3.8, 3.9)."""

import pytest

from support import wire_v5
from support.clauses import v5
from support.wire import PUBLISH, SUBACK
from support.wire_v5 import SUBSCRIPTION_ID, USER_PROPERTY, Join, answer_of, options


@v5("MQTT-3.8.4-1", "MQTT-3.8.4-2", "MQTT-2.2.1-6")
@pytest.mark.parametrize("packet_id", [1, 0x1234, 65_535])
def test_a_subscribe_is_answered_with_a_suback_of_its_id(join: Join, space: str, packet_id: int) -> None:
    client = join()
    client.send(wire_v5.subscribe(packet_id, (f"{space}/a", 0), properties=[(USER_PROPERTY, ("k", "v"))]))
    assert answer_of(client.expect(SUBACK, packet_id)) == ([0], [])


@v5("MQTT-3.8.4-5", "MQTT-3.8.4-6", "MQTT-3.8.4-7", "MQTT-3.9.3-1", "MQTT-3.9.3-2")
def test_each_filter_gets_its_reason_in_its_place(join: Join, space: str) -> None:
    client = join()
    too_deep = f"{space}/" + "/".join(["x"] * 128)
    reasons = client.subscribe((f"{space}/a", 2), (too_deep, 1), (f"{space}/b", 0), (f"{space}/a", 1))
    assert reasons == [2, 0x8F, 0, 1]
    for name in ("a", "b"):
        client.publish(f"{space}/{name}", b"hi", qos=2)
    assert [(m.topic_name[-1], m.qos) for m in client.take_messages()] == [("a", 1), ("b", 0)]


@v5("MQTT-3.8.4-8", "MQTT-3.8.4-7")
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_a_message_comes_at_the_lower_qos(join: Join, space: str, published: int, granted: int) -> None:
    client = join()
    assert client.subscribe((f"{space}/a", granted)) == [granted]
    client.publish(f"{space}/a", b"hi", qos=published)
    assert client.receive_message().qos == min(published, granted)


@v5("MQTT-3.8.4-3")
def test_the_same_filter_again_replaces_qos_options_and_identifier(join: Join, space: str) -> None:
    client = join()
    client.subscribe((f"{space}/a", options(2, no_local=True)), properties=[(SUBSCRIPTION_ID, 1)])
    client.publish(f"{space}/a", b"own", qos=2)
    client.assert_silent()
    client.subscribe((f"{space}/a", options(1)), properties=[(SUBSCRIPTION_ID, 2)])
    client.publish(f"{space}/a", b"own", qos=2)
    message = client.receive_message()
    assert (message.qos, message.valued(SUBSCRIPTION_ID)) == (1, [2])
    client.subscribe((f"{space}/a", options(0)))
    client.publish(f"{space}/a", b"own", qos=2)
    message = client.receive_message()
    assert (message.qos, message.valued(SUBSCRIPTION_ID)) == (0, [])
    client.assert_silent()
    assert client.unsubscribe(f"{space}/a", f"{space}/a") == [0, 0x11]


@v5("MQTT-3.8.4-4")
def test_no_message_is_lost_while_a_subscription_is_replaced(join: Join, space: str) -> None:
    client = join()
    client.subscribe((f"{space}/a", 1))
    messages = [wire_v5.publish(f"{space}/a", b"%d" % number, qos=1, packet_id=number) for number in range(1, 31)]
    again = [wire_v5.subscribe(number, (f"{space}/a", 1)) for number in range(101, 131)]
    client.send(*(part for pair in zip(messages, again, strict=True) for part in pair))
    payloads: list[bytes] = []
    while len(payloads) < 30:
        received = client.receive()
        if received.kind == PUBLISH:
            message = wire_v5.message_of(received)
            client.answer(message)
            payloads.append(message.payload)
    assert payloads == [b"%d" % number for number in range(1, 31)]


@v5("MQTT-3.8.3-3")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_no_local_keeps_the_own_messages_away_and_no_others(join: Join, space: str, qos: int) -> None:
    client, other = join(), join()
    client.subscribe((f"{space}/a", options(2, no_local=True)))
    client.publish(f"{space}/a", b"own", qos=qos)
    other.publish(f"{space}/a", b"other", qos=qos)
    assert [m.payload for m in client.take_messages()] == [b"other"]


@v5("MQTT-3.8.3-4")
def test_no_local_on_a_shared_subscription_ends_the_connection(join: Join, space: str) -> None:
    client = join()
    client.send(wire_v5.subscribe(1, (f"$share/g/{space}/a", options(1, no_local=True))))
    client.assert_disconnected(0x82)


@v5("MQTT-4.8.2-1", "MQTT-4.8.2-2", "MQTT-4.8.2-3")
def test_each_message_of_a_share_group_goes_to_one_member_at_its_qos(join: Join, space: str) -> None:
    members = {join(): qos for qos in (0, 1, 2)}
    for member, qos in members.items():
        member.subscribe((f"$share/g/{space}/+", qos), properties=[(SUBSCRIPTION_ID, qos + 1)])
    writer = join()
    for number in range(30):
        writer.publish(f"{space}/a", b"%d" % number, qos=2)
    payloads: list[bytes] = []
    for member, qos in members.items():
        messages = member.take_messages()
        assert {(m.qos, *m.valued(SUBSCRIPTION_ID)) for m in messages} == {(qos, qos + 1)}
        payloads += [m.payload for m in messages]
    assert sorted(payloads, key=int) == [b"%d" % number for number in range(30)]

"""Sessions (3.1.2.4, 4.1, 4.4): what is kept when a client goes, and what it finds when it comes back."""

import pytest

from support import wire
from support.clauses import v311
from support.wire import PUBACK, PUBCOMP, PUBREC, PUBREL, Join

ENGINES = ("memory", "directory")


@v311("MQTT-3.2.2-1", "MQTT-3.1.4-3", "MQTT-3.1.2-6")
def test_a_clean_session_is_never_present_and_throws_the_stored_one_away(join: Join, space: str) -> None:
    client = join("c", clean=False)
    client.subscribe((f"{space}/a", 1))
    client.disconnect()
    publisher = join()
    publisher.publish(f"{space}/a", b"for the old session", qos=1)
    client = join("c", clean=True, session_present=0)
    publisher.publish(f"{space}/a", b"for nobody", qos=1)
    client.assert_silent()


@v311("MQTT-3.1.2-6")
def test_nothing_of_a_clean_session_is_found_later(join: Join, space: str) -> None:
    client = join("c", clean=True)
    client.subscribe((f"{space}/a", 1))
    client.disconnect()
    publisher = join()
    publisher.publish(f"{space}/a", b"lost", qos=1)
    client = join("c", clean=False, session_present=0)
    publisher.publish(f"{space}/a", b"lost too", qos=1)
    client.assert_silent()


@v311("MQTT-3.2.2-2", "MQTT-3.1.2-4", "MQTT-3.1.4-3", "MQTT-4.1.0-1")
def test_a_stored_session_is_present_and_still_subscribed(join: Join, space: str) -> None:
    client = join("c", clean=False)
    client.subscribe((f"{space}/a", 1))
    client.disconnect()
    client = join("c", clean=False, session_present=1)
    join().publish(f"{space}/a", b"hi", qos=1)
    assert client.receive_message().payload == b"hi"


@v311("MQTT-3.2.2-3", "MQTT-3.1.2-4")
def test_a_first_visit_finds_no_session(join: Join) -> None:
    join("c", clean=False, session_present=0)


@v311("MQTT-3.1.2-4")
def test_a_session_without_any_subscription_is_stored_as_well(join: Join) -> None:
    join("c", clean=False).disconnect()
    join("c", clean=False, session_present=1)


@v311("MQTT-3.1.2-4", "MQTT-4.1.0-1")
def test_a_session_outlives_a_connection_that_was_torn_down(join: Join, space: str) -> None:
    client = join("c", clean=False)
    client.subscribe((f"{space}/a", 1))
    client.drop()
    join().publish(f"{space}/a", b"hi", qos=1)
    client = join("c", clean=False, session_present=1)
    assert client.receive_message().payload == b"hi"


@v311("MQTT-3.1.3-2")
def test_sessions_are_kept_apart_by_client_id(join: Join, space: str) -> None:
    for name in ("a", "b"):
        client = join(name, clean=False)
        client.subscribe((f"{space}/{name}", 1))
        client.disconnect()
    publisher = join()
    publisher.publish(f"{space}/a", b"for a", qos=1)
    publisher.publish(f"{space}/b", b"for b", qos=1)
    for name in ("a", "b"):
        client = join(name, clean=False, session_present=1)
        assert [message.payload for message in client.take_messages()] == [b"for " + name.encode()]


@v311("MQTT-3.1.2-5", "MQTT-4.5.0-1")
def test_messages_for_an_absent_client_wait_in_their_order(join: Join, space: str) -> None:
    client = join("c", clean=False)
    client.subscribe((f"{space}/1", 1), (f"{space}/2", 2))
    client.disconnect()
    publisher = join()
    for number in range(5):
        publisher.publish(f"{space}/1", b"one %d" % number, qos=1)
        publisher.publish(f"{space}/2", b"two %d" % number, qos=2)
    client = join("c", clean=False, session_present=1)
    messages = [client.receive_message() for _ in range(10)]
    assert [m.payload for m in messages if m.qos == 1] == [b"one %d" % number for number in range(5)]
    assert [m.payload for m in messages if m.qos == 2] == [b"two %d" % number for number in range(5)]
    assert not any(m.dup for m in messages)
    client.assert_silent()


@v311("MQTT-3.1.2-5")
def test_only_subscriptions_of_the_time_of_leaving_are_served(join: Join, space: str) -> None:
    client = join("c", clean=False)
    client.subscribe((f"{space}/a", 1), (f"{space}/b", 1))
    client.unsubscribe(f"{space}/b")
    client.disconnect()
    publisher = join()
    publisher.publish(f"{space}/b", b"unsubscribed", qos=1)
    publisher.publish(f"{space}/a", b"subscribed", qos=1)
    client = join("c", clean=False, session_present=1)
    assert [message.payload for message in client.take_messages()] == [b"subscribed"]


@v311("MQTT-4.4.0-1", "MQTT-3.3.1-1", "MQTT-2.3.1-4", "MQTT-4.3.2-1")
def test_a_qos_1_message_without_puback_comes_again_with_dup_and_its_id(join: Join, space: str) -> None:
    client = join("c", clean=False)
    client.subscribe((f"{space}/a", 1))
    join().publish(f"{space}/a", b"hi", qos=1)
    first = client.receive_message(answer=False)
    assert not first.dup
    client.drop()
    client = join("c", clean=False, session_present=1)
    again = client.receive_message(answer=True)
    assert again == first._replace(dup=True)
    client.ping()
    client.drop()
    join("c", clean=False, session_present=1).assert_silent()


@v311("MQTT-4.4.0-1", "MQTT-3.3.1-1", "MQTT-4.3.3-1")
def test_a_qos_2_message_without_pubrec_comes_again_with_dup_and_its_id(join: Join, space: str) -> None:
    client = join("c", clean=False)
    client.subscribe((f"{space}/a", 2))
    join().publish(f"{space}/a", b"hi", qos=2)
    first = client.receive_message(answer=False)
    client.drop()
    client = join("c", clean=False, session_present=1)
    assert client.receive_message(answer=True) == first._replace(dup=True)
    client.assert_silent()


@v311("MQTT-4.4.0-1", "MQTT-4.3.3-1")
def test_after_pubrec_only_the_pubrel_comes_again(join: Join, space: str) -> None:
    client = join("c", clean=False)
    client.subscribe((f"{space}/a", 2))
    join().publish(f"{space}/a", b"hi", qos=2)
    message = client.receive_message(answer=False)
    client.send(wire.ack(PUBREC, message.packet_id))
    client.expect(PUBREL, message.packet_id)
    client.drop()
    client = join("c", clean=False, session_present=1)
    client.expect(PUBREL, message.packet_id)
    client.send(wire.ack(PUBCOMP, message.packet_id))
    client.assert_silent()
    client.drop()
    join("c", clean=False, session_present=1).assert_silent()


@v311("MQTT-4.4.0-1", "MQTT-4.6.0-1")
def test_redelivery_keeps_the_order_and_goes_before_what_waits(join: Join, space: str) -> None:
    client = join("c", clean=False)
    client.subscribe((f"{space}/a", 1))
    publisher = join()
    for number in range(4):
        publisher.publish(f"{space}/a", b"%d" % number, qos=1)
    sent = [client.receive_message(answer=False) for _ in range(4)]
    client.send(wire.ack(PUBACK, sent[1].packet_id))
    client.ping()
    client.drop()
    publisher.publish(f"{space}/a", b"4", qos=1)
    client = join("c", clean=False, session_present=1)
    messages = [client.receive_message() for _ in range(4)]
    assert [m.payload for m in messages] == [b"0", b"2", b"3", b"4"]
    assert [m.dup for m in messages] == [True, True, True, False]
    assert [m.packet_id for m in messages[:3]] == [sent[0].packet_id, sent[2].packet_id, sent[3].packet_id]
    client.assert_silent()


@v311("MQTT-4.1.0-1", "MQTT-4.3.3-2")
def test_a_qos_2_message_that_the_server_has_taken_stays_taken_over_a_reconnect(join: Join, space: str) -> None:
    watcher = join()
    watcher.subscribe((f"{space}/a", 2))
    client = join("c", clean=False)
    client.send(wire.publish(f"{space}/a", b"once", qos=2, packet_id=7))
    client.expect(PUBREC, 7)
    client.drop()
    client = join("c", clean=False, session_present=1)
    client.send(wire.publish(f"{space}/a", b"once", qos=2, packet_id=7, dup=True))
    client.expect(PUBREC, 7)
    client.send(wire.ack(PUBREL, 7))
    client.expect(PUBCOMP, 7)
    assert watcher.receive_message().payload == b"once"
    watcher.assert_silent()


@v311("MQTT-3.1.2-6", "MQTT-4.3.3-2")
def test_a_clean_session_forgets_the_qos_2_ids_it_had_received(join: Join, space: str) -> None:
    watcher = join()
    watcher.subscribe((f"{space}/a", 2))
    for payload in (b"first", b"second"):
        client = join("c", clean=True)
        client.send(wire.publish(f"{space}/a", payload, qos=2, packet_id=7))
        client.expect(PUBREC, 7)
        client.send(wire.ack(PUBREL, 7))
        client.expect(PUBCOMP, 7)
        client.send(wire.publish(f"{space}/a", payload + b" open", qos=2, packet_id=8))
        client.expect(PUBREC, 8)
        client.drop()
    client = join("c", clean=True)
    client.send(wire.publish(f"{space}/a", b"third", qos=2, packet_id=8))
    client.expect(PUBREC, 8)
    client.send(wire.ack(PUBREL, 8))
    client.expect(PUBCOMP, 8)
    received = [message.payload for message in watcher.take_messages()]
    # The server may deliver an open exchange at PUBLISH or at PUBREL, so those two may be missing.
    assert [payload for payload in received if b"open" not in payload] == [b"first", b"second", b"third"]


@v311("MQTT-4.1.0-2")
def test_a_session_lasts_as_long_as_its_connection(join: Join, space: str) -> None:
    client = join("c", clean=True)
    client.subscribe((f"{space}/a", 1))
    publisher = join()
    for number in range(3):
        join().disconnect()
        publisher.publish(f"{space}/a", b"%d" % number, qos=1)
        assert client.receive_message().payload == b"%d" % number


@v311("MQTT-3.1.2-7")
@pytest.mark.parametrize("clean", [True, False])
def test_retained_messages_stay_when_the_session_of_their_publisher_ends(join: Join, space: str, clean: bool) -> None:
    publisher = join("p", clean=clean)
    publisher.publish(f"{space}/a", b"kept", qos=1, retain=True)
    publisher.disconnect()
    join("p", clean=True).disconnect()
    reader = join()
    reader.subscribe(f"{space}/a")
    assert reader.receive_message()[:2] == (f"{space}/a", b"kept")

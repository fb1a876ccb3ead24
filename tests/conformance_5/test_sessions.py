"""Sessions (3.1.2.4, 3.1.2.11.2, 4.1, 4.4): what is kept when a client goes, and what it finds when it comes back."""

import pytest

from support import wire, wire_v5
from support.clauses import v5
from support.wire import PUBACK
from support.wire_v5 import SESSION_EXPIRY, SUBSCRIPTION_ID, WILL_DELAY, Join, Will

ENGINES = ("memory", "directory")
STORED = {"clean": False, "expiry": 100}


@v5("MQTT-3.1.2-4", "MQTT-3.1.4-4", "MQTT-3.2.2-2")
def test_clean_start_discards_the_stored_session(join: Join, space: str) -> None:
    client = join("c", **STORED)
    client.subscribe((f"{space}/a", 1))
    client.disconnect()
    publisher = join()
    publisher.publish(f"{space}/a", b"for the old session", qos=1)
    client = join("c", clean=True, expiry=100, session_present=0)
    assert publisher.publish(f"{space}/a", b"for nobody", qos=1) == 0x10
    client.assert_silent()


@v5("MQTT-3.1.2-5", "MQTT-3.1.4-4", "MQTT-3.1.2-23", "MQTT-3.2.2-3")
@pytest.mark.parametrize("ends_with", ["disconnect", "drop"])
def test_a_stored_session_continues(join: Join, space: str, ends_with: str) -> None:
    client = join("c", clean=True, expiry=100)
    client.subscribe((f"{space}/a", 1), properties=[(SUBSCRIPTION_ID, 9)])
    client.disconnect() if ends_with == "disconnect" else client.drop()
    publisher = join()
    publisher.publish(f"{space}/a", b"while away", qos=1)
    client = join("c", **STORED, session_present=1)
    publisher.publish(f"{space}/a", b"when back", qos=1)
    messages = [client.receive_message() for _ in range(2)]
    assert [message.payload for message in messages] == [b"while away", b"when back"]
    assert [message.valued(SUBSCRIPTION_ID) for message in messages] == [[9], [9]]


@v5("MQTT-3.1.2-6", "MQTT-3.2.2-3")
def test_a_first_visit_finds_no_session(join: Join) -> None:
    join("c", **STORED, session_present=0)


@v5("MQTT-3.1.2-23", "MQTT-4.1.0-2")
@pytest.mark.parametrize("expiry", [None, 0])
def test_a_session_without_expiry_ends_with_its_connection(join: Join, space: str, expiry: int | None) -> None:
    client = join("c", clean=False, expiry=expiry)
    client.subscribe((f"{space}/a", 1))
    client.disconnect()
    assert join().publish(f"{space}/a", b"for nobody", qos=1) == 0x10
    join("c", **STORED, session_present=0).assert_silent()


@v5("MQTT-4.1.0-2", "MQTT-3.1.2-8")
def test_a_session_is_discarded_when_its_expiry_is_over(join: Join, space: str) -> None:
    """Its end is seen by the will, whose delay is longer."""
    watcher = join()
    watcher.subscribe(f"{space}/will")
    client = join("c", clean=False, expiry=3, will=Will(f"{space}/will", b"ended", properties=[(WILL_DELAY, 1_000)]))
    client.subscribe((f"{space}/a", 1))
    client.drop()
    publisher = join()
    assert publisher.publish(f"{space}/a", b"kept for it", qos=1) == 0
    assert watcher.receive_message().payload == b"ended"
    assert publisher.publish(f"{space}/a", b"for nobody", qos=1) == 0x10
    join("c", **STORED, session_present=0).assert_silent()


@v5("MQTT-4.1.0-1")
def test_a_session_lasts_as_long_as_its_connection_whatever_its_expiry(join: Join, space: str) -> None:
    """A session of another client with the same expiry shows that the time is over."""
    watcher, client = join(), join("c", expiry=1)
    watcher.subscribe(f"{space}/will")
    client.subscribe((f"{space}/a", 1))
    join(expiry=1, will=Will(f"{space}/will", b"ended", properties=[(WILL_DELAY, 1_000)])).drop()
    assert watcher.receive_message().payload == b"ended"
    join().publish(f"{space}/a", b"still here", qos=1)
    assert client.receive_message().payload == b"still here"


@v5("MQTT-3.1.2-23", "MQTT-4.1.0-2")
def test_disconnect_may_change_the_expiry(join: Join) -> None:
    join("longer", expiry=1).disconnect(properties=[(SESSION_EXPIRY, 100)])
    join("none", expiry=100).disconnect(properties=[(SESSION_EXPIRY, 0)])
    join("longer", **STORED, session_present=1)
    join("none", **STORED, session_present=0)


@v5("MQTT-4.13.1-1")
def test_disconnect_gives_no_expiry_to_a_session_that_had_none(join: Join) -> None:
    client = join("c")
    client.send(wire_v5.disconnect(0, [(SESSION_EXPIRY, 100)]))
    client.assert_disconnected(0x82)
    join("c", **STORED, session_present=0)


@v5("MQTT-3.1.3-2")
def test_sessions_are_kept_apart_by_client_id(join: Join, space: str) -> None:
    for name in ("a", "b", "A"):
        client = join(name, **STORED)
        client.subscribe((f"{space}/{name}", 1))
        client.disconnect()
    publisher = join()
    for name in ("a", "b", "A"):
        publisher.publish(f"{space}/{name}", b"for " + name.encode(), qos=1)
    for name in ("a", "b", "A"):
        client = join(name, **STORED, session_present=1)
        assert [message.payload for message in client.take_messages()] == [b"for " + name.encode()]


@v5("MQTT-4.5.0-1")
def test_a_message_is_added_to_the_session_of_every_matching_client(join: Join, space: str) -> None:
    filters = (f"{space}/a/b", f"{space}/+/b", f"{space}/#", f"{space}/other")
    for number, topic_filter in enumerate(filters):
        client = join(f"away{number}", **STORED)
        client.subscribe((topic_filter, 1))
        client.disconnect()
    connected = [join() for _ in filters]
    for client, topic_filter in zip(connected, filters, strict=True):
        client.subscribe((topic_filter, 1))
    join().publish(f"{space}/a/b", b"hi", qos=1)
    for number, client in enumerate(connected):
        expected = [b"hi"] if number < 3 else []
        assert [message.payload for message in client.take_messages()] == expected
        back = join(f"away{number}", **STORED, session_present=1)
        assert [message.payload for message in back.take_messages()] == expected


@v5("MQTT-4.4.0-1", "MQTT-3.3.1-1", "MQTT-4.3.2-3")
def test_a_qos_1_message_without_puback_comes_again_with_dup_and_its_id_and_only_then(join: Join, space: str) -> None:
    client = join("c", **STORED)
    client.subscribe((f"{space}/a", 1))
    join().publish(f"{space}/a", b"hi", qos=1)
    first = client.receive_message(answer=False)
    assert not first.dup
    client.assert_silent()
    client.drop()
    client = join("c", **STORED, session_present=1)
    assert client.receive_message(answer=True) == first._replace(dup=True)
    client.ping()
    client.drop()
    join("c", **STORED, session_present=1).assert_silent()


@v5("MQTT-4.4.0-1", "MQTT-3.3.1-1")
def test_redelivery_keeps_the_order_and_goes_before_what_waits(join: Join, space: str) -> None:
    client = join("c", **STORED)
    client.subscribe((f"{space}/a", 1))
    publisher = join()
    for number in range(4):
        publisher.publish(f"{space}/a", b"%d" % number, qos=1)
    sent = [client.receive_message(answer=False) for _ in range(4)]
    client.send(wire.ack(PUBACK, sent[1].packet_id))
    client.ping()
    client.drop()
    publisher.publish(f"{space}/a", b"4", qos=1)
    client = join("c", **STORED, session_present=1)
    messages = [client.receive_message() for _ in range(4)]
    assert [m.payload for m in messages] == [b"0", b"2", b"3", b"4"]
    assert [m.dup for m in messages] == [True, True, True, False]
    assert [m.packet_id for m in messages[:3]] == [sent[0].packet_id, sent[2].packet_id, sent[3].packet_id]
    client.assert_silent()


def test_a_session_passes_between_versions(join: Join, broker_address: wire.Address, space: str) -> None:
    """A client of 3.1.1 continues the session that it had with MQTT 5, and the other way round."""
    client = join("c", **STORED)
    client.subscribe((f"{space}/a", 1))
    client.disconnect()
    join().publish(f"{space}/a", b"one", qos=1)
    with wire.Wire(broker_address) as older:
        assert older.connect(f"{space}c", clean=False) == wire.Connack(1, 0)
        assert older.receive_message().payload == b"one"
        older.disconnect()
    join().publish(f"{space}/a", b"two", qos=1)
    assert join("c", **STORED, session_present=1).receive_message().payload == b"two"

"""Wills (3.1.2.5, 3.1.3.2): when they are published, and as what."""

import pytest

from support import wire_v5
from support.clauses import v5
from support.wire_v5 import (
    CONTENT_TYPE,
    CORRELATION_DATA,
    MESSAGE_EXPIRY,
    PAYLOAD_FORMAT,
    RESPONSE_TOPIC,
    USER_PROPERTY,
    WILL_DELAY,
    Join,
    Message,
    Pairs,
    Will,
)

ENGINES = ("memory", "directory")


@v5("MQTT-3.1.2-8", "MQTT-3.1.2-14")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_will_is_published_at_its_qos_as_an_ordinary_message(join: Join, space: str, qos: int) -> None:
    watcher = join()
    watcher.subscribe(f"{space}/will")
    join(will=Will(f"{space}/will", b"gone", qos)).drop()
    assert watcher.receive_message()._replace(packet_id=0) == Message(f"{space}/will", b"gone", qos)
    late = join()
    late.subscribe(f"{space}/will")
    late.assert_silent()


@v5("MQTT-3.1.2-15")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_will_with_will_retain_is_retained(join: Join, space: str, qos: int) -> None:
    watcher = join()
    watcher.subscribe(f"{space}/will")
    join(will=Will(f"{space}/will", b"gone", qos, retain=True)).drop()
    assert not watcher.receive_message().retain
    late = join()
    late.subscribe(f"{space}/will")
    assert late.receive_message()._replace(packet_id=0) == Message(f"{space}/will", b"gone", qos, retain=True)


@v5("MQTT-3.1.2-15", "MQTT-3.3.1-6")
def test_an_empty_retained_will_clears_its_topic(join: Join, space: str) -> None:
    join().publish(f"{space}/will", b"here", retain=True)
    watcher = join()
    watcher.subscribe(f"{space}/will")
    assert watcher.receive_message().payload == b"here"
    join(will=Will(f"{space}/will", b"", 1, retain=True)).drop()
    assert watcher.receive_message().payload == b""
    late = join()
    late.subscribe(f"{space}/will")
    late.assert_silent()


@v5("MQTT-3.1.3-10", "MQTT-3.1.2-9")
def test_the_properties_of_a_will_are_those_of_its_message(join: Join, space: str) -> None:
    properties: Pairs = [
        (PAYLOAD_FORMAT, 1),
        (CONTENT_TYPE, "text/plain"),
        (RESPONSE_TOPIC, "answers"),
        (CORRELATION_DATA, b"\x00"),
        (USER_PROPERTY, ("b", "1")),
        (USER_PROPERTY, ("a", "2")),
        (USER_PROPERTY, ("b", "1")),
    ]
    watcher = join()
    watcher.subscribe(f"{space}/will")
    join(will=Will(f"{space}/will", b"gone", 1, properties=[(WILL_DELAY, 0), *properties])).drop()
    assert watcher.receive_message().properties == properties


@v5("MQTT-3.1.3-10", "MQTT-3.3.2-6")
def test_the_expiry_of_a_will_counts_from_its_publication(join: Join, space: str) -> None:
    watcher = join()
    watcher.subscribe(f"{space}/will")
    properties: Pairs = [(WILL_DELAY, 1), (MESSAGE_EXPIRY, 500)]
    join(expiry=100, will=Will(f"{space}/will", b"gone", 1, properties=properties)).drop()
    assert watcher.receive_message().valued(MESSAGE_EXPIRY) == [500]


@v5("MQTT-3.14.4-3", "MQTT-3.1.2-10", "MQTT-3.1.2-8")
def test_a_disconnect_deletes_the_will(join: Join, space: str) -> None:
    watcher = join()
    watcher.subscribe(f"{space}/#")
    join("c", clean=False, expiry=100, will=Will(f"{space}/will", b"must not come")).disconnect()
    watcher.assert_silent()
    # Nor does it come up later, when the session's connection ends in another way.
    join("c", clean=False, expiry=100, session_present=1).drop()
    watcher.assert_silent()


@v5("MQTT-3.1.2-8")
@pytest.mark.parametrize("reason", [0x04, 0x80, 0x81, 0x83, 0x97, 0x99])
def test_a_disconnect_with_another_reason_publishes_the_will(join: Join, space: str, reason: int) -> None:
    watcher = join()
    watcher.subscribe(f"{space}/will")
    join(will=Will(f"{space}/will", b"gone")).disconnect(reason)
    assert watcher.receive_message().payload == b"gone"


@v5("MQTT-3.1.2-8", "MQTT-4.13.2-1")
def test_an_error_of_the_client_publishes_the_will(join: Join, space: str) -> None:
    watcher = join()
    watcher.subscribe(f"{space}/will")
    client = join(will=Will(f"{space}/will", b"gone"))
    client.send(wire_v5.publish("a/#", b"no"))
    client.assert_disconnected(0x90)
    assert watcher.receive_message().payload == b"gone"


@v5("MQTT-3.1.2-10")
def test_a_will_is_published_once(join: Join, space: str) -> None:
    watcher = join()
    watcher.subscribe(f"{space}/#")
    join("c", clean=False, expiry=100, will=Will(f"{space}/will", b"gone")).drop()
    assert watcher.receive_message().payload == b"gone"
    join("c", clean=False, expiry=100, session_present=1).drop()
    watcher.assert_silent()


@v5("MQTT-3.1.3-9", "MQTT-3.1.2-8")
def test_a_client_that_is_back_in_time_has_its_will_not_published(join: Join, space: str) -> None:
    """The will of another client with the same delay shows that the time is over."""
    watcher = join()
    watcher.subscribe(f"{space}/#")
    delayed: Pairs = [(WILL_DELAY, 1)]
    join("back", expiry=100, will=Will(f"{space}/back", b"must not come", properties=delayed)).drop()
    back = join("back", clean=False, expiry=100, session_present=1)
    join("away", expiry=100, will=Will(f"{space}/away", b"gone", properties=delayed)).drop()
    assert watcher.receive_message().topic_name == f"{space}/away"
    watcher.assert_silent()
    back.drop()
    watcher.assert_silent()


@v5("MQTT-3.1.2-8")
@pytest.mark.parametrize("expiry", [0, 100])
def test_a_clean_start_or_the_end_of_the_session_ends_the_delay(join: Join, space: str, expiry: int) -> None:
    watcher = join()
    watcher.subscribe(f"{space}/will")
    join("c", expiry=expiry, will=Will(f"{space}/will", b"gone", properties=[(WILL_DELAY, 1_000)])).drop()
    if expiry:
        watcher.assert_silent()
        join("c", clean=True)
    assert watcher.receive_message().payload == b"gone"


@v5("MQTT-3.1.2-8", "MQTT-3.1.4-3")
@pytest.mark.parametrize("delay", [0, 1_000])
def test_a_takeover_publishes_the_will_unless_it_has_a_delay(join: Join, space: str, delay: int) -> None:
    watcher = join()
    watcher.subscribe(f"{space}/will")
    will = Will(f"{space}/will", b"older gone", properties=[(WILL_DELAY, delay)])
    older = join("same", expiry=100, will=will)
    join("same", clean=False, expiry=100, session_present=1)
    older.assert_disconnected(0x8E)
    if delay == 0:
        assert watcher.receive_message().payload == b"older gone"
    watcher.assert_silent()


@v5("MQTT-3.1.2-7")
def test_an_absent_subscriber_gets_the_will_later(join: Join, space: str) -> None:
    sleeper = join("s", clean=False, expiry=100)
    sleeper.subscribe((f"{space}/will", 1))
    sleeper.disconnect()
    join(will=Will(f"{space}/will", b"gone", 1)).drop()
    sleeper = join("s", clean=False, expiry=100, session_present=1)
    assert sleeper.receive_message().payload == b"gone"

"""Retained messages (3.3.1.3): what a new subscriber finds."""

import pytest

from support import wire
from support.clauses import v311
from support.wire import Join, Message

ENGINES = ("memory", "directory")


@v311("MQTT-3.3.1-5", "MQTT-3.3.1-6", "MQTT-3.3.1-8")
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_a_retained_message_is_stored_with_its_qos(join: Join, space: str, published: int, granted: int) -> None:
    join().publish(f"{space}/a", b"state", qos=published, retain=True)
    reader = join()
    assert reader.subscribe((f"{space}/a", granted)) == [granted]
    message = reader.receive_message()
    assert message._replace(packet_id=0) == Message(f"{space}/a", b"state", min(published, granted), retain=True)
    reader.assert_silent()


@v311("MQTT-3.3.1-6")
def test_only_the_last_retained_message_of_each_topic_is_sent(join: Join, space: str) -> None:
    publisher = join()
    for number in range(3):
        for level in ("a", "b", "b/c"):
            publisher.publish(f"{space}/{level}", f"{level} {number}".encode(), qos=1, retain=True)
    reader = join()
    reader.subscribe(f"{space}/#")
    messages = reader.take_messages()
    assert {m.topic_name: m.payload for m in messages} == {
        f"{space}/a": b"a 2",
        f"{space}/b": b"b 2",
        f"{space}/b/c": b"b/c 2",
    }
    assert len(messages) == 3
    assert all(m.retain for m in messages)


@v311("MQTT-3.3.1-6")
@pytest.mark.parametrize(
    ("topic_filter", "expected"),
    [
        ("a/b", ["a/b"]),
        ("a/+", ["a/", "a/b", "a/x"]),
        ("a/#", ["a", "a/", "a/b", "a/b/c", "a/x"]),
        ("+/b", ["a/b"]),
        ("+", ["a"]),
        ("+/+/+", ["a/b/c"]),
        ("a/+/c", ["a/b/c"]),
        ("a/+/#", ["a/", "a/b", "a/b/c", "a/x"]),
        ("b/#", []),
        ("A", []),
    ],
)
def test_a_wildcard_finds_the_retained_messages_it_matches(
    join: Join, space: str, topic_filter: str, expected: list[str]
) -> None:
    publisher = join()
    for name in ("a", "a/", "a/b", "a/b/c", "a/x", "ab"):
        publisher.publish(f"{space}/{name}", b"x", retain=True, qos=1)
    publisher.publish(f"{space}/ab", b"", retain=True, qos=1)
    reader = join()
    reader.subscribe(f"{space}/{topic_filter}")
    assert sorted(m.topic_name for m in reader.take_messages()) == [f"{space}/{name}" for name in expected]


@v311("MQTT-3.3.1-7")
@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_retained_message_at_qos_0_replaces_the_one_before(join: Join, space: str, before: int) -> None:
    publisher = join()
    publisher.publish(f"{space}/a", b"before", qos=before, retain=True)
    publisher.publish(f"{space}/a", b"after", qos=0, retain=True)
    reader = join()
    reader.subscribe(f"{space}/a")
    assert reader.take_messages() == [Message(f"{space}/a", b"after", 0, retain=True)]


@v311("MQTT-3.3.1-9")
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [True, False])
def test_an_established_subscription_never_sees_the_flag(join: Join, space: str, qos: int, retain: bool) -> None:
    reader = join()
    reader.subscribe((f"{space}/a", qos))
    join().publish(f"{space}/a", b"live", qos=qos, retain=retain)
    message = reader.receive_message()
    assert (message.payload, message.retain) == (b"live", False)


@v311("MQTT-3.3.1-9", "MQTT-3.3.1-8")
def test_a_stored_session_gets_what_it_missed_without_the_flag(join: Join, space: str) -> None:
    reader = join("r", clean=False)
    reader.subscribe((f"{space}/a", 1))
    reader.disconnect()
    join().publish(f"{space}/a", b"missed", qos=1, retain=True)
    reader = join("r", clean=False, session_present=1)
    message = reader.receive_message()
    assert (message.payload, message.retain) == (b"missed", False)
    reader.subscribe((f"{space}/a", 1))
    message = reader.receive_message()
    assert (message.payload, message.retain) == (b"missed", True)
    reader.assert_silent()


@v311("MQTT-3.3.1-10", "MQTT-3.3.1-11")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_an_empty_retained_message_is_delivered_and_clears(join: Join, space: str, qos: int) -> None:
    publisher, reader = join(), join()
    publisher.publish(f"{space}/a", b"state", qos=1, retain=True)
    reader.subscribe((f"{space}/a", 2))
    assert reader.receive_message().retain
    publisher.publish(f"{space}/a", b"", qos=qos, retain=True)
    assert reader.receive_message()._replace(packet_id=0) == Message(f"{space}/a", b"", qos, retain=False)
    late = join()
    late.subscribe(f"{space}/a", f"{space}/#")
    late.assert_silent()


@v311("MQTT-3.3.1-11")
def test_an_empty_retained_message_is_not_stored_where_nothing_was(join: Join, space: str) -> None:
    join().publish(f"{space}/a", b"", qos=1, retain=True)
    reader = join()
    reader.subscribe(f"{space}/a")
    reader.assert_silent()


@v311("MQTT-3.3.1-10")
def test_clearing_one_topic_leaves_the_others(join: Join, space: str) -> None:
    publisher = join()
    for name in ("a", "a/b", "a/b/c"):
        publisher.publish(f"{space}/{name}", b"x", retain=True)
    publisher.publish(f"{space}/a/b", b"", retain=True)
    reader = join()
    reader.subscribe(f"{space}/#")
    assert sorted(m.topic_name for m in reader.take_messages()) == [f"{space}/a", f"{space}/a/b/c"]


@v311("MQTT-3.3.1-12")
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("payload", [b"", b"passing"])
def test_a_message_without_the_flag_touches_nothing(join: Join, space: str, qos: int, payload: bytes) -> None:
    publisher = join()
    publisher.publish(f"{space}/a", b"kept", qos=1, retain=True)
    publisher.publish(f"{space}/a", payload, qos=qos)
    publisher.publish(f"{space}/b", payload, qos=qos)
    reader = join()
    reader.subscribe(f"{space}/#")
    assert [(m.topic_name, m.payload) for m in reader.take_messages()] == [(f"{space}/a", b"kept")]


@v311("MQTT-3.3.1-8", "MQTT-3.8.4-3")
def test_each_subscribe_to_the_same_filter_sends_them_again(join: Join, space: str) -> None:
    join().publish(f"{space}/a", b"state", retain=True)
    reader = join()
    for _ in range(3):
        reader.subscribe(f"{space}/a")
        assert reader.take_messages() == [Message(f"{space}/a", b"state", 0, retain=True)]


def test_publish_then_subscribe_in_one_breath_finds_the_message(join: Join, space: str) -> None:
    client = join()
    client.send(
        wire.publish(f"{space}/a", b"one", retain=True)
        + wire.publish(f"{space}/a", b"two", retain=True)
        + wire.subscribe(1, (f"{space}/a", 0))
        + wire.publish(f"{space}/a", b"three", retain=True)
        + wire.publish(f"{space}/a", b"", retain=True)
        + wire.subscribe(2, (f"{space}/a", 0))
    )
    client.await_reply(wire.SUBACK, 1)
    client.await_reply(wire.SUBACK, 2)
    assert [(m.payload, m.retain) for m in client.take_messages()] == [(b"two", True), (b"three", False), (b"", False)]


def test_a_big_retained_message_comes_back_whole(join: Join, space: str) -> None:
    payload = bytes(range(256)) * 1000
    join().publish(f"{space}/a", payload, qos=1, retain=True)
    reader = join()
    reader.subscribe(f"{space}/a")
    assert reader.receive_message().payload == payload


@v311(
    "MQTT-3.3.1-5",
    "MQTT-3.3.1-6",
    "MQTT-3.3.1-7",
    "MQTT-3.3.1-8",
    "MQTT-3.3.1-9",
    "MQTT-3.3.1-10",
    "MQTT-3.3.1-11",
    "MQTT-3.3.1-12",
)
def test_the_timeline_of_the_house(join: Join, space: str) -> None:
    """Four subscribers come at different times; each step says what every one of them receives."""
    garage, room = f"{space}/house/garage", f"{space}/house/room"
    s1, s2, s3, s4, publisher = (join(name) for name in ("S1", "S2", "S3", "S4", "P"))

    def received() -> list[list[tuple[str, bytes, bool]]]:
        return [[(m.topic_name, m.payload, m.retain) for m in s.take_messages()] for s in (s1, s2, s3, s4)]

    # 0
    s1.subscribe(garage)
    assert received() == [[], [], [], []]
    # 1
    publisher.publish(garage, b"temp", retain=True)
    assert received() == [[(garage, b"temp", False)], [], [], []]
    # 3
    publisher.publish(garage, b"on", retain=True)
    assert received() == [[(garage, b"on", False)], [], [], []]
    # 5
    s2.subscribe(garage)
    assert received() == [[], [(garage, b"on", True)], [], []]
    # 6: the table names no flag here, so nothing is retained and the garage keeps "on".
    publisher.publish(garage, b"off")
    publisher.publish(room, b"off")
    assert received() == [[(garage, b"off", False)], [(garage, b"off", False)], [], []]
    # 8
    s3.subscribe(garage, room)
    assert received() == [[], [], [(garage, b"on", True)], []]
    # 9
    publisher.publish(garage, b"")
    publisher.publish(room, b"")
    live = [(garage, b"", False)]
    assert received() == [live, live, [*live, (room, b"", False)], []]
    # 10: nothing was cleared either.
    s4.subscribe(garage, room)
    assert received() == [[], [], [], [(garage, b"on", True)]]


@v311(
    "MQTT-3.3.1-5",
    "MQTT-3.3.1-6",
    "MQTT-3.3.1-7",
    "MQTT-3.3.1-8",
    "MQTT-3.3.1-9",
    "MQTT-3.3.1-10",
    "MQTT-3.3.1-11",
)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_timeline_of_the_house_with_every_message_retained(join: Join, space: str, qos: int) -> None:
    """The same table with the flag set at times 6 and 9 too, so that the last subscriber finds nothing."""
    garage, room = f"{space}/house/garage", f"{space}/house/room"
    s1, s2, s3, s4, publisher = (join(name) for name in ("S1", "S2", "S3", "S4", "P"))

    def received() -> list[list[tuple[str, bytes, bool]]]:
        return [[(m.topic_name, m.payload, m.retain) for m in s.take_messages()] for s in (s1, s2, s3, s4)]

    s1.subscribe(garage)
    publisher.publish(garage, b"temp", qos=qos, retain=True)
    assert received() == [[(garage, b"temp", False)], [], [], []]
    publisher.publish(garage, b"on", qos=qos, retain=True)
    assert received() == [[(garage, b"on", False)], [], [], []]
    s2.subscribe(garage)
    assert received() == [[], [(garage, b"on", True)], [], []]
    publisher.publish(garage, b"off", qos=qos, retain=True)
    publisher.publish(room, b"off", qos=qos, retain=True)
    assert received() == [[(garage, b"off", False)], [(garage, b"off", False)], [], []]
    s3.subscribe(garage, room)
    assert received() == [[], [], [(garage, b"off", True), (room, b"off", True)], []]
    publisher.publish(garage, b"", qos=qos, retain=True)
    publisher.publish(room, b"", qos=qos, retain=True)
    live = [(garage, b"", False)]
    assert received() == [live, live, [*live, (room, b"", False)], []]
    s4.subscribe(garage, room)
    assert received() == [[], [], [], []]

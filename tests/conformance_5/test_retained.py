"""Retained messages (3.3.1.3, 3.8.3.1): what a subscriber finds, by Retain Handling and Retain As Published."""

import pytest

from support.clauses import v5
from support.wire_v5 import (
    CONTENT_TYPE,
    CORRELATION_DATA,
    MESSAGE_EXPIRY,
    PAYLOAD_FORMAT,
    RESPONSE_TOPIC,
    SUBSCRIPTION_ID,
    USER_PROPERTY,
    Join,
    Message,
    options,
)

ENGINES = ("memory", "directory")


@v5("MQTT-3.3.1-5", "MQTT-3.3.1-9")
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_a_retained_message_is_stored_with_its_qos(join: Join, space: str, published: int, granted: int) -> None:
    join().publish(f"{space}/a", b"state", qos=published, retain=True)
    reader = join()
    assert reader.subscribe((f"{space}/a", granted)) == [granted]
    message = reader.receive_message()
    assert message._replace(packet_id=0) == Message(f"{space}/a", b"state", min(published, granted), retain=True)
    reader.assert_silent()


@v5("MQTT-3.3.1-5")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_retained_message_replaces_the_one_of_its_topic_and_no_other(join: Join, space: str, qos: int) -> None:
    publisher = join()
    for payload in (b"before", b"after"):
        publisher.publish(f"{space}/a", payload, qos=1, retain=True)
    publisher.publish(f"{space}/b", b"before", qos=2, retain=True)
    publisher.publish(f"{space}/b", b"after", qos=qos, retain=True)
    reader = join()
    reader.subscribe(f"{space}/#")
    found = [(m.topic_name, m.payload, m.qos) for m in reader.take_messages()]
    assert sorted(found) == [(f"{space}/a", b"after", 1), (f"{space}/b", b"after", qos)]


@v5("MQTT-3.3.1-6", "MQTT-3.3.1-7", "MQTT-3.3.1-12")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_an_empty_retained_message_is_delivered_and_clears(join: Join, space: str, qos: int) -> None:
    publisher, reader = join(), join()
    publisher.publish(f"{space}/a", b"state", qos=1, retain=True)
    publisher.publish(f"{space}/b", b"stays", qos=1, retain=True)
    reader.subscribe(f"{space}/a")
    assert reader.receive_message().retain
    publisher.publish(f"{space}/a", b"", qos=qos, retain=True)
    assert reader.receive_message()._replace(packet_id=0) == Message(f"{space}/a", b"", qos, retain=False)
    late = join()
    late.subscribe(f"{space}/#")
    assert [m.topic_name for m in late.take_messages()] == [f"{space}/b"]


@v5("MQTT-3.3.1-7")
def test_an_empty_retained_message_is_not_stored_where_nothing_was(join: Join, space: str) -> None:
    join().publish(f"{space}/a", b"", qos=1, retain=True, properties=[(USER_PROPERTY, ("k", "v"))])
    reader = join()
    reader.subscribe(f"{space}/a")
    reader.assert_silent()


@v5("MQTT-3.3.1-8")
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("payload", [b"", b"passing"])
def test_a_message_without_the_flag_changes_nothing(join: Join, space: str, qos: int, payload: bytes) -> None:
    publisher = join()
    publisher.publish(f"{space}/a", b"kept", qos=1, retain=True)
    publisher.publish(f"{space}/a", payload, qos=qos)
    publisher.publish(f"{space}/b", payload, qos=qos)
    reader = join()
    reader.subscribe(f"{space}/#")
    assert [(m.topic_name, m.payload) for m in reader.take_messages()] == [(f"{space}/a", b"kept")]


@v5("MQTT-3.3.1-9", "MQTT-3.3.1-10", "MQTT-3.3.1-11", "MQTT-3.8.4-4")
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize(
    ("handling", "at_first", "at_again", "at_anew"), [(0, 1, 1, 1), (1, 1, 0, 1), (2, 0, 0, 0)], ids=["0", "1", "2"]
)
def test_retain_handling_decides_which_subscribe_is_sent_retained_messages(
    join: Join, space: str, qos: int, handling: int, at_first: int, at_again: int, at_anew: int
) -> None:
    join().publish(f"{space}/a", b"state", qos=qos, retain=True)
    reader = join()
    asked = (f"{space}/+", options(qos, handling=handling))
    expected = [(f"{space}/a", b"state", True)]

    def found() -> list[tuple[str, bytes, bool]]:
        return [(m.topic_name, m.payload, m.retain) for m in reader.take_messages()]

    reader.subscribe(asked)
    assert found() == expected * at_first
    reader.subscribe(asked)
    assert found() == expected * at_again
    # Another filter is another subscription; the same one after UNSUBSCRIBE is new as well.
    reader.subscribe((f"{space}/a", asked[1]))
    assert found() == expected * at_first
    reader.unsubscribe(asked[0])
    reader.subscribe(asked)
    assert found() == expected * at_anew


@v5("MQTT-3.3.1-10")
def test_a_subscription_of_a_stored_session_exists(join: Join, space: str) -> None:
    join().publish(f"{space}/a", b"state", qos=1, retain=True)
    asked = (f"{space}/a", options(1, handling=1))
    reader = join("r", clean=False, expiry=100)
    reader.subscribe(asked)
    assert reader.receive_message().retain
    reader.disconnect()
    reader = join("r", clean=False, expiry=100, session_present=1)
    reader.subscribe(asked)
    reader.assert_silent()
    reader.disconnect()
    reader = join("r", clean=True)
    reader.subscribe(asked)
    assert reader.receive_message().retain


@v5("MQTT-3.3.1-12", "MQTT-3.3.1-13")
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [True, False])
def test_retain_as_published_keeps_the_flag_of_live_messages(join: Join, space: str, qos: int, retain: bool) -> None:
    plain, as_published = join(), join()
    plain.subscribe((f"{space}/a", options(qos)))
    as_published.subscribe((f"{space}/a", options(qos, as_published=True)))
    join().publish(f"{space}/a", b"live", qos=qos, retain=retain)
    assert plain.receive_message().retain is False
    assert as_published.receive_message().retain is retain


@v5("MQTT-3.3.1-12", "MQTT-3.3.1-13")
@pytest.mark.parametrize("as_published", [True, False])
def test_retain_as_published_holds_for_what_a_stored_session_missed(join: Join, space: str, as_published: bool) -> None:
    reader = join("r", clean=False, expiry=100)
    reader.subscribe((f"{space}/a", options(1, as_published=as_published)))
    reader.disconnect()
    writer = join()
    writer.publish(f"{space}/a", b"retained", qos=1, retain=True)
    writer.publish(f"{space}/a", b"plain", qos=1)
    reader = join("r", clean=False, expiry=100, session_present=1)
    assert [(m.payload, m.retain) for m in reader.take_messages()] == [
        (b"retained", as_published),
        (b"plain", False),
    ]


@v5("MQTT-3.3.1-9")
@pytest.mark.parametrize("as_published", [True, False])
def test_a_message_sent_because_of_a_subscribe_has_the_flag(join: Join, space: str, as_published: bool) -> None:
    join().publish(f"{space}/a", b"state", qos=1, retain=True)
    reader = join()
    reader.subscribe((f"{space}/a", options(1, as_published=as_published)), properties=[(SUBSCRIPTION_ID, 7)])
    message = reader.receive_message()
    assert message.retain and message.valued(SUBSCRIPTION_ID) == [7]


@v5("MQTT-3.3.1-5", "MQTT-3.3.2-4", "MQTT-3.3.2-15", "MQTT-3.3.2-16", "MQTT-3.3.2-17", "MQTT-3.3.2-18")
def test_a_retained_message_has_its_properties(join: Join, space: str) -> None:
    properties: list[tuple[int, int | str | bytes | tuple[str, str]]] = [
        (PAYLOAD_FORMAT, 1),
        (CONTENT_TYPE, "text/plain"),
        (RESPONSE_TOPIC, f"{space}/answer"),
        (CORRELATION_DATA, b"\x00\xff"),
        (USER_PROPERTY, ("b", "1")),
        (USER_PROPERTY, ("a", "2")),
        (USER_PROPERTY, ("b", "1")),
    ]
    join().publish(f"{space}/a", b"state", qos=1, retain=True, properties=properties)
    reader = join()
    reader.subscribe(f"{space}/a")
    assert reader.receive_message().properties == properties


@v5("MQTT-3.3.2-6", "MQTT-3.3.2-5")
def test_a_retained_message_says_how_long_it_is_still_good(join: Join, space: str) -> None:
    publisher = join()
    publisher.publish(f"{space}/long", b"x", qos=1, retain=True, properties=[(MESSAGE_EXPIRY, 1_000)])
    publisher.publish(f"{space}/over", b"x", qos=1, retain=True, properties=[(MESSAGE_EXPIRY, 0)])
    reader = join()
    reader.subscribe(f"{space}/#")
    (message,) = reader.take_messages()
    (rest,) = message.valued(MESSAGE_EXPIRY)
    assert message.topic_name == f"{space}/long"
    assert isinstance(rest, int) and 900 < rest <= 1_000


@v5(
    "MQTT-3.3.1-5",
    "MQTT-3.3.1-6",
    "MQTT-3.3.1-7",
    "MQTT-3.3.1-8",
    "MQTT-3.3.1-9",
    "MQTT-3.3.1-12",
    "MQTT-3.3.1-13",
)
@pytest.mark.parametrize("later_retained", [True, False])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_timeline_of_the_house(join: Join, space: str, qos: int, later_retained: bool) -> None:
    """The table of `tests/conformance_311/test_retained.py`; the second subscriber asks for Retain As Published."""
    garage, room = f"{space}/house/garage", f"{space}/house/room"
    s1, s2, s3, s4, publisher = (join(name) for name in ("S1", "S2", "S3", "S4", "P"))

    def received() -> list[list[tuple[str, bytes, bool]]]:
        return [[(m.topic_name, m.payload, m.retain) for m in s.take_messages()] for s in (s1, s2, s3, s4)]

    s1.subscribe(garage)
    publisher.publish(garage, b"temp", qos=qos, retain=True)
    assert received() == [[(garage, b"temp", False)], [], [], []]
    publisher.publish(garage, b"on", qos=qos, retain=True)
    assert received() == [[(garage, b"on", False)], [], [], []]
    s2.subscribe((garage, options(2, as_published=True)))
    assert received() == [[], [(garage, b"on", True)], [], []]
    publisher.publish(garage, b"off", qos=qos, retain=later_retained)
    publisher.publish(room, b"off", qos=qos, retain=later_retained)
    assert received() == [[(garage, b"off", False)], [(garage, b"off", later_retained)], [], []]
    s3.subscribe(garage, room)
    kept = [(garage, b"off", True), (room, b"off", True)] if later_retained else [(garage, b"on", True)]
    assert received() == [[], [], kept, []]
    publisher.publish(garage, b"", qos=qos, retain=later_retained)
    publisher.publish(room, b"", qos=qos, retain=later_retained)
    live = [(garage, b"", False)]
    assert received() == [live, [(garage, b"", later_retained)], [*live, (room, b"", False)], []]
    s4.subscribe(garage, room)
    assert received() == [[], [], [], [] if later_retained else kept]

"""PUBLISH (3.3): the flags, the properties of a message, aliases, and which copy a subscriber gets."""

import pytest

from support import wire, wire_v5
from support.clauses import v5
from support.wire_v5 import (
    ALIAS,
    ALIAS_MAXIMUM,
    CONTENT_TYPE,
    CORRELATION_DATA,
    MESSAGE_EXPIRY,
    PAYLOAD_FORMAT,
    RESPONSE_TOPIC,
    SUBSCRIPTION_ID,
    USER_PROPERTY,
    Join,
    Pairs,
    options,
)

ALL_PROPERTIES: Pairs = [
    (PAYLOAD_FORMAT, 1),
    (CONTENT_TYPE, "text/plain"),
    (RESPONSE_TOPIC, "answers/here"),
    (CORRELATION_DATA, b"\x00\x01\xff"),
    (USER_PROPERTY, ("b", "1")),
    (USER_PROPERTY, ("a", "2")),
    (USER_PROPERTY, ("b", "1")),
    (USER_PROPERTY, ("", "")),
]


@v5("MQTT-3.3.1-3", "MQTT-3.3.1-1")
@pytest.mark.parametrize("dup", [True, False])
@pytest.mark.parametrize("qos", [1, 2])
def test_dup_of_the_publisher_is_not_passed_on(join: Join, space: str, qos: int, dup: bool) -> None:
    reader, writer = join(), join()
    reader.subscribe(f"{space}/a")
    writer.publish(f"{space}/a", b"hi", qos=qos, dup=dup)
    assert not reader.receive_message().dup


@v5("MQTT-3.3.2-3")
@pytest.mark.parametrize("topic_filter", ["a/b", "a/+", "+/b", "a/#", "#"])
@pytest.mark.parametrize("has_aliases", [True, False])
def test_the_topic_name_is_the_one_that_was_published_and_matches(
    join: Join, space: str, topic_filter: str, has_aliases: bool
) -> None:
    reader, writer = join(properties=[(ALIAS_MAXIMUM, 10)] if has_aliases else []), join()
    reader.subscribe(f"{space}/{topic_filter}")
    for name in ("a/b", "other/x", "a/b"):
        writer.publish(f"{space}/{name}", b"hi")
    names: dict[object, str] = {}
    for message in reader.take_messages():
        for alias in message.valued(ALIAS):
            if message.topic_name:
                names[alias] = message.topic_name
        name = message.topic_name or names[message.valued(ALIAS)[0]]
        assert name == f"{space}/a/b" or (topic_filter == "#" and name == f"{space}/other/x")


@v5(
    "MQTT-3.3.2-4",
    "MQTT-3.3.2-15",
    "MQTT-3.3.2-16",
    "MQTT-3.3.2-17",
    "MQTT-3.3.2-18",
    "MQTT-3.3.2-20",
)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_properties_of_a_message_reach_every_subscriber_as_they_came(join: Join, space: str, qos: int) -> None:
    readers = [join() for _ in range(3)]
    away = join("away", clean=False, expiry=100)
    for reader in (*readers, away):
        reader.subscribe((f"{space}/a", options(2)))
    away.disconnect()
    join().publish(f"{space}/a", b"hi", qos=qos, properties=ALL_PROPERTIES)
    for reader in readers:
        assert reader.receive_message().properties == ALL_PROPERTIES
    away = join("away", clean=False, expiry=100, session_present=1)
    if qos:
        assert away.receive_message().properties == ALL_PROPERTIES
    away.assert_silent()


@v5("MQTT-3.3.2-4")
@pytest.mark.parametrize("properties", [[], [(PAYLOAD_FORMAT, 0)], [(PAYLOAD_FORMAT, 1)]], ids=["absent", "0", "1"])
def test_the_payload_format_indicator_is_sent_as_it_came(join: Join, space: str, properties: Pairs) -> None:
    reader = join()
    reader.subscribe(f"{space}/a")
    join().publish(f"{space}/a", b"text", properties=properties)
    assert reader.receive_message().properties == properties


def test_a_client_of_3_1_1_gets_the_message_without_properties(
    join: Join, broker_address: wire.Address, space: str
) -> None:
    with wire.Wire(broker_address) as older:
        older.connect(f"{space}old")
        older.subscribe(f"{space}/a")
        join().publish(f"{space}/a", b"hi", qos=1, properties=ALL_PROPERTIES)
        assert older.receive_message()[:3] == (f"{space}/a", b"hi", 1)
        reader = join()
        reader.subscribe(f"{space}/b")
        older.publish(f"{space}/b", b"from before", qos=1)
        message = reader.receive_message()
        assert (message.payload, message.properties) == (b"from before", [])


@v5("MQTT-3.3.2-5", "MQTT-3.3.2-6")
def test_a_message_that_expired_before_its_delivery_is_deleted_and_the_rest_is_counted_down(
    join: Join, space: str
) -> None:
    reader, writer = join("r", clean=False, expiry=100), join()
    reader.subscribe((f"{space}/a", 1))
    reader.disconnect()
    writer.publish(f"{space}/a", b"short", qos=1, properties=[(MESSAGE_EXPIRY, 1)])
    writer.publish(f"{space}/a", b"long", qos=1, properties=[(MESSAGE_EXPIRY, 1_000)])
    # Twice the time of the short one, seen by retained messages that live one second each.
    for name in ("probe", "probe again"):
        writer.publish(f"{space}/{name}", b"x", retain=True, properties=[(MESSAGE_EXPIRY, 1)])
        while True:
            probe = join()
            probe.subscribe(f"{space}/{name}")
            if not probe.take_messages():
                break
            probe.close()
    (message,) = join("r", clean=False, expiry=100, session_present=1).take_messages()
    (rest,) = message.valued(MESSAGE_EXPIRY)
    assert message.payload == b"long"
    assert isinstance(rest, int) and 900 < rest < 1_000


# -- aliases -----------------------------------------------------------------------------------------------------------


@v5("MQTT-3.3.2-12", "MQTT-3.3.2-7")
def test_every_alias_up_to_the_maximum_is_accepted_and_belongs_to_its_connection(join: Join, space: str) -> None:
    reader, writer, other = join(), join(), join()
    reader.subscribe((f"{space}/#", 0))
    for alias in range(1, 65):
        writer.send(wire_v5.publish(f"{space}/{alias}", b"named", properties=[(ALIAS, alias)]))
    for alias in range(1, 65):
        writer.send(wire_v5.publish("", b"by alias", properties=[(ALIAS, alias)]))
    writer.ping()
    messages = reader.take_messages()
    expected = [f"{space}/{alias}" for alias in range(1, 65)]
    assert [m.topic_name for m in messages if m.payload == b"named"] == expected
    assert [m.topic_name for m in messages if m.payload == b"by alias"] == expected
    other.send(wire_v5.publish("", b"x", properties=[(ALIAS, 1)]))
    other.assert_disconnected(0x82)
    reader.assert_silent()


@v5("MQTT-3.3.2-7")
def test_an_alias_may_be_given_another_name(join: Join, space: str) -> None:
    reader, writer = join(), join()
    reader.subscribe((f"{space}/#", 0))
    for name in ("a", "b"):
        writer.publish(f"{space}/{name}", b"named", properties=[(ALIAS, 1)])
        writer.publish("", b"by alias", properties=[(ALIAS, 1)])
    assert [m.topic_name[-1] for m in reader.take_messages()] == ["a", "a", "b", "b"]


@v5("MQTT-3.3.2-8")
@pytest.mark.parametrize("alias", [0, 65, 65_535])
def test_an_alias_outside_the_maximum_ends_the_connection(join: Join, space: str, alias: int) -> None:
    client, bystander = join(), join()
    client.send(wire_v5.publish(f"{space}/a", b"x", properties=[(ALIAS, alias)]))
    client.assert_disconnected(0x94)
    bystander.assert_silent()


@v5("MQTT-3.3.2-11", "MQTT-3.1.2-26", "MQTT-3.1.2-27", "MQTT-3.3.2-8")
@pytest.mark.parametrize("maximum", [0, 1, 3, 64, 65_535])
def test_the_server_sends_no_alias_above_the_maximum_and_each_has_its_name(
    join: Join, space: str, maximum: int
) -> None:
    reader, writer = join(properties=[(ALIAS_MAXIMUM, maximum)] if maximum else []), join()
    reader.subscribe((f"{space}/#", 0))
    numbers = [*range(70), *range(70), 3, 3, 3]
    for number in numbers:
        writer.send(wire_v5.publish(f"{space}/a-long-name/{number}", b"%d" % number))
    writer.ping()
    names: dict[object, str] = {}
    used: set[object] = set()
    for message in reader.take_messages():
        aliases = message.valued(ALIAS)
        used.update(aliases)
        if aliases and message.topic_name:
            names[aliases[0]] = message.topic_name
        name = message.topic_name or names[aliases[0]]
        assert name == f"{space}/a-long-name/{message.payload.decode()}"
    assert used <= set(range(1, maximum + 1))
    assert bool(used) == bool(maximum)


# -- which copy --------------------------------------------------------------------------------------------------------


@v5("MQTT-3.3.4-2", "MQTT-3.3.4-3", "MQTT-3.3.4-4")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_overlapping_subscriptions_cause_one_copy_at_the_highest_qos_with_all_identifiers(
    join: Join, space: str, qos: int
) -> None:
    reader = join()
    for number, (topic_filter, granted) in enumerate([("a/b", 0), ("a/+", 2), ("#", 1), ("x", 2)], 1):
        reader.subscribe((f"{space}/{topic_filter}", granted), properties=[(SUBSCRIPTION_ID, number * 1_000)])
    reader.subscribe((f"{space}/+/b", 1))
    join().publish(f"{space}/a/b", b"hi", qos=qos)
    message = reader.receive_message()
    assert message.qos == qos
    assert sorted(map(str, message.valued(SUBSCRIPTION_ID))) == ["1000", "2000", "3000"]
    reader.assert_silent()

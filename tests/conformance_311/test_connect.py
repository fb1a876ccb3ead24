"""CONNECT and CONNACK (3.1, 3.2): who is let in, and how the others are sent away."""

import string as letters

import pytest

from support import wire
from support.clauses import v5, v311
from support.wire import CONNACK, PINGREQ, SUBACK, Connack, Dial, Join, Will


@v311("MQTT-3.1.4-4", "MQTT-3.2.0-1", "MQTT-3.1.0-1")
def test_a_valid_connect_is_answered_with_connack_zero_first_of_all(dial: Dial, space: str) -> None:
    client = dial()
    client.send(wire.connect(space))
    assert client.receive() == (CONNACK, 0, b"\x00\x00")


@v311("MQTT-3.2.0-1")
def test_connack_comes_before_messages_that_wait_for_the_session(join: Join, dial: Dial, space: str) -> None:
    sleeper = join("sleeper", clean=False)
    sleeper.subscribe((f"{space}/a", 1))
    sleeper.disconnect()
    join().publish(f"{space}/a", b"waiting", qos=1)
    sleeper = dial()
    sleeper.send(wire.connect(f"{space}sleeper", clean=False))
    assert sleeper.receive() == (CONNACK, 0, b"\x01\x00")
    assert sleeper.receive_message().payload == b"waiting"


def test_mqtt_3_1_clients_are_accepted(dial: Dial, space: str) -> None:
    client = dial()
    assert client.connect(space, name="MQIsdp", level=3) == Connack(0, 0)
    client.subscribe((f"{space}/a", 2))
    client.publish(f"{space}/a", b"hi", qos=2)
    assert client.receive_message().payload == b"hi"


@v311("MQTT-3.1.2-2", "MQTT-3.2.2-4", "MQTT-3.2.2-5")
@pytest.mark.parametrize("level", [0, 1, 2, 3, 131, 134, 255])
def test_an_unknown_protocol_level_gets_return_code_1(dial: Dial, space: str, level: int) -> None:
    client = dial()
    assert client.connect(space, level=level) == Connack(0, 1)
    client.assert_closed()


@v5("MQTT-3.1.2-2")
@pytest.mark.parametrize("level", [6, 127])
def test_a_client_of_a_later_version_is_told_in_the_form_of_mqtt_5(dial: Dial, space: str, level: int) -> None:
    """The level is judged before the rest is read, which may have another form."""
    client = dial()
    body = wire.string("MQTT") + bytes((level,)) + b"\x02\x00\x3c\xff\xff" + wire.string(space)
    client.send(wire.packet(wire.CONNECT, 0, body))
    kind, flags, answer = client.receive()
    assert (kind, flags, answer[:2]) == (CONNACK, 0, b"\x00\x84")
    client.assert_closed()


@v311("MQTT-3.1.2-1", "MQTT-3.2.2-6")
@pytest.mark.parametrize("name", ["", "MQT", "mqtt", "MQTTX", "MQIsdP", "HTTP"])
def test_an_unknown_protocol_name_is_not_served(dial: Dial, space: str, name: str) -> None:
    client = dial()
    client.send(wire.connect(space, name=name))
    client.assert_closed()


@v311("MQTT-3.1.3-5")
@pytest.mark.parametrize("client_id", ["a", "0", "Z", letters.ascii_letters[:23], letters.digits + "abcdefghijKLM"])
def test_short_alphanumeric_client_ids_are_accepted(dial: Dial, client_id: str) -> None:
    assert dial().connect(client_id) == Connack(0, 0)


@v311("MQTT-3.1.3-5")
def test_every_letter_and_digit_may_stand_in_a_client_id(dial: Dial) -> None:
    alphabet = letters.digits + letters.ascii_letters
    for start in range(0, len(alphabet), 23):
        assert dial().connect(alphabet[start : start + 23]) == Connack(0, 0)


def test_long_client_ids_and_other_characters_are_accepted(dial: Dial, space: str) -> None:
    assert dial().connect(f"{space}/ü-{'x' * 100}") == Connack(0, 0)


@v311("MQTT-3.1.3-6")
def test_clients_with_empty_ids_are_served_as_different_clients(dial: Dial, space: str) -> None:
    first, second = dial(), dial()
    assert first.connect("") == Connack(0, 0)
    assert second.connect("") == Connack(0, 0)
    first.subscribe(f"{space}/a")
    second.subscribe(f"{space}/a")
    second.publish(f"{space}/a", b"both")
    assert first.receive_message().payload == b"both"
    assert second.receive_message().payload == b"both"


@v311("MQTT-3.1.3-8", "MQTT-3.1.3-9", "MQTT-3.2.2-4", "MQTT-3.2.2-5")
def test_an_empty_client_id_without_clean_session_gets_return_code_2(dial: Dial) -> None:
    client = dial()
    assert client.connect("", clean=False) == Connack(0, 2)
    client.assert_closed()


@v311("MQTT-3.1.0-1", "MQTT-4.8.0-1")
@pytest.mark.parametrize(
    "first",
    [
        wire.publish("a", b"x"),
        wire.subscribe(1, ("a", 0)),
        wire.unsubscribe(1, "a"),
        wire.packet(PINGREQ, 0),
        wire.packet(wire.DISCONNECT, 0),
        wire.ack(wire.PUBACK, 1),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["publish", "subscribe", "unsubscribe", "pingreq", "disconnect", "puback", "http"],
)
def test_anything_before_connect_ends_the_connection(dial: Dial, first: bytes) -> None:
    client = dial()
    client.send(first)
    client.assert_closed()


@v311("MQTT-3.1.0-1")
def test_what_comes_before_connect_has_no_effect(join: Join, dial: Dial, space: str) -> None:
    watcher = join()
    watcher.subscribe(f"{space}/#")
    unauthenticated = dial()
    unauthenticated.send(wire.publish(f"{space}/a", b"smuggled", retain=True), wire.connect(f"{space}late"))
    unauthenticated.assert_closed()
    watcher.assert_silent()


@v311("MQTT-3.1.0-2", "MQTT-4.8.0-1")
def test_a_second_connect_ends_the_connection(join: Join, space: str) -> None:
    client = join("twice")
    client.send(wire.connect(f"{space}twice"))
    client.assert_closed()


@v311("MQTT-3.1.4-2")
def test_a_client_id_that_connects_again_ends_the_older_connection(join: Join) -> None:
    older = join("same")
    newer = join("same")
    older.assert_closed()
    newer.assert_silent()


@v311("MQTT-3.1.4-2", "MQTT-3.1.2-4")
def test_a_takeover_carries_the_stored_session_over(join: Join, space: str) -> None:
    older = join("same", clean=False)
    older.subscribe((f"{space}/a", 1))
    newer = join("same", clean=False, session_present=1)
    older.assert_closed()
    join().publish(f"{space}/a", b"still subscribed", qos=1)
    assert newer.receive_message().payload == b"still subscribed"
    newer.assert_silent()


@v311("MQTT-3.1.4-5")
def test_packets_behind_a_refused_connect_are_not_processed(join: Join, dial: Dial, space: str) -> None:
    watcher = join()
    watcher.subscribe(f"{space}/#")
    for refused in (wire.connect("", clean=False), wire.connect(f"{space}level", level=9)):
        client = dial()
        client.send(refused + wire.publish(f"{space}/a", b"must not arrive", retain=True))
        assert client.expect(CONNACK).body[1] != 0
        client.assert_closed()
    watcher.assert_silent()
    late = join()
    late.subscribe(f"{space}/#")
    late.assert_silent()


def test_packets_sent_right_behind_connect_are_processed(dial: Dial, space: str) -> None:
    client = dial()
    client.send(
        wire.connect(space)
        + wire.subscribe(1, (f"{space}/a", 0))
        + wire.publish(f"{space}/a", b"at once")
        + wire.packet(PINGREQ, 0)
    )
    assert client.expect(CONNACK).body == b"\x00\x00"
    assert client.expect(SUBACK, 1).body[2:] == b"\x00"
    assert client.receive_message().payload == b"at once"
    client.expect(wire.PINGRESP)


@v311("MQTT-3.1.3-1", "MQTT-3.1.3-3", "MQTT-3.1.2-19", "MQTT-3.1.2-21")
def test_all_fields_of_the_payload_are_read_in_their_order(join: Join, dial: Dial, space: str) -> None:
    watcher = join()
    watcher.subscribe(f"{space}/#")
    will = Will(f"{space}/will", b"the will")
    client = dial()
    assert client.connect(f"{space}full", will=will, user_name="user", password=b"\x00\xff") == Connack(0, 0)
    client.drop()
    assert watcher.receive_message()[:2] == (f"{space}/will", b"the will")


@v311("MQTT-3.1.2-19", "MQTT-3.1.2-20")
@pytest.mark.parametrize("password", [None, b"", b"secret"])
def test_a_user_name_comes_with_or_without_a_password(dial: Dial, space: str, password: bytes | None) -> None:
    assert dial().connect(space, user_name="user", password=password) == Connack(0, 0)


HEAD = wire.string("MQTT") + b"\x04"

# Connect flags, keep alive and payload that do not fit one another.
MALFORMED = [
    pytest.param(b"\x03\x00\x3c" + wire.string("c"), id="reserved-flag", marks=v311("MQTT-3.1.2-3")),
    pytest.param(b"\x02\x00\x3c", id="no-client-id", marks=v311("MQTT-3.1.3-3")),
    pytest.param(b"\x02\x00\x3c" + wire.string(b"\xff\xfe"), id="client-id-utf8", marks=v311("MQTT-3.1.3-4")),
    pytest.param(b"\x02\x00\x3c" + wire.string(b"a\x00b"), id="client-id-nul", marks=v311("MQTT-1.5.3-2")),
    pytest.param(b"\x02\x00\x3c" + wire.string(b"a\xed\xa0\x80"), id="surrogate", marks=v311("MQTT-1.5.3-1")),
    pytest.param(b"\x02\x00\x3c" + wire.string("c") + b"\x00", id="a-byte-too-many"),
    pytest.param(b"\x06\x00\x3c" + wire.string("c"), id="will-missing", marks=v311("MQTT-3.1.2-9")),
    pytest.param(
        b"\x06\x00\x3c" + wire.string("c") + wire.string("w"), id="will-message-missing", marks=v311("MQTT-3.1.2-9")
    ),
    pytest.param(
        b"\x06\x00\x3c" + wire.string("c") + wire.string(b"\xc0\xaf") + wire.string("m"),
        id="will-topic-utf8",
        marks=v311("MQTT-3.1.3-10"),
    ),
    pytest.param(
        b"\x06\x00\x3c" + wire.string("c") + wire.string("") + wire.string("m"),
        id="will-topic-empty",
        marks=v311("MQTT-4.7.3-1"),
    ),
    pytest.param(
        b"\x06\x00\x3c" + wire.string("c") + wire.string("a/#") + wire.string("m"),
        id="will-topic-wildcard",
        marks=v311("MQTT-4.7.1-1"),
    ),
    pytest.param(
        b"\x1e\x00\x3c" + wire.string("c") + wire.string("w") + wire.string("m"),
        id="will-qos-3",
        marks=v311("MQTT-3.1.2-14"),
    ),
    pytest.param(
        b"\x0a\x00\x3c" + wire.string("c"),
        id="will-qos-1-without-will",
        marks=v311("MQTT-3.1.2-11", "MQTT-3.1.2-13"),
    ),
    pytest.param(
        b"\x12\x00\x3c" + wire.string("c"),
        id="will-qos-2-without-will",
        marks=v311("MQTT-3.1.2-11", "MQTT-3.1.2-13"),
    ),
    pytest.param(
        b"\x22\x00\x3c" + wire.string("c"),
        id="will-retain-without-will",
        marks=v311("MQTT-3.1.2-11", "MQTT-3.1.2-15"),
    ),
    pytest.param(
        b"\x02\x00\x3c" + wire.string("c") + wire.string("w") + wire.string("m"),
        id="will-without-will-flag",
        marks=v311("MQTT-3.1.2-11"),
    ),
    pytest.param(
        b"\x02\x00\x3c" + wire.string("c") + wire.string("u"),
        id="user-name-without-flag",
        marks=v311("MQTT-3.1.2-18"),
    ),
    pytest.param(b"\x82\x00\x3c" + wire.string("c"), id="user-name-missing", marks=v311("MQTT-3.1.2-19")),
    pytest.param(
        b"\x82\x00\x3c" + wire.string("c") + wire.string(b"\xff"), id="user-name-utf8", marks=v311("MQTT-3.1.3-11")
    ),
    pytest.param(
        b"\x82\x00\x3c" + wire.string("c") + wire.string("u") + wire.string("p"),
        id="password-without-flag",
        marks=v311("MQTT-3.1.2-20"),
    ),
    pytest.param(
        b"\xc2\x00\x3c" + wire.string("c") + wire.string("u"), id="password-missing", marks=v311("MQTT-3.1.2-21")
    ),
    pytest.param(
        b"\x42\x00\x3c" + wire.string("c") + wire.string("p"),
        id="password-without-user-name",
        marks=v311("MQTT-3.1.2-22"),
    ),
]


@v311("MQTT-3.1.4-1", "MQTT-3.2.2-6")
@pytest.mark.parametrize("rest", MALFORMED)
def test_a_malformed_connect_ends_the_connection_without_connack(dial: Dial, rest: bytes) -> None:
    client = dial()
    client.send(wire.packet(wire.CONNECT, 0, HEAD + rest))
    client.assert_closed()


@v311("MQTT-3.1.4-1", "MQTT-3.1.3-1")
def test_a_connect_cut_anywhere_inside_ends_the_connection_without_connack(dial: Dial, space: str) -> None:
    whole = wire.connect(space, will=Will("w", b"m", 1), user_name="u", password=b"p")[2:]
    for end in range(len(whole)):
        client = dial()
        client.send(wire.packet(wire.CONNECT, 0, whole[:end]))
        client.assert_closed()


@v311("MQTT-2.2.2-2", "MQTT-3.1.4-1")
@pytest.mark.parametrize("flags", [1, 2, 4, 8, 15])
def test_connect_with_flags_in_its_fixed_header_ends_the_connection(dial: Dial, space: str, flags: int) -> None:
    client = dial()
    client.send(wire.packet(wire.CONNECT, flags, wire.connect(space)[2:]))
    client.assert_closed()


def test_a_connect_that_comes_byte_by_byte_is_accepted(dial: Dial, space: str) -> None:
    client = dial()
    for byte in wire.connect(space, will=Will("w", b"m")):
        client.send(bytes([byte]))
    assert client.expect(CONNACK).body == b"\x00\x00"

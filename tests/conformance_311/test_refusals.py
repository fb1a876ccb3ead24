"""What a server may refuse, and how (3.1.4, 3.3.5, 3.8.4, 4.8): each test brings the broker it needs."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from embermq import Broker
from embermq.broker.limits import Limits
from support import wire
from support.clauses import v311
from support.house import ME, House
from support.stores import ScriptedStore
from support.wire import CONNACK, PUBACK, Connack, Will, Wire

Started = Callable[..., Callable[[], Wire]]


@pytest.fixture
def started() -> Iterator[Started]:
    """Starts a broker with these options; what it returns opens connections to it."""
    with ExitStack() as stack:

        def start(**options: object) -> Callable[[], Wire]:
            broker = stack.enter_context(Broker.in_thread(**options))  # type: ignore[arg-type]
            assert broker.port
            address = broker.host, broker.port
            return lambda: stack.enter_context(Wire(address))

        yield start


@v311("MQTT-3.2.2-4", "MQTT-3.2.2-5")
@pytest.mark.parametrize(
    ("credentials", "return_code"),
    [
        ({"user_name": "me", "password": b"guess"}, 4),
        ({"user_name": "me"}, 4),
        ({}, 4),
        ({"user_name": "you", "password": b"secret"}, 5),
    ],
)
def test_a_refused_user_gets_its_return_code_and_a_closed_connection(
    started: Started, credentials: dict[str, object], return_code: int
) -> None:
    client = started(access=House())()
    assert client.connect("c", **credentials) == Connack(0, return_code)
    client.assert_closed()


@v311("MQTT-3.2.2-4")
def test_a_refused_client_does_not_learn_of_a_stored_session(started: Started) -> None:
    dial = started(access=House())
    owner = dial()
    assert owner.connect("c", clean=False, **ME) == Connack(0, 0)
    owner.disconnect()
    thief = dial()
    assert thief.connect("c", clean=False, user_name="me", password=b"guess") == Connack(0, 4)
    thief.assert_closed()
    assert dial().connect("c", clean=False, **ME) == Connack(1, 0)


@v311("MQTT-3.1.4-2", "MQTT-3.1.4-5")
def test_a_refused_client_takes_nothing_over(started: Started) -> None:
    dial = started(access=House())
    owner, thief = dial(), dial()
    owner.connect("c", **ME)
    thief.send(wire.connect("c", user_name="me", password=b"guess") + wire.publish("open/a", b"smuggled"))
    assert thief.expect(CONNACK).body == b"\x00\x04"
    thief.assert_closed()
    owner.subscribe("open/#")
    owner.assert_silent()


@v311("MQTT-3.3.5-2", "MQTT-3.3.4-1")
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize(("topic_name", "retain"), [("closed/a", False), ("open/a", True)])
def test_a_publish_that_is_not_permitted_is_acknowledged_and_dropped(
    started: Started, qos: int, topic_name: str, retain: bool
) -> None:
    dial = started(access=House())
    reader, writer = dial(), dial()
    reader.connect("r", **ME)
    reader.subscribe("open/#")
    writer.connect("w", **ME)
    writer.publish(topic_name, b"dropped", qos=qos, retain=retain)
    writer.publish("open/a", b"permitted", qos=qos)
    assert [m.payload for m in reader.take_messages()] == [b"permitted"]
    late = dial()
    late.connect("l", **ME)
    late.subscribe("open/#")
    late.assert_silent()


@v311("MQTT-3.8.4-5", "MQTT-3.9.3-1", "MQTT-3.9.3-2", "MQTT-3.8.4-4")
def test_a_filter_that_is_not_permitted_fails_and_the_others_are_granted(started: Started) -> None:
    dial = started(access=House())
    client = dial()
    client.connect("c", **ME)
    assert client.subscribe(("open/a", 1), ("closed/#", 1), ("#", 2), ("open/b", 0)) == [1, 0x80, 0x80, 0]
    client.publish("open/a", b"hi")
    assert client.receive_message().payload == b"hi"


@v311("MQTT-4.8.0-2")
def test_a_fault_of_the_store_ends_the_connection_that_needed_it_and_no_other(started: Started) -> None:
    store = ScriptedStore(late=False, at_once=False, queues=False)
    dial = started(store=store)
    bystander, writer = dial(), dial()
    bystander.connect("b")
    bystander.subscribe("a")
    writer.connect("w")
    store.trouble = "no space left"
    writer.send(wire.publish("a", b"not kept", qos=1, packet_id=1))
    writer.assert_closed()
    bystander.assert_silent()
    store.trouble = ""
    writer = dial()
    writer.connect("w")
    writer.send(wire.publish("a", b"kept", qos=1, packet_id=1, dup=True))
    writer.expect(PUBACK, 1)
    assert bystander.receive_message().payload == b"kept"


def test_a_connection_without_connect_is_closed_after_the_time_for_it(started: Started) -> None:
    dial = started(limits=Limits(connect_timeout_s=1))
    client = dial()
    client.connect("c")
    silent, half = dial(), dial()
    half.send(wire.connect("half")[:7])
    silent.assert_closed()
    half.assert_closed()
    client.assert_silent()


def test_the_packet_size_is_judged_by_the_header(started: Started) -> None:
    """A packet may be as long as the limit; of a longer one nothing but the header need come."""
    dial = started(limits=Limits(packet_bytes_max=1000))
    client = dial()
    client.connect("c")
    longest = wire.publish("a", b"x" * 994)
    assert len(longest) == 1000
    client.send(longest)
    client.assert_silent()
    client.send(b"\x30" + wire.remaining_length(1001))
    client.assert_closed()


def test_a_client_that_never_reads_is_bounded_and_stalls_nobody(started: Started) -> None:
    """Past its output cap QoS 0 is dropped for that client alone; QoS 1 waits until it reads again."""
    dial = started(limits=Limits(output_bytes_max=256 * 1024))
    sleeper, reader, writer = dial(), dial(), dial()
    for client, name in ((sleeper, "s"), (reader, "r"), (writer, "w")):
        client.connect(name)
    sleeper.subscribe(("much", 0), ("important", 1))
    reader.subscribe(("much", 0))
    payload = bytes(100_000)
    for _ in range(300):
        writer.send(wire.publish("much", payload))
        assert reader.receive_message().payload == payload
    writer.publish("important", b"kept", qos=1)
    seen: list[str] = []
    while "important" not in seen:
        seen.append(sleeper.receive_message().topic_name)
    assert seen.count("much") < 300


@v311("MQTT-4.8.0-1")
@pytest.mark.parametrize(
    ("data", "word"),
    [
        (wire.publish("a/#", b"x"), "wildcard"),
        (wire.packet(wire.PUBLISH, 6, b"\x00\x01a\x00\x01"), "QoS 3"),
        (wire.subscribe(1), "filter"),
        (wire.connect("c"), "CONNECT"),
        (wire.packet(15, 0), "15"),
    ],
    ids=["wildcard", "qos-3", "no-filter", "second-connect", "type-15"],
)
def test_one_log_line_says_why_a_client_was_disconnected(
    started: Started, caplog: pytest.LogCaptureFixture, data: bytes, word: str
) -> None:
    client = started()()
    client.connect("offender", will=Will("w", b"gone"))
    with caplog.at_level(logging.WARNING, "embermq"):
        client.send(data)
        client.assert_closed()
    (line,) = [record.getMessage() for record in caplog.records]
    assert "offender" in line
    assert word in line


def test_a_client_without_an_id_is_logged_by_the_one_it_was_given(
    started: Started, caplog: pytest.LogCaptureFixture
) -> None:
    client = started()()
    client.connect("")
    with caplog.at_level(logging.WARNING, "embermq"):
        client.send("f0 00")
        client.assert_closed()
    (line,) = caplog.messages
    assert line.startswith("'auto-")


def test_a_client_without_an_id_that_was_refused_has_none_in_the_log(
    started: Started, caplog: pytest.LogCaptureFixture
) -> None:
    client = started()()
    with caplog.at_level(logging.WARNING, "embermq"):
        client.connect("", clean=False)
        client.assert_closed()
    (line,) = caplog.messages
    assert line.startswith("a client (127.0.0.1:")


def test_a_client_of_an_unknown_version_is_logged_with_its_id_and_what_to_do(
    started: Started, caplog: pytest.LogCaptureFixture
) -> None:
    client = started()()
    body = wire.string("MQTT") + b"\x06\x02\x00\x3c" + b"\x05\x11\x00\x00\x00\x3c" + wire.string("pump-7")
    with caplog.at_level(logging.WARNING, "embermq"):
        client.send(wire.packet(wire.CONNECT, 0, body))
        assert client.receive().body[:2] == b"\x00\x84"
        client.assert_closed()
    (line,) = caplog.messages
    assert "disconnected: level 6 of MQTT is not supported; connect with MQTT 3.1.1 (client 'pump-7')" in line


def test_a_refused_publish_and_a_refused_subscribe_are_logged_with_client_topic_and_reason(
    started: Started, caplog: pytest.LogCaptureFixture
) -> None:
    client = started(access=House())()
    client.connect("offender", **ME)
    with caplog.at_level(logging.WARNING, "embermq"):
        client.publish("closed/door", b"x", qos=1)
        assert client.subscribe(("closed/#", 1), ("open/a", 1)) == [0x80, 1]
        for _ in range(200):
            client.publish("closed/\n" + "x" * 1_000, b"x", qos=1)
    first, second, third, *more = caplog.messages
    assert first == "PUBLISH of 'offender' to 'closed/door' refused: no right to publish (0x87)"
    assert second == "SUBSCRIBE of 'offender' to 'closed/#' refused: no right to read all that it can match (0x87)"
    assert "\n" not in third and len(third) < 250
    assert len(more) < 150

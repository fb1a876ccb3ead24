"""What a server may refuse, and how (3.1.4, 3.3.5, 3.8.4, 4.12, 4.13): each test brings the broker it needs."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from embermq import Broker
from embermq.broker.limits import Limits
from support import wire, wire_v5
from support.clauses import v5
from support.house import ME, House
from support.stores import ScriptedStore
from support.wire import CONNACK, PUBACK
from support.wire_v5 import SERVER_KEEP_ALIVE, SESSION_EXPIRY, Dial, Will, WireV5

Started = Callable[..., Dial]


@pytest.fixture
def started() -> Iterator[Started]:
    """Starts a broker with these options; what it returns opens connections to it."""
    with ExitStack() as stack:

        def start(**options: object) -> Dial:
            broker = stack.enter_context(Broker.in_thread(**options))  # type: ignore[arg-type]
            assert broker.port
            address = broker.host, broker.port
            return lambda: stack.enter_context(WireV5(address))

        yield start


@v5("MQTT-3.1.4-2", "MQTT-3.2.2-7", "MQTT-3.2.2-6")
@pytest.mark.parametrize(
    ("credentials", "reason"),
    [
        ({"user_name": "me", "password": b"guess"}, 0x86),
        ({"user_name": "me"}, 0x86),
        ({"password": b"secret"}, 0x86),
        ({}, 0x86),
        ({"user_name": "you", "password": b"secret"}, 0x87),
    ],
)
def test_a_refused_user_gets_its_reason_and_a_closed_connection(
    started: Started, credentials: dict[str, object], reason: int
) -> None:
    dial = started(access=House())
    owner = dial()
    assert owner.connect("c", expiry=100, **ME).reason == 0
    owner.disconnect()
    client = dial()
    client.send(wire_v5.connect("c", clean=False, expiry=100, **credentials))  # type: ignore[arg-type]
    client.assert_refused(reason)
    assert dial().connect("c", clean=False, expiry=100, **ME).session_present


@v5("MQTT-3.1.3-8", "MQTT-3.1.4-2")
def test_the_client_id_of_another_user_is_not_accepted(started: Started) -> None:
    dial = started(access=House())
    owner, other = dial(), dial()
    owner.connect("c", **ME)
    other.send(wire_v5.connect("c", user_name="guest", password=b"secret"))
    other.assert_refused(0x85)
    owner.assert_silent()


@v5("MQTT-3.1.4-6", "MQTT-3.1.4-2")
def test_a_refused_client_takes_nothing_over_and_leaves_nothing(started: Started) -> None:
    dial = started(access=House())
    owner, thief = dial(), dial()
    owner.connect("c", **ME)
    owner.subscribe("open/#")
    thief.send(
        wire_v5.connect("c", user_name="me", password=b"guess", will=Will("open/will", b"must not come")),
        wire_v5.publish("open/a", b"smuggled", qos=1, packet_id=1),
        wire_v5.subscribe(1, ("open/#", 0)),
    )
    thief.assert_refused(0x86)
    owner.assert_silent()


@v5("MQTT-3.3.4-1", "MQTT-4.3.3-9", "MQTT-3.4.2-1", "MQTT-3.5.2-1")
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize(("topic_name", "retain"), [("closed/a", False), ("open/a", True)])
def test_a_publish_that_is_not_permitted_is_refused_with_its_reason(
    started: Started, qos: int, topic_name: str, retain: bool
) -> None:
    dial = started(access=House())
    reader, writer = dial(), dial()
    reader.connect("r", **ME)
    reader.subscribe("open/#")
    writer.connect("w", **ME)
    assert writer.publish(topic_name, b"dropped", qos=qos, retain=retain) == (0x87 if qos else 0)
    # The connection goes on, and at QoS 2 the refused id is free.
    if qos == 2:
        writer.send(wire_v5.publish("open/a", b"permitted", qos=2, packet_id=1))
        assert writer.expect_reason(wire.PUBREC, 1) == 0
    else:
        assert writer.publish("open/a", b"permitted", qos=qos) == 0
    assert [m.payload for m in reader.take_messages()] == [b"permitted"]
    late = dial()
    late.connect("l", **ME)
    late.subscribe("open/#")
    late.assert_silent()


@v5("MQTT-3.8.4-6", "MQTT-3.8.4-7", "MQTT-3.9.3-1", "MQTT-3.8.4-5")
def test_a_filter_that_is_not_permitted_fails_and_the_others_are_granted(started: Started) -> None:
    client = started(access=House())()
    client.connect("c", **ME)
    asked: list[tuple[str | bytes, int]] = [("open/a", 1), ("closed/#", 1), ("#", 2), ("$share/g/closed/a", 1)]
    assert client.subscribe(*asked, ("open/b", 0)) == [1, 0x87, 0x87, 0x87, 0]
    client.publish("open/a", b"hi")
    assert client.receive_message().payload == b"hi"


@v5("MQTT-3.2.2-22")
def test_a_client_is_told_the_keep_alive_and_the_expiry_that_it_gets(started: Started) -> None:
    dial = started(limits=Limits(keep_alive_max_s=10, session_expiry_max_s=100))
    told = dial().connect("much", keep_alive=60, expiry=0xFFFFFFFF).properties
    assert (told[SERVER_KEEP_ALIVE], told[SESSION_EXPIRY]) == (10, 100)
    told = dial().connect("none", keep_alive=0, expiry=0).properties
    assert told[SERVER_KEEP_ALIVE] == 10 and SESSION_EXPIRY not in told
    told = dial().connect("little", keep_alive=5, expiry=50).properties
    assert not {SERVER_KEEP_ALIVE, SESSION_EXPIRY} & set(told)


@v5("MQTT-4.13.2-1")
def test_a_fault_of_the_store_ends_the_connection_that_needed_it_and_no_other(started: Started) -> None:
    store = ScriptedStore(late=False, at_once=False, queues=False)
    dial = started(store=store)
    bystander, writer = dial(), dial()
    bystander.connect("b")
    bystander.subscribe("a")
    writer.connect("w")
    store.trouble = "no space left"
    writer.send(wire_v5.publish("a", b"not kept", qos=1, packet_id=1))
    writer.assert_disconnected(0x83)
    bystander.assert_silent()
    refused = dial()
    refused.send(wire_v5.connect("p", expiry=100))
    refused.assert_refused(0x88)
    store.trouble = ""
    writer = dial()
    writer.connect("w")
    writer.send(wire_v5.publish("a", b"kept", qos=1, packet_id=1, dup=True))
    assert writer.expect_reason(PUBACK, 1) == 0
    assert bystander.receive_message().payload == b"kept"


def test_the_server_says_that_it_stops() -> None:
    with Broker.in_thread(port=0) as broker:
        assert broker.port
        client = WireV5((broker.host, broker.port))
        client.send(wire_v5.connect("c"))
        client.expect(CONNACK)
    with client:
        client.assert_disconnected(0x8B)

"""A client that asks for much with properties, aliases or identifiers is bounded, and others go on.

The bound on AUTH is in `test_authentication.py`.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from embermq import Broker
from embermq.broker.limits import Limits
from embermq.protocol.mqtt.settings import (
    PROPERTIES_BYTES_MAX,
    PROPERTIES_MAX,
    TOPIC_ALIAS_BYTES_MAX,
    TOPIC_ALIAS_MAXIMUM,
)
from support import wire, wire_v5
from support.wire_v5 import (
    ALIAS,
    CONTENT_TYPE,
    SUBSCRIPTION_ID,
    USER_PROPERTY,
    Dial,
    Join,
    Pairs,
    Will,
    WireV5,
)

PAIR: Pairs = [(USER_PROPERTY, ("k", "v"))]
Sent = Callable[[Pairs], bytes]

# Every packet of a client that may have user properties, after CONNECT.
PACKETS: dict[str, Sent] = {
    "publish": lambda properties: wire_v5.publish("a", b"", properties=properties),
    "puback": lambda properties: wire_v5.ack(wire.PUBACK, 1, 0, properties),
    "pubrec": lambda properties: wire_v5.ack(wire.PUBREC, 1, 0, properties),
    "pubrel": lambda properties: wire_v5.ack(wire.PUBREL, 1, 0, properties),
    "pubcomp": lambda properties: wire_v5.ack(wire.PUBCOMP, 1, 0, properties),
    "subscribe": lambda properties: wire_v5.subscribe(1, ("a", 0), properties=properties),
    "unsubscribe": lambda properties: wire_v5.unsubscribe(1, "a", properties=properties),
    "disconnect": lambda properties: wire_v5.disconnect(0x04, properties),
    "auth": lambda properties: wire_v5.auth(0x19, "M", b"", properties),
}


@pytest.mark.parametrize("kind", list(PACKETS))
def test_the_number_of_user_properties_is_bounded_in_every_packet(join: Join, kind: str) -> None:
    client, bystander = join(), join()
    client.send(PACKETS[kind](list(PAIR) * (PROPERTIES_MAX + 1)))
    client.assert_disconnected(0x97)
    bystander.assert_silent()


@pytest.mark.parametrize("kind", list(PACKETS))
def test_the_bytes_of_user_properties_are_bounded_in_every_packet(join: Join, kind: str) -> None:
    client, bystander = join(), join()
    large: Pairs = [(USER_PROPERTY, ("k" * 60_000, "v" * 60_000))] * (PROPERTIES_BYTES_MAX // 120_000 + 1)
    client.send(PACKETS[kind](large))
    client.assert_disconnected(0x97)
    bystander.assert_silent()


@pytest.mark.parametrize("place", ["connect", "will"])
def test_the_user_properties_of_a_connect_are_bounded(dial: Dial, join: Join, space: str, place: str) -> None:
    client, bystander = dial(), join()
    many = list(PAIR) * (PROPERTIES_MAX + 1)
    if place == "connect":
        client.send(wire_v5.connect(space, properties=many))
    else:
        client.send(wire_v5.connect(space, will=Will(f"{space}/will", b"", properties=many)))
    client.assert_refused(0x97)
    bystander.assert_silent()


def test_as_many_user_properties_as_are_allowed_are_delivered(join: Join, space: str) -> None:
    client = join()
    client.subscribe(f"{space}/a")
    pairs: Pairs = [(USER_PROPERTY, (str(number), "v")) for number in range(PROPERTIES_MAX)]
    client.publish(f"{space}/a", b"", properties=pairs)
    assert client.receive_message().properties == pairs


def test_the_number_of_aliases_is_bounded(join: Join, space: str) -> None:
    client, bystander = join(), join()
    for alias in range(1, TOPIC_ALIAS_MAXIMUM + 1):
        client.publish(f"{space}/{alias}", b"", properties=[(ALIAS, alias)])
    client.send(wire_v5.publish(f"{space}/more", b"", properties=[(ALIAS, TOPIC_ALIAS_MAXIMUM + 1)]))
    client.assert_disconnected(0x94)
    bystander.assert_silent()


def test_the_bytes_behind_aliases_are_bounded(join: Join) -> None:
    client, bystander = join(), join()
    name_bytes = TOPIC_ALIAS_BYTES_MAX // 4
    for alias in (1, 2, 3, 4):
        # Again and again under the same alias costs nothing more.
        for letter in "ab":
            client.publish(letter * name_bytes, b"", properties=[(ALIAS, alias)])
    client.send(wire_v5.publish("c", b"", properties=[(ALIAS, 5)]))
    client.assert_disconnected(0x97)
    bystander.assert_silent()


@pytest.fixture
def started() -> Iterator[Callable[..., Dial]]:
    """Starts a broker with these options; what it returns opens connections to it."""
    with ExitStack() as stack:

        def start(**options: object) -> Dial:
            broker = stack.enter_context(Broker.in_thread(**options))  # type: ignore[arg-type]
            assert broker.port
            address = broker.host, broker.port
            return lambda: stack.enter_context(WireV5(address))

        yield start


def test_subscription_identifiers_are_bounded_by_the_subscriptions(started: Callable[..., Dial]) -> None:
    """Each subscription has one identifier, and a message carries those of its receiver's own subscriptions."""
    dial = started(limits=Limits(subscriptions_max=10))
    client, bystander = dial(), dial()
    client.connect("c")
    bystander.connect("b")
    filters = ["/".join(["+"] * (number + 1)) + "/#" for number in range(12)]
    reasons = [client.subscribe((each, 1), properties=[(SUBSCRIPTION_ID, 268_435_455)]) for each in filters]
    assert reasons == [[1]] * 10 + [[0x97]] * 2
    # The same filter again is no further subscription, and its identifier replaces the old one.
    for number in range(100, 200):
        assert client.subscribe((filters[0], 1), properties=[(SUBSCRIPTION_ID, number)]) == [1]
    bystander.publish("/".join("a" * 20), b"x", qos=1)
    message = client.receive_message()
    assert sorted(map(str, message.valued(SUBSCRIPTION_ID))) == ["199"] + ["268435455"] * 9
    bystander.assert_silent()


def test_the_properties_of_queued_messages_count_as_their_bytes(started: Callable[..., Dial]) -> None:
    """A message with little payload takes the memory of its properties."""
    dial = started(limits=Limits(queue_bytes_max=1_000_000))
    reader, writer = dial(), dial()
    reader.connect("r", expiry=100)
    reader.subscribe(("a", 1))
    reader.disconnect()
    writer.connect("w")
    large: Pairs = [(USER_PROPERTY, ("k", "v" * 50_000))] * 2
    for number in range(20):
        writer.publish("a", b"%d" % number, qos=1, properties=large)
    reader = dial()
    assert reader.connect("r", clean=False, expiry=100).session_present
    assert [m.payload for m in reader.take_messages()] == [b"%d" % number for number in range(10)]


def test_a_long_content_type_is_no_reason_to_end_a_connection(join: Join, space: str) -> None:
    client = join()
    client.subscribe(f"{space}/a")
    longest: Pairs = [(CONTENT_TYPE, "x" * 65_535)]
    client.publish(f"{space}/a", b"", properties=longest)
    assert client.receive_message().properties == longest

"""One broker, one retained store: every dialect hears every other: live, retained, cleared, by will, from a queue.

What both sides can express arrives: topic name, payload, QoS and RETAIN between all of them, properties between clients
of MQTT 5.
"""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from support import sn_client, wire
from support.properties_v5 import Properties
from support.sn_client import PROFILES, V12, SnClient
from support.wire import Wire
from support.wire_v5 import CONTENT_TYPE, CORRELATION_DATA, PAYLOAD_FORMAT, RESPONSE_TOPIC, USER_PROPERTY, WireV5
from support.wire_v5 import Will as WillV5

V31, V311, V5 = "3.1", "3.1.1", "5"
DIALECTS = (V31, V311, V5, *PROFILES)
PAIRS = [(sender, receiver) for sender in DIALECTS for receiver in DIALECTS]
NAME_AND_LEVEL: dict[str, dict[str, object]] = {V31: {"name": "MQIsdp", "level": 3}, V311: {}}
EXPIRY_S = 600

# What a sender of MQTT 5 says with each of its messages.
PROPERTIES: Properties = [
    (PAYLOAD_FORMAT, 1),
    (CONTENT_TYPE, "text/plain"),
    (RESPONSE_TOPIC, "cross/answers"),
    (CORRELATION_DATA, b"\x00\xff"),
    (USER_PROPERTY, ("k", "1")),
    (USER_PROPERTY, ("a", "")),
    (USER_PROPERTY, ("k", "2")),
]

crossing = pytest.mark.parametrize(("sender", "receiver"), PAIRS)


class Message(NamedTuple):
    """A message as any client can show it; `properties` of those that know none are empty."""

    topic_name: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = []


def sent(sender: str, receiver: str, topic_name: str, payload: bytes, qos: int, retain: bool = False) -> Message:
    """A message of the sender as the receiver must show it."""
    return Message(topic_name, payload, qos, retain, PROPERTIES if (sender, receiver) == (V5, V5) else [])


class Party:
    """A client of any dialect, reduced to what these tests ask of one."""

    def __init__(
        self,
        clients: "Clients",
        dialect: str,
        name: str,
        kept: bool = False,
        will: Message | None = None,
    ) -> None:
        self._clients = clients
        self._dialect = dialect
        self._name = name
        self._wire: Wire | None = None
        self._v5: WireV5 | None = None
        self.sn: SnClient | None = None
        if dialect == V5:
            will_v5 = WillV5(*will[:4], PROPERTIES) if will else None
            self._v5 = clients.mqtt5(name, clean=not kept, expiry=EXPIRY_S if kept else 0, will=will_v5)
        elif dialect in NAME_AND_LEVEL:
            old_will = wire.Will(*will[:4]) if will else None
            self._wire = clients.mqtt(name, clean=not kept, will=old_will, **NAME_AND_LEVEL[dialect])
        else:
            sn_will = sn_client.Will(*will[:4]) if will else None
            self.sn = clients.sn(dialect, name, clean=not kept, expiry=EXPIRY_S if kept else 0, will=sn_will)

    def subscribe(self, topic_filter: str, qos: int) -> None:
        if self._wire is not None:
            assert self._wire.subscribe((topic_filter, qos)) == [qos]
        elif self._v5 is not None:
            assert self._v5.subscribe((topic_filter, qos)) == [qos]
        elif self.sn is not None:
            assert self.sn.subscribe(topic_filter, qos).reason == qos

    def publish(self, topic_name: str, payload: bytes, qos: int, retain: bool = False) -> None:
        if self._wire is not None:
            self._wire.publish(topic_name, payload, qos=qos, retain=retain)
        elif self._v5 is not None:
            self._v5.publish(topic_name, payload, qos=qos, retain=retain, properties=PROPERTIES)
        elif self.sn is not None:
            self.sn.publish(topic_name, payload, qos, retain)
            self.sn.ping()

    def messages(self) -> list[Message]:
        if self._wire is not None:
            return [Message(*message[:4]) for message in self._wire.take_messages()]
        if self._v5 is not None:
            return [Message(*message[:4], message.properties) for message in self._v5.take_messages()]
        assert self.sn is not None
        return [Message(*message) for message in self.sn.drain()]

    def await_message(self) -> Message:
        if self._wire is not None:
            return Message(*self._wire.receive_message()[:4])
        if self._v5 is not None:
            message = self._v5.receive_message()
            return Message(*message[:4], message.properties)
        assert self.sn is not None
        return Message(*self.sn.await_messages(1)[0])

    def leave(self) -> None:
        client = self._wire or self._v5 or self.sn
        assert client is not None
        client.disconnect()

    def come_back(self) -> None:
        if self._wire is not None:
            self._wire = self._clients.mqtt(self._name, clean=False, **NAME_AND_LEVEL[self._dialect])
        elif self._v5 is not None:
            self._v5 = self._clients.mqtt5(self._name, clean=False, expiry=EXPIRY_S)
        elif self.sn is not None:
            self.sn.connect(clean=False, expiry=EXPIRY_S)

    def vanish(self) -> None:
        """End the connection as if it had been lost; a client of MQTT-SN breaks a rule for it, but 1.2 has no such."""
        if self.sn is not None:
            self.sn.send_bytes(bytes.fromhex("02 fd"))
        else:
            client = self._wire or self._v5
            assert client is not None
            client.reset()


class Clients(NamedTuple):
    """What makes clients of one broker."""

    mqtt: Callable[..., Wire]
    mqtt5: Callable[..., WireV5]
    sn: Callable[..., SnClient]


@pytest.fixture
def party(sn: Callable[..., SnClient], mqtt: Callable[..., Wire], mqtt5: Callable[..., WireV5]) -> Callable[..., Party]:
    def make(dialect: str, name: str, kept: bool = False, will: Message | None = None) -> Party:
        return Party(Clients(mqtt, mqtt5, sn), dialect, name, kept, will)

    return make


@crossing
def test_live(party: Callable[..., Party], sender: str, receiver: str) -> None:
    publisher, subscriber = party(sender, "p"), party(receiver, "s")
    subscriber.subscribe("cross/+", 2)
    for qos in (0, 1, 2):
        publisher.publish(f"cross/{qos}", b"%d" % qos, qos, retain=True)
        assert subscriber.messages() == [sent(sender, receiver, f"cross/{qos}", b"%d" % qos, qos)]


@crossing
def test_retained_with_its_qos(party: Callable[..., Party], sender: str, receiver: str) -> None:
    publisher = party(sender, "p")
    for qos in (0, 1, 2):
        publisher.publish(f"cross/{qos}", b"old", qos, retain=True)
        publisher.publish(f"cross/{qos}", b"%d" % qos, qos, retain=True)
    subscriber = party(receiver, "s")
    subscriber.subscribe("cross/#", 2)
    expected = [sent(sender, receiver, f"cross/{qos}", b"%d" % qos, qos, True) for qos in (0, 1, 2)]
    assert sorted(subscriber.messages(), key=lambda message: message.topic_name) == expected


@crossing
def test_cleared(party: Callable[..., Party], sender: str, receiver: str) -> None:
    publisher, subscriber = party(sender, "p"), party(receiver, "s")
    subscriber.publish("cross/x", b"kept", 1, retain=True)
    subscriber.subscribe("cross/x", 1)
    assert subscriber.messages() == [sent(receiver, receiver, "cross/x", b"kept", 1, True)]
    publisher.publish("cross/x", b"", 1, retain=True)
    assert subscriber.messages() == [sent(sender, receiver, "cross/x", b"", 1)]
    subscriber.subscribe("cross/x", 1)
    assert subscriber.messages() == []


@crossing
def test_will(party: Callable[..., Party], sender: str, receiver: str) -> None:
    subscriber = party(receiver, "s")
    subscriber.subscribe("cross/will", 1)
    doomed = party(sender, "doomed", will=Message("cross/will", b"gone", 1, True))
    if sender == V12:
        party(V12, "doomed")
    else:
        doomed.vanish()
    assert subscriber.await_message() == sent(sender, receiver, "cross/will", b"gone", 1)
    later = party(receiver, "later")
    later.subscribe("cross/will", 1)
    assert later.messages() == [sent(sender, receiver, "cross/will", b"gone", 1, True)]


@crossing
def test_queued(party: Callable[..., Party], sender: str, receiver: str) -> None:
    subscriber, publisher = party(receiver, "s", kept=True), party(sender, "p")
    subscriber.subscribe("cross/q", 2)
    subscriber.leave()
    for number in range(5):
        publisher.publish("cross/q", b"%d" % number, 1 + number % 2)
    subscriber.come_back()
    assert subscriber.messages() == [sent(sender, receiver, "cross/q", b"%d" % n, 1 + n % 2) for n in range(5)]


@pytest.mark.parametrize("dialect", PROFILES)
def test_a_client_id_is_one_client_in_every_dialect(
    party: Callable[..., Party], mqtt: Callable[..., Wire], dialect: str
) -> None:
    older = party(dialect, "same")
    assert older.sn is not None
    mqtt("same")
    older.sn.expect("DISCONNECT")

"""One broker, one retained store: every dialect hears every other: live, retained, cleared, by will, from a queue."""

from collections.abc import Callable

import pytest

from support.sn_client import PROFILES, V12, Message, SnClient, Will
from support.wire import Will as MqttWill
from support.wire import Wire

MQTT = "3.1.1"
DIALECTS = (MQTT, *PROFILES)
PAIRS = [(sender, receiver) for sender in DIALECTS for receiver in DIALECTS]

crossing = pytest.mark.parametrize(("sender", "receiver"), PAIRS)


class Party:
    """A client of any dialect, reduced to what these tests ask of one."""

    def __init__(
        self,
        sn: Callable[..., SnClient],
        mqtt: Callable[..., Wire],
        dialect: str,
        name: str,
        kept: bool = False,
        will: Message | None = None,
    ) -> None:
        self.dialect = dialect
        self._kept = kept
        self._new_wire = mqtt
        self._name = name
        self._wire: Wire | None = None
        self._sn: SnClient | None = None
        if dialect == MQTT:
            mqtt_will = MqttWill(will.topic_name, will.payload, will.qos, will.retain) if will else None
            self._wire = mqtt(name, clean=not kept, will=mqtt_will)
        else:
            sn_will = Will(will.topic_name, will.payload, will.qos, will.retain) if will else None
            self._sn = sn(dialect, name, clean=not kept, expiry=600 if kept else 0, will=sn_will)

    def subscribe(self, topic_filter: str, qos: int) -> None:
        if self._wire is not None:
            self._wire.subscribe((topic_filter, qos))
        elif self._sn is not None:
            assert self._sn.subscribe(topic_filter, qos).reason == qos

    def publish(self, topic_name: str, payload: bytes, qos: int, retain: bool = False) -> None:
        if self._wire is not None:
            self._wire.publish(topic_name, payload, qos=qos, retain=retain)
        elif self._sn is not None:
            self._sn.publish(topic_name, payload, qos, retain)
            self._sn.ping()

    def messages(self) -> list[Message]:
        if self._wire is not None:
            return [Message(m.topic_name, m.payload, m.qos, m.retain) for m in self._wire.take_messages()]
        assert self._sn is not None
        return self._sn.drain()

    def await_message(self) -> Message:
        if self._wire is not None:
            m = self._wire.receive_message()
            return Message(m.topic_name, m.payload, m.qos, m.retain)
        assert self._sn is not None
        return self._sn.await_messages(1)[0]

    def leave(self) -> None:
        if self._wire is not None:
            self._wire.disconnect()
        elif self._sn is not None:
            self._sn.disconnect()

    def come_back(self) -> None:
        if self._wire is not None:
            self._wire = self._new_wire(self._name, clean=False)
        elif self._sn is not None:
            self._sn.connect(clean=False, expiry=600)

    def vanish(self) -> None:
        """Break a rule, so that the connection ends as if it had been lost; 1.2 has no such rule."""
        if self._wire is not None:
            self._wire.reset()
        elif self._sn is not None:
            self._sn.send_bytes(bytes.fromhex("02 fd"))


@pytest.fixture
def party(sn: Callable[..., SnClient], mqtt: Callable[..., Wire]) -> Callable[..., Party]:
    def make(dialect: str, name: str, kept: bool = False, will: Message | None = None) -> Party:
        return Party(sn, mqtt, dialect, name, kept, will)

    return make


@crossing
def test_live(party: Callable[..., Party], sender: str, receiver: str) -> None:
    publisher, subscriber = party(sender, "p"), party(receiver, "s")
    subscriber.subscribe("cross/+", 2)
    for qos in (0, 1, 2):
        publisher.publish(f"cross/{qos}", b"%d" % qos, qos, retain=True)
        assert subscriber.messages() == [Message(f"cross/{qos}", b"%d" % qos, qos)]


@crossing
def test_retained_with_its_qos(party: Callable[..., Party], sender: str, receiver: str) -> None:
    publisher = party(sender, "p")
    for qos in (0, 1, 2):
        publisher.publish(f"cross/{qos}", b"old", qos, retain=True)
        publisher.publish(f"cross/{qos}", b"%d" % qos, qos, retain=True)
    subscriber = party(receiver, "s")
    subscriber.subscribe("cross/#", 2)
    assert sorted(subscriber.messages()) == [Message(f"cross/{qos}", b"%d" % qos, qos, True) for qos in (0, 1, 2)]


@crossing
def test_cleared(party: Callable[..., Party], sender: str, receiver: str) -> None:
    publisher, subscriber = party(sender, "p"), party(receiver, "s")
    subscriber.publish("cross/x", b"kept", 1, retain=True)
    subscriber.subscribe("cross/x", 1)
    assert subscriber.messages() == [Message("cross/x", b"kept", 1, True)]
    publisher.publish("cross/x", b"", 1, retain=True)
    assert subscriber.messages() == [Message("cross/x", b"", 1)]
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
    assert subscriber.await_message() == Message("cross/will", b"gone", 1)
    later = party(receiver, "later")
    later.subscribe("cross/will", 1)
    assert later.messages() == [Message("cross/will", b"gone", 1, True)]


@crossing
def test_queued(party: Callable[..., Party], sender: str, receiver: str) -> None:
    subscriber, publisher = party(receiver, "s", kept=True), party(sender, "p")
    subscriber.subscribe("cross/q", 2)
    subscriber.leave()
    for number in range(5):
        publisher.publish("cross/q", b"%d" % number, 1 + number % 2)
    subscriber.come_back()
    assert subscriber.messages() == [Message("cross/q", b"%d" % n, 1 + n % 2) for n in range(5)]


@pytest.mark.parametrize("dialect", PROFILES)
def test_a_client_id_is_one_client_in_every_dialect(
    party: Callable[..., Party], mqtt: Callable[..., Wire], dialect: str
) -> None:
    older = party(dialect, "same")
    assert older._sn is not None
    mqtt("same")
    older._sn.expect("DISCONNECT")

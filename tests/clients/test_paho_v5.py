"""paho-mqtt as an MQTT 5 client, over TCP and WebSocket: what only MQTT 5 can say, end to end."""

import queue
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from support.clauses import v5
from support.client_paths import TIMEOUT_S, Ways


def properties(packet_type: int, **values: object) -> Properties:
    made = Properties(packet_type)  # type: ignore[no-untyped-call]  # paho types it by a comment only
    for name, value in values.items():
        setattr(made, name, value)
    return made


class Client:
    """A paho client whose callbacks have become things to wait for."""

    def __init__(self, ways: Ways, way: str, client_id: str, will: tuple[str, bytes, Properties] | None = None) -> None:
        self.paho = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id,
            protocol=paho.MQTTv5,
            transport="websockets" if way == "websocket" else "tcp",
            reconnect_on_failure=False,
        )
        if way == "websocket":
            self.paho.ws_set_options("/mqtt")
        if will is not None:
            self.paho.will_set(will[0], will[1], 1, properties=will[2])
        self._host = ways.host
        self._port = ways.ws if way == "websocket" else ways.tcp
        self._connected: queue.Queue[tuple[bool, ReasonCode, Properties | None]] = queue.Queue()
        self._subscribed: queue.Queue[list[ReasonCode]] = queue.Queue()
        self.disconnected: queue.Queue[ReasonCode] = queue.Queue()
        self.messages: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self.paho.on_connect = lambda _c, _d, flags, code, given: self._connected.put(
            (flags.session_present, code, given)
        )
        self.paho.on_disconnect = lambda _c, _d, _flags, code, _given: self.disconnected.put(code)
        self.paho.on_subscribe = lambda _c, _d, _mid, codes, _given: self._subscribed.put(codes)
        self.paho.on_message = lambda _c, _d, message: self.messages.put(message)

    def connect(self, clean_start: bool = True, **asked: object) -> tuple[bool, Any]:
        """Session Present, and the properties of CONNACK: attributes that only exist when they were sent."""
        self.paho.connect(
            self._host, self._port, clean_start=clean_start, properties=properties(PacketTypes.CONNECT, **asked)
        )
        self.paho.loop_start()
        session_present, code, given = self._connected.get(timeout=TIMEOUT_S)
        assert code.value == 0
        assert given is not None
        return session_present, given

    def subscribe(self, topic_filter: str, options: SubscribeOptions, **asked: object) -> int:
        self.paho.subscribe(topic_filter, options=options, properties=properties(PacketTypes.SUBSCRIBE, **asked))
        return int(self._subscribed.get(timeout=TIMEOUT_S)[0].value)

    def publish(self, topic_name: str, payload: bytes, retain: bool = False, **said: object) -> None:
        told = self.paho.publish(topic_name, payload, 1, retain, properties(PacketTypes.PUBLISH, **said))
        told.wait_for_publish(TIMEOUT_S)
        assert told.is_published()

    def receive(self) -> paho.MQTTMessage:
        return self.messages.get(timeout=TIMEOUT_S)


Open = Callable[..., Client]


@pytest.fixture(params=["tcp", "websocket"])
def opened(request: pytest.FixtureRequest, ways: Ways) -> Iterator[Open]:
    clients: list[Client] = []

    def make(client_id: str, **options: Any) -> Client:
        client = Client(ways, request.param, client_id, **options)
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.paho.disconnect()
        client.paho.loop_stop()


@v5("MQTT-3.3.2-15", "MQTT-3.3.2-16", "MQTT-3.3.2-17", "MQTT-3.3.2-18", "MQTT-3.3.2-20", "MQTT-3.3.4-3")
def test_every_property_of_a_message_reaches_live_and_new_subscribers(opened: Open, space: str) -> None:
    publisher, live, late = opened(f"{space}p"), opened(f"{space}l"), opened(f"{space}n")
    for client in (publisher, live, late):
        client.connect()
    options = SubscribeOptions(qos=1, retainAsPublished=True)
    assert live.subscribe(f"{space}/#", options, SubscriptionIdentifier=7) == 1
    said: dict[str, object] = {
        "PayloadFormatIndicator": 1,
        "MessageExpiryInterval": 600,
        "ContentType": "text/plain",
        "ResponseTopic": f"{space}/answers",
        "CorrelationData": b"\x00\x01",
        "UserProperty": [("k", "1"), ("a", ""), ("k", "2")],
    }
    publisher.publish(f"{space}/state", b"on", True, **said)
    assert late.subscribe(f"{space}/#", SubscribeOptions(qos=1), SubscriptionIdentifier=9) == 1
    for client, subscription_id in ((live, 7), (late, 9)):
        message = client.receive()
        assert (message.payload, message.retain) == (b"on", True)
        got: Any = message.properties
        assert got.SubscriptionIdentifier == [subscription_id]
        assert 590 <= got.MessageExpiryInterval <= 600
        for name in ("PayloadFormatIndicator", "ContentType", "ResponseTopic", "CorrelationData", "UserProperty"):
            assert getattr(got, name) == said[name], name


@v5("MQTT-3.2.2-16", "MQTT-3.1.3-7")
def test_a_client_without_an_id_is_told_the_one_it_got(opened: Open) -> None:
    _, first = opened("").connect()
    _, second = opened("").connect()
    assert first.AssignedClientIdentifier != second.AssignedClientIdentifier


@v5("MQTT-3.1.4-3")
def test_a_client_that_is_taken_over_is_told_so(opened: Open, space: str) -> None:
    first, second = opened(space), opened(space)
    first.connect(SessionExpiryInterval=60)
    session_present, _ = second.connect(clean_start=False, SessionExpiryInterval=60)
    assert session_present
    assert first.disconnected.get(timeout=TIMEOUT_S).value == 0x8E


@v5("MQTT-3.3.2-12", "MQTT-3.3.2-7")
def test_a_topic_alias_stands_for_its_topic_name(opened: Open, space: str) -> None:
    publisher, subscriber = opened(f"{space}p"), opened(f"{space}s")
    _, offered = publisher.connect()
    assert offered.TopicAliasMaximum > 0
    subscriber.connect(TopicAliasMaximum=4)
    subscriber.subscribe(f"{space}/#", SubscribeOptions(qos=1))
    publisher.publish(f"{space}/long/name", b"1", TopicAlias=1)
    publisher.publish("", b"2", TopicAlias=1)
    assert [subscriber.receive().payload for _ in range(2)] == [b"1", b"2"]


@v5("MQTT-3.8.3-3")
def test_no_local_keeps_a_client_s_own_messages_away(opened: Open, space: str) -> None:
    client, other = opened(f"{space}c"), opened(f"{space}o")
    client.connect()
    other.connect()
    client.subscribe(f"{space}/#", SubscribeOptions(qos=1, noLocal=True))
    client.publish(f"{space}/a", b"own")
    other.publish(f"{space}/a", b"other")
    assert client.receive().payload == b"other"


@v5("MQTT-4.8.2-3")
def test_a_shared_group_gets_each_message_once(opened: Open, space: str) -> None:
    publisher = opened(f"{space}p")
    members = [opened(f"{space}m{number}") for number in range(4)]
    for client in (publisher, *members):
        client.connect()
    for member in members:
        assert member.subscribe(f"$share/{space}/{space}/#", SubscribeOptions(qos=1)) == 1
    taken: queue.Queue[tuple[int, bytes]] = queue.Queue()
    for number, member in enumerate(members):
        member.paho.on_message = lambda _c, _d, message, number=number: taken.put((number, message.payload))
    for number in range(100):
        publisher.publish(f"{space}/a", b"%d" % number)
    got = [taken.get(timeout=TIMEOUT_S) for _ in range(100)]
    assert sorted(payload for _, payload in got) == sorted(b"%d" % number for number in range(100))
    counts = Counter(number for number, _ in got)
    assert max(counts.values()) - min(counts.values()) <= 5
    assert len(counts) == 4


@v5("MQTT-3.1.3-9", "MQTT-3.1.2-8")
def test_a_will_waits_for_its_delay(opened: Open, space: str) -> None:
    watcher = opened(f"{space}w")
    watcher.connect()
    watcher.subscribe(f"{space}/#", SubscribeOptions(qos=1))
    delayed = properties(PacketTypes.WILLMESSAGE, WillDelayInterval=1, UserProperty=[("left", "behind")])
    device = opened(f"{space}d", will=(f"{space}/will", b"gone", delayed))
    device.connect(SessionExpiryInterval=60)
    other = opened(f"{space}o")
    other.connect()
    sock = device.paho.socket()
    assert sock is not None
    sock.close()
    other.publish(f"{space}/before", b"")
    assert watcher.receive().topic == f"{space}/before"
    message = watcher.receive()
    assert message.topic == f"{space}/will"
    got: Any = message.properties
    assert got.UserProperty == [("left", "behind")]

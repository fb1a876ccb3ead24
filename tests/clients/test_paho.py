"""paho-mqtt, the client most Python programs use, over every transport."""

import queue
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Literal

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.reasoncodes import ReasonCode

from support.clauses import v311
from support.client_paths import TIMEOUT_S, Ways

WAYS = ["tcp", "tls", "websocket", "websocket over tls", "unix"]


class Client:
    """A paho client whose callbacks have become things to wait for."""

    def __init__(
        self,
        ways: Ways,
        way: str,
        client_id: str,
        *,
        clean: bool = True,
        protocol: MQTTProtocolVersion = paho.MQTTv311,
        websocket_path: str = "/mqtt",
    ) -> None:
        transport: Literal["tcp", "websockets", "unix"] = "tcp"
        if way.startswith("websocket"):
            transport = "websockets"
        elif way == "unix":
            transport = "unix"
        self.paho = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id,
            clean,
            protocol=protocol,
            transport=transport,
            reconnect_on_failure=False,
        )
        if "tls" in way:
            self.paho.tls_set_context(ways.context())
        if transport == "websockets":
            self.paho.ws_set_options(websocket_path)
        self._host = ways.unix if way == "unix" else ways.host
        self._port = {"tls": ways.tls, "websocket": ways.ws, "websocket over tls": ways.wss}.get(way, ways.tcp)
        self.session_present = False
        self._connected: queue.Queue[ReasonCode] = queue.Queue()
        self._subscribed: queue.Queue[list[ReasonCode]] = queue.Queue()
        self._unsubscribed = threading.Event()
        self.messages: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self.paho.on_connect = self._on_connect
        self.paho.on_subscribe = lambda _client, _data, _mid, codes, _properties: self._subscribed.put(codes)
        self.paho.on_unsubscribe = lambda *_: self._unsubscribed.set()
        self.paho.on_message = lambda _client, _data, message: self.messages.put(message)

    def _on_connect(
        self, _client: paho.Client, _data: object, flags: paho.ConnectFlags, code: ReasonCode, _properties: object
    ) -> None:
        self.session_present = flags.session_present
        self._connected.put(code)

    def connect(self) -> "Client":
        self.paho.connect(self._host, self._port)
        self.paho.loop_start()
        code = self._connected.get(timeout=TIMEOUT_S)
        assert not code.is_failure, code
        return self

    def subscribe(self, topic_filter: str, qos: int) -> int:
        self.paho.subscribe(topic_filter, qos)
        (code,) = self._subscribed.get(timeout=TIMEOUT_S)
        return int(code.value)

    def unsubscribe(self, topic_filter: str) -> None:
        self._unsubscribed.clear()
        self.paho.unsubscribe(topic_filter)
        assert self._unsubscribed.wait(TIMEOUT_S)

    def publish(self, topic_name: str, payload: bytes, qos: int = 0, retain: bool = False) -> None:
        sent = self.paho.publish(topic_name, payload, qos, retain)
        sent.wait_for_publish(TIMEOUT_S)
        assert sent.is_published()

    def settle(self) -> None:
        """Wait until the broker has handled what was published at QoS 0: the answer to a request follows it."""
        self.unsubscribe("nothing")

    def next_message(self) -> paho.MQTTMessage:
        return self.messages.get(timeout=TIMEOUT_S)

    def disconnect(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()

    def vanish(self) -> None:
        """End the connection without DISCONNECT."""
        connection = self.paho.socket()
        wrapped = getattr(connection, "_socket", connection)  # a WebSocket wraps its socket
        assert isinstance(wrapped, socket.socket)
        wrapped.shutdown(socket.SHUT_RDWR)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def new(ways: Ways, way: str, space: str) -> Iterator[Callable[..., Client]]:
    """Makes clients for this way to the broker, and ends them after the test."""
    made: list[Client] = []

    def make(name: str, *, clean: bool = True, protocol: MQTTProtocolVersion = paho.MQTTv311) -> Client:
        made.append(Client(ways, way, f"{space}{name}", clean=clean, protocol=protocol))
        return made[-1]

    yield make
    for client in made:
        client.disconnect()


New = Callable[..., Client]


@v311("MQTT-7.0.0-2", "MQTT-7.1.1-1")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_at_each_qos(new: New, space: str, qos: int) -> None:
    reader, writer = new("r").connect(), new("w").connect()
    assert reader.subscribe(f"{space}/+", qos) == qos
    for number in range(20):
        writer.publish(f"{space}/a", b"%d" % number, qos)
    received = [reader.next_message() for _ in range(20)]
    assert [m.payload for m in received] == [b"%d" % number for number in range(20)]
    assert {(m.topic, m.qos, m.retain, m.dup) for m in received} == {(f"{space}/a", qos, False, False)}


def test_a_large_message(new: New, space: str) -> None:
    client = new("c").connect()
    client.subscribe(f"{space}/a", 1)
    payload = bytes(range(256)) * 4096
    client.publish(f"{space}/a", payload, 1)
    assert client.next_message().payload == payload


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_retained_messages(new: New, space: str, qos: int) -> None:
    writer = new("w").connect()
    writer.publish(f"{space}/a", b"old", qos, retain=True)
    writer.publish(f"{space}/a", b"state", qos, retain=True)
    writer.settle()
    reader = new("r").connect()
    reader.subscribe(f"{space}/#", 2)
    found = reader.next_message()
    assert (found.payload, found.qos, found.retain) == (b"state", qos, True)
    writer.publish(f"{space}/a", b"", qos, retain=True)
    cleared = reader.next_message()
    assert (cleared.payload, cleared.retain) == (b"", False)
    late = new("l").connect()
    late.subscribe(f"{space}/#", 2)
    writer.publish(f"{space}/b", b"live")
    assert late.next_message().payload == b"live"


def test_a_will(new: New, space: str) -> None:
    watcher = new("watcher").connect()
    watcher.subscribe(f"{space}/will/#", 1)
    polite = new("polite")
    polite.paho.will_set(f"{space}/will/polite", b"must not come", 1)
    polite.connect().disconnect()
    client = new("client")
    client.paho.will_set(f"{space}/will/client", b"gone", 1, retain=True)
    client.connect().vanish()
    message = watcher.next_message()
    assert (message.topic, message.payload, message.qos, message.retain) == (f"{space}/will/client", b"gone", 1, False)


@pytest.mark.parametrize("qos", [1, 2])
def test_a_persistent_session(new: New, space: str, qos: int) -> None:
    reader = new("r", clean=False).connect()
    assert not reader.session_present
    reader.subscribe(f"{space}/a", qos)
    reader.disconnect()
    writer = new("w").connect()
    for number in range(10):
        writer.publish(f"{space}/a", b"%d" % number, qos)
    reader = new("r", clean=False).connect()
    assert reader.session_present
    assert [reader.next_message().payload for _ in range(10)] == [b"%d" % number for number in range(10)]
    reader.disconnect()
    again = new("r", clean=True).connect()
    assert not again.session_present


def test_unsubscribe(new: New, space: str) -> None:
    client = new("c").connect()
    client.subscribe(f"{space}/a", 0)
    client.subscribe(f"{space}/b", 0)
    client.unsubscribe(f"{space}/a")
    client.publish(f"{space}/a", b"not for us")
    client.publish(f"{space}/b", b"for us")
    assert client.next_message().payload == b"for us"


def test_a_client_of_mqtt_3_1(new: New, space: str) -> None:
    client = new("c", protocol=paho.MQTTv31).connect()
    client.subscribe(f"{space}/a", 2)
    client.publish(f"{space}/a", b"hi", 2)
    assert client.next_message().payload == b"hi"


def test_many_messages_in_flight_both_ways(new: New, space: str) -> None:
    reader, writer = new("r").connect(), new("w").connect()
    reader.subscribe(f"{space}/a", 2)
    sent = [writer.paho.publish(f"{space}/a", b"%d" % number, 2) for number in range(200)]
    assert [reader.next_message().payload for _ in sent] == [b"%d" % number for number in range(200)]
    for info in sent:
        info.wait_for_publish(TIMEOUT_S)
        assert info.is_published()

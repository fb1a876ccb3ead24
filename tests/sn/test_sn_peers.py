"""Clients and codecs that are not ours: the client `mqtt-sn-12`, and scapy's layers for the bytes of 1.2."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from mqttsn12.client.MqttSnClient import (  # type: ignore[import-untyped]  # it has no types
    MqttSnClient,
    MqttSnListener,
    MqttSnMessage,
)

from embermq import Broker
from support.sn_client import A, Message, SnClient
from support.sn_vectors import VECTORS_12, Vector
from support.wire import Wire

Mqtt = Callable[..., Wire]
Peer = Callable[..., MqttSnClient]


class Listener(MqttSnListener):  # type: ignore[misc]  # it has no types
    """Keeps what arrives."""

    def __init__(self) -> None:
        self.got: list[tuple[str, bytes, bool]] = []

    def message_arrived(self, msg: MqttSnMessage) -> None:
        payload = msg.get_payload()
        data = payload.encode() if isinstance(payload, str) else bytes(payload)
        self.got.append((msg.get_topic_name(), data, bool(msg.get_retain())))


@pytest.fixture
def peer(sn_broker: Broker) -> Iterator[Peer]:
    opened: list[MqttSnClient] = []

    def make(client_id: str, connect: bool = True, **will: object) -> MqttSnClient:
        client = MqttSnClient()
        client.set_client_id(client_id)
        client.set_clean_session(True)
        client.set_keep_alive(30)
        client.set_timeout(5)
        if will:
            client.set_will(**will)
        client.open("127.0.0.1", sn_broker.sn_port)
        opened.append(client)
        if connect:
            client.send_connect()
        return client

    yield make
    for client in opened:
        client.close()


def poll(client: MqttSnClient, listener: Listener, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(listener.got) < count:
        assert time.monotonic() < deadline, listener.got
        client.polling()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_it_publishes_and_mqtt_hears(peer: Peer, mqtt: Mqtt, qos: int) -> None:
    subscriber = mqtt()
    subscriber.subscribe("peer/#")
    peer("publisher").send_publish("peer/topic", b"hello", qos, False)
    message = subscriber.receive_message()
    assert (message.topic_name, message.payload, message.qos) == ("peer/topic", b"hello", qos)


def test_it_publishes_without_a_session(peer: Peer, mqtt: Mqtt) -> None:
    subscriber = mqtt()
    subscriber.subscribe("predefined/#", "ab")
    sender = peer("sender", connect=False)
    sender.send_publish_predefined(7, b"by number", -1, False)
    assert subscriber.receive_message().topic_name == "predefined/seven"
    sender.send_publish("ab", b"short", -1, False)
    assert subscriber.receive_message().topic_name == "ab"


def test_it_sets_and_clears_a_retained_message(peer: Peer, mqtt: Mqtt) -> None:
    client = peer("publisher")
    client.send_publish("peer/kept", b"value", 1, True)
    early = mqtt()
    early.subscribe("peer/kept")
    assert early.receive_message().retain
    client.send_publish("peer/kept", b"", 1, True)
    late = mqtt()
    late.subscribe("peer/kept")
    late.assert_silent()


@pytest.mark.parametrize("topic_filter", ["peer/exact", "peer/+", "#"])
def test_it_subscribes_and_hears_retained_and_live(peer: Peer, mqtt: Mqtt, topic_filter: str) -> None:
    publisher = mqtt()
    publisher.publish("peer/exact", b"kept", qos=1, retain=True)
    client, listener = peer("subscriber"), Listener()
    client.send_subscribe(topic_filter, 0, listener)
    poll(client, listener, 1)
    publisher.publish("peer/exact", b"live")
    poll(client, listener, 2)
    assert listener.got == [("peer/exact", b"kept", True), ("peer/exact", b"live", False)]


def test_it_hears_2_0(peer: Peer, sn: Callable[..., SnClient]) -> None:
    client, listener = peer("subscriber"), Listener()
    client.send_subscribe("peer/+", 0, listener)
    sn(A).publish("peer/a", b"from 2.0", 1)
    poll(client, listener, 1)
    assert listener.got == [("peer/a", b"from 2.0", False)]


def test_its_will_is_published_when_another_takes_over(peer: Peer, mqtt: Mqtt) -> None:
    subscriber = mqtt()
    subscriber.subscribe("peer/will")
    peer("twice", topic="peer/will", message="gone", qos=1, retain=False)
    peer("twice")
    message = subscriber.receive_message()
    assert (message.payload, message.qos) == (b"gone", 1)


def test_its_command_line_publishes(sn_broker: Broker, sn: Callable[..., SnClient]) -> None:
    subscriber = sn(A)
    subscriber.subscribe("peer/cli", 2)
    command = [sys.executable, "-m", "mqttsn12.mqtt_sn_pub", "-h", "127.0.0.1", "-p", str(sn_broker.sn_port)]
    subprocess.run([*command, "-t", "peer/cli", "-m", "typed", "-q", "2"], check=True, timeout=60, capture_output=True)
    assert subscriber.await_messages(1) == [Message("peer/cli", b"typed", 2)]


# Without the one that the standard does not have.
STANDARD_12 = [vector for vector in VECTORS_12 if vector.name != "publish-sessionless-named"]


@pytest.mark.parametrize("vector", STANDARD_12, ids=lambda vector: vector.name)
def test_scapy_reads_and_writes_the_same_bytes(vector: Vector) -> None:
    from scapy.contrib import mqttsn

    data = bytes.fromhex(vector.hex)
    layers = mqttsn.MQTTSN(data)
    assert (layers.len, layers.type) == (len(data), data[1])
    body = layers.payload.copy()  # its fields, encoded again
    body.raw_packet_cache = None
    if body:
        assert bytes(mqttsn.MQTTSN(type=layers.type) / body) == data

"""One contract for MQTT and MQTT-SN: the same script drives a connection of either, without a socket or a clock.

A shell hands over what came (`receive`), and gets packets of the core's model; first a CONNECT alone. The core answers
by `send`, `deliver`, `acknowledge` and `close`, whose names, arguments and results are the same in both; they gather
output, which `data_to_send` takes. `Server` is that contract: mypy checks that both classes have it.

What differs, and why:
- one MQTT-SN engine has all clients of a socket, since only it knows whose datagram came: its `receive` takes an
  address and returns events that name the connection, and its output has an address for each datagram;
- datagrams are lost: the engine sends again and supervises silence by itself (`next_deadline_ms`, `tick`), while TCP
  does the one and the core the other;
- a packet that breaks a rule sets `failure` in MQTT; in MQTT-SN it is the event `RuleViolation` of that connection;
- `opened` returns the packets that came too early in MQTT; in MQTT-SN they are events, since the session answers some.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random
from typing import Protocol

import pytest

from embermq.protocol import packets as core
from embermq.protocol.errors import PeerError
from embermq.protocol.mqtt.connection import Connection
from embermq.protocol.mqtt.decode import Decoder
from embermq.protocol.mqtt.dialect import LEVELS_BEFORE_5, MQTT_5, MQTT_31, MQTT_311, Dialect
from embermq.protocol.mqtt.encode import Encodings
from embermq.protocol.mqtt.encode import encode as encode_mqtt
from embermq.protocol.sn.connection import VirtualConnection
from embermq.protocol.sn.engine import Engine
from embermq.protocol.sn.events import ConnectRequest, Event, PacketReceived, RuleViolation
from embermq.protocol.sn.settings import SnSettings
from embermq.protocol.sn.wire.codec import decode as decode_sn
from embermq.protocol.sn.wire.codec import encode as encode_sn
from embermq.protocol.sn.wire.layouts import Profile
from embermq.protocol.sn.wire.profiles import V12, A, B, W
from support import sn_packets as sn
from support.acknowledgements import puback, pubcomp, pubrec, pubrel, singles

ADDRESS = ("192.0.2.1", 1000)
TOPIC = "ab"  # two bytes: 1.2 can name it without an alias
MESSAGE = core.Publish(TOPIC, b"hi")


class Server(Protocol):
    """What the core calls, of either protocol."""

    def send(self, packet: core.Packet) -> None: ...
    def deliver(self, delivery: core.Delivery) -> int: ...
    def acknowledge(self, acknowledgement: core.Acknowledgement) -> None: ...
    def has_room(self) -> bool: ...
    def close(self, reason: int) -> bool: ...


class Driver(ABC):
    """A client and the server's side of its connection: a script in the core's packets, written on a wire."""

    failure: PeerError | None = None

    @property
    @abstractmethod
    def server(self) -> Server:
        """The connection that the script's CONNECT has opened."""

    @abstractmethod
    def receive(self, packet: core.Packet) -> list[core.Packet]:
        """The client sends a packet; returns what the core is handed."""

    @abstractmethod
    def receive_malformed(self) -> list[core.Packet]:
        """The client sends bytes that are no packet."""

    @abstractmethod
    def opened(self) -> list[core.Packet]:
        """CONNACK was sent; returns what came before it."""

    @abstractmethod
    def data_to_send(self) -> list[core.Packet]:
        """What the client reads of the output."""


class MqttDriver(Driver):
    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        levels = (*LEVELS_BEFORE_5, MQTT_5.level)
        self._connection = Connection(Encodings(), 1_000, 1_000, lambda: None, lambda: False, levels=levels)
        self._client = Decoder(1_000, server=False, dialect=dialect)

    @property
    def server(self) -> Server:
        return self._connection

    def receive(self, packet: core.Packet) -> list[core.Packet]:
        return self._receive(encode_mqtt(packet, self._dialect))

    def receive_malformed(self) -> list[core.Packet]:
        return self._receive(b"\xf7\x00")

    def _receive(self, data: bytes) -> list[core.Packet]:
        packets = singles(self._connection.receive_data(data))
        self.failure = self._connection.failure
        if packets and isinstance(packets[0], core.Connect):
            self._connection.accepted()
        return packets

    def opened(self) -> list[core.Packet]:
        return singles(self._connection.opened())

    def data_to_send(self) -> list[core.Packet]:
        return self._client.feed(b"".join(self._connection.data_to_send()))


class SnDriver(Driver):
    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._engine = Engine(SnSettings(prove_address=False), Random(7), lambda: 0)
        self._connection: VirtualConnection | None = None

    @property
    def server(self) -> Server:
        return self._virtual()

    def _virtual(self) -> VirtualConnection:
        assert self._connection is not None
        return self._connection

    def receive(self, packet: core.Packet) -> list[core.Packet]:
        return self._receive(encode_sn(to_sn(packet, self._profile), self._profile))

    def receive_malformed(self) -> list[core.Packet]:
        return self._receive(b"\x02\xfd")

    def _receive(self, datagram: bytes) -> list[core.Packet]:
        return self._packets(self._engine.receive(datagram, ADDRESS, 0))

    def _packets(self, events: list[Event]) -> list[core.Packet]:
        packets: list[core.Packet] = []
        for event in events:
            if isinstance(event, ConnectRequest):
                self._connection = event.connection
                packets.append(event.connect)
            elif isinstance(event, PacketReceived):
                packets.append(event.packet)
            elif isinstance(event, RuleViolation):
                self.failure = event.error
        return packets

    def opened(self) -> list[core.Packet]:
        self._virtual().opened()
        return self._packets(self._engine.take_events())

    def data_to_send(self) -> list[core.Packet]:
        datagrams = self._engine.data_to_send()
        assert all(address == ADDRESS for _, address in datagrams)
        return [to_core(decode_sn(datagram, self._profile)) for datagram, _ in datagrams]


ACKNOWLEDGEMENTS = {core.PUBACK: sn.PUBACK, core.PUBREC: sn.PUBREC, core.PUBREL: sn.PUBREL, core.PUBCOMP: sn.PUBCOMP}


def to_sn(packet: core.Packet, profile: Profile) -> sn.SnPacket:
    """The same packet of MQTT-SN."""
    reference = sn.short_name(TOPIC) if profile.short_names else sn.full_name(TOPIC)
    if isinstance(packet, core.Connect):
        return sn.connect(packet.client_id, packet.clean_start, packet_id=1, version=profile.version)
    if isinstance(packet, core.Publish):
        assert packet.topic_name == TOPIC
        return sn.publish(reference, packet.payload, packet.qos, packet.retain, packet.dup, packet.packet_id)
    if isinstance(packet, core.Subscribe):
        return sn.subscribe(packet.packet_id, sn.full_name(packet.requests[0].topic_filter), packet.requests[0].qos)
    if isinstance(packet, core.Disconnect):
        return sn.disconnect()
    assert isinstance(packet, core.Acknowledgement)
    return sn.acknowledgement(ACKNOWLEDGEMENTS[packet.packet_type], packet.packet_id)


def to_core(packet: sn.SnPacket) -> core.Packet:
    """The same packet of the core."""
    if packet.kind == sn.CONNACK:
        return core.Connack(packet.session_present, packet.reason)
    if packet.kind == sn.SUBACK:
        return core.Suback(packet.packet_id, [packet.reason])
    if packet.kind == sn.PUBLISH:
        qos = packet.qos
        return core.Publish(packet.topic_name, packet.payload, qos, packet.retain, packet.dup, packet.packet_id)
    if packet.kind == sn.DISCONNECT:
        return core.Disconnect(packet.reason)
    types = {kind: packet_type for packet_type, kind in ACKNOWLEDGEMENTS.items()}
    return core.Acknowledgement(types[packet.kind], packet.packet_id)


DRIVERS: dict[str, Callable[[], Driver]] = {
    "MQTT 3.1": lambda: MqttDriver(MQTT_31),
    "MQTT 3.1.1": lambda: MqttDriver(MQTT_311),
    "MQTT 5": lambda: MqttDriver(MQTT_5),
    "MQTT-SN 1.2": lambda: SnDriver(V12),
    "MQTT-SN 2.0-w": lambda: SnDriver(W),
    "MQTT-SN 2.0-a": lambda: SnDriver(A),
    "MQTT-SN 2.0-b": lambda: SnDriver(B),
}


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> Driver:
    return DRIVERS[str(request.param)]()


def connect(level: int = 4) -> core.Connect:
    return core.Connect("dev1", protocol_level=level)


def opened(driver: Driver) -> Server:
    """The connection of a client that is connected."""
    assert len(driver.receive(connect(level_of(driver)))) == 1
    driver.server.send(core.Connack(False))
    assert driver.opened() == []
    assert len(driver.data_to_send()) == 1
    return driver.server


def level_of(driver: Driver) -> int:
    return driver._dialect.level if isinstance(driver, MqttDriver) else 4


def test_a_connect_is_handed_over_alone_and_answered_once(driver: Driver) -> None:
    (packet,) = driver.receive(connect(level_of(driver)))
    assert isinstance(packet, core.Connect)
    assert (packet.client_id, packet.clean_start) == ("dev1", True)
    assert driver.data_to_send() == []
    driver.server.send(core.Connack(False))
    (connack,) = driver.data_to_send()
    assert isinstance(connack, core.Connack)
    assert (connack.reason, connack.session_present) == (0, False)
    assert driver.data_to_send() == []


def test_what_comes_before_connack_is_kept_until_it_was_sent(driver: Driver) -> None:
    driver.receive(connect(level_of(driver)))
    assert driver.receive(MESSAGE) == []
    driver.server.send(core.Connack(False))
    assert driver.opened() == [MESSAGE]
    assert driver.receive(MESSAGE) == [MESSAGE]


def test_a_subscription_is_granted_with_its_packet_identifier(driver: Driver) -> None:
    server = opened(driver)
    subscribe = core.Subscribe(2, [core.SubscriptionRequest("a/+", 1)])
    (packet,) = driver.receive(subscribe)
    assert isinstance(packet, core.Subscribe)
    assert (packet.packet_id, packet.requests[0].topic_filter, packet.requests[0].qos) == (2, "a/+", 1)
    server.send(core.Suback(2, [1]))
    assert driver.data_to_send() == [core.Suback(2, [1])]


def test_messages_of_the_client_are_acknowledged_by_the_core(driver: Driver) -> None:
    server = opened(driver)
    for qos, acknowledgement in ((1, puback(3)), (2, pubrec(3))):
        message = core.Publish(TOPIC, b"hi", qos, packet_id=3)
        assert driver.receive(message) == [message]
        assert driver.data_to_send() == []
        server.acknowledge(core.Acknowledgement(core.PUBACK if qos == 1 else core.PUBREC, 3))
        assert driver.data_to_send() == [acknowledgement]
    assert driver.receive(pubrel(3)) == [pubrel(3)]
    server.acknowledge(core.Acknowledgement(core.PUBCOMP, 3))
    assert driver.data_to_send() == [pubcomp(3)]


def test_deliveries_are_sent_in_order_and_acknowledged_by_the_client(driver: Driver) -> None:
    server = opened(driver)
    assert server.has_room()
    assert server.deliver(core.Delivery([MESSAGE], retain=True))
    assert server.deliver(core.Delivery([MESSAGE], 1, packet_id=4))
    assert server.deliver(core.Delivery([MESSAGE], 2, packet_id=5))
    assert driver.data_to_send() == [
        core.Publish(TOPIC, b"hi", 0, True),
        core.Publish(TOPIC, b"hi", 1, packet_id=4),
        core.Publish(TOPIC, b"hi", 2, packet_id=5),
    ]
    assert driver.receive(puback(4)) == [puback(4)]
    assert driver.receive(pubrec(5)) == [pubrec(5)]
    server.acknowledge(core.Acknowledgement(core.PUBREL, 5))
    assert driver.data_to_send() == [pubrel(5)]
    assert driver.receive(pubcomp(5)) == [pubcomp(5)]


def test_bytes_that_are_no_packet_are_a_failure_where_the_standard_ends_the_connection(driver: Driver) -> None:
    opened(driver)
    assert driver.receive_malformed() == []
    is_lenient = isinstance(driver, SnDriver) and not driver._profile.rules.strict
    assert (driver.failure is None) == is_lenient


def test_a_connection_is_closed_once(driver: Driver) -> None:
    server = opened(driver)
    (packet,) = driver.receive(core.Disconnect())
    assert isinstance(packet, core.Disconnect)
    assert server.close(0)
    assert not server.close(0)
    assert len(driver.data_to_send()) <= 1  # an answer, where the standard has one
    assert driver.data_to_send() == []

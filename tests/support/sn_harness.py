"""The session engine with a clock moved by hand, and a core that says yes to everything."""

from random import Random

import pytest

from embermq.protocol import packets as core
from embermq.protocol.sn.connection import VirtualConnection
from embermq.protocol.sn.engine import Engine
from embermq.protocol.sn.events import (
    ClientLost,
    ClientWritable,
    ConnectRequest,
    Event,
    PacketReceived,
    RuleViolation,
    SessionlessPublish,
    WillChange,
)
from embermq.protocol.sn.settings import SnSettings
from embermq.protocol.sn.wire.codec import decode, encode
from embermq.protocol.sn.wire.layouts import Profile
from embermq.protocol.sn.wire.profiles import PROFILES, V12, A, B, W
from support import sn_packets as sn
from support.acknowledgements import is_pubrec, is_pubrel

ALL = pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
TWO = pytest.mark.parametrize("profile", [A, B], ids=lambda profile: profile.name)

HOST = ("192.0.2.1", 1000)
ELSEWHERE = ("198.51.100.9", 2000)


class Harness:
    """Packets in, packets out; `events` keeps what the core would hear."""

    def __init__(self, **options: object) -> None:
        self.engine = Engine(SnSettings(**options), Random(7), lambda: self.now_ms)  # type: ignore[arg-type]  # named by the test
        self.now_ms = 1_000_000
        self.events: list[Event] = []
        self.sent: list[tuple[object, bytes]] = []
        self.session_present = False
        self.open: dict[str, VirtualConnection] = {}

    def feed(self, data: bytes, address: tuple[str, int] = HOST) -> list[bytes]:
        """A datagram; returns what is sent because of it."""
        return self._carry_out(self.engine.receive(data, address, self.now_ms))

    def pass_ms(self, ms: int) -> list[bytes]:
        """Time passes, deadline by deadline."""
        end_ms = self.now_ms + ms
        sent: list[bytes] = []
        while (due_ms := self.engine.next_deadline_ms()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            sent += self._carry_out(self.engine.tick(self.now_ms))
        self.now_ms = end_ms
        return sent

    def settle(self) -> list[bytes]:
        return self._carry_out(self.engine.take_events())

    def _carry_out(self, events: list[Event]) -> list[bytes]:
        while events:
            for event in events:
                self.events.append(event)
                if isinstance(event, ConnectRequest):
                    older = self.open.get(event.connect.client_id)
                    if older is not None:
                        older.close(0 if event.sleeper is older else 0x8E)
                    self.open[event.connect.client_id] = event.connection
                    event.connection.send(core.Connack(self.session_present))
                    event.connection.opened()
                elif isinstance(event, RuleViolation):
                    event.connection.close(event.error.reason)
                elif isinstance(event, PacketReceived):
                    self._answer(event)
            events = self.engine.take_events()
        sent = self.engine.data_to_send()
        self.sent += [(address, datagram) for datagram, address in sent]
        return [datagram for datagram, _ in sent]

    def _answer(self, event: PacketReceived) -> None:
        connection, packet = event.connection, event.packet
        if isinstance(packet, core.Subscribe):
            connection.send(core.Suback(packet.packet_id, [packet.requests[0].qos]))
        elif isinstance(packet, core.Unsubscribe):
            connection.send(core.Unsuback(packet.packet_id, [0]))
        elif isinstance(packet, core.Publish) and packet.qos:
            connection.acknowledge(core.Acknowledgement(3 + packet.qos, packet.packet_id))
        elif is_pubrel(packet):
            connection.acknowledge(core.Acknowledgement(core.PUBCOMP, packet.packet_id))
        elif is_pubrec(packet) and packet.reason < 0x80:
            connection.acknowledge(core.Acknowledgement(core.PUBREL, packet.packet_id))
        elif isinstance(packet, core.Disconnect):
            connection.close(0)

    # -- shorthand ---------------------------------------------------------------------------------------------------

    def connect(
        self, profile: Profile, client_id: str = "dev1", address: tuple[str, int] = HOST, **options: object
    ) -> VirtualConnection:
        """A connected client."""
        version = profile.version
        connect = sn.connect(client_id, version=version, **options)  # type: ignore[arg-type]  # named by the test
        self.feed(encode(connect, profile), address)
        return self.connection()

    def connection(self) -> VirtualConnection:
        """The newest."""
        return next(event for event in reversed(self.events) if isinstance(event, ConnectRequest)).connection

    def deliver(
        self, connection: VirtualConnection, topic_name: str, payload: bytes = b"x", qos: int = 0, packet_id: int = 0
    ) -> list[sn.SnPacket]:
        """The core hands over a message; returns the packets that leave."""
        connection.deliver(core.Delivery([core.Publish(topic_name, payload, qos)], qos, packet_id=packet_id))
        return [decode(data, connection.peer.profile) for data in self.settle()]

    def ask(self, connection: VirtualConnection, packet: sn.SnPacket) -> list[sn.SnPacket]:
        """A packet of a client; returns the packets that answer it."""
        profile = connection.peer.profile
        return [decode(data, profile) for data in self.feed(encode(packet, profile), connection.peer.address())]  # type: ignore[arg-type]

    def connects(self) -> list[core.Connect]:
        """The core's CONNECTs, in order."""
        return [event.connect for event in self.events if isinstance(event, ConnectRequest)]

    def will_dialogue(self, clean: bool, topic: str, message: bytes = b"bye") -> core.Will | None:
        """CONNECT with a will, as 1.2 asks for it; an empty topic deletes it. Returns the will that the core gets."""
        connect = sn.connect("dev1", clean, version=1, will_flag=True, keep_alive_s=len(self.sent) + 1)
        assert self.feed(encode(connect, V12)) == [bytes.fromhex("02 06")]
        answer = self.feed(encode(sn.will_topic(topic, 1, True), V12))
        if topic:
            assert answer == [bytes.fromhex("02 08")]
            answer = self.feed(encode(sn.will_message(message), V12))
        assert answer == [bytes.fromhex("03 05 00")]
        return self.connects()[-1].will

    def received(self) -> list[core.Packet]:
        return [event.packet for event in self.events if isinstance(event, PacketReceived)]

    def lost(self) -> list[str]:
        return [event.reason for event in self.events if isinstance(event, ClientLost)]

    def failed(self) -> list[int]:
        return [event.error.reason for event in self.events if isinstance(event, RuleViolation)]

    def sessionless(self) -> list[core.Publish]:
        return [event.message for event in self.events if isinstance(event, SessionlessPublish)]

    def wills(self) -> list[core.Will | None]:
        return [event.will for event in self.events if isinstance(event, WillChange)]

    def writable(self) -> int:
        return sum(isinstance(event, ClientWritable) for event in self.events)


def one(packets: list[sn.SnPacket]) -> sn.SnPacket:
    assert len(packets) == 1, packets
    return packets[0]


def registered(
    harness: Harness, connection: VirtualConnection, packets: list[sn.SnPacket], reason: int = 0
) -> list[sn.SnPacket]:
    """Answer the one REGISTER; returns what follows."""
    register = one(packets)
    assert register.kind == sn.REGISTER
    return harness.ask(connection, sn.regack(register.packet_id, register.topic_alias, reason))


def fall_asleep(
    harness: Harness, connection: VirtualConnection, seconds: int = 100, retain_aliases: bool = False
) -> None:
    """Let a client sleep, as its profile has it."""
    if connection.peer.profile.sleeps_by_disconnect:
        answer = harness.ask(connection, sn.disconnect(session_expiry_s=seconds, retain_aliases=retain_aliases))
        assert answer == [sn.disconnect()]
    else:
        assert harness.ask(connection, sn.sleepreq(9, seconds, retain_aliases)) == [sn.sleepresp(9)]


def ping_of(connection: VirtualConnection, packet_id: int = 5) -> sn.SnPacket:
    """The PINGREQ by which a sleeping client wakes."""
    profile = connection.peer.profile
    return sn.pingreq(0 if profile in (V12, W) else packet_id, "" if profile is B else connection.client_id)


def pingresp(profile: Profile, remaining: int, packet_id: int = 5) -> sn.SnPacket:
    """The PINGRESP that sends a client back to sleep."""
    if profile is V12:
        return sn.pingresp()
    return sn.pingresp(0 if profile is W else packet_id, remaining)

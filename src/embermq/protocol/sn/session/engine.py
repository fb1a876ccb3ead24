"""The session engine of MQTT-SN: datagrams in, events out; one for all wire profiles and all clients of a listener.

Owns: the calls of the shell, and which connection, handshake or sessionless packet a frame belongs to.
Never: a socket, a clock, the broker. Time comes in as `now_ms`; what must be done goes out as events, in order.
A datagram is untrusted: every table here is bounded, and a sender without a connection is not sent more than it sent.
"""

from random import Random
from typing import Final, final

from embermq.protocol.errors import PeerError
from embermq.protocol.packets import capped_keep_alive_s
from embermq.protocol.sn.counters import SnCounters
from embermq.protocol.sn.events import Address, Event, RuleViolation
from embermq.protocol.sn.session.addresses import Addresses
from embermq.protocol.sn.session.client_state import CLOSED
from embermq.protocol.sn.session.connection import VirtualConnection
from embermq.protocol.sn.session.handshake import Handshakes
from embermq.protocol.sn.session.peer import NetworkIdentity
from embermq.protocol.sn.session.sessionless import SessionlessPackets
from embermq.protocol.sn.session.timers import Timers
from embermq.protocol.sn.settings import REBIND_ANY, REBIND_NEVER, SnSettings
from embermq.protocol.sn.wire import kinds
from embermq.protocol.sn.wire import packets as sn
from embermq.protocol.sn.wire.decode import decode_frame
from embermq.protocol.sn.wire.detect import detect_connect, read_without_connection
from embermq.protocol.sn.wire.encode import encode
from embermq.protocol.sn.wire.framing import PROTECTION, Envelope, Frame, open_envelope
from embermq.protocol.sn.wire.layouts import Profile

SESSIONLESS: Final = (kinds.PUBWOS, kinds.SEARCHGW, kinds.ADVERTISE, kinds.GWINFO)
ENCAPSULATED: Final = (
    kinds.PUBLISH,
    kinds.SUBSCRIBE,
    kinds.UNSUBSCRIBE,
    kinds.REGISTER,
    kinds.DISCONNECT,
    kinds.SLEEPREQ,
    kinds.PINGREQ,
)
"""What B's connection encapsulation may hold."""


@final
class Engine:
    """All clients of one listener."""

    __slots__ = (
        "settings",
        "counters",
        "events",
        "timers",
        "awake",
        "_addresses",
        "_handshakes",
        "_sessionless",
    )

    def __init__(self, settings: SnSettings, random: Random) -> None:
        """`random` draws aliases and packet identifiers: a strong one in a server, a seeded one in a test."""
        self.settings: Final = settings
        self.counters: Final = SnCounters()
        self.events: Final[list[Event]] = []
        self.timers: Final = Timers()
        self.awake: Final[dict[VirtualConnection, None]] = {}
        self._addresses: Final = Addresses(settings.clients_max, self.counters)
        self._handshakes: Final = Handshakes(self, self._addresses, random)
        self._sessionless: Final = SessionlessPackets(settings, self.counters, self.events)

    # -- for the shell -------------------------------------------------------------------------------------------------

    def must_prove_addresses(self) -> bool:
        """Whether clients at unproven addresses are many, so that each has to prove its own."""
        return self._addresses.are_scarce()

    def receive(self, datagram: bytes, address: Address, now_ms: int) -> list[Event]:
        """A datagram has come; returns what has to be done about it."""
        counters = self.counters
        counters.datagrams_received += 1
        counters.bytes_received += len(datagram)
        try:
            envelope = open_envelope(datagram)
        except PeerError as error:
            counters.malformed += 1
            connection = self._addresses.at((address, b""))
            if connection is not None:
                self.fail(connection, error)
            return self.take_events()
        identity = (address, envelope.route)
        connection = self._addresses.at(identity)
        if envelope.client_id is not None:
            connection = self._open_encapsulation(envelope, envelope.client_id, identity)
            if connection is None:
                return self.take_events()
        if connection is not None:
            connection.peer.received_bytes += len(datagram)
        self._receive_frame(envelope.frame, identity, connection, now_ms)
        return self.take_events()

    def receive_multicast(self, datagram: bytes, address: Address, now_ms: int) -> list[Event]:
        """A datagram to the multicast group: only the search for a server is meant for this one."""
        try:
            envelope = open_envelope(datagram)
        except PeerError:
            self.counters.malformed += 1
            return []
        for profile, packet in self._readings(envelope.frame):
            if isinstance(packet, sn.Searchgw):
                self._sessionless.receive(packet, profile, (address, envelope.route), now_ms)
                break
        return self.take_events()

    def tick(self, now_ms: int) -> list[Event]:
        """Time has passed."""
        for connection in self.timers.due(now_ms):
            connection.tick(now_ms)
            self.timers.watch(connection)
        self._handshakes.tick(now_ms)
        return self.take_events()

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        due_ms = self.timers.next_ms()
        handshake_ms = self._handshakes.next_deadline_ms()
        if due_ms is None or handshake_ms is None:
            return handshake_ms if due_ms is None else due_ms
        return min(due_ms, handshake_ms)

    def take_events(self) -> list[Event]:
        """What all calls since the last time have gathered, in order."""
        events = self.events[:]
        self.events.clear()
        return events

    def advertisement(self) -> list[bytes]:
        """ADVERTISE on each wire that is spoken; 1.2 and W write it alike."""
        packet = sn.Advertise(self.settings.gateway_id, self.settings.advertise_s)
        return list(dict.fromkeys(encode(packet, profile) for profile in self.settings.profiles))

    # -- for virtual connections -------------------------------------------------------------------------------------

    def keep_alive_s(self, asked_s: int) -> int:
        """The keep alive that applies to a client; 0 is none."""
        return capped_keep_alive_s(asked_s, self.settings.keep_alive_max_s)

    def fail(self, connection: VirtualConnection, error: PeerError) -> None:
        """A client broke a rule: 2.0 ends its connection, 1.2 has no such rule and drops the packet."""
        self.counters.protocol_errors += 1
        if connection.peer.profile.rules.strict:
            self.events.append(RuleViolation(connection, error))

    def forget(self, connection: VirtualConnection) -> None:
        """A virtual connection has ended."""
        if connection.client_state.state == CLOSED:
            return
        connection.client_state.state = CLOSED
        self.awake.pop(connection, None)
        self._addresses.remove(connection)

    def accept(self, connection: VirtualConnection, session_present: bool) -> None:
        """The core has accepted a connection."""
        self._addresses.accept(connection, session_present)

    def proven(self, connection: VirtualConnection) -> None:
        """The address of a client is not forged."""
        self._addresses.proven(connection)

    def ask_for_proofs(self, now_ms: int) -> None:
        """A client was accepted: if there are many whose addresses are unproven, some have to prove them."""
        self._addresses.ask_for_proofs(now_ms)

    def store_will(self, connection: VirtualConnection) -> None:
        """A client of 1.2 has changed its will."""
        self._handshakes.store_will(connection)

    # -- frames ------------------------------------------------------------------------------------------------------

    def _receive_frame(
        self, frame: Frame, identity: NetworkIdentity, connection: VirtualConnection | None, now_ms: int
    ) -> None:
        detected = detect_connect(frame, connection.peer.profile if connection is not None else None)
        if detected is not None:
            self._handshakes.receive_connect(frame, detected, identity, connection, now_ms)
        elif self._handshakes.receive_will(frame, identity, now_ms):
            return
        elif frame.code == PROTECTION:
            self.counters.dropped_wrapper += 1
        elif connection is None:
            self._receive_without_connection(frame, identity, now_ms)
        else:
            self._receive_packet(frame, identity, connection, now_ms)

    def _receive_packet(
        self, frame: Frame, identity: NetworkIdentity, connection: VirtualConnection, now_ms: int
    ) -> None:
        profile = connection.peer.profile
        try:
            packet = decode_frame(frame, profile)
            if packet.kind() in SESSIONLESS:
                connection.client_state.heard_ms = now_ms
                self._sessionless.receive(packet, profile, identity, now_ms)
            else:
                connection.receive(packet, frame.body, now_ms)
        except PeerError as error:
            self.counters.malformed += 1
            self.fail(connection, error)

    def _readings(self, frame: Frame) -> list[tuple[Profile, sn.SnPacket]]:
        return read_without_connection(frame, self.settings.profiles, self.settings.pubwos_profile)

    def _receive_without_connection(self, frame: Frame, identity: NetworkIdentity, now_ms: int) -> None:
        """A frame from an address without a connection: a packet that needs no session, or the PINGREQ of a client."""
        lost: tuple[Profile, sn.Pingreq] | None = None
        for profile, packet in self._readings(frame):
            if not isinstance(packet, sn.Pingreq):
                if self._sessionless.receive(packet, profile, identity, now_ms):
                    return
            elif packet.client_id:
                sleeper = self._addresses.of(packet.client_id)
                if sleeper is None or sleeper.peer.profile is not profile or not sleeper.client_state.sleeps():
                    continue
                # 1.2, W, A: a sleeping client may wake at another address; its PINGREQ names it.
                if self._may_move(sleeper, identity):
                    self._addresses.move(sleeper, identity)
                    sleeper.receive(packet, frame.body, now_ms)
                    return
                break
            elif profile.rules.tells_lost_connection and (packet.packet_id or not profile.rules.strict):
                lost = profile, packet
        self.counters.without_connection += 1
        if lost is not None:
            self._sessionless.tell_lost_connection(lost[1], lost[0], identity, now_ms)

    # -- clients that move -------------------------------------------------------------------------------------------

    def _open_encapsulation(
        self, envelope: Envelope, client_id: str, identity: NetworkIdentity
    ) -> VirtualConnection | None:
        """B: a client whose address changed names itself. None: neither its CONNECT nor the packet may do that."""
        connection = self._addresses.of(client_id)
        if (
            connection is None
            or not connection.peer.profile.rules.has_connection_encapsulation
            or not connection.connect.address_change
        ):
            self.counters.rebinds_refused += 1
            return None
        try:
            allowed = decode_frame(envelope.frame, connection.peer.profile).kind() in ENCAPSULATED
        except PeerError:
            allowed = False
        if not allowed:
            self.counters.malformed += 1
            return None
        if not self._may_move(connection, identity):
            return None
        self._addresses.move(connection, identity)
        return connection

    def _may_move(self, connection: VirtualConnection, identity: NetworkIdentity) -> bool:
        """Whether a client may be at another address: only its client id, no proof, says that it is the same one."""
        rebind = self.settings.rebind
        if connection.peer.identity == identity or rebind == REBIND_ANY:
            return True
        if rebind != REBIND_NEVER and connection.peer.address()[0] == identity[0][0]:
            return True
        self.counters.rebinds_refused += 1
        return False

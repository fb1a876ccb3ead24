"""The session engine of MQTT-SN: datagrams in, events and datagrams out; one for all profiles and clients.

Owns: the calls of the shell, which connection, handshake or sessionless packet a frame belongs to, what a packet that
needs no session causes, and which connection has something due at which moment.
Never: a socket, a clock, the broker. Time comes in as `now_ms`; what the core has to be told goes out as events, in
order, and `data_to_send` takes the datagrams.
A datagram is untrusted: every table here is bounded, and a sender without a connection is not sent more than it sent.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from random import Random
from typing import Final, final

from embermq.protocol import packets as core
from embermq.protocol.errors import PeerError
from embermq.protocol.sn.addresses import Addresses
from embermq.protocol.sn.aliases import topic_name_of
from embermq.protocol.sn.connection import VirtualConnection
from embermq.protocol.sn.counters import SnCounters
from embermq.protocol.sn.events import Address, Event, RuleViolation, SessionlessPublish
from embermq.protocol.sn.handshake import Handshakes
from embermq.protocol.sn.peer import NetworkIdentity, Output
from embermq.protocol.sn.settings import ANSWERS_A_SECOND, REBIND_ANY, REBIND_NEVER, SnSettings
from embermq.protocol.sn.wire import packets as sn
from embermq.protocol.sn.wire.codec import decode_frame, encode
from embermq.protocol.sn.wire.detect import detect_connect, read_without_connection
from embermq.protocol.sn.wire.framing import PROTECTION, Envelope, Frame, open_envelope
from embermq.protocol.sn.wire.layouts import Profile

SESSIONLESS: Final = (sn.PUBWOS, sn.SEARCHGW, sn.ADVERTISE, sn.GWINFO)
ENCAPSULATED: Final = (
    sn.PUBLISH,
    sn.SUBSCRIBE,
    sn.UNSUBSCRIBE,
    sn.REGISTER,
    sn.DISCONNECT,
    sn.SLEEPREQ,
    sn.PINGREQ,
)
"""What B's connection encapsulation may hold."""
NO_CONNECTION: Final = 0xF4
SWEEP_MIN: Final = 1_024
"""Below this number of entries no stale ones are removed."""


@final
class Timers:
    """Virtual connections by the moment of their next deadline, in one heap.

    A deadline that moves later costs nothing: it is noticed when the old entry comes up. Stale entries are removed
    before they outnumber the others, or a peer that connects again and again with a keep alive of a day would fill the
    memory.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, VirtualConnection]] = []
        self._tie = 0
        self._sweep_at = SWEEP_MIN

    def __len__(self) -> int:
        return len(self._heap)

    def watch(self, connection: VirtualConnection) -> None:
        """Have `due` return a connection no later than at its present deadline."""
        due_ms = connection.due_ms()
        if due_ms and (connection.watched_ms == 0 or due_ms < connection.watched_ms):
            connection.set_watched(due_ms)
            self._tie += 1
            heappush(self._heap, (due_ms, self._tie, connection))
            if len(self._heap) > self._sweep_at:
                self._sweep()

    def _sweep(self) -> None:
        """Remove entries that an earlier one replaced, and those of connections that have ended."""
        kept: list[tuple[int, int, VirtualConnection]] = []
        for entry in self._heap:
            connection = entry[2]
            if connection.watched_ms != entry[0]:
                continue
            if connection.due_ms():
                kept.append(entry)
            else:
                connection.set_watched(0)
        heapify(kept)
        self._heap = kept
        self._sweep_at = max(SWEEP_MIN, 2 * len(kept))

    def due(self, now_ms: int) -> list[VirtualConnection]:
        """The connections whose deadline has passed, in the order of deadlines; each must be watched again."""
        found: list[VirtualConnection] = []
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            at_ms, _, connection = heappop(heap)
            if connection.watched_ms != at_ms:
                continue  # an earlier entry replaced this one
            connection.set_watched(0)
            due_ms = connection.due_ms()
            if due_ms and due_ms <= now_ms:
                found.append(connection)
            else:
                self.watch(connection)
        return found

    def next_ms(self) -> int | None:
        """When to call `due` next; None while nothing is watched."""
        return self._heap[0][0] if self._heap else None


@final
class SessionlessPackets:
    """PUBWOS (1.2: PUBLISH with QoS -1), SEARCHGW, ADVERTISE and GWINFO: the same for senders with a connection.

    Nothing is kept of a sender. An answer to one without a connection is no larger than the question, and there are no
    more than `ANSWERS_A_SECOND`.
    """

    def __init__(self, settings: SnSettings, counters: SnCounters, events: list[Event], output: Output) -> None:
        self._settings: Final = settings
        self._counters: Final = counters
        self._events: Final = events
        self._output: Final = output
        self._answers_left = ANSWERS_A_SECOND
        self._answers_ms = 0

    def receive(self, packet: sn.SnPacket, profile: Profile, identity: NetworkIdentity, now_ms: int) -> bool:
        """Carry out a packet that needs no session. False: it needs one."""
        if packet.kind == sn.PUBWOS:
            self._publish(packet)
            return True
        if packet.kind == sn.SEARCHGW:
            if self._settings.answer_search:
                self._answer(sn.gwinfo(self._settings.gateway_id), profile, identity, now_ms)
            return True
        return packet.kind in (sn.ADVERTISE, sn.GWINFO)

    def _publish(self, packet: sn.SnPacket) -> None:
        topic_name = topic_name_of(packet.reference, None, self._settings)
        if topic_name is None or not self._settings.sessionless:
            self._counters.dropped_sessionless += 1
            return
        self._events.append(SessionlessPublish(core.Publish(topic_name, packet.payload, 0, packet.retain)))

    def tell_lost_connection(self, ping: sn.SnPacket, profile: Profile, identity: NetworkIdentity, now_ms: int) -> None:
        """A client pings whose connection is gone: DISCONNECT, with its packet identifier where the profile has one."""
        self._answer(sn.disconnect(NO_CONNECTION, packet_id=ping.packet_id), profile, identity, now_ms)

    def _answer(self, packet: sn.SnPacket, profile: Profile, identity: NetworkIdentity, now_ms: int) -> None:
        if now_ms - self._answers_ms >= 1000:
            self._answers_ms = now_ms
            self._answers_left = ANSWERS_A_SECOND
        if self._answers_left <= 0:
            return
        self._answers_left -= 1
        self._output.send(identity, encode(packet, profile))


@final
class Engine:
    """All clients of one listener."""

    def __init__(self, settings: SnSettings, random: Random, begin_turn: Callable[[], int]) -> None:
        """`random` draws aliases and packet identifiers: a strong one in a server, a seeded one in a test.

        `begin_turn` is called when the core calls a connection: it tells the shell that there is something to do at the
        end of the turn, and returns the instant of the turn in ms.
        """
        self.settings: Final = settings
        self.begin_turn: Final = begin_turn
        self.counters: Final = SnCounters()
        self.events: Final[list[Event]] = []
        self.output: Final = Output(self.counters)
        self.timers: Final = Timers()
        self.awake: Final[dict[VirtualConnection, None]] = {}
        self.addresses: Final = Addresses(settings.clients_max, self.counters)
        self.handshakes: Final = Handshakes(self, self.addresses, random)
        self._sessionless: Final = SessionlessPackets(settings, self.counters, self.events, self.output)

    # -- for the shell -------------------------------------------------------------------------------------------------

    def receive(self, datagram: bytes, address: Address, now_ms: int) -> list[Event]:
        """A datagram has come; returns what has to be done about it."""
        counters = self.counters
        counters.datagrams_received += 1
        counters.bytes_received += len(datagram)
        try:
            envelope = open_envelope(datagram)
        except PeerError as error:
            counters.malformed += 1
            connection = self.addresses.at((address, b""))
            if connection is not None:
                self.fail(connection, error)
            return self.take_events()
        identity = (address, envelope.route)
        connection = self.addresses.at(identity)
        if envelope.client_id is not None:
            connection = self._open_encapsulation(envelope, envelope.client_id, identity)
            if connection is None:
                return self.take_events()
        if connection is not None:
            connection.peer.received(len(datagram))
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
            if packet.kind == sn.SEARCHGW:
                self._sessionless.receive(packet, profile, (address, envelope.route), now_ms)
                break
        return self.take_events()

    def tick(self, now_ms: int) -> list[Event]:
        """Time has passed."""
        for connection in self.timers.due(now_ms):
            connection.tick(now_ms)
            self.timers.watch(connection)
        self.handshakes.tick(now_ms)
        return self.take_events()

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        due_ms = self.timers.next_ms()
        handshake_ms = self.handshakes.next_deadline_ms()
        if due_ms is None or handshake_ms is None:
            return handshake_ms if due_ms is None else due_ms
        return min(due_ms, handshake_ms)

    def take_events(self) -> list[Event]:
        """What all calls since the last time have gathered, in order."""
        events = self.events[:]
        self.events.clear()
        return events

    def data_to_send(self) -> list[tuple[bytes, Address]]:
        """Take the datagrams that were gathered, in order."""
        return self.output.take()

    def advertisement(self) -> list[bytes]:
        """ADVERTISE on each wire that is spoken; 1.2 and W write it alike."""
        packet = sn.advertise(self.settings.gateway_id, self.settings.advertise_s)
        return list(dict.fromkeys(encode(packet, profile) for profile in self.settings.profiles))

    # -- for virtual connections -------------------------------------------------------------------------------------

    def keep_alive_s(self, asked_s: int) -> int:
        """The keep alive that applies to a client; 0 is none."""
        return core.capped_keep_alive_s(asked_s, self.settings.keep_alive_max_s)

    def fail(self, connection: VirtualConnection, error: PeerError) -> None:
        """A client broke a rule: 2.0 ends its connection, 1.2 has no such rule and drops the packet."""
        self.counters.protocol_errors += 1
        if connection.peer.profile.rules.strict:
            self.events.append(RuleViolation(connection, error))

    def forget(self, connection: VirtualConnection) -> None:
        """A virtual connection has ended."""
        if connection.client_state.close():
            self.awake.pop(connection, None)
            self.addresses.remove(connection)

    # -- frames ------------------------------------------------------------------------------------------------------

    def _receive_frame(
        self, frame: Frame, identity: NetworkIdentity, connection: VirtualConnection | None, now_ms: int
    ) -> None:
        detected = detect_connect(frame, connection.peer.profile if connection is not None else None)
        if detected is not None:
            self.handshakes.receive_connect(frame, detected, identity, connection, now_ms)
        elif self.handshakes.receive_will(frame, identity, now_ms):
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
            if packet.kind in SESSIONLESS:
                connection.client_state.heard(now_ms)
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
        lost: tuple[Profile, sn.SnPacket] | None = None
        for profile, packet in self._readings(frame):
            if packet.kind != sn.PINGREQ:
                if self._sessionless.receive(packet, profile, identity, now_ms):
                    return
            elif packet.client_id:
                sleeper = self.addresses.of(packet.client_id)
                if sleeper is None or sleeper.peer.profile is not profile or not sleeper.client_state.sleeps():
                    continue
                # 1.2, W, A: a sleeping client may wake at another address; its PINGREQ names it.
                if self._may_move(sleeper, identity):
                    self.addresses.move(sleeper, identity)
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
        connection = self.addresses.of(client_id)
        if (
            connection is None
            or not connection.peer.profile.rules.has_connection_encapsulation
            or not connection.connect.address_change
        ):
            self.counters.rebinds_refused += 1
            return None
        try:
            allowed = decode_frame(envelope.frame, connection.peer.profile).kind in ENCAPSULATED
        except PeerError:
            allowed = False
        if not allowed:
            self.counters.malformed += 1
            return None
        if not self._may_move(connection, identity):
            return None
        self.addresses.move(connection, identity)
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

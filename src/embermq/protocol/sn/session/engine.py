"""The session engine of MQTT-SN: datagrams in, events out; one for all wire profiles and all clients of a listener.

Owns: the doors, the way of a frame to the connection it belongs to, and the CONNECT.
Never: a socket, a clock, the broker. Time comes in as `now_ms`; what must be done goes out as events, in order.
A datagram is untrusted: every table here is bounded, and a stranger is never answered with more than it sent.
"""

from random import Random
from typing import Final, final

from embermq.protocol import packets as core
from embermq.protocol.errors import PeerError
from embermq.protocol.reasons import ReasonCode
from embermq.protocol.sn.events import Address, Event, Failed, Opened, Send, WillChanged
from embermq.protocol.sn.session.addresses import NetworkIdentity, Whereabouts
from embermq.protocol.sn.session.aliases import Aliases
from embermq.protocol.sn.session.connection import VirtualConnection, asleep
from embermq.protocol.sn.session.counters import SnCounters
from embermq.protocol.sn.session.handshake import (
    BAD_METHOD,
    Handshake,
    KeptWills,
    core_connect,
    credentials_of,
    expiry_of,
    will_of,
)
from embermq.protocol.sn.session.outgoing import Outgoing
from embermq.protocol.sn.session.peer import Wire
from embermq.protocol.sn.session.presence import CLOSED, CONNECTING
from embermq.protocol.sn.session.sessionless import Strangers
from embermq.protocol.sn.session.timers import Timers
from embermq.protocol.sn.settings import (
    CLIENT_ID_LENGTH_MAX,
    CONNECT_BYTES_MAX,
    REBIND_ANY,
    REBIND_NEVER,
    SnSettings,
)
from embermq.protocol.sn.wire import kinds
from embermq.protocol.sn.wire import packets as sn
from embermq.protocol.sn.wire.decode import decode_frame
from embermq.protocol.sn.wire.detect import Detected, detect_connect
from embermq.protocol.sn.wire.encode import encode
from embermq.protocol.sn.wire.framing import PROTECTION, Envelope, Frame, open_envelope, wrap_route
from embermq.protocol.sn.wire.layouts import CONGESTION, Profile
from embermq.protocol.sn.wire.profiles import B

REPEATED_CONNECT_MS: Final = 2_000
"""How long a CONNECT that is the same byte for byte is taken for a copy even of a client that went on meanwhile."""
CLIENT_ID_BYTES: Final = 8
"""Of an assigned client id, in hexadecimal: enough never to meet again, short for a CONNACK to a stranger."""
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
        "_random",
        "_strangers",
        "_whereabouts",
        "_handshakes",
        "_wills",
    )

    def __init__(self, settings: SnSettings, random: Random) -> None:
        """`random` draws aliases and packet ids: a strong one in a server, a seeded one in a test."""
        self.settings: Final = settings
        self.counters: Final = SnCounters()
        self.events: Final[list[Event]] = []
        self.timers: Final = Timers()
        self.awake: Final[dict[VirtualConnection, None]] = {}
        self._random: Final = random
        self._strangers: Final = Strangers(settings, self.counters, self.events)
        self._whereabouts: Final = Whereabouts(settings.clients_max, self.counters)
        self._handshakes: Final[dict[NetworkIdentity, Handshake]] = {}
        self._wills: Final = KeptWills(settings.clients_max)

    # -- doors -------------------------------------------------------------------------------------------------------

    def receive(self, datagram: bytes, address: Address, now_ms: int) -> list[Event]:
        """A datagram has come; returns what has to be done about it."""
        counters = self.counters
        counters.datagrams_received += 1
        counters.bytes_received += len(datagram)
        try:
            envelope = open_envelope(datagram)
        except PeerError as error:
            counters.malformed += 1
            connection = self._whereabouts.at((address, b""))
            if connection is not None:
                self.failed(connection, error)
            return self.take_events()
        identity = (address, envelope.route)
        connection = self._whereabouts.at(identity)
        if envelope.client_id is not None:
            connection = self._encapsulated(envelope, envelope.client_id, identity)
            if connection is None:
                return self.take_events()
        if connection is not None:
            connection.wire.received_bytes += len(datagram)
        self._receive_frame(envelope.frame, identity, connection, now_ms)
        return self.take_events()

    def overhear(self, datagram: bytes, address: Address, now_ms: int) -> list[Event]:
        """A datagram to the group that clients search in: a search is for this server too, the rest for others."""
        try:
            envelope = open_envelope(datagram)
        except PeerError:
            self.counters.malformed += 1
            return []
        self._strangers.search(envelope.frame, address, envelope.route, now_ms)
        return self.take_events()

    def tick(self, now_ms: int) -> list[Event]:
        """Time has passed."""
        for connection in self.timers.due(now_ms):
            connection.tick(now_ms)
            self.timers.watch(connection)
        while self._handshakes:
            identity = next(iter(self._handshakes))
            if self._handshakes[identity].due_ms > now_ms:
                break
            del self._handshakes[identity]
            self.counters.handshakes_dropped += 1
        return self.take_events()

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        due = self.timers.next_ms()
        if self._handshakes:
            handshake_ms = next(iter(self._handshakes.values())).due_ms
            due = handshake_ms if due is None else min(due, handshake_ms)
        return due

    def take_events(self) -> list[Event]:
        """What the doors and the core's calls have gathered, in order."""
        events = self.events[:]
        self.events.clear()
        return events

    def advertisement(self) -> list[bytes]:
        """What ADVERTISE says on each wire that is spoken: 1.2 and W say it alike."""
        packet = sn.Advertise(self.settings.gateway_id, self.settings.advertise_s)
        return list(dict.fromkeys(encode(packet, profile) for profile in self.settings.profiles))

    # -- for virtual connections -------------------------------------------------------------------------------------

    def keep_alive_s(self, asked_s: int) -> int:
        """The keep alive to hold a client to; 0 is none, unless there is a cap."""
        most_s = self.settings.keep_alive_max_s
        if most_s >= 0xFFFF:
            return asked_s
        return min(asked_s, most_s) if asked_s else most_s

    def failed(self, connection: VirtualConnection, error: PeerError) -> None:
        """A client broke a rule: 2.0 ends its connection, 1.2 knows no such rule and drops the packet."""
        self.counters.protocol_errors += 1
        if connection.wire.profile.strict:
            self.events.append(Failed(connection, error))

    def forget(self, connection: VirtualConnection) -> None:
        """A virtual connection is over."""
        if connection.presence.state == CLOSED:
            return
        connection.presence.state = CLOSED
        self.awake.pop(connection, None)
        self._whereabouts.gone(connection)

    def accepted(self, connection: VirtualConnection, session_present: bool) -> None:
        """The core has accepted a connection."""
        self._whereabouts.accepted(connection, session_present)

    def heard(self, connection: VirtualConnection) -> None:
        """A client has said something after its CONNECT."""
        self._whereabouts.heard(connection)

    def keep_will(self, connection: VirtualConnection) -> None:
        """1.2: a session that is not clean keeps its will over disconnections."""
        if not connection.connect.clean_start:
            self._wills.keep(connection.client_id, connection.will)

    # -- frames ------------------------------------------------------------------------------------------------------

    def _receive_frame(
        self, frame: Frame, identity: NetworkIdentity, connection: VirtualConnection | None, now_ms: int
    ) -> None:
        detected = detect_connect(frame, connection.wire.profile if connection is not None else None)
        if detected is not None:
            self._receive_connect(frame, detected, identity, connection, now_ms)
            return
        handshake = self._handshakes.get(identity)
        if handshake is not None and self._receive_will(frame, handshake, identity, now_ms):
            return
        if frame.code == PROTECTION:
            self.counters.dropped_wrapper += 1
            return
        if connection is None:
            if not self._wake_elsewhere(frame, identity, now_ms):
                self._strangers.receive(frame, identity[0], identity[1], now_ms)
            return
        try:
            packet = decode_frame(frame, connection.wire.profile)
            if packet.kind() in (kinds.PUBWOS, kinds.SEARCHGW, kinds.ADVERTISE, kinds.GWINFO):
                connection.presence.heard_ms = now_ms
                self._strangers.take(packet, connection.wire.profile, identity[0], identity[1], now_ms)
            else:
                connection.receive(packet, frame.body, now_ms)
        except PeerError as error:
            self.counters.malformed += 1
            self.failed(connection, error)

    def _encapsulated(self, envelope: Envelope, client_id: str, identity: NetworkIdentity) -> VirtualConnection | None:
        """B: a client whose address changed names itself. Only if its CONNECT allowed that."""
        connection = self._whereabouts.of(client_id)
        if connection is None or connection.wire.profile is not B or not connection.connect.address_change:
            self.counters.rebinds_refused += 1
            return None
        try:
            allowed = decode_frame(envelope.frame, B).kind() in ENCAPSULATED
        except PeerError:
            allowed = False
        if not allowed:
            self.counters.malformed += 1
            return None
        if not self._may_move(connection, identity):
            return None
        self._whereabouts.moved(connection, identity)
        return connection

    def _may_move(self, connection: VirtualConnection, identity: NetworkIdentity) -> bool:
        """Whether a client may be at another address: only its name, no proof, says that it is the same one."""
        wire = connection.wire
        rebind = self.settings.rebind
        if (wire.address, wire.route) == identity or rebind == REBIND_ANY:
            return True
        if rebind != REBIND_NEVER and wire.address[0] == identity[0][0]:
            return True
        self.counters.rebinds_refused += 1
        return False

    def _wake_elsewhere(self, frame: Frame, identity: NetworkIdentity, now_ms: int) -> bool:
        """1.2, W, A: a sleeper may wake behind another address; its PINGREQ names it."""
        for profile in self.settings.profiles:
            layout = profile.by_code[frame.code]
            if layout is None or layout.kind != kinds.PINGREQ:
                continue
            try:
                packet = decode_frame(frame, profile)
            except PeerError:
                continue
            if not isinstance(packet, sn.Pingreq) or not packet.client_id:
                continue
            connection = self._whereabouts.of(packet.client_id)
            if connection is None or connection.wire.profile is not profile or not asleep(connection):
                continue
            if not self._may_move(connection, identity):
                return False
            self._whereabouts.moved(connection, identity)
            connection.receive(packet, frame.body, now_ms)
            return True
        return False

    # -- CONNECT -----------------------------------------------------------------------------------------------------

    def _receive_connect(
        self,
        frame: Frame,
        detected: Detected,
        identity: NetworkIdentity,
        connection: VirtualConnection | None,
        now_ms: int,
    ) -> None:
        profile = detected.profile
        if not detected.supported or profile not in self.settings.profiles:
            at = 1 + ((frame.body[0] >> 1) & 1)
            packet_id = int.from_bytes(frame.body[at : at + 2], "big") if profile.strict else 0
            self._refuse(ReasonCode.UNSUPPORTED_PROTOCOL_VERSION, packet_id, profile, identity)
            return
        if len(frame.body) > CONNECT_BYTES_MAX:
            self._refuse(ReasonCode.PACKET_TOO_LARGE, 0, profile, identity)
            return
        try:
            packet = decode_frame(frame, profile)
        except PeerError as error:
            self.counters.malformed += 1
            if profile.strict:
                self._refuse(error.reason, 0, profile, identity)
            return
        assert isinstance(packet, sn.Connect)
        if connection is not None and self._repeated(connection, frame.body, now_ms):
            self.counters.repeats += 1
            connection.repeat_connack()
            return
        handshake = self._handshakes.get(identity)
        if handshake is not None and handshake.request == frame.body:
            self.counters.repeats += 1
            self._reply(handshake.question(), profile, identity)
            return
        if connection is not None and connection.presence.state == CONNECTING:
            # One at a time from an address, or a stranger could have any number of passwords checked. Who repeats its
            # CONNECT is heard then.
            self.counters.connects_refused += 1
            if not profile.connect_repeated:
                self._reply(sn.Connack(CONGESTION, packet.packet_id), profile, identity)
        elif len(packet.client_id) > CLIENT_ID_LENGTH_MAX or (not packet.client_id and profile.version == 1):
            self._refuse(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, packet.packet_id, profile, identity)
        elif packet.will_flag and profile.will_dialogue:
            self._begin_handshake(packet, profile, frame.body, identity, now_ms)
        else:
            self._handshakes.pop(identity, None)
            self._open(packet, None, profile, frame.body, identity, now_ms)

    def _repeated(self, connection: VirtualConnection, request: bytes, now_ms: int) -> bool:
        """Whether a CONNECT is the one that made the connection: sent again since CONNACK was lost, or a late copy."""
        if connection.request != request:
            return False
        age_ms = now_ms - connection.opened_ms
        if connection.presence.state == CONNECTING:
            return age_ms < self.settings.repeat_ms
        if asleep(connection):
            return False  # it has woken up
        if age_ms < REPEATED_CONNECT_MS:
            return True
        unheard = not connection.heard_more and connection.wire.profile.connect_repeated
        return unheard and age_ms < self.settings.repeat_ms

    def _reply(self, packet: sn.SnPacket, profile: Profile, identity: NetworkIdentity) -> None:
        """Answer somebody who has no virtual connection."""
        datagram = wrap_route(identity[1], encode(packet, profile))
        self.counters.datagrams_sent += 1
        self.counters.bytes_sent += len(datagram)
        self.events.append(Send(identity[0], datagram))

    def _refuse(self, reason: int, packet_id: int, profile: Profile, identity: NetworkIdentity) -> None:
        self.counters.connects_refused += 1
        self._reply(sn.Connack(reason, packet_id), profile, identity)

    def _begin_handshake(
        self, connect: sn.Connect, profile: Profile, request: bytes, identity: NetworkIdentity, now_ms: int
    ) -> None:
        self._handshakes.pop(identity, None)
        if len(self._handshakes) >= self.settings.handshakes_max:
            del self._handshakes[next(iter(self._handshakes))]
            self.counters.handshakes_dropped += 1
        handshake = Handshake(connect, profile, request, now_ms + self.settings.handshake_ms)
        self._handshakes[identity] = handshake
        self._reply(handshake.question(), profile, identity)

    def _receive_will(self, frame: Frame, handshake: Handshake, identity: NetworkIdentity, now_ms: int) -> bool:
        """A part of the will that was asked for. False: it is another packet."""
        layout = handshake.profile.by_code[frame.code]
        if layout is None or layout.kind not in (kinds.WILLTOPIC, kinds.WILLMSG):
            return False
        if len(frame.body) > CONNECT_BYTES_MAX:
            del self._handshakes[identity]
            self._refuse(ReasonCode.PACKET_TOO_LARGE, 0, handshake.profile, identity)
            return True
        try:
            packet = decode_frame(frame, handshake.profile)
        except PeerError:
            self.counters.malformed += 1
            return True
        will: core.Will | None = None
        if isinstance(packet, sn.WillTopic):
            if not handshake.topic(packet):
                self._reply(handshake.question(), handshake.profile, identity)
                return True
            self._wills.keep(handshake.connect.client_id, None)
        elif isinstance(packet, sn.WillMsg):
            will = handshake.message(packet)
            if will is None:
                self._reply(handshake.question(), handshake.profile, identity)
                return True
        del self._handshakes[identity]
        self._open(handshake.connect, will, handshake.profile, handshake.request, identity, now_ms)
        return True

    def _open(
        self,
        connect: sn.Connect,
        will: core.Will | None,
        profile: Profile,
        request: bytes,
        identity: NetworkIdentity,
        now_ms: int,
    ) -> None:
        """All of a CONNECT is there: wake its sleeper, or ask the core for a session."""
        client_id = connect.client_id or f"sn-{self._random.getrandbits(8 * CLIENT_ID_BYTES):016x}"
        older = self._whereabouts.of(client_id)
        wakes = older is not None and self._wakes(older, connect, profile)
        try:
            credentials = credentials_of(connect)
            if profile.will_dialogue:
                will = self._kept_will(connect, client_id, will)
            else:
                known = None if connect.clean_start else self._whereabouts.aliases_of(client_id)
                will = will_of(connect, known, self.settings)
        except PeerError as error:
            self.counters.malformed += 1
            self._refuse(error.reason, connect.packet_id, profile, identity)
            return
        if credentials is None:
            self._refuse(BAD_METHOD, connect.packet_id, profile, identity)
        elif older is not None and wakes:
            if not profile.will_dialogue or connect.will_flag:
                older.will = will
                self.events.append(WillChanged(older, will))
            self._whereabouts.moved(older, identity)
            older.reactivate(connect, request, now_ms)
        elif not self._whereabouts.room_for(identity, now_ms):
            self._refuse(CONGESTION, connect.packet_id, profile, identity)
        else:
            wire = Wire(identity[0], identity[1], profile, self.settings, self.events, self.counters)
            wire.received_bytes = len(request)
            connection = self._new_connection(wire, connect, client_id, will, request, now_ms)
            asked = core_connect(connect, client_id, credentials, will, profile, self.settings.window)
            sleeper = older if older is not None and asleep(older) else None
            self.events.append(Opened(connection, asked, sleeper))

    def _new_connection(
        self, wire: Wire, connect: sn.Connect, client_id: str, will: core.Will | None, request: bytes, now_ms: int
    ) -> VirtualConnection:
        aliases = Aliases(self.settings.aliases_max, self._random)
        outgoing = Outgoing(wire, aliases, self.settings, self.counters, self._random)
        connection = VirtualConnection(self, wire, connect, client_id, outgoing, will, request, now_ms)
        self._whereabouts.arrived(connection)
        return connection

    def _kept_will(self, connect: sn.Connect, client_id: str, will: core.Will | None) -> core.Will | None:
        """1.2's table of CleanSession and Will (digest section 10)."""
        if connect.clean_start:
            self._wills.keep(client_id, None)
        elif connect.will_flag:
            self._wills.keep(client_id, will)
        else:
            return self._wills.get(client_id)
        return will

    def _wakes(self, older: VirtualConnection, connect: sn.Connect, profile: Profile) -> bool:
        """Whether a CONNECT only wakes a sleeper: nothing about its session changes."""
        if not asleep(older) or connect.clean_start or older.wire.profile is not profile:
            return False
        if connect.auth_method is not None or older.connect.auth_method is not None:
            return False
        return profile.version == 1 or expiry_of(connect, profile) == older.session_expiry_s

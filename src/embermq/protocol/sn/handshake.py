"""Handshakes: from a CONNECT to a virtual connection (1.2: sections 6.2 to 6.4; 2.0: section 3.1.4).

Owns: refusals that need no core, a CONNECT that comes again, the core's CONNECT that it becomes, the dialogues about
wills and the wills that 1.2 stores between connections, and whether a CONNECT opens a connection or wakes a sleeping
client.
Never: credentials are checked here; the shell does that when it is handed a `ConnectRequest`.
"""

from random import Random
from typing import TYPE_CHECKING, Final, final

from embermq.protocol import packets as core
from embermq.protocol.errors import MalformedPacket, PeerError, ProtocolError
from embermq.protocol.reasons import ReasonCode
from embermq.protocol.sn.addresses import Addresses
from embermq.protocol.sn.aliases import Aliases, topic_name_of
from embermq.protocol.sn.client_state import CONNECTING
from embermq.protocol.sn.connection import VirtualConnection
from embermq.protocol.sn.events import ConnectRequest
from embermq.protocol.sn.peer import NetworkIdentity, Peer
from embermq.protocol.sn.settings import CLIENT_ID_LENGTH_MAX, CONNECT_BYTES_MAX, REBIND_ANY, SnSettings
from embermq.protocol.sn.wire import fields as f
from embermq.protocol.sn.wire import packets as sn
from embermq.protocol.sn.wire.codec import decode_frame, encode
from embermq.protocol.sn.wire.detect import DetectedConnect
from embermq.protocol.sn.wire.framing import Frame
from embermq.protocol.sn.wire.layouts import CONGESTION, Profile

if TYPE_CHECKING:
    from embermq.protocol.sn.engine import Engine

DUPLICATE_CONNECT_MS: Final = 2_000
"""How long a CONNECT with the same bytes counts as a copy even if its client has sent other packets since."""
ASKED_RETRIES: Final = 2
"""How many retries a client has to answer when another host asks for its client id."""
CLIENT_ID_BYTES: Final = 8
"""Of an assigned client id, in hexadecimal: long enough to be unique, short enough for an unproven address."""
BASIC: Final = "MQTT-BASIC"
BAD_AUTHENTICATION_METHOD: Final = 0x8C


Credentials = tuple[str | None, bytes | None]
"""A user name and a password, both optional."""


def credentials_of(connect: sn.SnPacket) -> Credentials | None:
    """The user name and password of a CONNECT. None: it has an authentication method that is not supported."""
    if connect.auth_method is None:
        return None, None
    if connect.auth_method != BASIC:
        return None
    data = connect.auth_data
    user, at = _sized(data, 0)
    password, at = _sized(data, at)
    if at != len(data):
        raise MalformedPacket("bytes after the password")
    return f.text_of(user), password


def _sized(data: bytes, at: int) -> tuple[bytes, int]:
    if at + 2 > len(data):
        raise MalformedPacket("authentication data cut short")
    end = at + 2 + ((data[at] << 8) | data[at + 1])
    if end > len(data):
        raise MalformedPacket("authentication data cut short")
    return data[at + 2 : end], end


def will_of(connect: sn.SnPacket, aliases: Aliases | None, settings: SnSettings) -> core.Will | None:
    """2.0's will, as the core wants it."""
    will = connect.will
    if will is None:
        return None
    topic_name = topic_name_of(will.reference, aliases, settings)
    if topic_name is None:
        raise ProtocolError("the will has an unknown topic alias")
    return core.Will(topic_name, will.payload, will.qos, will.retain)


def session_expiry_of(connect: sn.SnPacket, profile: Profile) -> int:
    """How long the session outlives its connection. 1.2 has no expiry: a session that is not clean never expires."""
    if not profile.has_session_expiry:
        return 0 if connect.clean_start else core.SESSION_NEVER_EXPIRES
    return max(connect.session_expiry_s, 0)


@final
class Attempt:
    """A CONNECT that has not made a connection yet. `content` is its body, by which its repetition is known.

    A client of 1.2 or W is asked for its will, first the topic, then the message (1.2: section 6.2), until `due_ms`.
    """

    def __init__(self, connect: sn.SnPacket, profile: Profile, content: bytes, identity: NetworkIdentity) -> None:
        self.connect: Final = connect
        self.profile: Final = profile
        self.content: Final = content
        self.identity: Final = identity
        self.due_ms = 0
        self.will: core.Will | None = None
        self._topic: sn.SnPacket | None = None

    def ask(self, due_ms: int) -> None:
        """The client is asked for its will."""
        self.due_ms = due_ms

    def question(self) -> sn.SnPacket:
        """What to ask next."""
        return sn.will_request(for_topic=self._topic is None)

    def take(self, packet: sn.SnPacket) -> bool:
        """A part of the will has come. True: nothing more is to be asked; with an empty topic there is no `will`."""
        if packet.kind == sn.WILLTOPIC:
            self._topic = packet
            return not packet.topic_name
        topic = self._topic
        if topic is None:
            return False
        self.will = core.Will(topic.topic_name, packet.payload, topic.qos, topic.retain)
        return True

    def request(self, client_id: str, credentials: Credentials, will: core.Will | None, window: int) -> core.Connect:
        """The CONNECT of the core."""
        connect = self.connect
        return core.Connect(
            client_id,
            connect.clean_start,
            connect.keep_alive_s,
            will,
            credentials[0],
            credentials[1],
            session_expiry_of(connect, self.profile),
            window,
            self.profile.protocol_level,
        )


@final
class StoredWills:
    """1.2 stores a client's will between connections, until it is replaced, deleted, or a clean CONNECT comes.

    They are in memory only, for as many clients as may be connected; the least recently stored is dropped first.
    """

    def __init__(self, clients_max: int) -> None:
        self._wills: dict[str, core.Will] = {}
        self._clients_max: Final = clients_max

    def store(self, client_id: str, will: core.Will | None) -> None:
        """Replace a client's will, or delete it."""
        self._wills.pop(client_id, None)
        if will is not None:
            self._wills[client_id] = will
            if len(self._wills) > self._clients_max:
                del self._wills[next(iter(self._wills))]

    def connect(self, connect: sn.SnPacket, client_id: str, will: core.Will | None) -> core.Will | None:
        """The will of a connection (1.2, sections 6.2 and 6.3); `will` is the one from the dialogue, if there was one.

        Clean, with or without a will: the stored will is deleted. Not clean, with a will: the new one is stored. Not
        clean, without a will: the stored one stays in force.
        """
        if connect.clean_start:
            self.store(client_id, None)
        elif connect.will_flag:
            self.store(client_id, will)
        else:
            return self._wills.get(client_id)
        return will


@final
class Handshakes:
    """The CONNECTs of one listener."""

    def __init__(self, engine: "Engine", addresses: Addresses, random: Random) -> None:
        self._engine: Final = engine
        self._addresses: Final = addresses
        self._random: Final = random
        self._dialogues: Final[dict[NetworkIdentity, Attempt]] = {}  # those that are asked for a will, the oldest first
        self._wills: Final = StoredWills(engine.settings.clients_max)

    # -- time --------------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Drop dialogues that have lasted too long."""
        while self._dialogues:
            identity = next(iter(self._dialogues))
            if self._dialogues[identity].due_ms > now_ms:
                break
            del self._dialogues[identity]
            self._engine.counters.handshakes_dropped += 1

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do; None while there is no dialogue."""
        return next(iter(self._dialogues.values())).due_ms if self._dialogues else None

    # -- packets -----------------------------------------------------------------------------------------------------

    def receive_connect(
        self,
        frame: Frame,
        detected: DetectedConnect,
        identity: NetworkIdentity,
        connection: VirtualConnection | None,
        now_ms: int,
    ) -> None:
        """A CONNECT from an address; `connection` is the one that is there already."""
        profile = detected.profile
        connect = self._read(frame, detected, identity)
        if connect is None or self._repeat_answer(frame.body, identity, connection, now_ms):
            return
        attempt = Attempt(connect, profile, frame.body, identity)
        if connection is not None and connection.client_state.state == CONNECTING:
            # One at a time from an address, or a peer could have any number of passwords checked.
            self._put_off(attempt)
        elif len(connect.client_id) > CLIENT_ID_LENGTH_MAX or not (connect.client_id or profile.assigns_client_ids):
            self._refuse(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, connect.packet_id, profile, identity)
        elif connect.will_flag and profile.will_dialogue:
            self._begin_dialogue(attempt, now_ms)
        else:
            self._dialogues.pop(identity, None)
            self._open(attempt, now_ms)

    def receive_will(self, frame: Frame, identity: NetworkIdentity, now_ms: int) -> bool:
        """A part of a will that an address was asked for. False: the frame is another packet."""
        attempt = self._dialogues.get(identity)
        if attempt is None:
            return False
        profile = attempt.profile
        layout = profile.by_code[frame.code]
        if layout is None or layout.kind not in (sn.WILLTOPIC, sn.WILLMSG):
            return False
        if len(frame.body) > CONNECT_BYTES_MAX:
            del self._dialogues[identity]
            self._refuse(ReasonCode.PACKET_TOO_LARGE, 0, profile, identity)
            return True
        try:
            is_complete = attempt.take(decode_frame(frame, profile))
        except PeerError:
            self._engine.counters.malformed += 1
            return True
        if not is_complete:
            self._reply(attempt.question(), profile, identity)
            return True
        if attempt.will is None:
            self._wills.store(attempt.connect.client_id, None)
        del self._dialogues[identity]
        self._open(attempt, now_ms)
        return True

    def store_will(self, connection: VirtualConnection) -> None:
        """1.2: a session that is not clean keeps the will that its client has changed."""
        if not connection.connect.clean_start:
            self._wills.store(connection.client_id, connection.will)

    # -- CONNECT -----------------------------------------------------------------------------------------------------

    def _read(self, frame: Frame, detected: DetectedConnect, identity: NetworkIdentity) -> sn.SnPacket | None:
        """Decode a CONNECT. None: it cannot be accepted, and was answered if the profile has an answer."""
        profile = detected.profile
        if not detected.is_supported or profile not in self._engine.settings.profiles:
            # What it means is not known, but its answer needs its packet identifier.
            packet_id = max(profile.layout(sn.CONNECT).number(frame.body, f.PACKET_ID), 0)
            self._refuse(ReasonCode.UNSUPPORTED_PROTOCOL_VERSION, packet_id, profile, identity)
            return None
        if len(frame.body) > CONNECT_BYTES_MAX:
            self._refuse(ReasonCode.PACKET_TOO_LARGE, 0, profile, identity)
            return None
        try:
            packet = decode_frame(frame, profile)
        except PeerError as error:
            self._engine.counters.malformed += 1
            if profile.rules.strict:
                self._refuse(error.reason, 0, profile, identity)
            return None
        assert packet.kind == sn.CONNECT
        return packet

    def _repeat_answer(
        self, content: bytes, identity: NetworkIdentity, connection: VirtualConnection | None, now_ms: int
    ) -> bool:
        """Answer a CONNECT that came again as the first time. False: it is a new one."""
        if connection is not None and self._is_duplicate(connection, content, now_ms):
            self._engine.counters.repeats += 1
            connection.repeat_connack()
            return True
        attempt = self._dialogues.get(identity)
        if attempt is not None and attempt.content == content:
            self._engine.counters.repeats += 1
            self._reply(attempt.question(), attempt.profile, identity)
            return True
        return False

    def _is_duplicate(self, connection: VirtualConnection, content: bytes, now_ms: int) -> bool:
        """Whether a CONNECT is the one that made the connection: sent again since CONNACK was lost, or a late copy."""
        if connection.connect_content != content:
            return False
        window_ms = self._engine.settings.repeat_ms
        age_ms = now_ms - connection.opened_ms
        if connection.client_state.state == CONNECTING:
            return age_ms < window_ms
        if connection.client_state.sleeps():
            return False  # it has woken up
        if age_ms < DUPLICATE_CONNECT_MS:
            return True
        unconfirmed = not connection.is_confirmed and connection.peer.profile.rules.connect_repeated
        return unconfirmed and age_ms < window_ms

    def _begin_dialogue(self, attempt: Attempt, now_ms: int) -> None:
        settings = self._engine.settings
        self._dialogues.pop(attempt.identity, None)
        if len(self._dialogues) >= settings.handshakes_max:
            del self._dialogues[next(iter(self._dialogues))]
            self._engine.counters.handshakes_dropped += 1
        attempt.ask(now_ms + settings.handshake_ms)
        self._dialogues[attempt.identity] = attempt
        self._reply(attempt.question(), attempt.profile, attempt.identity)

    def _open(self, attempt: Attempt, now_ms: int) -> None:
        """A CONNECT is complete: wake its sleeping client, or ask the core for a session."""
        engine, addresses = self._engine, self._addresses
        connect, profile, identity = attempt.connect, attempt.profile, attempt.identity
        client_id = connect.client_id or f"sn-{self._random.getrandbits(8 * CLIENT_ID_BYTES):016x}"
        older = addresses.of(client_id)
        sleeper = older if older is not None and older.client_state.sleeps() else None
        if older is not None and self._keeps_client_id(older, connect, identity, now_ms):
            self._put_off(attempt)
            return
        try:
            credentials = credentials_of(connect)
            if profile.will_dialogue:
                will = self._wills.connect(connect, client_id, attempt.will)
            else:
                aliases = None if connect.clean_start else addresses.aliases_of(client_id)
                will = will_of(connect, aliases, engine.settings)
        except PeerError as error:
            engine.counters.malformed += 1
            self._refuse(error.reason, connect.packet_id, profile, identity)
            return
        if credentials is None:
            self._refuse(BAD_AUTHENTICATION_METHOD, connect.packet_id, profile, identity)
        elif sleeper is not None and _only_wakes(sleeper, connect, profile):
            if not profile.will_dialogue or connect.will_flag:
                sleeper.replace_will(will)
            addresses.move(sleeper, identity)
            sleeper.reactivate(connect, attempt.content, now_ms)
        elif not addresses.has_place(identity):
            self._refuse(CONGESTION, connect.packet_id, profile, identity)
        else:
            request = attempt.request(client_id, credentials, will, engine.settings.window)
            peer = Peer(identity, profile, engine.settings, engine.output)
            peer.received(len(attempt.content))
            connection = VirtualConnection(engine, peer, self._random, connect, request, attempt.content, now_ms)
            addresses.add(connection)
            engine.events.append(ConnectRequest(connection, request, sleeper))

    def _put_off(self, attempt: Attempt) -> None:
        """Not now: a client that repeats its CONNECT by itself is heard later, another one is told to."""
        self._engine.counters.connects_refused += 1
        if not attempt.profile.rules.connect_repeated:
            self._reply(sn.connack(CONGESTION, attempt.connect.packet_id), attempt.profile, attempt.identity)

    def _keeps_client_id(
        self, older: VirtualConnection, connect: sn.SnPacket, identity: NetworkIdentity, now_ms: int
    ) -> bool:
        """Whether a CONNECT from another host, without a password, leaves a client of the same id where it is.

        A client at a proven address is asked whether it is there, and stays if it answers; one that is asleep cannot,
        so `rebind` decides. From another port of the same host a client that has restarted is let in at once.
        """
        settings = self._engine.settings
        if connect.auth_method is not None or not settings.prove_address or not older.peer.is_proven:
            return False
        if older.peer.address()[0] == identity[0][0] or older.client_state.state == CONNECTING:
            return False
        if older.client_state.sleeps():
            return settings.rebind != REBIND_ANY
        return not older.is_silent_when_asked(now_ms, ASKED_RETRIES * settings.retry_ms)

    # -- answers to a sender without a connection ----------------------------------------------------------------------

    def _reply(self, packet: sn.SnPacket, profile: Profile, identity: NetworkIdentity) -> None:
        self._engine.output.send(identity, encode(packet, profile))

    def _refuse(self, reason: int, packet_id: int, profile: Profile, identity: NetworkIdentity) -> None:
        self._engine.counters.connects_refused += 1
        self._reply(sn.connack(reason, packet_id), profile, identity)


def _only_wakes(sleeper: VirtualConnection, connect: sn.SnPacket, profile: Profile) -> bool:
    """Whether a CONNECT only wakes its sleeping client: nothing of its session changes, so the core need not know."""
    if connect.clean_start or sleeper.peer.profile is not profile:
        return False
    if connect.auth_method is not None or sleeper.connect.auth_method is not None:
        return False
    return not profile.has_session_expiry or session_expiry_of(connect, profile) == sleeper.session_expiry_s

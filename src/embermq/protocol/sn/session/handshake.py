"""Handshakes: from a CONNECT to a virtual connection.

Owns: refusals that need no core, a CONNECT that comes again, the dialogues about wills (1.2 and W), and whether a
CONNECT opens a connection or wakes a sleeping client.
Never: credentials are checked here; the shell does that when it is handed a `ConnectRequest`.
"""

from random import Random
from typing import TYPE_CHECKING, Final, final

from embermq.protocol import packets as core
from embermq.protocol.errors import PeerError
from embermq.protocol.reasons import ReasonCode
from embermq.protocol.sn.events import ConnectRequest, WillChange
from embermq.protocol.sn.session.addresses import Addresses
from embermq.protocol.sn.session.client_state import CONNECTING
from embermq.protocol.sn.session.connect_request import (
    BAD_AUTHENTICATION_METHOD,
    StoredWills,
    WillDialogue,
    core_connect,
    credentials_of,
    session_expiry_of,
    will_of,
)
from embermq.protocol.sn.session.connection import VirtualConnection
from embermq.protocol.sn.session.peer import NetworkIdentity, Peer, send_datagram
from embermq.protocol.sn.settings import CLIENT_ID_LENGTH_MAX, CONNECT_BYTES_MAX, REBIND_ANY
from embermq.protocol.sn.wire import kinds
from embermq.protocol.sn.wire import packets as sn
from embermq.protocol.sn.wire.decode import decode_frame
from embermq.protocol.sn.wire.detect import DetectedConnect
from embermq.protocol.sn.wire.encode import encode
from embermq.protocol.sn.wire.framing import Frame
from embermq.protocol.sn.wire.layouts import CONGESTION, Profile

if TYPE_CHECKING:
    from embermq.protocol.sn.session.engine import Engine

DUPLICATE_CONNECT_MS: Final = 2_000
"""How long a CONNECT with the same bytes counts as a copy even if its client has sent other packets since."""
ASKED_RETRIES: Final = 2
"""For so many retries a client is waited for whose id another host asks for."""
CLIENT_ID_BYTES: Final = 8
"""Of an assigned client id, in hexadecimal: long enough to be unique, short enough for an unproven address."""


@final
class Handshakes:
    """The CONNECTs of one listener."""

    __slots__ = ("_engine", "_addresses", "_random", "_dialogues", "_wills")

    def __init__(self, engine: "Engine", addresses: Addresses, random: Random) -> None:
        self._engine: Final = engine
        self._addresses: Final = addresses
        self._random: Final = random
        self._dialogues: Final[dict[NetworkIdentity, WillDialogue]] = {}  # the oldest first
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
        if connect is None or self._repeat_answer(frame.body, profile, identity, connection, now_ms):
            return
        if connection is not None and connection.client_state.state == CONNECTING:
            # One at a time from an address, or a peer could have any number of passwords checked. A client that
            # repeats its CONNECT is heard later.
            self._engine.counters.connects_refused += 1
            if not profile.rules.connect_repeated:
                self._reply(sn.Connack(CONGESTION, connect.packet_id), profile, identity)
        elif len(connect.client_id) > CLIENT_ID_LENGTH_MAX or not (connect.client_id or profile.assigns_client_ids):
            self._refuse(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, connect.packet_id, profile, identity)
        elif connect.will_flag and profile.will_dialogue:
            self._begin_dialogue(connect, profile, frame.body, identity, now_ms)
        else:
            self._dialogues.pop(identity, None)
            self._open(connect, None, profile, frame.body, identity, now_ms)

    def receive_will(self, frame: Frame, identity: NetworkIdentity, now_ms: int) -> bool:
        """A part of a will that an address was asked for. False: the frame is another packet."""
        dialogue = self._dialogues.get(identity)
        if dialogue is None:
            return False
        profile = dialogue.profile
        layout = profile.by_code[frame.code]
        if layout is None or layout.kind not in (kinds.WILLTOPIC, kinds.WILLMSG):
            return False
        if len(frame.body) > CONNECT_BYTES_MAX:
            del self._dialogues[identity]
            self._refuse(ReasonCode.PACKET_TOO_LARGE, 0, profile, identity)
            return True
        try:
            packet = decode_frame(frame, profile)
        except PeerError:
            self._engine.counters.malformed += 1
            return True
        will: core.Will | None = None
        if isinstance(packet, sn.WillTopic):
            if not dialogue.set_topic(packet):
                self._reply(dialogue.question(), profile, identity)
                return True
            self._wills.store(dialogue.connect.client_id, None)
        elif isinstance(packet, sn.WillMsg):
            will = dialogue.will(packet)
            if will is None:
                self._reply(dialogue.question(), profile, identity)
                return True
        del self._dialogues[identity]
        self._open(dialogue.connect, will, profile, dialogue.content, identity, now_ms)
        return True

    def store_will(self, connection: VirtualConnection) -> None:
        """1.2: a session that is not clean keeps the will that its client has changed."""
        if not connection.connect.clean_start:
            self._wills.store(connection.client_id, connection.will)

    # -- CONNECT -----------------------------------------------------------------------------------------------------

    def _read(self, frame: Frame, detected: DetectedConnect, identity: NetworkIdentity) -> sn.Connect | None:
        """Decode a CONNECT. None: it cannot be accepted, and was answered if the profile has an answer."""
        profile = detected.profile
        if not detected.is_supported or profile not in self._engine.settings.profiles:
            at = 1 + ((frame.body[0] >> 1) & 1)
            packet_id = int.from_bytes(frame.body[at : at + 2], "big") if profile.connect_has_packet_id else 0
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
        assert isinstance(packet, sn.Connect)
        return packet

    def _repeat_answer(
        self,
        content: bytes,
        profile: Profile,
        identity: NetworkIdentity,
        connection: VirtualConnection | None,
        now_ms: int,
    ) -> bool:
        """Answer a CONNECT that came again as the first time. False: it is a new one."""
        if connection is not None and self._is_duplicate(connection, content, now_ms):
            self._engine.counters.repeats += 1
            connection.repeat_connack()
            return True
        dialogue = self._dialogues.get(identity)
        if dialogue is not None and dialogue.content == content:
            self._engine.counters.repeats += 1
            self._reply(dialogue.question(), profile, identity)
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

    def _begin_dialogue(
        self, connect: sn.Connect, profile: Profile, content: bytes, identity: NetworkIdentity, now_ms: int
    ) -> None:
        settings = self._engine.settings
        self._dialogues.pop(identity, None)
        if len(self._dialogues) >= settings.handshakes_max:
            del self._dialogues[next(iter(self._dialogues))]
            self._engine.counters.handshakes_dropped += 1
        dialogue = WillDialogue(connect, profile, content, now_ms + settings.handshake_ms)
        self._dialogues[identity] = dialogue
        self._reply(dialogue.question(), profile, identity)

    def _open(
        self,
        connect: sn.Connect,
        will: core.Will | None,
        profile: Profile,
        content: bytes,
        identity: NetworkIdentity,
        now_ms: int,
    ) -> None:
        """A CONNECT is complete: wake its sleeping client, or ask the core for a session."""
        engine = self._engine
        settings = engine.settings
        addresses = self._addresses
        client_id = connect.client_id or f"sn-{self._random.getrandbits(8 * CLIENT_ID_BYTES):016x}"
        older = addresses.of(client_id)
        sleeper = older if older is not None and older.client_state.sleeps() else None
        if older is not None and self._keeps_client_id(older, connect, identity, now_ms):
            engine.counters.connects_refused += 1
            if not profile.rules.connect_repeated:  # else the client asks again by itself
                self._reply(sn.Connack(CONGESTION, connect.packet_id), profile, identity)
            return
        try:
            credentials = credentials_of(connect)
            if profile.will_dialogue:
                will = self._wills.connect(connect, client_id, will)
            else:
                aliases = None if connect.clean_start else addresses.aliases_of(client_id)
                will = will_of(connect, aliases, settings)
        except PeerError as error:
            engine.counters.malformed += 1
            self._refuse(error.reason, connect.packet_id, profile, identity)
            return
        if credentials is None:
            self._refuse(BAD_AUTHENTICATION_METHOD, connect.packet_id, profile, identity)
        elif sleeper is not None and _only_wakes(sleeper, connect, profile):
            if not profile.will_dialogue or connect.will_flag:
                sleeper.will = will
                engine.events.append(WillChange(sleeper, will))
            addresses.move(sleeper, identity)
            sleeper.reactivate(connect, content, now_ms)
        elif not addresses.has_place(identity):
            self._refuse(CONGESTION, connect.packet_id, profile, identity)
        else:
            peer = Peer(identity, profile, settings, engine.events, engine.counters)
            peer.received_bytes = len(content)
            connection = VirtualConnection(engine, peer, self._random, connect, client_id, will, content, now_ms)
            addresses.add(connection)
            request = core_connect(connect, client_id, credentials, will, profile, settings.window)
            engine.events.append(ConnectRequest(connection, request, sleeper))

    def _keeps_client_id(
        self, older: VirtualConnection, connect: sn.Connect, identity: NetworkIdentity, now_ms: int
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
        send_datagram(identity, encode(packet, profile), self._engine.events, self._engine.counters)

    def _refuse(self, reason: int, packet_id: int, profile: Profile, identity: NetworkIdentity) -> None:
        self._engine.counters.connects_refused += 1
        self._reply(sn.Connack(reason, packet_id), profile, identity)


def _only_wakes(sleeper: VirtualConnection, connect: sn.Connect, profile: Profile) -> bool:
    """Whether a CONNECT only wakes its sleeping client: nothing of its session changes, so the core need not know."""
    if connect.clean_start or sleeper.peer.profile is not profile:
        return False
    if connect.auth_method is not None or sleeper.connect.auth_method is not None:
        return False
    return not profile.has_session_expiry or session_expiry_of(connect, profile) == sleeper.session_expiry_s

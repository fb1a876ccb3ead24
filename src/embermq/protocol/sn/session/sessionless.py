"""What may come without a virtual connection: messages without a session, the search for a server, and noise.

Owns: the answers to strangers, which are never larger than the question and bounded in number.
Never: a table of strangers: nothing is remembered of them.
"""

from typing import Final, final

from embermq.protocol import packets as core
from embermq.protocol.errors import PeerError
from embermq.protocol.sn.events import Address, Event, Send, Sessionless
from embermq.protocol.sn.session.counters import SnCounters
from embermq.protocol.sn.session.handshake import name_of
from embermq.protocol.sn.settings import ANSWERS_A_SECOND, SnSettings
from embermq.protocol.sn.wire import kinds
from embermq.protocol.sn.wire import packets as sn
from embermq.protocol.sn.wire.decode import decode_frame
from embermq.protocol.sn.wire.encode import encode
from embermq.protocol.sn.wire.framing import Frame, wrap_route
from embermq.protocol.sn.wire.layouts import Profile
from embermq.protocol.sn.wire.profiles import V12, B, W

NO_CONNECTION: Final = 0xF4


@final
class Strangers:
    """Packets from addresses that are not connected."""

    __slots__ = ("_settings", "_counters", "_events", "_answers_left", "_answers_ms")

    def __init__(self, settings: SnSettings, counters: SnCounters, events: list[Event]) -> None:
        self._settings: Final = settings
        self._counters: Final = counters
        self._events: Final = events
        self._answers_left = ANSWERS_A_SECOND
        self._answers_ms = 0

    def receive(self, frame: Frame, address: Address, route: bytes, now_ms: int) -> None:
        """A frame without a connection: the profile is guessed only where nothing else has that shape."""
        for profile in self._settings.profiles:
            layout = profile.by_code[frame.code]
            if layout is None or not self._meant(layout.kind, frame, profile):
                continue
            try:
                packet = decode_frame(frame, profile)
            except PeerError:
                continue
            if self.take(packet, profile, address, route, now_ms):
                return
        self._counters.without_connection += 1
        self._turn_away(frame, address, route, now_ms)

    def search(self, frame: Frame, address: Address, route: bytes, now_ms: int) -> None:
        """A frame that was sent to many: only a search is looked at."""
        for profile in self._settings.profiles:
            layout = profile.by_code[frame.code]
            if layout is None or layout.kind != kinds.SEARCHGW or not self._meant(layout.kind, frame, profile):
                continue
            try:
                packet = decode_frame(frame, profile)
            except PeerError:
                continue
            self.take(packet, profile, address, route, now_ms)
            return

    def _meant(self, kind: int, frame: Frame, profile: Profile) -> bool:
        if kind == kinds.PUBLISH:
            # 1.2's QoS -1; every other PUBLISH needs a session (3.1.11-1).
            return profile is V12 and bool(frame.body) and (frame.body[0] >> 5) & 3 == 3
        if kind == kinds.PUBWOS:
            return profile is self._settings.sessionless_profile
        # W and 1.2 search alike, and A's SEARCHGW has the code of their GWINFO, which no server is sent.
        return kind == kinds.SEARCHGW and profile is not W

    def take(self, packet: sn.SnPacket, profile: Profile, address: Address, route: bytes, now_ms: int) -> bool:
        """A packet that needs no session. False: it is none."""
        if isinstance(packet, sn.Pubwos):
            self._sessionless(packet)
            return True
        if isinstance(packet, sn.Searchgw):
            if self._settings.answer_search:
                self._reply(sn.Gwinfo(self._settings.gateway_id), profile, address, route, now_ms)
            return True
        return isinstance(packet, (sn.Advertise, sn.Gwinfo))

    def _sessionless(self, packet: sn.Pubwos) -> None:
        topic_name = name_of(packet.reference, None, self._settings)
        if topic_name is None or not self._settings.sessionless:
            self._counters.dropped_sessionless += 1
            return
        self._events.append(Sessionless(core.Publish(topic_name, packet.payload, 0, packet.retain)))

    def _turn_away(self, frame: Frame, address: Address, route: bytes, now_ms: int) -> None:
        """Tell a client that its connection is gone, where its PINGREQ shows what it speaks."""
        profiles = self._settings.profiles
        if V12 in profiles and frame.code == 0x16 and not frame.body:
            self._reply(sn.Disconnect(), V12, address, route, now_ms)
        elif B in profiles and frame.code == 0x0C and len(frame.body) == 2:
            packet_id = int.from_bytes(frame.body, "big")
            if packet_id:
                self._reply(sn.Disconnect(NO_CONNECTION, packet_id=packet_id), B, address, route, now_ms)

    def _reply(self, packet: sn.SnPacket, profile: Profile, address: Address, route: bytes, now_ms: int) -> None:
        if now_ms - self._answers_ms >= 1000:
            self._answers_ms = now_ms
            self._answers_left = ANSWERS_A_SECOND
        if self._answers_left <= 0:
            return
        self._answers_left -= 1
        datagram = wrap_route(route, encode(packet, profile))
        self._counters.datagrams_sent += 1
        self._counters.bytes_sent += len(datagram)
        self._events.append(Send(address, datagram))

"""Packets that need no session: a message without a session, and the search for a server.

Owns: what they cause, the same for a sender with a virtual connection and for one without, and the answers to senders
without a connection, which are no larger than the question and bounded in number.
Never: a table of senders. Nothing is kept of them.
"""

from typing import Final, final

from embermq.protocol import packets as core
from embermq.protocol.sn.counters import SnCounters
from embermq.protocol.sn.events import Event, SessionlessPublish
from embermq.protocol.sn.session.aliases import topic_name_of
from embermq.protocol.sn.session.peer import NetworkIdentity, send_datagram
from embermq.protocol.sn.settings import ANSWERS_A_SECOND, SnSettings
from embermq.protocol.sn.wire import packets as sn
from embermq.protocol.sn.wire.encode import encode
from embermq.protocol.sn.wire.layouts import Profile

NO_CONNECTION: Final = 0xF4


@final
class SessionlessPackets:
    """PUBWOS (1.2: PUBLISH with QoS -1), SEARCHGW, ADVERTISE and GWINFO."""

    __slots__ = ("_settings", "_counters", "_events", "_answers_left", "_answers_ms")

    def __init__(self, settings: SnSettings, counters: SnCounters, events: list[Event]) -> None:
        self._settings: Final = settings
        self._counters: Final = counters
        self._events: Final = events
        self._answers_left = ANSWERS_A_SECOND
        self._answers_ms = 0

    def receive(self, packet: sn.SnPacket, profile: Profile, identity: NetworkIdentity, now_ms: int) -> bool:
        """Carry out a packet that needs no session. False: it needs one."""
        if isinstance(packet, sn.Pubwos):
            self._publish(packet)
            return True
        if isinstance(packet, sn.Searchgw):
            if self._settings.answer_search:
                self._answer(sn.Gwinfo(self._settings.gateway_id), profile, identity, now_ms)
            return True
        return isinstance(packet, (sn.Advertise, sn.Gwinfo))

    def _publish(self, packet: sn.Pubwos) -> None:
        topic_name = topic_name_of(packet.reference, None, self._settings)
        if topic_name is None or not self._settings.sessionless:
            self._counters.dropped_sessionless += 1
            return
        self._events.append(SessionlessPublish(core.Publish(topic_name, packet.payload, 0, packet.retain)))

    def tell_lost_connection(self, ping: sn.Pingreq, profile: Profile, identity: NetworkIdentity, now_ms: int) -> None:
        """A client pings whose connection is gone: DISCONNECT, with its packet identifier where the profile has one."""
        self._answer(sn.Disconnect(NO_CONNECTION, packet_id=ping.packet_id), profile, identity, now_ms)

    def _answer(self, packet: sn.SnPacket, profile: Profile, identity: NetworkIdentity, now_ms: int) -> None:
        if now_ms - self._answers_ms >= 1000:
            self._answers_ms = now_ms
            self._answers_left = ANSWERS_A_SECOND
        if self._answers_left <= 0:
            return
        self._answers_left -= 1
        send_datagram(identity, encode(packet, profile), self._events, self._counters)

"""A virtual connection: one client's network identity bound to its session (digest sections 10 to 17).

Owns: what each packet of a connected client means to the core, and what each word of the core means to the client.
Never: a socket, a clock, another client. What must be done goes into the engine's events.
"""

from typing import TYPE_CHECKING, Final, final

from embermq.protocol import packets as core
from embermq.protocol.errors import PeerError, ProtocolError
from embermq.protocol.reasons import ReasonCode
from embermq.protocol.sn.events import Event, Lost, Received, WillChanged, Writable
from embermq.protocol.sn.session.handshake import expiry_of
from embermq.protocol.sn.session.outgoing import Outgoing
from embermq.protocol.sn.session.peer import Wire
from embermq.protocol.sn.session.presence import ACTIVE, ASLEEP, AWAKE, CLOSED, CONNECTING, Presence
from embermq.protocol.sn.session.requests import PUBREL, Requests
from embermq.protocol.sn.settings import CONNECT_BYTES_MAX
from embermq.protocol.sn.wire import packets as sn
from embermq.protocol.sn.wire.encode import encode
from embermq.protocol.sn.wire.layouts import UNSPECIFIED

if TYPE_CHECKING:
    from embermq.protocol.sn.session.engine import Engine

STASH_MAX: Final = 16
"""How many packets may come between a CONNECT and its CONNACK."""
AWAKE_GRACE_MS: Final = 2_000
"""How long an awake client waits for messages that the core still owes, before it may sleep again."""


@final
class VirtualConnection:
    """One client, from its CONNECT to its end."""

    __slots__ = (
        "client_id",
        "connect",
        "request",
        "opened_ms",
        "heard_more",
        "session_expiry_s",
        "wire",
        "presence",
        "outgoing",
        "watched_ms",
        "will",
        "silent",
        "displaced",
        "_engine",
        "_events",
        "_requests",
        "_stash",
        "_connack",
        "_assigned",
        "_leaving",
    )

    def __init__(
        self,
        engine: "Engine",
        wire: Wire,
        connect: sn.Connect,
        client_id: str,
        outgoing: Outgoing,
        will: core.Will | None,
        request: bytes,
        now_ms: int,
    ) -> None:
        settings = engine.settings
        self.client_id: Final = client_id
        self.connect = connect
        self.request = request  # the CONNECT's bytes, by which its repetition is known
        self.opened_ms = now_ms
        self.heard_more = False  # something after the CONNECT: so its CONNACK has arrived, most likely
        self.session_expiry_s = expiry_of(connect, wire.profile)
        self.wire: Final = wire
        self.presence: Final = Presence(
            engine.keep_alive_s(connect.keep_alive_s), wire.profile.strict, settings.sleeping_messages_max, now_ms
        )
        self.outgoing: Final = outgoing
        self.watched_ms = 0  # the timers' own
        self.will = will
        self.silent = False  # its address belongs to another connection now: nothing more is sent there
        self.displaced: VirtualConnection | None = None  # who was at its address until now
        self._engine: Final = engine
        self._events: Final[list[Event]] = engine.events
        self._requests: Final = Requests(wire, outgoing, settings, engine.counters)
        self._stash: list[tuple[sn.SnPacket, bytes]] = []
        self._connack = b""
        self._assigned: Final = client_id if not connect.client_id else ""
        self._leaving = False
        outgoing.packet_bytes_max = connect.packet_bytes_max

    # -- packets of the client ---------------------------------------------------------------------------------------

    def receive(self, packet: sn.SnPacket, content: bytes, now_ms: int) -> None:
        """A packet, and the bytes it was read from. Raises a `PeerError` if the client may not send it."""
        presence = self.presence
        presence.heard_ms = now_ms
        if presence.state == CONNECTING:
            if len(self._stash) < STASH_MAX:
                self._stash.append((packet, content))
            return
        if not self.heard_more:
            self.heard_more = True
            self._engine.heard(self)
        requests = self._requests
        if isinstance(packet, sn.Publish):
            self._hand_over(requests.publish(packet, content, now_ms))
        elif isinstance(packet, (sn.Puback, sn.Pubrec, sn.Pubcomp, sn.Regack)):
            self._acknowledgement(packet)
        elif isinstance(packet, sn.Pubrel):
            self._hand_over(requests.pubrel(packet, now_ms))
        elif isinstance(packet, sn.Pingreq):
            self._pingreq(packet, now_ms)
        elif isinstance(packet, sn.Register):
            requests.register(packet)
        elif isinstance(packet, sn.Subscribe):
            self._hand_over(requests.subscribe(packet, content, now_ms))
        elif isinstance(packet, sn.Unsubscribe):
            self._hand_over(requests.unsubscribe(packet, content, now_ms))
        elif isinstance(packet, sn.Disconnect):
            self._disconnect(packet)
        elif isinstance(packet, sn.Sleepreq):
            self._sleep(packet.sleep_s, packet.retain_aliases)
            self.wire.send(sn.Sleepresp(packet.packet_id))
        elif isinstance(packet, (sn.WillTopic, sn.WillMsg)):
            self._update_will(packet, len(content))
        elif not isinstance(packet, sn.Pingresp):
            raise ProtocolError(f"{type(packet).__name__} is not for a server in a session")
        self._pump(now_ms)

    def _hand_over(self, packet: core.Packet | None) -> None:
        """A packet for the core; None: it was answered already."""
        if packet is not None:
            self._events.append(Received(self, packet))

    def _acknowledgement(self, packet: sn.SnPacket) -> None:
        outgoing = self.outgoing
        packets: list[core.Packet] | None = []
        if isinstance(packet, sn.Puback):
            packets = outgoing.puback(packet)
        elif isinstance(packet, sn.Pubrec):
            packets = outgoing.pubrec(packet)
        elif isinstance(packet, sn.Pubcomp):
            outgoing.pubcomp(packet.packet_id)
            packets = [core.Pubcomp(packet.packet_id, packet.reason)]
        elif isinstance(packet, sn.Regack) and not outgoing.regack(packet):
            packets = None
        if packets is None:
            self._engine.counters.acks_unknown += 1
            return
        for answer in packets:
            self._hand_over(answer)

    # -- presence ----------------------------------------------------------------------------------------------------

    def _pingreq(self, packet: sn.Pingreq, now_ms: int) -> None:
        if packet.client_id and packet.client_id != self.client_id:
            self._engine.counters.without_connection += 1
            return
        presence = self.presence
        if presence.state == ACTIVE:
            self.wire.send(sn.Pingresp(packet.packet_id))
        elif presence.state == AWAKE:
            presence.ping_id = packet.packet_id  # sent again during the flush: no second one begins
        else:
            self.wake(packet, now_ms)

    def wake(self, packet: sn.Pingreq, now_ms: int) -> None:
        """A sleeper fetches what waits for it; PINGRESP ends that."""
        presence = self.presence
        presence.heard_ms = now_ms
        presence.wake(packet.packet_id, packet.awake_messages or self.connect.awake_messages)
        self._engine.awake[self] = None
        self.outgoing.send_again(self.outgoing.retransmission.resume(now_ms), now_ms)
        while presence.kept and presence.may_deliver():
            presence.delivered()
            self.outgoing.put(presence.kept.take())
        self.outgoing.starved = False
        self._events.append(Writable(self))
        self._pump(now_ms)

    def flushed(self, owed: int, now_ms: int) -> None:
        """All has been handed over that may be: an awake client that has acknowledged it sleeps again.

        `owed`: how much the core still holds for it.
        """
        presence = self.presence
        if presence.state != AWAKE or not self.outgoing.idle() or (owed and presence.may_deliver()):
            return
        self._sleep_again(owed, now_ms)

    def _sleep_again(self, owed: int, now_ms: int) -> None:
        presence = self.presence
        self.wire.send(sn.Pingresp(presence.ping_id, presence.remaining(owed)))
        presence.heard_ms = now_ms
        presence.sleep(presence.sleep_s)
        self._engine.awake.pop(self, None)

    def _sleep(self, sleep_s: int, retain_aliases: bool) -> None:
        if self.wire.profile.strict and not retain_aliases:
            self.outgoing.aliases.clear()
        self.presence.sleep(sleep_s)
        self._engine.awake.pop(self, None)

    def reactivate(self, connect: sn.Connect, request: bytes, now_ms: int) -> None:
        """A sleeper sends CONNECT and keeps its session: it is active again, and nothing ended meanwhile."""
        presence = self.presence
        self.connect = connect
        self.request = request
        self.opened_ms = now_ms
        self.heard_more = False
        presence.state = ACTIVE
        presence.heard_ms = now_ms
        presence.keep_alive_s = self._engine.keep_alive_s(connect.keep_alive_s)
        self._engine.awake.pop(self, None)
        self.outgoing.packet_bytes_max = connect.packet_bytes_max
        self._accept(True)
        self.outgoing.send_again(self.outgoing.retransmission.resume(now_ms), now_ms)
        while presence.kept:
            self.outgoing.put(presence.kept.take())
        self.outgoing.starved = False
        self._events.append(Writable(self))
        self._pump(now_ms)
        self._engine.timers.watch(self)

    def _disconnect(self, packet: sn.Disconnect) -> None:
        profile = self.wire.profile
        expiry_s = packet.session_expiry_s
        if profile.sleeps_by_disconnect:
            if expiry_s > 0:
                self._sleep(expiry_s, packet.retain_aliases)
                self.wire.send(sn.Disconnect())
                return
            expiry_s = -1
        elif expiry_s > 0 and self.session_expiry_s == 0:
            raise ProtocolError("a session that ends with its connection cannot be given an expiry now")
        if expiry_s >= 0:
            self.session_expiry_s = expiry_s
        self._leaving = True
        reason = ReasonCode.DISCONNECT_WITH_WILL if packet.reason else ReasonCode.SUCCESS
        self._hand_over(core.Disconnect(reason, expiry_s))

    def _update_will(self, packet: sn.SnPacket, size: int) -> None:
        """1.2: the will's topic or its message is replaced. The dialogue's own packets are long answered."""
        old = self.will
        reason = 0
        if size > CONNECT_BYTES_MAX:
            reason = ReasonCode.PACKET_TOO_LARGE
        elif isinstance(packet, sn.WillTopic) and packet.update:
            payload = old.payload if old is not None else b""
            self.will = core.Will(packet.topic_name, payload, packet.qos, packet.retain) if packet.topic_name else None
        elif isinstance(packet, sn.WillMsg) and packet.update:
            if old is not None:
                self.will = core.Will(old.topic_name, packet.payload, old.qos, old.retain)
        else:
            return
        self._engine.keep_will(self)
        self._events.append(WillChanged(self, self.will))
        self.wire.send(sn.WillResponse(isinstance(packet, sn.WillTopic), reason))

    # -- from the core -----------------------------------------------------------------------------------------------

    def deliver(self, delivery: core.Delivery, now_ms: int) -> bool:
        """Send a message. False: it was QoS 0 and there is no room for it."""
        presence = self.presence
        message = delivery.message
        qos = delivery.qos
        dup = delivery.dup and (qos == 2 or self.wire.profile.dup_at_qos_1)
        own = core.Publish(message.topic_name, message.payload, qos, delivery.retain, dup, delivery.packet_id)
        if qos == 0 and not presence.may_deliver():
            if presence.keep(own):
                return True
            self._engine.counters.dropped_sleeping_full += 1
            return False
        presence.delivered()
        taken = self.outgoing.put(own)
        if presence.state in (ACTIVE, AWAKE):
            self._pump(now_ms)
        return taken

    def acknowledge(self, packet_type: int, packet_id: int, reason: int, now_ms: int) -> None:
        """Send PUBACK, PUBREC, PUBREL or PUBCOMP."""
        if self.silent:
            return
        if packet_type == PUBREL:
            self.outgoing.pubrel(packet_id, now_ms)
            self._engine.timers.watch(self)
            return
        self._requests.acknowledge(packet_type, packet_id, reason)

    def send(self, packet: core.Packet, now_ms: int) -> None:
        """Send any other packet."""
        if isinstance(packet, core.Connack):
            if packet.reason >= UNSPECIFIED:
                self._engine.counters.connects_refused += 1
                self.wire.send(self._connack_of(packet.reason, False))
            else:
                self.presence.state = ACTIVE
                self._engine.accepted(self, packet.session_present)
                self._accept(packet.session_present)
                self._engine.timers.watch(self)
        elif isinstance(packet, core.Suback):
            self._requests.suback(packet)
        elif isinstance(packet, core.Unsuback):
            self._requests.unsuback(packet)

    def _connack_of(self, reason: int, session_present: bool) -> sn.Connack:
        return sn.Connack(reason, self.connect.packet_id, session_present, assigned_client_id=self._assigned)

    def _accept(self, session_present: bool) -> None:
        self._connack = encode(self._connack_of(0, session_present), self.wire.profile)
        self.wire.send_bytes(self._connack)

    def repeat_connack(self) -> None:
        """The CONNECT came again: so does its answer, if it has left already."""
        if self._connack:
            self.wire.send_bytes(self._connack)

    def opened(self, now_ms: int) -> None:
        """CONNACK has left: what came after the CONNECT is looked at now."""
        stash = self._stash
        self._stash = []
        for packet, content in stash:
            if self.presence.state == CLOSED:
                return
            try:
                self.receive(packet, content, now_ms)
            except PeerError as error:
                self._engine.failed(self, error)

    def has_room(self) -> bool:
        """Whether the core may hand over messages of QoS 1 and 2. After False, `Writable` comes."""
        if self.presence.may_deliver():
            return self.outgoing.has_room()
        self.outgoing.starved = True
        return False

    def close(self, reason: int, now_ms: int) -> None:
        """The core has let go of the client: tell it, unless it left by itself and gets no answer to that."""
        if self.presence.state == CLOSED:
            return
        told = self.presence.state != CONNECTING
        self._engine.forget(self)
        if self.silent or not told:
            return
        if self._leaving:
            if self.wire.profile.disconnect_answered:
                self.wire.send(sn.Disconnect())
        else:
            self.wire.send(sn.Disconnect(reason if reason >= UNSPECIFIED else 0))

    # -- time --------------------------------------------------------------------------------------------------------

    def due_ms(self) -> int:
        """When something falls due; 0 for never."""
        state = self.presence.state
        due_ms = self.presence.due_ms()
        if state in (ACTIVE, AWAKE):
            for other_ms in (self.outgoing.retransmission.next_ms(), self.outgoing.pace_ms()):
                if other_ms and (due_ms == 0 or other_ms < due_ms):
                    due_ms = other_ms
        if state == AWAKE and self.outgoing.idle():
            grace_ms = self.presence.heard_ms + AWAKE_GRACE_MS
            due_ms = min(due_ms, grace_ms) if due_ms else grace_ms
        return due_ms

    def tick(self, now_ms: int) -> None:
        """Something is due: silence, a retransmission, the next burst, the end of an idle awake time."""
        presence = self.presence
        if presence.state == CLOSED:
            return
        silence_ms = presence.due_ms()
        if silence_ms and silence_ms <= now_ms:
            self._silence()
            return
        if presence.state == AWAKE and self.outgoing.idle() and presence.heard_ms + AWAKE_GRACE_MS <= now_ms:
            self._sleep_again(0, now_ms)
        if presence.state in (ACTIVE, AWAKE):
            again = self.outgoing.retransmission.due(now_ms)
            if again is None:
                self.lose("no acknowledgement after the last retry", ReasonCode.UNSPECIFIED_ERROR)
                return
            self._engine.counters.retransmissions += len(again)
            self.outgoing.send_again(again, now_ms)
        self._pump(now_ms)

    def _silence(self) -> None:
        profile = self.wire.profile
        if self.presence.state != ACTIVE and profile.strict and profile.sleeps_by_disconnect:
            # A: the sleep is the session's lifetime as well, so its end publishes the will and drops the session.
            self._engine.counters.clients_lost += 1
            self.wire.send(sn.Disconnect(ReasonCode.KEEP_ALIVE_TIMEOUT))
            self.session_expiry_s = 0
            self.silent = True
            self._hand_over(core.Disconnect(ReasonCode.DISCONNECT_WITH_WILL, 0))
            self._engine.forget(self)
            return
        self.lose("no packet in time", ReasonCode.KEEP_ALIVE_TIMEOUT)

    def lose(self, detail: str, reason: int) -> None:
        """Give the client up; the core publishes its will."""
        if self.presence.state == CLOSED:
            return
        self._engine.counters.clients_lost += 1
        if not self.silent:
            self.wire.send(sn.Disconnect(reason))
        self._engine.forget(self)
        self._events.append(Lost(self, detail))

    def _pump(self, now_ms: int) -> None:
        outgoing = self.outgoing
        if self.presence.state in (ACTIVE, AWAKE):
            outgoing.pump(now_ms)
            for packet in outgoing.take_done():
                self._hand_over(packet)
            if outgoing.starved and outgoing.has_drained() and self.presence.may_deliver():
                outgoing.starved = False
                self._events.append(Writable(self))
            if self.presence.state == ACTIVE and self.watched_ms and outgoing.idle():
                return  # silence is all that can fall due, and a packet only moves that later
        self._engine.timers.watch(self)


def asleep(connection: VirtualConnection) -> bool:
    """Whether a client sleeps, or is only awake for a moment."""
    return connection.presence.state in (ASLEEP, AWAKE)

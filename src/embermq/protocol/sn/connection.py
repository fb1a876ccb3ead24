"""A virtual connection: one client's network identity bound to its session (2.0: section 4; 1.2: section 6).

Owns: what each packet of a connected client means to the core, and what each call of the core means to the client.
Never: a socket, a clock, another client. What must be done goes into the engine's events.
"""

from random import Random
from typing import TYPE_CHECKING, Final, final

from embermq.protocol import packets as core
from embermq.protocol.errors import PeerError, ProtocolError
from embermq.protocol.reasons import ReasonCode
from embermq.protocol.sn.aliases import Aliases
from embermq.protocol.sn.client_state import ACTIVE, AWAKE, CLOSED, CONNECTING, ClientState
from embermq.protocol.sn.events import ClientLost, ClientWritable, Event, PacketReceived, WillChange
from embermq.protocol.sn.outgoing import Outgoing
from embermq.protocol.sn.peer import Peer
from embermq.protocol.sn.requests import Requests
from embermq.protocol.sn.settings import CONNECT_BYTES_MAX
from embermq.protocol.sn.wire import packets as sn
from embermq.protocol.sn.wire.codec import encode
from embermq.protocol.sn.wire.layouts import UNSPECIFIED

if TYPE_CHECKING:
    from embermq.protocol.sn.engine import Engine

EARLY_PACKETS_MAX: Final = 16
"""How many packets are kept that come between a CONNECT and its CONNACK."""
UNPROVEN: Final = "its address was not proven, and another client needed its place"
AWAKE_GRACE_MS: Final = 2_000
"""How long an awake client stays awake for messages that the core still owes, before it sleeps again."""


@final
class VirtualConnection:
    """One client, from its CONNECT to its end."""

    def __init__(
        self,
        engine: "Engine",
        peer: Peer,
        random: Random,
        connect: sn.SnPacket,
        request: core.Connect,
        connect_content: bytes,
        now_ms: int,
    ) -> None:
        """`request` is what the core is asked for; `connect_content` the body of the CONNECT that asks for it."""
        settings = engine.settings
        aliases = Aliases(settings.aliases_max, random)
        self.client_id: Final = request.client_id
        self.connect = connect
        self.connect_content = connect_content  # the body of the CONNECT, by which its repetition is known
        self.opened_ms = now_ms
        self.is_confirmed = False  # something came after the CONNECT, so its CONNACK has most likely arrived
        self._asked_ms = -1  # when it was last asked whether it is there; -1: it was not
        self.awaits_proof = False  # it has a place among those whose addresses are unproven
        self.session_expiry_s = request.session_expiry_s
        self.peer: Final = peer
        self.client_state: Final = ClientState(
            engine.keep_alive_s(connect.keep_alive_s),
            peer.profile.rules.long_keep_alive_percent,
            settings.sleeping_messages_max,
            now_ms,
        )
        self.outgoing: Final = Outgoing(peer, aliases, connect.packet_bytes_max, settings, engine.counters, random)
        self.watched_ms = 0  # the deadline that `Timers` has for this connection; only `Timers` sets it
        self.will = request.will
        self.is_muted = False  # nothing more is sent: its address belongs to another connection now
        self._previous: VirtualConnection | None = None  # the connection that was at its address until now
        self._engine: Final = engine
        self._events: Final[list[Event]] = engine.events
        self._requests: Final = Requests(peer, self.outgoing, settings, engine.counters)
        self._early_packets: list[tuple[sn.SnPacket, bytes]] = []
        self._connack = b""
        self._assigned_client_id: Final = request.client_id if not connect.client_id else ""
        self._client_disconnected = False
        self._has_new_session = False

    # -- packets of the client ---------------------------------------------------------------------------------------

    def receive(self, packet: sn.SnPacket, content: bytes, now_ms: int) -> None:
        """A packet, and the bytes it was read from. Raises a `PeerError` if the client may not send it."""
        state = self.client_state
        state.heard(now_ms)
        if state.state == CONNECTING:
            if len(self._early_packets) < EARLY_PACKETS_MAX:
                self._early_packets.append((packet, content))
            return
        self.is_confirmed = True
        requests = self._requests
        if packet.kind == sn.PUBLISH:
            self._hand_to_core(requests.publish(packet, content, now_ms))
        elif packet.kind in (sn.PUBACK, sn.PUBREC, sn.PUBCOMP, sn.REGACK):
            self._receive_acknowledgement(packet)
        elif packet.kind == sn.PUBREL:
            self._hand_to_core(requests.pubrel(packet, now_ms))
        elif packet.kind == sn.PINGREQ:
            self._receive_pingreq(packet, now_ms)
        elif packet.kind == sn.REGISTER:
            requests.register(packet, now_ms)
        elif packet.kind == sn.SUBSCRIBE:
            self._hand_to_core(requests.subscribe(packet, content, now_ms))
        elif packet.kind == sn.UNSUBSCRIBE:
            self._hand_to_core(requests.unsubscribe(packet, content, now_ms))
        elif packet.kind == sn.DISCONNECT:
            self._receive_disconnect(packet)
        elif packet.kind == sn.SLEEPREQ:
            self._sleep(packet.sleep_s, packet.retain_aliases)
            self.peer.send(sn.sleepresp(packet.packet_id))
        elif packet.kind in (sn.WILLTOPICUPD, sn.WILLMSGUPD):
            self._update_will(packet, len(content))
        elif packet.kind not in (sn.PINGRESP, sn.WILLTOPIC, sn.WILLMSG):  # the last two come too late
            raise ProtocolError(f"{packet.name()} is not for a server in a session")
        if self.awaits_proof and self.peer.is_proven:
            self._engine.addresses.proven(self)
        self._send_waiting(now_ms)

    def _hand_to_core(self, packet: core.Packet | None) -> None:
        """Hand a packet to the core. None: it was answered here."""
        if packet is not None:
            self._events.append(PacketReceived(self, packet))

    def _receive_acknowledgement(self, packet: sn.SnPacket) -> None:
        outgoing = self.outgoing
        packets: list[core.Packet] | None = []
        if packet.kind == sn.PUBACK:
            packets = outgoing.puback(packet)
        elif packet.kind == sn.PUBREC:
            packets = outgoing.pubrec(packet)
        elif packet.kind == sn.PUBCOMP:
            outgoing.pubcomp(packet.packet_id)
            packets = [core.Acknowledgement(core.PUBCOMP, packet.packet_id, 1, packet.reason)]
        elif packet.kind == sn.REGACK and not outgoing.regack(packet):
            packets = None
        if packets is None:
            self._engine.counters.acks_unknown += 1
            return
        for answer in packets:
            self._hand_to_core(answer)

    # -- sleeping and waking -----------------------------------------------------------------------------------------

    def _receive_pingreq(self, packet: sn.SnPacket, now_ms: int) -> None:
        if packet.client_id and packet.client_id != self.client_id:
            self._engine.counters.without_connection += 1
            return
        state = self.client_state
        if state.state == ACTIVE:
            self.peer.send(sn.pingresp(packet.packet_id))
        elif state.state == AWAKE:
            state.ping_again(packet.packet_id)
        else:
            self.wake(packet, now_ms)

    def wake(self, packet: sn.SnPacket, now_ms: int) -> None:
        """A sleeping client fetches its messages; PINGRESP ends that."""
        state = self.client_state
        state.heard(now_ms)
        state.wake(packet.packet_id, packet.awake_messages or self.connect.awake_messages)
        self._engine.awake[self] = None
        if self.awaits_proof and self._engine.addresses.are_scarce():
            self.ask_for_proof(now_ms)
        self.outgoing.send_again(self.outgoing.retransmission.resume(now_ms), now_ms)
        while state.buffered and state.may_deliver():
            state.delivered()
            self.outgoing.put(state.buffered.take())
        self.outgoing.set_writable_due(False)
        self._events.append(ClientWritable(self))
        self._send_waiting(now_ms)

    def flushed(self, owed: int, now_ms: int) -> None:
        """The core has handed over what it can: an awake client that has acknowledged all of it sleeps again.

        `owed`: how many messages the core still has for it.
        """
        state = self.client_state
        if state.state != AWAKE or not self.outgoing.idle() or (owed and state.may_deliver()):
            return
        self._sleep_again(owed, now_ms)

    def _sleep_again(self, owed: int, now_ms: int) -> None:
        state = self.client_state
        self.peer.send(sn.pingresp(state.ping_id, state.remaining(owed)))
        state.heard(now_ms)
        state.sleep(state.sleep_s)
        self._engine.awake.pop(self, None)

    def _sleep(self, sleep_s: int, retain_aliases: bool) -> None:
        if self.peer.profile.rules.aliases_belong_to_session and not retain_aliases:
            self.outgoing.aliases.clear()
        self.client_state.sleep(sleep_s)
        self._engine.awake.pop(self, None)

    def reactivate(self, connect: sn.SnPacket, connect_content: bytes, now_ms: int) -> None:
        """A sleeping client sends CONNECT and keeps its session: it is active again, and nothing has ended."""
        state = self.client_state
        self.connect = connect
        self.connect_content = connect_content
        self.opened_ms = now_ms
        self.is_confirmed = False
        state.reactivate(self._engine.keep_alive_s(connect.keep_alive_s), now_ms)
        self._engine.awake.pop(self, None)
        self._accept(True)
        self.outgoing.resume(connect.packet_bytes_max, now_ms)
        while state.buffered:
            self.outgoing.put(state.buffered.take())
        self.outgoing.set_writable_due(False)
        self._events.append(ClientWritable(self))
        self._send_waiting(now_ms)
        self._engine.timers.watch(self)

    def _receive_disconnect(self, packet: sn.SnPacket) -> None:
        profile = self.peer.profile
        expiry_s = packet.session_expiry_s
        if profile.sleeps_by_disconnect:
            if expiry_s > 0:
                self._sleep(expiry_s, packet.retain_aliases)
                self.peer.send(sn.disconnect())
                return
            expiry_s = -1
        elif expiry_s > 0 and self.session_expiry_s == 0:
            raise ProtocolError("a session that ends with its connection cannot be given an expiry now")
        if expiry_s >= 0:
            self.session_expiry_s = expiry_s
        self._client_disconnected = True
        reason = ReasonCode.DISCONNECT_WITH_WILL if packet.reason else ReasonCode.SUCCESS
        self._hand_to_core(core.Disconnect(reason, expiry_s))

    def _update_will(self, packet: sn.SnPacket, size: int) -> None:
        """1.2: the will's topic or its message is replaced."""
        old = will = self.will
        reason = 0
        if size > CONNECT_BYTES_MAX:
            reason = ReasonCode.PACKET_TOO_LARGE
        elif packet.kind == sn.WILLTOPICUPD:
            payload = old.payload if old is not None else b""
            will = core.Will(packet.topic_name, payload, packet.qos, packet.retain) if packet.topic_name else None
        elif old is not None:
            will = core.Will(old.topic_name, packet.payload, old.qos, old.retain)
        self.replace_will(will)
        self._engine.handshakes.store_will(self)
        self.peer.send(sn.will_response(packet.kind == sn.WILLTOPICUPD, reason))

    # -- from the core -----------------------------------------------------------------------------------------------

    def deliver(self, delivery: core.Delivery) -> int:
        """Send messages; how many of the first ones were taken. At QoS 0, others are dropped: too many wait."""
        now_ms = self._engine.begin_turn()
        qos = delivery.qos
        dup = delivery.dup and (qos == 2 or self.peer.profile.rules.dup_at_qos_1)
        taken = 0
        for message in delivery.unpacked():
            packet_id = delivery.packet_id + taken if qos else 0
            own = core.Publish(message.topic_name, message.payload, qos, delivery.retain, dup, packet_id)
            if (taken and not self.has_room()) or not self._deliver(own, now_ms):
                break
            taken += 1
        return taken

    def _deliver(self, message: core.Publish, now_ms: int) -> bool:
        """Send a message. False: it was QoS 0 and was dropped, since too many wait for the client."""
        state = self.client_state
        if message.qos == 0 and not state.may_deliver():
            if state.buffer(message):
                return True
            self._engine.counters.dropped_sleeping_full += 1
            return False
        state.delivered()
        taken = self.outgoing.put(message)
        if state.state in (ACTIVE, AWAKE):
            self._send_waiting(now_ms)
        return taken

    def acknowledge(self, acknowledgement: core.Acknowledgement) -> None:
        """Send PUBACK, PUBREC, PUBREL or PUBCOMP."""
        now_ms = self._engine.begin_turn()
        if self.is_muted:
            return
        reason = acknowledgement.reason
        for packet_id in range(acknowledgement.packet_id, acknowledgement.packet_id + acknowledgement.count):
            if acknowledgement.packet_type != core.PUBREL:
                self._requests.acknowledge(acknowledgement.packet_type, packet_id, reason)
            elif reason < UNSPECIFIED:  # a PUBREC that nothing was sent for is not answered
                self.outgoing.pubrel(packet_id, now_ms)
                self._engine.timers.watch(self)

    def send(self, packet: core.Packet) -> None:
        """Send any other packet."""
        now_ms = self._engine.begin_turn()
        if isinstance(packet, core.Connack):
            if packet.reason >= UNSPECIFIED:
                self._engine.counters.connects_refused += 1
                self.peer.send(self._connack_of(packet.reason, False))
            else:
                self.client_state.activate()
                self._has_new_session = not packet.session_present
                self._engine.addresses.accept(self, packet.session_present)
                self._accept(packet.session_present)
                self._engine.addresses.ask_for_proofs(now_ms)
                self._engine.timers.watch(self)
        elif isinstance(packet, core.Suback):
            self._requests.suback(packet)
        elif isinstance(packet, core.Unsuback):
            self._requests.unsuback(packet)

    def _connack_of(self, reason: int, session_present: bool) -> sn.SnPacket:
        return sn.connack(reason, self.connect.packet_id, session_present, client_id=self._assigned_client_id)

    def _accept(self, session_present: bool) -> None:
        self._connack = encode(self._connack_of(0, session_present), self.peer.profile)
        self.peer.send_bytes(self._connack)

    def repeat_connack(self) -> None:
        """The CONNECT came again: send its answer again, if that has been sent."""
        if self._connack:
            self.peer.send_bytes(self._connack)

    def opened(self) -> None:
        """CONNACK was sent: receive the packets that came before it."""
        now_ms = self._engine.begin_turn()
        early_packets = self._early_packets
        self._early_packets = []
        for packet, content in early_packets:
            if self.client_state.state == CLOSED:
                return
            try:
                self.receive(packet, content, now_ms)
            except PeerError as error:
                self._engine.fail(self, error)

    def has_room(self) -> bool:
        """Whether the core may hand over messages of QoS 1 and 2. After False, `ClientWritable` follows."""
        if self.client_state.may_deliver():
            return self.outgoing.has_room()
        self.outgoing.set_writable_due(True)
        return False

    def close(self, reason: int) -> bool:
        """The core has ended the connection: tell the client, unless it sent DISCONNECT and expects no answer.

        False: it had ended before.
        """
        self._engine.begin_turn()
        state = self.client_state.state
        if state == CLOSED:
            return False
        self._engine.forget(self)
        if self.is_muted or state == CONNECTING:
            return True
        if self._client_disconnected:
            if self.peer.profile.rules.disconnect_answered:
                self.peer.send(sn.disconnect())
        else:
            self.peer.send(sn.disconnect(reason if reason >= UNSPECIFIED else 0))
        return True

    # -- from the tables of the engine -------------------------------------------------------------------------------

    def set_awaits_proof(self, awaits_proof: bool) -> None:
        """Whether the client has a place among those whose addresses are unproven."""
        self.awaits_proof = awaits_proof

    def set_watched(self, due_ms: int) -> None:
        """The deadline that the timers have for this connection; 0 for none."""
        self.watched_ms = due_ms

    def set_muted(self, is_muted: bool) -> None:
        """Whether nothing more is sent: what is sent to the address would reach another connection."""
        self.is_muted = is_muted

    def displace(self, previous: "VirtualConnection") -> None:
        """This connection is at the address of another one, which is muted until this one is accepted or refused."""
        previous.set_muted(True)
        self._previous = previous

    def take_previous(self) -> "VirtualConnection | None":
        """The connection that was at the address before, once."""
        previous = self._previous
        self._previous = None
        return previous

    def replace_will(self, will: core.Will | None) -> None:
        """The client has another will, or none."""
        self.will = will
        self._events.append(WillChange(self, will))

    # -- time --------------------------------------------------------------------------------------------------------

    def due_ms(self) -> int:
        """When something falls due; 0 for never."""
        state = self.client_state.state
        due_ms = self.client_state.due_ms()
        if state in (ACTIVE, AWAKE):
            for other_ms in (self.outgoing.retransmission.next_ms(), self.outgoing.next_burst_ms()):
                if other_ms and (due_ms == 0 or other_ms < due_ms):
                    due_ms = other_ms
        if state == AWAKE and self.outgoing.idle():
            grace_ms = self.client_state.heard_ms + AWAKE_GRACE_MS
            due_ms = min(due_ms, grace_ms) if due_ms else grace_ms
        return due_ms

    def tick(self, now_ms: int) -> None:
        """Something is due: too long a silence, a retransmission, the next burst, the end of an idle awake time."""
        state = self.client_state
        if state.state == CLOSED:
            return
        silence_ms = state.due_ms()
        if silence_ms and silence_ms <= now_ms:
            self._end_by_silence()
            return
        if state.state == AWAKE and self.outgoing.idle() and state.heard_ms + AWAKE_GRACE_MS <= now_ms:
            self._sleep_again(0, now_ms)
        if state.state in (ACTIVE, AWAKE):
            again = self.outgoing.retransmission.due(now_ms)
            if again is None:
                self.lose("no acknowledgement after the last retry", ReasonCode.UNSPECIFIED_ERROR)
                return
            self._engine.counters.retransmissions += len(again)
            self.outgoing.send_again(again, now_ms)
        self._send_waiting(now_ms)

    def _end_by_silence(self) -> None:
        profile = self.peer.profile
        if self.client_state.state != ACTIVE and profile.rules.sleep_is_session_expiry:
            # The end of the sleep publishes the will and ends the session.
            self._engine.counters.clients_lost += 1
            self.peer.send(sn.disconnect(ReasonCode.KEEP_ALIVE_TIMEOUT))
            self._end_session()
            return
        self.lose("no packet in time", ReasonCode.KEEP_ALIVE_TIMEOUT)

    def _end_session(self) -> None:
        self.session_expiry_s = 0
        self.is_muted = True
        self._hand_to_core(core.Disconnect(ReasonCode.DISCONNECT_WITH_WILL, 0))
        self._engine.forget(self)

    def ask_for_proof(self, now_ms: int) -> None:
        """Have the client prove its address, if it is not asleep."""
        if self.client_state.state in (ACTIVE, AWAKE):
            self.outgoing.ask_for_proof(now_ms)
            self._engine.timers.watch(self)

    def is_silent_when_asked(self, now_ms: int, within_ms: int) -> bool:
        """Whether nothing came for some time after the client was asked if it is there; if it was not asked, it is."""
        if self._asked_ms <= self.client_state.heard_ms:
            self._asked_ms = now_ms
            self.ask_for_proof(now_ms)
            return False
        return now_ms - self._asked_ms >= within_ms

    def give_place(self) -> None:
        """The address was not proven, and another client needs the place. A session that began with this ends with it:
        else a forged CONNECT would leave one."""
        self._engine.counters.clients_unproven_dropped += 1
        if not self._has_new_session or not self.session_expiry_s:
            self.lose(UNPROVEN, ReasonCode.SERVER_BUSY)
            return
        self.peer.send(sn.disconnect(ReasonCode.SERVER_BUSY))
        self._end_session()

    def lose(self, detail: str, reason: int) -> None:
        """Give the client up; the core publishes its will."""
        if self.client_state.state == CLOSED:
            return
        self._engine.counters.clients_lost += 1
        if not self.is_muted:
            self.peer.send(sn.disconnect(reason))
        self._engine.forget(self)
        self._events.append(ClientLost(self, detail))

    def _send_waiting(self, now_ms: int) -> None:
        outgoing = self.outgoing
        if self.client_state.state in (ACTIVE, AWAKE):
            outgoing.send_waiting(now_ms)
            for packet in outgoing.take_substitute_acks():
                self._hand_to_core(packet)
            if self.client_state.may_deliver() and outgoing.take_writable():
                self._events.append(ClientWritable(self))
            if self.client_state.state == ACTIVE and self.watched_ms and outgoing.idle():
                return  # only silence can fall due, and a packet only moves that later
        self._engine.timers.watch(self)

"""A client of the simulated world: it keeps its side of the protocol, and can be as slow and as lost as one.

Owns: one client's session on its own side, over one connection after the other, and what it tells the checker.
It shares the packets' readers and writers with the server (those have tests of their own), and none of its decisions.
"""

from dataclasses import dataclass
from random import Random
from typing import Final

from embermq.protocol.mqtt.decode import Decoder
from embermq.protocol.mqtt.dialect import MQTT_5, MQTT_31, MQTT_311, Dialect
from embermq.protocol.mqtt.encode import encode
from embermq.protocol.mqtt.settings import Mqtt5Settings
from embermq.protocol.packets import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Acknowledgement,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Publish,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
    Will,
)
from simulation.checker import Checker, Message, SessionModel, Subscribed, WillModel
from simulation.clock import CLOCK
from simulation.network import Wire

DIALECTS: Final[dict[int, Dialect]] = {3: MQTT_31, 4: MQTT_311, 5: MQTT_5}
PACKET_BYTES_MAX: Final = 1 << 20
NEVER_S: Final = 0xFFFF_FFFF
REFUSED: Final = 0x80


@dataclass(slots=True)
class Outgoing:
    """A message at QoS 1 or 2 that is not done."""

    message: Message
    is_released: bool = False  # PUBREC has come


@dataclass(frozen=True, slots=True)
class Habit:
    """How a client connects: the version, whether its session lasts, for how long, and how much it takes at once."""

    level: int = 4
    is_clean: bool = False
    expiry_s: int = NEVER_S
    receive_maximum: int = 65_535
    alias_maximum: int = 0
    keep_alive_s: int = 0


class Client:
    """One client identifier."""

    def __init__(self, client_id: str, checker: Checker, rng: Random) -> None:
        self.client_id: Final = client_id
        self.checker: Final = checker
        self.rng: Final = rng
        self.habit = Habit()
        self.wire: Wire | None = None
        self.is_open = False
        self.is_slow = False  # it keeps its acknowledgements for a while
        self.session: SessionModel | None = None
        self.may_have_session = False  # a session was asked for, and no CONNACK has come
        self.expiry_s = NEVER_S  # the least that was asked for since the last CONNACK
        self.may_be_gone = False  # the session, when CONNECT left
        self.is_lasting = False  # what the last CONNECT has asked for
        self.must_begin_clean = False  # a clean start was asked for, and no CONNACK has come
        self.left_us = 0  # when its connection ended, as it knows
        self.refusals = 0
        self._will: WillModel | None = None
        self._next_will: WillModel | None = None
        self._farewells: list[tuple[Wire, int, WillModel]] = []  # DISCONNECT on its way, up to which byte of its wire
        self._decoder = Decoder(PACKET_BYTES_MAX, server=False)
        self._next_id = 0
        self._outgoing: dict[int, Outgoing] = {}
        self._received: dict[int, bytes] = {}  # QoS 2 packet identifiers, with the payload
        self._held: list[Acknowledgement] = []
        self._subscribing: dict[int, list[Subscribed]] = {}
        self._unsubscribing: set[int] = set()
        self._arrivals: list[tuple[int, Message]] = []  # how many bytes of the wire end with a message
        self._unacknowledged: set[int] = set()  # what the server has sent and was not acknowledged

    # -- what the script asks for ------------------------------------------------------------------------------------

    def connect(self, wire: Wire, habit: Habit, will: Will | None = None) -> None:
        self.habit = habit
        self.wire = wire
        self._will, self._next_will = self._next_will, None
        self.is_open = False
        is_clean = habit.is_clean or self.must_begin_clean
        self.may_be_gone = self._may_have_expired() or is_clean
        if self._may_have_expired():
            self.must_begin_clean = True  # the next time: without an answer nobody knows which session it is
        if is_clean:
            self.must_begin_clean = True
            self._forget()
        elif self.session is not None and not self.session.is_persistent:
            self._forget()
        self.may_have_session = self.may_have_session or not habit.is_clean
        self.expiry_s = min(self.expiry_s, habit.expiry_s)
        dialect = DIALECTS[habit.level]
        self._decoder = Decoder(
            PACKET_BYTES_MAX,
            server=False,
            dialect=dialect,
            settings=Mqtt5Settings(topic_alias_maximum=habit.alias_maximum),
            now_us=lambda: CLOCK.now_us,
        )
        self._held.clear()
        self._subscribing.clear()
        self._unsubscribing.clear()
        self._arrivals.clear()
        self._unacknowledged.clear()
        # Before MQTT 5 a session that begins clean does not last.
        self.is_lasting = not habit.is_clean and (habit.level == 5 or not is_clean)
        self._send(
            Connect(
                self.client_id,
                is_clean,
                habit.keep_alive_s,
                will,
                session_expiry_s=habit.expiry_s if self.is_lasting else 0,
                receive_maximum=habit.receive_maximum,
                protocol_level=habit.level,
                topic_alias_maximum=habit.alias_maximum,
            )
        )

    def publish(
        self, topic_name: str, qos: int, *, retain: bool = False, is_clear: bool = False, expiry_s: int | None = None
    ) -> None:
        if not self.is_open or len(self._outgoing) > 50:
            return
        if self.habit.level < 5:
            expiry_s = None
        message = self.checker.sent(
            self.client_id, topic_name, qos, retain=retain, is_clear=is_clear, expiry_s=expiry_s
        )
        packet_id = self._free_id() if qos else 0
        if qos:
            self._outgoing[packet_id] = Outgoing(message)
        self._send_message(message, packet_id, False)

    def subscribe(self, topic_filter: str, qos: int, retain_handling: int = 0) -> None:
        if not self.is_open or self.session is None:
            return
        asked = self.checker.subscribing(self.session, topic_filter, qos)
        packet_id = self._free_id()
        self._subscribing[packet_id] = [asked]
        handling = retain_handling if self.habit.level == 5 else 0
        self._send(Subscribe(packet_id, [SubscriptionRequest(topic_filter, qos, retain_handling=handling)]))

    def unsubscribe(self, topic_filter: str) -> None:
        if not self.is_open or self.session is None:
            return
        self.checker.unsubscribing(self.session, topic_filter)
        packet_id = self._free_id()
        self._unsubscribing.add(packet_id)
        self._send(Unsubscribe(packet_id, [topic_filter]))

    def ping(self) -> None:
        if self.is_open:
            self._send(Pingreq())

    def disconnect(self) -> None:
        """Say good-bye, and close."""
        if self.wire is not None and self.is_open:
            self._send(Disconnect())
            if self._will is not None:
                self._farewells.append((self.wire, self.wire.sent_bytes(), self._will))
            self._will = None  # if DISCONNECT does not come, nobody can say
            self.drop()

    def drop(self) -> None:
        """Close without a word."""
        if self.wire is not None:
            self.wire.leave()
            self._lost()

    def acknowledge_held(self) -> None:
        """Send the acknowledgements that were kept back."""
        held, self._held = self._held, []
        for acknowledgement in held:
            self._acknowledge(acknowledgement)

    def new_will(self, qos: int, delay_s: int, is_unclear: bool) -> Message:
        """The will of the next connection."""
        message = self.checker.sent(self.client_id, f"will/{self.client_id}", qos, is_will=True)
        self._next_will = self.checker.wills[message.number] = WillModel(message, delay_s, is_unclear=is_unclear)
        return message

    def lasting_habit(self) -> Habit:
        """How it comes back to the session it has, if any."""
        is_clean = self.session is None or not self.session.is_persistent
        return Habit(max(4, self.habit.level), is_clean, self.habit.expiry_s)

    def is_idle(self) -> bool:
        """Whether it waits for nothing."""
        return not (self._outgoing or self._held or self._subscribing or self._unsubscribing or self._received)

    # -- Receiver: from its wire -------------------------------------------------------------------------------------

    def received(self, wire: Wire, data: bytes) -> None:
        if wire is not self.wire:
            return
        for packet in self._decoder.feed(data):
            self._handle(packet)
            if wire is not self.wire:
                return
        if self._decoder.error is not None:
            self.checker.wrong(f"{self.client_id}: cannot read what the server sent: {self._decoder.error}")

    def ended(self, wire: Wire) -> None:
        if wire is self.wire:
            self._lost()

    def arrived(self, wire: Wire) -> None:
        """Bytes have come to the server: which messages are whole there."""
        for farewell in self._farewells:
            if farewell[0] is wire and farewell[1] <= wire.delivered_bytes:
                farewell[2].is_withdrawn = True
        if wire is self.wire:
            while self._arrivals and self._arrivals[0][0] <= wire.delivered_bytes:
                self._arrivals.pop(0)[1].arrived_us = CLOCK.now_us

    # -- inside ------------------------------------------------------------------------------------------------------

    def _lost(self) -> None:
        self.checker.notes(f"{self.client_id} has no connection any more")
        if self.is_open and self.wire is not None:
            self.left_us = self.wire.server_left_us or CLOCK.now_us
            if self._will is not None:
                self._will.is_ended = True
        self.wire = None
        self.is_open = False
        if self.session is not None and not self.session.is_persistent:
            self.checker.ended(self.session)

    def _forget(self) -> None:
        """There is no session any more."""
        if self.session is not None:
            self.checker.ended(self.session)
        self.session = None
        self._outgoing.clear()
        self._received.clear()

    def _send(self, packet: Packet) -> None:
        if self.wire is not None:
            self.checker.notes(f"{self.client_id} sends {packet!r:.150}")
            self.wire.send(encode(packet, DIALECTS[self.habit.level]))

    def _send_message(self, message: Message, packet_id: int, dup: bool) -> None:
        assert self.wire is not None
        properties = b"" if message.expiry_s is None else b"\x02" + message.expiry_s.to_bytes(4, "big")
        if self.habit.level < 5 and properties:
            properties = b""
            message.has_lost_expiry = True
        self._send(
            Publish(message.topic_name, message.payload(), message.qos, message.retain, dup, packet_id, properties)
        )
        self._arrivals.append((self.wire.sent_bytes(), message))

    def _free_id(self) -> int:
        while True:
            self._next_id = self._next_id % 200 + 1  # identifiers are used again soon
            used = self._next_id in self._outgoing or self._next_id in self._subscribing
            if not used and self._next_id not in self._unsubscribing:
                return self._next_id

    def _handle(self, packet: Packet) -> None:
        self.checker.notes(f"{self.client_id} gets {packet!r:.150}")
        if isinstance(packet, Connack):
            self._connack(packet)
        elif isinstance(packet, Publish):
            self._publish(packet)
        elif isinstance(packet, Acknowledgement):
            for number in range(packet.count):
                self._acknowledged(packet.packet_type, packet.packet_id + number, packet.reason)
        elif isinstance(packet, Suback):
            for asked, reason in zip(self._subscribing.pop(packet.packet_id, []), packet.reasons, strict=False):
                if reason < REFUSED:
                    self.checker.subscribed(asked)
                else:
                    self.refusals += 1
        elif isinstance(packet, Unsuback):
            self._unsubscribing.discard(packet.packet_id)

    def _connack(self, packet: Connack) -> None:
        if packet.reason:
            self.refusals += 1
            return
        if packet.session_present:
            if self.session is None:
                if not self.may_have_session:
                    self.checker.wrong(f"{self.client_id}: a session is present, but there is none")
                self.session = self.checker.session(self.client_id, True)
        else:
            self._check_session_may_be_gone()
            self._forget()
            self.session = self.checker.session(self.client_id, self.is_lasting)
        if self.session is not None:
            self.session.is_persistent = self.is_lasting
        self.must_begin_clean = self.may_have_session = False
        self.expiry_s = self.habit.expiry_s
        self.is_open = True
        if self._will is not None:
            self._will.is_set = True
        if self.wire is not None:
            self.wire.was_open = True
        for packet_id, outgoing in self._outgoing.items():
            if outgoing.is_released:
                self._send(Acknowledgement(PUBREL, packet_id))
            else:
                outgoing.message.attempts += 1
                self._send_message(outgoing.message, packet_id, True)

    def _check_session_may_be_gone(self) -> None:
        session = self.session
        if session is None or session.has_ended or not session.is_persistent:
            return
        self.checker.checks["session present"] += 1
        away_s = (CLOCK.now_us - self.left_us) / 1_000_000
        if not self.may_be_gone:
            self.checker.wrong(f"{self.client_id}: the session is gone after {away_s:.1f} s")

    def _may_have_expired(self) -> bool:
        if self.session is None or self.expiry_s == NEVER_S:
            return False
        away_s = (CLOCK.now_us - self.left_us) / 1_000_000
        return away_s > self.expiry_s - 2 or not self.checker.is_wall_steady

    def _publish(self, packet: Publish) -> None:
        if self.session is None:
            self.checker.wrong(f"{self.client_id}: a message before CONNACK")
            return
        is_known = packet.qos == 2 and packet.packet_id in self._received
        if packet.qos:
            self._count_unacknowledged(packet.packet_id)
        if is_known:
            if self._received[packet.packet_id] != packet.payload:
                self.checker.wrong(f"{self.client_id}: packet id {packet.packet_id} was used again before PUBREL")
            if not packet.dup:
                self.checker.wrong(f"{self.client_id}: packet id {packet.packet_id} came again without DUP")
        else:
            has_expiry = packet.properties[:1] == b"\x02"
            self.checker.delivered(
                self.session,
                packet.topic_name,
                packet.payload,
                packet.qos,
                retain=packet.retain,
                dup=packet.dup,
                expiry_s=int.from_bytes(packet.properties[1:5], "big") if has_expiry else None,
                sent_us=self.wire.written_us if self.wire is not None else CLOCK.now_us,
            )
        if packet.qos == 1:
            self._answer(Acknowledgement(PUBACK, packet.packet_id))
        elif packet.qos == 2:
            self._received[packet.packet_id] = packet.payload
            self._answer(Acknowledgement(PUBREC, packet.packet_id))

    def _count_unacknowledged(self, packet_id: int) -> None:
        self._unacknowledged.add(packet_id)
        if self.habit.level == 5 and len(self._unacknowledged) > self.habit.receive_maximum:
            self.checker.wrong(
                f"{self.client_id}: {len(self._unacknowledged)} messages are unacknowledged,"
                f" Receive Maximum is {self.habit.receive_maximum}"
            )

    def _answer(self, acknowledgement: Acknowledgement) -> None:
        if self.is_slow or self._held:
            self._held.append(acknowledgement)
        else:
            self._acknowledge(acknowledgement)

    def _acknowledge(self, acknowledgement: Acknowledgement) -> None:
        if acknowledgement.packet_type == PUBCOMP:
            self._received.pop(acknowledgement.packet_id, None)
        if acknowledgement.packet_type != PUBREC:
            self._unacknowledged.discard(acknowledgement.packet_id)
        self._send(acknowledgement)

    def _acknowledged(self, packet_type: int, packet_id: int, reason: int) -> None:
        if packet_type == PUBREL:
            self._answer(Acknowledgement(PUBCOMP, packet_id))
            return
        outgoing = self._outgoing.get(packet_id)
        if outgoing is None:
            if packet_type != PUBCOMP:
                self.checker.wrong(f"{self.client_id}: acknowledged is {packet_id}, which waits for nothing")
            return
        if reason >= REFUSED:
            self.refusals += 1
            del self._outgoing[packet_id]
        elif packet_type == PUBACK:
            self.checker.acknowledged(outgoing.message)
            del self._outgoing[packet_id]
        elif packet_type == PUBREC:
            self.checker.acknowledged(outgoing.message)
            outgoing.is_released = True
            self._send(Acknowledgement(PUBREL, packet_id))
        else:
            del self._outgoing[packet_id]

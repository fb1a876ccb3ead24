"""Messages to one client: named by an alias it knows, at its pace, again until acknowledged.

Owns: the queue of what the core has handed over and has not left yet, REGISTER before a PUBLISH that needs it, the
pace of QoS 0, and what is unacknowledged.
Order is kept: nothing overtakes a message that waits for its REGACK.
An address that nobody has proved is sent little: what is too much for it, the first time or again, waits for the proof.
"""

from random import Random
from typing import Final, final

from embermq.protocol import packets as core
from embermq.protocol.sn.session.aliases import ALIAS_LARGEST, Aliases
from embermq.protocol.sn.session.counters import SnCounters
from embermq.protocol.sn.session.outgoing_queue import WAITING_BYTES_MAX, Waiting
from embermq.protocol.sn.session.peer import Wire
from embermq.protocol.sn.session.retransmission import Retransmission
from embermq.protocol.sn.settings import SnSettings
from embermq.protocol.sn.wire import kinds
from embermq.protocol.sn.wire import packets as sn
from embermq.protocol.sn.wire.encode import encode
from embermq.protocol.sn.wire.framing import PACKET_BYTES_MAX
from embermq.protocol.sn.wire.layouts import CONGESTION, UNKNOWN_ALIAS, UNSPECIFIED

REFUSED_NAMES_MAX: Final = 256
REFUSED_NAME_LENGTH_MAX: Final = 256
"""A longer name that a client refused to register is not remembered: the next message to it asks again."""
HEADER_BYTES: Final = 4
WRAPPER_BYTES: Final = 5
"""What a forwarder's frame adds to a packet, besides the node's address."""
PROOF_BYTES_MAX: Final = 64
"""A packet no larger than this may be sent again to an address that is not proven, as often as retries allow."""
PROOF_NAME: Final = "$SYS"
"""What a REGISTER names that only asks for an answer: short, valid, and nobody publishes to it."""
BURST_BYTES: Final = 64 * 1024
"""Of the payloads of QoS 0 that leave to one client in a burst: what a socket holds unread is not much more."""
ROOM: Final = 32
"""How many messages may wait before the core is asked to keep the next ones."""


@final
class Outgoing:
    """One client's way out."""

    __slots__ = (
        "aliases",
        "retransmission",
        "starved",
        "packet_bytes_max",
        "_wire",
        "_settings",
        "_counters",
        "_random",
        "_waiting",
        "_registering",
        "_predefined",
        "_refused",
        "_sent",
        "_unnamed",
        "_named",
        "_withheld",
        "_burst_left",
        "_burst_bytes_left",
        "_burst_ends_ms",
        "_done",
    )

    def __init__(
        self, wire: Wire, aliases: Aliases, settings: SnSettings, counters: SnCounters, random: Random
    ) -> None:
        self.aliases = aliases
        self.retransmission: Final = Retransmission(
            settings.retry_ms, settings.retries_max, settings.backoff_max_ms, wire.profile.strict, random
        )
        self.starved = False  # the core was told that there is no room
        self.packet_bytes_max = 0  # of the client; 0: it said none
        self._wire: Final = wire
        self._settings: Final = settings
        self._counters: Final = counters
        self._random: Final = random
        self._waiting: Final = Waiting()
        self._registering: sn.Register | None = None
        self._named = False  # the client has a name for what is being registered: only its address is in question
        self._withheld = False  # something unacknowledged was not sent again: the address has to be proved first
        self._predefined: dict[str, int] = {}  # names the client has used by their predefined alias
        self._refused: dict[str, None] = {}  # names the client does not want to register
        self._sent: dict[int, core.Publish] = {}  # QoS 1 and 2, by packet id, until the client has them
        self._unnamed: dict[int, None] = {}  # packet ids sent a second time since the client did not know the alias
        self._burst_left = settings.burst
        self._burst_bytes_left = BURST_BYTES
        self._burst_ends_ms = 0
        self._done: list[core.Packet] = []

    # -- what the virtual connection asks --------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._waiting)

    def idle(self) -> bool:
        """Whether nothing waits and nothing is unacknowledged."""
        return not self._waiting and not len(self.retransmission)

    def has_room(self) -> bool:
        """Whether the core may hand over more."""
        if self._has_room(ROOM, WAITING_BYTES_MAX // 2):
            return True
        self.starved = True
        return False

    def has_drained(self) -> bool:
        """Whether so little waits that the core may be asked for more."""
        return self._has_room(ROOM // 2, WAITING_BYTES_MAX // 4)

    def _has_room(self, count: int, size: int) -> bool:
        return len(self._waiting) < count and self._waiting.size < size

    def take_done(self) -> list[core.Packet]:
        """Acknowledgements in place of a client that will never see the message: the core must not wait for it."""
        done = self._done
        self._done = []
        return done

    def use_predefined(self, topic_name: str, topic_alias: int) -> None:
        """The client knows this predefined alias: it has used it."""
        self._predefined[topic_name] = topic_alias

    def wants(self, topic_name: str) -> None:
        """The client asks for a topic again that it had refused to register."""
        self._refused.pop(topic_name, None)

    # -- messages --------------------------------------------------------------------------------------------------

    def put(self, message: core.Publish) -> bool:
        """Add a message; `pump` sends it. False: it was QoS 0 and there is no room."""
        if message.qos == 0 and not self._waiting.fits(message, self._settings.waiting_max):
            self._counters.dropped_waiting_full += 1
            return False
        self._waiting.put(message)
        return True

    def pump(self, now_ms: int) -> None:
        """Send what may leave now, in order."""
        if self._withheld and self._wire.proven:
            self._withheld = False
            self.send_again(self.retransmission.resume(now_ms), now_ms)
        waiting = self._waiting
        while waiting and self._registering is None:
            message = waiting.first()
            if message.topic_name in self._refused:
                self._counters.dropped_unregistered += 1
                self._drop(waiting.take())
                continue
            if message.qos == 0 and not self._in_pace(now_ms):
                return
            reference = self._reference(message)
            if reference is not None:
                packet = sn.Publish(
                    reference, message.payload, message.qos, message.retain, message.dup, message.packet_id
                )
                size = self._size(reference, message)
                if self._too_large(size):
                    self._counters.dropped_too_large += 1
                    self._drop(waiting.take())
                    continue
                if self._wire.may_send(size):
                    waiting.take()
                    self._publish(message, packet, now_ms)
                    continue
            # Either the client has no name for the topic, or its address must be proved first: its REGACK does both.
            self._named = reference is not None
            if not self._register(message, now_ms):
                self._drop(waiting.take())

    def _publish(self, message: core.Publish, packet: sn.Publish, now_ms: int) -> None:
        self._wire.send(packet)
        if packet.qos == 0:
            self._burst_left -= 1
            self._burst_bytes_left -= len(packet.payload)
            return
        again = packet
        if packet.qos == 2 or self._wire.profile.dup_at_qos_1:
            again = sn.Publish(packet.reference, packet.payload, packet.qos, packet.retain, True, packet.packet_id)
        self._sent[packet.packet_id] = message
        self.retransmission.sent(kinds.PUBLISH, packet.packet_id, again, now_ms)

    def pubrel(self, packet_id: int, now_ms: int) -> None:
        """QoS 2: the client has the message, and must let go of its id."""
        packet = sn.Pubrel(packet_id)
        self._wire.send(packet)
        self.retransmission.sent(kinds.PUBREL, packet_id, packet, now_ms)

    def send_again(self, packets: list[sn.SnPacket], now_ms: int) -> None:
        """What is unacknowledged leaves again."""
        for packet in packets:
            data = encode(packet, self._wire.profile)
            if len(data) <= PROOF_BYTES_MAX or self._wire.may_send(len(data)):
                self._wire.send_bytes(data)
                continue
            if isinstance(packet, sn.Register):
                # Its message still waits for a name, and gets one when the address is proven.
                self.retransmission.acknowledged(kinds.REGISTER, packet.packet_id)
                self._registering = None
            self._withheld = True
            self._ask_for_proof(now_ms)

    def _in_pace(self, now_ms: int) -> bool:
        """QoS 0 has no acknowledgement that would pace it."""
        if now_ms >= self._burst_ends_ms:
            self._burst_ends_ms = now_ms + self._settings.burst_ms
            self._burst_left = self._settings.burst
            self._burst_bytes_left = BURST_BYTES
        return self._burst_left > 0 and self._burst_bytes_left > 0

    def pace_ms(self) -> int:
        """When the next burst of QoS 0 may leave; 0 if none waits."""
        if self._waiting and self._registering is None and self._waiting.first().qos == 0:
            return self._burst_ends_ms
        return 0

    # -- names -----------------------------------------------------------------------------------------------------

    def _reference(self, message: core.Publish) -> sn.TopicReference | None:
        """How to name a message's topic to this client; None: it has to be registered first."""
        topic_name = message.topic_name
        alias = self.aliases.of(topic_name)
        if alias is not None and alias.known:
            return sn.session_alias(alias.number)
        predefined = self._predefined.get(topic_name)
        if predefined is not None:
            return sn.predefined_alias(predefined)
        profile = self._wire.profile
        if profile.short_names and len(topic_name.encode()) == 2:
            return sn.short_name(topic_name)
        if profile.full_names:
            reference = sn.full_name(topic_name)
            if not self._too_large(self._size(reference, message)):
                return reference
        return None

    def _size(self, reference: sn.TopicReference, message: core.Publish) -> int:
        """What a PUBLISH takes at most, its header included, without encoding it."""
        return HEADER_BYTES + 5 + len(reference.name.encode()) + len(message.payload)

    def _too_large(self, size: int) -> bool:
        most = min(self._settings.datagram_bytes_max, PACKET_BYTES_MAX) - WRAPPER_BYTES - len(self._wire.route)
        if self.packet_bytes_max:
            most = min(most, self.packet_bytes_max)
        return size > most

    def _register(self, message: core.Publish, now_ms: int) -> bool:
        """Give the client an alias for a topic, and wait for its REGACK. False: it cannot be done."""
        alias = self.aliases.offer(message.topic_name)
        if alias is None:
            self._counters.dropped_unregistered += 1
            return False
        register = sn.Register(self._random.randint(1, ALIAS_LARGEST), message.topic_name, alias.number)
        data = encode(register, self._wire.profile)
        if self._too_large(len(data)) or self._too_large(self._size(sn.session_alias(alias.number), message)):
            self._counters.dropped_too_large += 1
            return False
        if len(data) > PROOF_BYTES_MAX and not self._wire.may_send(len(data)):
            return self._ask_for_proof(now_ms)
        self._send_register(register, data, now_ms)
        return True

    def _ask_for_proof(self, now_ms: int) -> bool:
        """Have an address answer a REGISTER that is too small to harm anybody, should it be forged."""
        if self._registering is not None:
            return True
        alias = self.aliases.offer(PROOF_NAME)
        if alias is None:
            self._counters.dropped_unregistered += 1
            return False
        self._named = True  # whatever the answer says about the name: it is an answer
        register = sn.Register(self._random.randint(1, ALIAS_LARGEST), PROOF_NAME, alias.number)
        self._send_register(register, encode(register, self._wire.profile), now_ms)
        return True

    def _send_register(self, register: sn.Register, data: bytes, now_ms: int) -> None:
        self._registering = register
        self._wire.send_bytes(data)
        self.retransmission.sent(kinds.REGISTER, register.packet_id, register, now_ms)

    # -- acknowledgements ------------------------------------------------------------------------------------------

    def regack(self, packet: sn.Regack) -> bool:
        """The client's answer to REGISTER. False: to nothing."""
        register = self._registering
        if register is None or register.packet_id != packet.packet_id:
            return False
        self.retransmission.acknowledged(kinds.REGISTER, packet.packet_id)
        self._registering = None
        # Whoever answers has read a number that was drawn for it: the address is no forged one.
        self._wire.proven = True
        if packet.reason < UNSPECIFIED:
            alias = self.aliases.of(register.topic_name)
            if alias is not None:
                alias.known = True
            return True
        if self._named:
            return True
        self.aliases.forget(register.topic_alias)
        if packet.reason != CONGESTION and len(register.topic_name) <= REFUSED_NAME_LENGTH_MAX:
            # It counts as giving up this one topic, whatever filter it matched.
            self._refused[register.topic_name] = None
            if len(self._refused) > REFUSED_NAMES_MAX:
                del self._refused[next(iter(self._refused))]
        elif self._waiting:
            self._counters.dropped_unregistered += 1
            self._drop(self._waiting.take())
        return True

    def puback(self, packet: sn.Puback) -> list[core.Packet] | None:
        """The client's answer to a PUBLISH, as the core wants to hear it. None: to nothing."""
        unknown = packet.reason == UNKNOWN_ALIAS
        if unknown and packet.topic_alias:
            self.aliases.forget(packet.topic_alias)
        message = self._sent.get(packet.packet_id)
        if message is None or self.retransmission.acknowledged(kinds.PUBLISH, packet.packet_id) is None:
            return [] if unknown else None
        if unknown and self._name_again(message):
            return []
        self._settled(packet.packet_id)
        if message.qos == 2:
            # 1.2 refuses a QoS 2 message by PUBACK, since its PUBREC has no return code.
            return [core.Pubrec(packet.packet_id, packet.reason)] if packet.reason >= UNSPECIFIED else []
        return [core.Puback(packet.packet_id, packet.reason)]

    def pubrec(self, packet: sn.Pubrec) -> list[core.Packet]:
        """QoS 2: the client has the message, or refuses it. The core answers one that comes again."""
        waited = self.retransmission.acknowledged(kinds.PUBLISH, packet.packet_id) is not None
        message = self._sent.get(packet.packet_id)
        if waited and message is not None and packet.reason == UNKNOWN_ALIAS and self._name_again(message):
            return []
        self._settled(packet.packet_id)
        return [core.Pubrec(packet.packet_id, packet.reason)]

    def _name_again(self, message: core.Publish) -> bool:
        """The client does not know the alias of a message: put it back, to be registered first. Once only."""
        packet_id = message.packet_id
        if packet_id in self._unnamed:
            return False
        alias = self.aliases.of(message.topic_name)
        if alias is not None:
            self.aliases.forget(alias.number)
        self._predefined.pop(message.topic_name, None)
        del self._sent[packet_id]
        self._unnamed[packet_id] = None
        self._waiting.put_back(message)
        return True

    def _settled(self, packet_id: int) -> None:
        self._sent.pop(packet_id, None)
        self._unnamed.pop(packet_id, None)

    def pubcomp(self, packet_id: int) -> None:
        """QoS 2 is done."""
        self.retransmission.acknowledged(kinds.PUBREL, packet_id)

    def _drop(self, message: core.Publish) -> None:
        """A message that cannot be sent counts as delivered, or it would stop all that come after it."""
        if message.qos == 1:
            self._done.append(core.Puback(message.packet_id))
        elif message.qos == 2:
            self._done.append(core.Pubrec(message.packet_id, UNSPECIFIED))

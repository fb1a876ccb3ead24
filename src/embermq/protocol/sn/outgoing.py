"""Messages to one client: named by an alias that it knows, at its pace, repeated until acknowledged.

Owns: the queue of messages that the core has handed over and that were not sent yet, REGISTER before a PUBLISH that
needs one, the bursts of QoS 0, and what is unacknowledged: when it is sent again, and when to give up (1.2: 6.13; 2.0:
4.4).
Order is kept: no message overtakes one that waits for its REGACK.
An unproven address is sent little: what is too much for it, the first time or again, waits for the proof.
"""

from collections import deque
from random import Random
from typing import Final, final

from embermq.protocol import packets as core
from embermq.protocol.sn.aliases import ALIAS_LARGEST, Aliases
from embermq.protocol.sn.counters import SnCounters
from embermq.protocol.sn.peer import Peer
from embermq.protocol.sn.settings import SnSettings
from embermq.protocol.sn.wire import packets as sn
from embermq.protocol.sn.wire.codec import encode
from embermq.protocol.sn.wire.framing import PACKET_BYTES_MAX
from embermq.protocol.sn.wire.layouts import CONGESTION, UNKNOWN_ALIAS, UNSPECIFIED
from embermq.protocol.sn.wire.packets import SnPacket

REFUSED_NAMES_MAX: Final = 256
REFUSED_NAME_LENGTH_MAX: Final = 256
"""A longer name that a client refused to register is not remembered: the next message to it is registered again."""
HEADER_BYTES: Final = 4
FORWARDER_BYTES: Final = 5
"""What a forwarder's frame adds to a packet, besides the node's address."""
PROOF_BYTES_MAX: Final = 64
"""A packet of at most this size may be sent again to an unproven address, as often as retries allow."""
PROOF_NAME: Final = "$SYS"
"""The topic of a REGISTER that only asks for an answer: short, valid, and no client can publish to it."""
BURST_BYTES: Final = 64 * 1024
"""Of the QoS 0 payloads in one burst to one client: a client's socket does not hold much more unread."""
QUEUED_MAX: Final = 32
"""How many messages are queued before the core is asked to keep the next ones."""
QUEUE_BYTES_MAX: Final = 512 * 1024
"""What one queue may hold of QoS 0 messages. A single message always fits: it is no larger than a datagram."""
BACKOFF_STEPS_MAX: Final = 16


@final
class OutgoingQueue:
    """A queue of messages; `size` is the bytes of their topic names and payloads."""

    def __init__(self) -> None:
        self.size = 0
        self._messages: Final[deque[core.Publish]] = deque()

    def __len__(self) -> int:
        return len(self._messages)

    def first(self) -> core.Publish:
        """The oldest message."""
        return self._messages[0]

    def fits(self, message: core.Publish, count_max: int) -> bool:
        """Whether one more message is within both bounds, in number and in bytes."""
        count = len(self._messages)
        return count < count_max and (count == 0 or self.size + message.size_bytes() <= QUEUE_BYTES_MAX)

    def put(self, message: core.Publish) -> None:
        """Add a message at the end."""
        self._messages.append(message)
        self.size += message.size_bytes()

    def put_back(self, message: core.Publish) -> None:
        """Add a message at the front."""
        self._messages.appendleft(message)
        self.size += message.size_bytes()

    def take(self) -> core.Publish:
        """Remove the oldest message."""
        message = self._messages.popleft()
        self.size -= message.size_bytes()
        return message


@final
class Unacknowledged:
    """One packet without its answer. `again` is what is sent the next time, with DUP where the profile says so."""

    def __init__(self, kind: int, packet_id: int, again: SnPacket, due_ms: int) -> None:
        self.kind: Final = kind
        self.packet_id: Final = packet_id
        self.again: Final = again
        self.tries = 0
        self.due_ms = due_ms

    def try_again(self, due_ms: int) -> None:
        """It is sent again, and the next time at `due_ms`."""
        self.tries += 1
        self.due_ms = due_ms

    def restart(self, due_ms: int) -> None:
        """It is sent as if for the first time."""
        self.tries = 0
        self.due_ms = due_ms


@final
class Retransmission:
    """The unacknowledged packets of one client, by kind and packet identifier, the oldest first."""

    def __init__(self, retry_ms: int, tries_max: int, backoff_max_ms: int, backoff: bool, random: Random) -> None:
        """`backoff`: the pauses grow (2.0); without, they are equal (1.2)."""
        self._packets: dict[tuple[int, int], Unacknowledged] = {}
        self._retry_ms: Final = retry_ms
        self._tries_max: Final = tries_max
        self._backoff_max_ms: Final = backoff_max_ms
        self._backoff: Final = backoff
        self._random: Final = random

    def __len__(self) -> int:
        return len(self._packets)

    def sent(self, kind: int, packet_id: int, again: SnPacket, now_ms: int) -> None:
        """A packet was sent that has to be answered; an older one of that kind and id is replaced."""
        self._packets[(kind, packet_id)] = Unacknowledged(kind, packet_id, again, now_ms + self._retry_ms)

    def acknowledged(self, kind: int, packet_id: int) -> SnPacket | None:
        """The answer has come; returns the packet that it answers, or None if there is none of that id."""
        entry = self._packets.pop((kind, packet_id), None)
        return None if entry is None else entry.again

    def next_ms(self) -> int:
        """When something is due; 0 for never."""
        return min((entry.due_ms for entry in self._packets.values()), default=0)

    def due(self, now_ms: int) -> list[SnPacket] | None:
        """What must be sent again now. None: a packet has been sent too often without an answer."""
        again: list[SnPacket] = []
        for entry in self._packets.values():
            if entry.due_ms <= now_ms:
                if entry.tries >= self._tries_max:
                    return None
                entry.try_again(now_ms + self._pause_ms(entry.tries + 1))
                again.append(entry.again)
        return again

    def resume(self, now_ms: int) -> list[SnPacket]:
        """A sleeping client is awake: everything is sent again, and the number of tries starts from 0."""
        for entry in self._packets.values():
            entry.restart(now_ms + self._retry_ms)
        return [entry.again for entry in self._packets.values()]

    def _pause_ms(self, tries: int) -> int:
        if not self._backoff:
            return self._retry_ms
        # The drafts start at 5 s and add 2^n s and a random part of 1 s: the same proportions for another first pause.
        unit_ms = max(1, self._retry_ms // 5)
        steps = min(tries - 1, BACKOFF_STEPS_MAX)
        pause_ms = (unit_ms << steps) + self._random.randint(0, unit_ms)
        return self._retry_ms + min(pause_ms, self._backoff_max_ms)


@final
class Outgoing:
    """The messages that are queued for one client or not acknowledged by it."""

    def __init__(
        self,
        peer: Peer,
        aliases: Aliases,
        packet_bytes_max: int,
        settings: SnSettings,
        counters: SnCounters,
        random: Random,
    ) -> None:
        """`packet_bytes_max`: that the client takes; 0 for no limit."""
        self.aliases = aliases
        self.retransmission: Final = Retransmission(
            settings.retry_ms, settings.retries_max, settings.backoff_max_ms, peer.profile.rules.backs_off, random
        )
        self._is_writable_due = False  # the core was told that the client takes no more: it waits to hear that it does
        self._packet_bytes_max = packet_bytes_max
        self._peer: Final = peer
        self._settings: Final = settings
        self._counters: Final = counters
        self._random: Final = random
        self._queue: Final = OutgoingQueue()
        self._registering: SnPacket | None = None
        self._registers_for_proof = False  # the REGISTER only proves the address: the client can name the topic already
        self._has_withheld = False  # something unacknowledged is not sent again before the address is proven
        self._predefined: dict[str, int] = {}  # names the client has used by their predefined alias
        self._refused: dict[str, None] = {}  # names the client does not want to register
        self._sent: dict[int, core.Publish] = {}  # QoS 1 and 2, by packet identifier, until the client has them
        self._sent_twice: dict[int, None] = {}  # packet identifiers sent again since the client did not know the alias
        self._burst_left = settings.burst
        self._burst_bytes_left = BURST_BYTES
        self._burst_ends_ms = 0
        self._substitute_acks: list[core.Packet] = []

    # -- what the virtual connection asks --------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._queue)

    def idle(self) -> bool:
        """Whether nothing is queued and nothing is unacknowledged."""
        return not self._queue and not len(self.retransmission)

    def has_room(self) -> bool:
        """Whether the queue has capacity for more messages of the core. After False, the core is told when it has."""
        if self._is_below(QUEUED_MAX, QUEUE_BYTES_MAX // 2):
            return True
        self._is_writable_due = True
        return False

    def set_writable_due(self, is_due: bool) -> None:
        """Whether the core waits to be told that the client takes messages."""
        self._is_writable_due = is_due

    def take_writable(self) -> bool:
        """Whether the core is to be told now that the client takes messages: it waits for that, and few are queued."""
        if not self._is_writable_due or not self._is_below(QUEUED_MAX // 2, QUEUE_BYTES_MAX // 4):
            return False
        self._is_writable_due = False
        return True

    def _is_below(self, count: int, size: int) -> bool:
        return len(self._queue) < count and self._queue.size < size

    def take_substitute_acks(self) -> list[core.Packet]:
        """Acknowledgements of messages that cannot be sent to the client, so that the core does not wait for them."""
        acks = self._substitute_acks
        self._substitute_acks = []
        return acks

    def resume(self, packet_bytes_max: int, now_ms: int) -> None:
        """A sleeping client is active again: send what is unacknowledged."""
        self._packet_bytes_max = packet_bytes_max
        self.send_again(self.retransmission.resume(now_ms), now_ms)

    def keep_aliases(self, aliases: Aliases) -> None:
        """The session continues, with the aliases that it had."""
        self.aliases = aliases

    def use_predefined(self, topic_name: str, topic_alias: int) -> None:
        """The client has used a predefined alias, so it knows it."""
        self._predefined[topic_name] = topic_alias

    def allow(self, topic_name: str) -> None:
        """The client asks for a topic, which it may have refused to register before."""
        self._refused.pop(topic_name, None)

    # -- messages --------------------------------------------------------------------------------------------------

    def put(self, message: core.Publish) -> bool:
        """Add a message; `send_waiting` sends it. False: it was QoS 0 and the queue is full."""
        if message.qos == 0 and not self._queue.fits(message, self._settings.waiting_max):
            self._counters.dropped_waiting_full += 1
            return False
        self._queue.put(message)
        return True

    def send_waiting(self, now_ms: int) -> None:
        """Send the queued messages that may be sent now, in order."""
        if self._has_withheld and self._peer.is_proven:
            self._has_withheld = False
            self.send_again(self.retransmission.resume(now_ms), now_ms)
        queue = self._queue
        while queue and self._registering is None:
            message = queue.first()
            if message.topic_name in self._refused:
                self._counters.dropped_unregistered += 1
                self._drop(queue.take())
                continue
            if message.qos == 0 and not self._burst_allows(now_ms):
                return
            reference = self._reference(message)
            if reference is not None:
                packet = sn.publish(
                    reference, message.payload, message.qos, message.retain, message.dup, message.packet_id
                )
                size = self._size(reference, message)
                if self._too_large(size):
                    self._counters.dropped_too_large += 1
                    self._drop(queue.take())
                    continue
                if self._peer.may_send(size):
                    queue.take()
                    self._publish(message, packet, now_ms)
                    continue
            # Either the client has no name for the topic, or its address must be proven first: its REGACK does both.
            self._registers_for_proof = reference is not None
            if not self._register(message, now_ms):
                self._drop(queue.take())

    def _publish(self, message: core.Publish, packet: SnPacket, now_ms: int) -> None:
        self._peer.send(packet)
        if packet.qos == 0:
            self._burst_left -= 1
            self._burst_bytes_left -= len(packet.payload)
            return
        again = packet
        if packet.qos == 2 or self._peer.profile.rules.dup_at_qos_1:
            again = sn.publish(packet.reference, packet.payload, packet.qos, packet.retain, True, packet.packet_id)
        self._sent[packet.packet_id] = message
        self.retransmission.sent(sn.PUBLISH, packet.packet_id, again, now_ms)

    def pubrel(self, packet_id: int, now_ms: int) -> None:
        """QoS 2: the client has the message; it is to release the packet identifier."""
        packet = sn.acknowledgement(sn.PUBREL, packet_id)
        self._peer.send(packet)
        self.retransmission.sent(sn.PUBREL, packet_id, packet, now_ms)

    def send_again(self, packets: list[SnPacket], now_ms: int) -> None:
        """Send unacknowledged packets again."""
        for packet in packets:
            data = encode(packet, self._peer.profile)
            if len(data) <= PROOF_BYTES_MAX or self._peer.may_send(len(data)):
                self._peer.send_bytes(data)
                continue
            if packet.kind == sn.REGISTER:
                # Its message is still queued, and is registered when the address is proven.
                self.retransmission.acknowledged(sn.REGISTER, packet.packet_id)
                self._registering = None
            self._has_withheld = True
            self.ask_for_proof(now_ms)

    def _burst_allows(self, now_ms: int) -> bool:
        """Whether one more QoS 0 message fits this burst. QoS 0 has no acknowledgements that would limit its rate."""
        if now_ms >= self._burst_ends_ms:
            self._burst_ends_ms = now_ms + self._settings.burst_ms
            self._burst_left = self._settings.burst
            self._burst_bytes_left = BURST_BYTES
        return self._burst_left > 0 and self._burst_bytes_left > 0

    def next_burst_ms(self) -> int:
        """When the next burst of QoS 0 may be sent; 0 if none is queued."""
        if self._queue and self._registering is None and self._queue.first().qos == 0:
            return self._burst_ends_ms
        return 0

    # -- names -----------------------------------------------------------------------------------------------------

    def _reference(self, message: core.Publish) -> sn.TopicReference | None:
        """How to name a message's topic to this client; None: it has to be registered first."""
        topic_name = message.topic_name
        alias = self.aliases.of(topic_name)
        if alias is not None and alias.is_known:
            return sn.session_alias(alias.number)
        predefined = self._predefined.get(topic_name)
        if predefined is not None:
            return sn.predefined_alias(predefined)
        profile = self._peer.profile
        if profile.short_names and len(topic_name.encode()) == 2:
            return sn.short_name(topic_name)
        if profile.full_names:
            reference = sn.full_name(topic_name)
            if not self._too_large(self._size(reference, message)):
                return reference
        return None

    def _size(self, reference: sn.TopicReference, message: core.Publish) -> int:
        """The largest size that a PUBLISH can have, its header included, without encoding it."""
        return HEADER_BYTES + 5 + len(reference.name.encode()) + len(message.payload)

    def _too_large(self, size: int) -> bool:
        size_max = (
            min(self._settings.datagram_bytes_max, PACKET_BYTES_MAX) - FORWARDER_BYTES - len(self._peer.identity[1])
        )
        if self._packet_bytes_max:
            size_max = min(size_max, self._packet_bytes_max)
        return size > size_max

    def _register(self, message: core.Publish, now_ms: int) -> bool:
        """Give the client an alias for a topic, and wait for its REGACK. False: the message cannot be sent at all."""
        alias = self.aliases.offer(message.topic_name)
        if alias is None:
            self._counters.dropped_unregistered += 1
            return False
        register = sn.register(self._random.randint(1, ALIAS_LARGEST), message.topic_name, alias.number)
        data = encode(register, self._peer.profile)
        if self._too_large(len(data)) or self._too_large(self._size(sn.session_alias(alias.number), message)):
            self._counters.dropped_too_large += 1
            return False
        if len(data) > PROOF_BYTES_MAX and not self._peer.may_send(len(data)):
            return self.ask_for_proof(now_ms)
        self._send_register(register, data, now_ms)
        return True

    def ask_for_proof(self, now_ms: int) -> bool:
        """Have an address answer a REGISTER that is small enough to be harmless if the address is forged."""
        if self._registering is not None:
            return True
        alias = self.aliases.offer(PROOF_NAME)
        if alias is None:
            self._counters.dropped_unregistered += 1
            return False
        self._registers_for_proof = True
        register = sn.register(self._random.randint(1, ALIAS_LARGEST), PROOF_NAME, alias.number)
        self._send_register(register, encode(register, self._peer.profile), now_ms)
        return True

    def _send_register(self, register: SnPacket, data: bytes, now_ms: int) -> None:
        self._registering = register
        self._peer.send_bytes(data)
        self.retransmission.sent(sn.REGISTER, register.packet_id, register, now_ms)

    # -- acknowledgements ------------------------------------------------------------------------------------------

    def regack(self, packet: SnPacket) -> bool:
        """The client's answer to REGISTER. False: there was no such REGISTER."""
        register = self._registering
        if register is None or register.packet_id != packet.packet_id:
            self._peer.wrong_proof()
            return False
        self.retransmission.acknowledged(sn.REGISTER, packet.packet_id)
        self._registering = None
        self._peer.prove()
        if packet.reason < UNSPECIFIED:
            alias = self.aliases.of(register.topic_name)
            if alias is not None:
                alias.mark_known()
            return True
        if self._registers_for_proof:
            return True
        self.aliases.forget(register.topic_alias)
        if packet.reason != CONGESTION and len(register.topic_name) <= REFUSED_NAME_LENGTH_MAX:
            # The client gives up this one topic, whichever filter matched it (1.2, section 6.10).
            self._refused[register.topic_name] = None
            if len(self._refused) > REFUSED_NAMES_MAX:
                del self._refused[next(iter(self._refused))]
        elif self._queue:
            self._counters.dropped_unregistered += 1
            self._drop(self._queue.take())
        return True

    def puback(self, packet: SnPacket) -> list[core.Packet] | None:
        """The client's answer to a PUBLISH, as packets for the core. None: there was no such PUBLISH."""
        unknown = packet.reason == UNKNOWN_ALIAS
        if unknown and packet.topic_alias:
            self.aliases.forget(packet.topic_alias)
        message = self._sent.get(packet.packet_id)
        if message is None or self.retransmission.acknowledged(sn.PUBLISH, packet.packet_id) is None:
            return [] if unknown else None
        if unknown and self._register_again(message):
            return []
        self._finish(packet.packet_id)
        if message.qos == 2:
            # 1.2 refuses a QoS 2 message by PUBACK, since its PUBREC has no return code.
            return (
                [core.Acknowledgement(core.PUBREC, packet.packet_id, 1, packet.reason)]
                if packet.reason >= UNSPECIFIED
                else []
            )
        return [core.Acknowledgement(core.PUBACK, packet.packet_id, 1, packet.reason)]

    def pubrec(self, packet: SnPacket) -> list[core.Packet]:
        """QoS 2: the client has the message, or refuses it. The core answers a PUBREC that comes again."""
        was_sent = self.retransmission.acknowledged(sn.PUBLISH, packet.packet_id) is not None
        message = self._sent.get(packet.packet_id)
        if was_sent and message is not None and packet.reason == UNKNOWN_ALIAS and self._register_again(message):
            return []
        self._finish(packet.packet_id)
        return [core.Acknowledgement(core.PUBREC, packet.packet_id, 1, packet.reason)]

    def _register_again(self, message: core.Publish) -> bool:
        """The client does not know the alias of a message: queue it again, to be registered first. Once only."""
        packet_id = message.packet_id
        if packet_id in self._sent_twice:
            return False
        alias = self.aliases.of(message.topic_name)
        if alias is not None:
            self.aliases.forget(alias.number)
        self._predefined.pop(message.topic_name, None)
        del self._sent[packet_id]
        self._sent_twice[packet_id] = None
        self._queue.put_back(message)
        return True

    def _finish(self, packet_id: int) -> None:
        self._sent.pop(packet_id, None)
        self._sent_twice.pop(packet_id, None)

    def pubcomp(self, packet_id: int) -> None:
        """QoS 2: the exchange is over."""
        self.retransmission.acknowledged(sn.PUBREL, packet_id)

    def _drop(self, message: core.Publish) -> None:
        """A message that cannot be sent counts as delivered, or it would block all that follow it."""
        if message.qos == 1:
            self._substitute_acks.append(core.Acknowledgement(core.PUBACK, message.packet_id))
        elif message.qos == 2:
            self._substitute_acks.append(core.Acknowledgement(core.PUBREC, message.packet_id, 1, UNSPECIFIED))

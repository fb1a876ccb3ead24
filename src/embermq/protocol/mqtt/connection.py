"""One MQTT connection without I/O: bytes in, packets out; deliveries and packets in, bytes out.

Owns: everything that belongs to one connection and ends with it: its state, the dialect, the limits of both sides, the
packets that came before it was open, and what waits to be sent. MQTT 5's topic aliases of both directions, its
authentication exchange (AUTH), the client's Maximum Packet Size and the server's DISCONNECT belong here too.
Never: a socket, a clock, a session. A shell (`transport.stream`) moves the bytes, the core decides about messages.

How a shell uses it: `receive_data` takes what was read and returns packets for the core; `failure` says that the
connection must end; `forward`, `deliver`, `acknowledge` and `send` gather output; `data_to_send` or `take` takes it.
"""

from collections.abc import Callable
from typing import Final, final

from embermq.protocol.errors import PeerError, ProtocolError
from embermq.protocol.mqtt import shortcuts
from embermq.protocol.mqtt.decode import CONNECT_BYTES_MAX, Decoder
from embermq.protocol.mqtt.dialect import LEVELS_BEFORE_5, Dialect
from embermq.protocol.mqtt.encode import SHARED_BYTES_MIN, EncodedMessages, Encodings, encode, joined
from embermq.protocol.mqtt.negotiation import TOO_LARGE_ANSWER, Negotiation, refusal
from embermq.protocol.mqtt.settings import DEFAULT_SETTINGS, Mqtt5Settings
from embermq.protocol.mqtt.states import (
    ACCEPTED,
    AUTHENTICATING,
    AWAITING_CONNECT,
    CLOSING,
    CONNACK_SENT,
    CONNECT_RECEIVED,
    CONNECTION_LOST,
    END_DECIDED,
    LAST_SENT,
    OPEN,
    TRANSITIONS,
)
from embermq.protocol.mqtt.writers import (
    ACKNOWLEDGEMENT_BYTES,
    ACKNOWLEDGEMENT_HEADERS,
    acknowledgements,
    publish_start,
)
from embermq.protocol.packets import (
    PUBREL,
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Delivery,
    Disconnect,
    Packet,
    Publish,
)
from embermq.protocol.reasons import ReasonCode

# One empty one for all connections, never changed: few send AUTH, or anything before CONNACK.
_NO_AUTHS: Final[list[Auth]] = []
_NO_PACKETS: Final[list[Packet]] = []


def _epoch() -> int:
    """The instant of a connection of a test that asks for no time."""
    return 0


@final
class Connection:
    """The state machine of one connection.

    `failure`: why the connection must end now; the packets that came before the bad one have been returned.
    `pending_bytes`: output that was gathered, and output that was written but has not left as far as the shell has said
    (`buffered`). `answer_bytes`: the part of it that answers the client's own packets, which is never dropped.
    `out` is what was gathered, `encoded` what the receivers of one message share; `packets_taken` and `took_large`: how
    many packets the last `data_to_send` or `take` took, and whether a part of them is not to be copied.
    `auths`: AUTH packets that came, for the shell to take. `dropped_too_large`: how many messages were larger than the
    client takes. `negotiation` is the part that only MQTT 5 has.
    `now_us` is the instant of the turn. `levels` are the protocol levels that a client may speak.
    `output_waits` is called when output is gathered for the first time since the last `data_to_send`; `make_room` when
    the output is above `output_bytes_max`: the shell sends what the peer takes, and returns whether there is room.
    """

    def __init__(
        self,
        encodings: Encodings,
        packet_bytes_max: int,
        output_bytes_max: int,
        output_waits: Callable[[], None],
        make_room: Callable[[], bool],
        shortcuts: bool = True,
        levels: tuple[int, ...] = LEVELS_BEFORE_5,
        now_us: Callable[[], int] = _epoch,
        settings: Mqtt5Settings = DEFAULT_SETTINGS,
    ) -> None:
        self.state = AWAITING_CONNECT
        self.failure: PeerError | None = None
        self.pending_bytes = 0
        self.answer_bytes = 0
        self.output_bytes_max = output_bytes_max
        self.packets_taken = 0
        self.took_large = False
        self._output_waits = output_waits
        self._make_room = make_room
        self._decoder: Final = Decoder(
            packet_bytes_max,
            first_bytes_max=min(packet_bytes_max, CONNECT_BYTES_MAX),
            shortcuts=shortcuts,
            levels=levels,
            settings=settings,
            now_us=now_us,
            topic_names=encodings.topic_names,
        )
        self.negotiation: Negotiation | None = None
        self.auths = _NO_AUTHS
        self.dropped_too_large = 0
        self._end_at = -1  # MQTT 5: how many parts of the output precede the end that was decided
        self._now_us: Final = now_us
        self._packet_bytes_max: Final = packet_bytes_max
        self._settings: Final = settings
        self._has_shortcuts: Final = shortcuts
        self._encodings: Final = encodings
        self.encoded: EncodedMessages = encodings.of(self._decoder.dialect)
        self._stash = _NO_PACKETS  # what came after CONNECT and before CONNACK was sent
        self.out: list[bytes] = []
        self._more_parts = 0  # parts of the output minus its packets: a packet may be 3 parts, a part many packets
        self._has_large = False  # a part of the output is not to be copied

    @property
    def dialect(self) -> Dialect:
        """The version that the client speaks; 3.1.1 until its CONNECT has come."""
        return self._decoder.dialect

    def _move(self, event: str) -> None:
        self.state = TRANSITIONS[self.state, event]

    # -- in ------------------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> list[Packet]:
        """The packets that are to be handled now.

        First that is a CONNECT alone, to be authenticated; what comes behind it is kept until `opened`. In the state
        OPEN it is every complete packet, for the core. See `failure` afterwards.
        """
        decoder = self._decoder
        packets = decoder.feed(data)
        if self.state != OPEN:
            return self._receive_early(packets)
        self.failure = decoder.error
        if self.negotiation is not None:
            self._check(packets, self.negotiation)
        return packets

    def _check(self, packets: list[Packet], negotiation: Negotiation) -> None:
        """MQTT 5: count the client's messages, and take AUTH packets out."""
        exceeded = negotiation.exceeded(packets)
        if exceeded is not None:
            self.failure = exceeded
        if self._decoder.take_has_auth():
            self.auths = self.auths + [packet for packet in packets if isinstance(packet, Auth)]
            packets[:] = [packet for packet in packets if not isinstance(packet, Auth)]

    def lone_puback(self, data: bytes) -> int:
        """Shortcut for `receive_data`: the packet identifier if a PUBACK is all that has come, else 0.

        Nothing has been taken then: if the core does not take the PUBACK by itself, the bytes are to be received.
        """
        decoder = self._decoder
        if self.state == OPEN and self._has_shortcuts and not decoder.rest_bytes_wanted and decoder.error is None:
            return shortcuts.lone_puback(data)
        return 0

    def _receive_early(self, packets: list[Packet]) -> list[Packet]:
        if self.state != AWAITING_CONNECT:
            negotiation = self.negotiation
            if self.state == AUTHENTICATING and negotiation is not None and negotiation.method is not None:
                self._receive_exchange(packets)
            elif self.state < OPEN:
                self._stash = self._stash + packets
            return []
        if packets:
            first = packets[0]
            if isinstance(first, Connect):
                self._move(CONNECT_RECEIVED)
                self.encoded = self._encodings.of(self._decoder.dialect)
                if self._decoder.dialect.has_properties:
                    self._negotiate(first)
                self._receive_early(packets[1:])
                return [first]
            self.failure = ProtocolError(f"the first packet is {type(first).__name__}, not CONNECT", "MQTT-3.1.0-1")
            return []
        error = self._decoder.error
        if error is not None:
            self.failure = error
            if self._decoder.dialect.has_properties:
                self._answer(refusal(error.reason))
            elif error.reason == ReasonCode.UNSUPPORTED_PROTOCOL_VERSION:
                self.send(Connack(False, error.reason))
        return []

    def _negotiate(self, connect: Connect) -> None:
        negotiation = Negotiation(connect, self._packet_bytes_max, self._settings)
        self.negotiation = negotiation
        if negotiation.is_limited:
            self.encoded = EncodedMessages(
                self._decoder.dialect, False
            )  # what others are sent does not fit this client

    def _receive_exchange(self, packets: list[Packet]) -> None:
        """Between CONNECT and CONNACK a client with an Authentication Method sends AUTH, or gives up (5.0, 4.12)."""
        auths = self.auths = [*self.auths]  # once: a client may send tens of thousands in one read
        for packet in packets:
            if isinstance(packet, Auth):
                auths.append(packet)
                continue
            self.failure = ProtocolError(f"{type(packet).__name__} during authentication", "MQTT-3.1.2-30")
            if isinstance(packet, Disconnect):
                self.failure = PeerError("disconnected before CONNACK", reason=ReasonCode.SUCCESS)
            return
        self.failure = self._decoder.error

    def accepted(self) -> None:
        """The client is who it says: the core may send CONNACK."""
        self._move(ACCEPTED)

    def opened(self) -> list[Packet]:
        """CONNACK has been sent; returns what the client has sent since its CONNECT. See `failure` afterwards."""
        self._move(CONNACK_SENT)
        stash = self._stash
        self._stash = _NO_PACKETS
        self.failure = self._decoder.error
        if self.negotiation is not None:
            self._check(stash, self.negotiation)
        return stash

    def reauthentication_refusal(self) -> PeerError | None:
        """Count a re-authentication that begins; an error if the client has begun too many."""
        return None if self.negotiation is None else self.negotiation.reauthentication_refusal(self._now_us())

    def close(self, reason: int = ReasonCode.SUCCESS) -> bool:
        """The end is decided; a client of MQTT 5 is told the reason. False: it was decided before."""
        if self.state >= CLOSING:
            return False
        if self.negotiation is not None:
            self._answer(self.negotiation.farewell(reason))
            self._end_at = len(self.out)
        self._move(END_DECIDED)
        return True

    def lost(self) -> None:
        """There is no connection any more."""
        self._move(CONNECTION_LOST)
        self.out.clear()
        # Else the shell and this object would keep one another alive.
        self._output_waits = _nothing
        self._make_room = _no_room

    # -- out -----------------------------------------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Whether the output is not above `output_bytes_max`."""
        return self.pending_bytes <= self.output_bytes_max or self._make_room()

    def forward(self, message: Publish) -> bool:
        """Gather a message at QoS 0 without RETAIN. False: too much output waits, and it was dropped."""
        if self.pending_bytes > self.output_bytes_max and not self._make_room():
            return False
        encoded = self.encoded
        if encoded.message is not message and not encoded.keep(message):
            return self._publish(Delivery([message]))
        frame = encoded.forwarded
        out = self.out
        if not out:
            self._output_waits()
        out.append(frame)
        self.pending_bytes += len(frame)
        return True

    def deliver(self, delivery: Delivery) -> int:
        """Gather the messages of a run, as many of the first ones as there is room for; how many those are.

        At QoS 1 and 2 the first one is gathered without asking for room, unless it is larger than the client takes.
        """
        if delivery.columns is None and len(delivery.messages) == 1:
            return 1 if self._deliver_lone(delivery) else 0
        count = len(delivery)
        taken = 0
        while taken < count and self.has_room():
            rest = delivery.part(taken, count) if taken else delivery
            gathered = self._gather_messages(rest)
            if not gathered:
                lone = rest.part(0, 1)
                if lone.columns is not None:
                    lone = Delivery(lone.unpacked(), lone.qos, lone.retain, lone.dup, lone.packet_id)
                if not self._deliver_lone(lone):
                    break
                gathered = 1
            taken += gathered
        return taken

    def _gather_messages(self, delivery: Delivery) -> int:
        """Gather messages of a run as one part of the output; how many of the first ones.

        None if the packets depend on the client's aliases or maximum, or have Subscription Identifiers (MQTT 5). Also
        none if the first has properties, or a long payload, which is not copied.
        """
        negotiation = self.negotiation
        if negotiation is not None and (negotiation.is_limited or delivery.subscription_ids):
            return 0
        bytes_max = self.output_bytes_max - self.pending_bytes
        columns = delivery.columns
        if columns is None:
            count, frames = self.encoded.run(delivery, bytes_max)
        else:
            count, frames = self.encoded.columns(delivery, columns, bytes_max)
        if count:
            self.gather_run(frames, count)
        return count

    def _deliver_lone(self, delivery: Delivery) -> bool:
        """Gather a lone message. False: it was dropped.

        That happens at QoS 0 when too much output waits, and at QoS 1 and 2 when it is larger than the client takes.
        """
        message = delivery.messages[0]
        qos = delivery.qos
        if qos == 0:
            if not delivery.retain and not delivery.subscription_ids:
                return self.forward(message)
            return self.has_room() and self._publish(delivery)
        payload = message.payload
        negotiation = self.negotiation
        if delivery.retain or delivery.dup or len(payload) >= SHARED_BYTES_MIN:
            return self._publish(delivery)
        if negotiation is not None and (message.properties or delivery.subscription_ids or negotiation.is_limited):
            return self._publish(delivery)
        try:
            head = self.encoded.heads[qos][len(payload)][message.topic_name]
        except (IndexError, KeyError):
            head = self.encoded.head(message.topic_name, len(payload), qos)
        packet_id = delivery.packet_id
        # In MQTT 5 a property length of 0 follows the identifier.
        rest = packet_id.to_bytes(2, "big") if negotiation is None else (packet_id << 8).to_bytes(3, "big")
        self._gather_publish(head, rest, payload)
        return True

    def _gather_publish(self, head: bytes, rest: bytes, payload: bytes) -> None:
        """As parts, which are joined once with all other output; not as bytes that are put together for each packet."""
        out = self.out
        if not out:
            self._output_waits()
        if self._end_at >= 0:
            out.append(head + rest + payload)
        else:
            out.append(head)
            out.append(rest)
            out.append(payload)
            self._more_parts += 2
        if len(payload) >= SHARED_BYTES_MIN:
            self._has_large = True
        self.pending_bytes += len(head) + len(rest) + len(payload)

    def _publish(self, delivery: Delivery) -> bool:
        """Gather a lone message by the general path. At QoS 0 one that is too large for the client counts as sent."""
        negotiation = self.negotiation
        if negotiation is None:
            message = delivery.messages[0]
            start, payload = publish_start(delivery, message.topic_name, message.payload, b""), message.payload
        else:
            parts = negotiation.publish_parts(delivery, self._now_us())
            if parts is None:
                self.dropped_too_large += 1
                if not self.out:
                    self._output_waits()  # the shell takes the count with the output
                return delivery.qos == 0
            start, payload = parts
        self._gather_publish(start, b"", payload)
        return True

    def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        """Gather PUBACK, PUBREC, PUBREL or PUBCOMP. Before MQTT 5 they cannot carry the reason."""
        packet_type, packet_id = acknowledgement.packet_type, acknowledgement.packet_id
        reason, count = acknowledgement.reason, acknowledgement.count
        negotiation = self.negotiation
        if negotiation is None:
            if reason >= ReasonCode.UNSPECIFIED_ERROR and packet_type == PUBREL:
                return  # an unknown packet identifier, which can only be said by its reason
        elif reason or negotiation.counts_messages:
            for each_id in range(packet_id, packet_id + count):
                self._answer(negotiation.acknowledgement(packet_type, each_id, reason))
            return
        self.answer_bytes += ACKNOWLEDGEMENT_BYTES * count
        if count > 1 or self._end_at >= 0:
            self.gather_run(acknowledgements(packet_type, packet_id, count), count)
            return
        out = self.out
        if not out:
            self._output_waits()
        out.append(ACKNOWLEDGEMENT_HEADERS[packet_type])
        out.append(packet_id.to_bytes(2, "big"))
        self._more_parts += 1
        self.pending_bytes += ACKNOWLEDGEMENT_BYTES

    def send(self, packet: Packet) -> None:
        """Gather any other packet; nothing if the dialect cannot express it."""
        if self.negotiation is None:
            self._answer(encode(packet, self._decoder.dialect))
            return
        frame = self.negotiation.encoded(packet)
        if not frame:  # the client waits for this answer
            self.failure = TOO_LARGE_ANSWER
            self._decoder.fail(TOO_LARGE_ANSWER)
            self._output_waits()
        self._answer(frame)

    def _answer(self, frame: bytes) -> None:
        if frame:
            self._gather(frame)
            self.answer_bytes += len(frame)

    def _gather(self, part: bytes) -> None:
        if len(part) >= SHARED_BYTES_MIN:
            self._has_large = True
        if not self.out:
            self._output_waits()
        self.out.append(part)
        self.pending_bytes += len(part)

    def gather_run(self, frames: bytes, packets: int) -> None:
        """Gather several packets as one part, unless the end was decided: nothing follows it."""
        if self._end_at < 0:
            self._gather(frames)
            self._more_parts -= packets - 1

    def take(self) -> list[bytes]:
        """Take what was gathered, as parts; `took_large`: one of them is not to be copied."""
        out = self.out
        if self._end_at >= 0:  # nothing follows DISCONNECT (5.0, MQTT-3.14.4-1), also what a commit releases later
            del out[self._end_at :]
        self.packets_taken = len(out) - self._more_parts
        self._more_parts = 0
        self.out = []
        self.took_large, self._has_large = self._has_large, False
        return out

    def data_to_send(self) -> list[bytes]:
        """Take what was gathered, as few writes."""
        parts = self.take()
        if len(parts) < 2:
            return parts
        return joined(parts) if self.took_large else [b"".join(parts)]

    def last_sent(self) -> None:
        """What was gathered before the end was decided has been taken: nothing follows."""
        self._move(LAST_SENT)

    def buffered(self, size: int) -> None:
        """The shell says how many of the bytes that it took have not left yet."""
        self.pending_bytes = size + sum(map(len, self.out))

    def answers_left(self) -> None:
        """The shell says that the peer has taken the answers to its own packets, or is about to."""
        self.answer_bytes = 0

    def bound_output(self, output_bytes_max: int) -> None:
        """From now on, how much output may wait."""
        self.output_bytes_max = output_bytes_max

    def take_dropped(self) -> int:
        """How many messages were too large for the client since the last call."""
        count, self.dropped_too_large = self.dropped_too_large, 0
        return count

    def take_auths(self) -> list[Auth]:
        """The AUTH packets that have come since the last call."""
        auths, self.auths = self.auths, _NO_AUTHS
        return auths


def _nothing() -> None:
    """Replaces `output_waits` when the connection is lost."""


def _no_room() -> bool:
    return False

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
from embermq.protocol.mqtt.dialect import LEVELS_BEFORE_5, MQTT_5, Dialect
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
from embermq.protocol.mqtt.writers import ACKNOWLEDGEMENT_HEADERS, acknowledgements, publish_head
from embermq.protocol.packets import Auth, Connack, Connect, Delivery, Disconnect, Packet, Publish
from embermq.protocol.reasons import ReasonCode

# One empty one for all connections, never changed: few send AUTH, or anything before CONNACK.
_NO_AUTHS: Final[list[Auth]] = []
_NO_PACKETS: Final[list[Packet]] = []


def _epoch() -> int:
    """The instant of a connection that nobody tells the time, in a test."""
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

    __slots__ = (
        "state",
        "failure",
        "pending_bytes",
        "answer_bytes",
        "output_bytes_max",
        "packets_taken",
        "took_large",
        "encoded",
        "out",
        "auths",
        "negotiation",
        "dropped_too_large",
        "_now_us",
        "_packet_bytes_max",
        "_settings",
        "_end_at",
        "_output_waits",
        "_make_room",
        "_decoder",
        "_has_shortcuts",
        "_encodings",
        "_stash",
        "_more_parts",
        "_has_large",
    )

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
            property_bounds=settings.property_bounds,
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
        self._more_parts = 0  # how many more parts the output has than packets; below 0: a part has several
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
        if self._decoder.has_auth:
            self._decoder.has_auth = False
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
                if self._decoder.dialect is MQTT_5:
                    self._negotiate(first)
                self._receive_early(packets[1:])
                return [first]
            self.failure = ProtocolError(f"the first packet is {type(first).__name__}, not CONNECT", "MQTT-3.1.0-1")
            return []
        error = self._decoder.error
        if error is not None:
            self.failure = error
            if self._decoder.dialect is MQTT_5:
                self._answer(refusal(error.reason))
            elif error.reason == ReasonCode.UNSUPPORTED_PROTOCOL_VERSION:
                self.send(Connack(False, error.reason))
        return []

    def _negotiate(self, connect: Connect) -> None:
        negotiation = Negotiation(connect, self._packet_bytes_max, self._settings)
        self.negotiation = negotiation
        if negotiation.is_limited:
            self.encoded = EncodedMessages(MQTT_5, False)  # what others are sent does not fit this client

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
        self._decoder.has_runs = self._has_shortcuts
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
        if encoded.message is message or encoded.keep(message):
            frame = encoded.forwarded
        elif self.negotiation is not None:
            return self._publish(Delivery(message), self.negotiation)
        else:
            frame = encoded.forward(message)
            if len(frame) >= SHARED_BYTES_MIN:
                self._has_large = True
        out = self.out
        if not out:
            self._output_waits()
        out.append(frame)
        self.pending_bytes += len(frame)
        return True

    def deliver(self, delivery: Delivery) -> bool:
        """Gather a message. False: it was dropped.

        That happens at QoS 0 when too much output waits, and at QoS 1 and 2 when it is larger than the client takes.
        """
        if self.negotiation is not None:
            return self._deliver_v5(delivery, self.negotiation)
        message = delivery.message
        qos = delivery.qos
        if qos == 0:
            if not delivery.retain:
                return self.forward(message)
            if not self.has_room():
                return False
            self._gather(self.encoded.whole(message, True))
            return True
        payload = message.payload
        if delivery.retain or delivery.dup:
            frame = publish_head(message.topic_name, len(payload), qos, delivery.retain, delivery.dup)
        else:
            try:
                frame = self.encoded.heads[qos][len(payload)][message.topic_name]
            except (IndexError, KeyError):
                frame = self.encoded.head(message.topic_name, len(payload), qos)
        self._gather_publish(frame, delivery.packet_id.to_bytes(2, "big"), payload)
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

    def _deliver_v5(self, delivery: Delivery, negotiation: Negotiation) -> bool:
        message = delivery.message
        qos = delivery.qos
        if qos == 0:
            if not delivery.retain and not delivery.subscription_ids:
                return self.forward(message)
            return self.has_room() and self._publish(delivery, negotiation)
        payload = message.payload
        is_particular = message.properties or delivery.subscription_ids or delivery.retain or delivery.dup
        if is_particular or negotiation.is_limited or len(payload) >= SHARED_BYTES_MIN:
            return self._publish(delivery, negotiation)
        try:
            frame = self.encoded.heads[qos][len(payload)][message.topic_name]
        except (IndexError, KeyError):
            frame = self.encoded.head(message.topic_name, len(payload), qos)
        # A property length of 0 behind the identifier.
        self._gather_publish(frame, (delivery.packet_id << 8).to_bytes(3, "big"), payload)
        return True

    def _publish(self, delivery: Delivery, negotiation: Negotiation) -> bool:
        """Gather a PUBLISH of MQTT 5 by the general path. At QoS 0 one that is too large counts as sent."""
        parts = negotiation.publish_parts(delivery, self._now_us())
        if parts is None:
            self.dropped_too_large += 1
            if not self.out:
                self._output_waits()  # the shell takes the count with the output
            return delivery.qos == 0
        start, payload = parts
        self._gather_publish(start, b"", payload)
        return True

    def acknowledge(self, packet_type: int, packet_id: int, reason: int) -> None:
        """Gather PUBACK, PUBREC, PUBREL or PUBCOMP. Before MQTT 5 they cannot carry the reason."""
        negotiation = self.negotiation
        if negotiation is not None and (reason or negotiation.counts_messages):
            self._answer(negotiation.acknowledgement(packet_type, packet_id, reason))
            return
        out = self.out
        if not out:
            self._output_waits()
        if self._end_at >= 0:
            out.append(ACKNOWLEDGEMENT_HEADERS[packet_type] + packet_id.to_bytes(2, "big"))
        else:
            out.append(ACKNOWLEDGEMENT_HEADERS[packet_type])
            out.append(packet_id.to_bytes(2, "big"))
            self._more_parts += 1
        self.pending_bytes += 4
        self.answer_bytes += 4

    def acknowledge_all(self, packet_type: int, packet_ids: list[int] | range, reason: int = 0) -> None:
        """Shortcut for `acknowledge` of each: one part of the output, unless they carry the reason."""
        if self.negotiation is None or not (reason or self.negotiation.counts_messages):
            self.gather_run(acknowledgements(packet_type, packet_ids), len(packet_ids))
            self.answer_bytes += 4 * len(packet_ids)
            return
        for packet_id in packet_ids:
            self.acknowledge(packet_type, packet_id, reason)

    def send(self, packet: Packet) -> None:
        """Gather any other packet; nothing if the dialect cannot express it."""
        if self.negotiation is None:
            self._answer(encode(packet, self._decoder.dialect))
            return
        frame = self.negotiation.encoded(packet)
        if not frame:  # without this answer the client cannot go on
            self._decoder.error = self.failure = TOO_LARGE_ANSWER
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


def _nothing() -> None:
    """Replaces `output_waits` when the connection is lost."""


def _no_room() -> bool:
    return False

"""One MQTT connection without I/O: bytes in, packets out; deliveries and packets in, bytes out.

Owns: everything that belongs to one connection and ends with it: its state, the dialect, the limits of both sides, the
packets that came before it was open, and what waits to be sent. MQTT 5's topic aliases of both directions, its
authentication exchange (AUTH), the client's Maximum Packet Size and the server's DISCONNECT belong here too.
Never: a socket, a clock, a session. A shell (`transport.stream`) moves the bytes, the core decides about messages.

How a shell uses it: `receive_data` takes what was read and returns packets for the core; `failure` says that the
connection must end; `forward`, `deliver`, `acknowledge` and `send` gather output; `data_to_send` takes it.
"""

from collections.abc import Callable
from typing import Final, final

from embermq.protocol.errors import PeerError, ProtocolError
from embermq.protocol.mqtt import shortcuts
from embermq.protocol.mqtt.decode import CONNECT_BYTES_MAX, Decoder
from embermq.protocol.mqtt.dialect import Dialect
from embermq.protocol.mqtt.encode import SHARED_BYTES_MIN, EncodedMessages, Encodings, encode, joined
from embermq.protocol.mqtt.writers import ACKNOWLEDGEMENT_HEADERS, publish_head
from embermq.protocol.packets import Connack, Connect, Delivery, Packet, Publish
from embermq.protocol.reasons import ReasonCode

# -- the states, and what leads from one to another ----------------------------------------------------------------

AWAITING_CONNECT: Final = 0
"""Nothing has come but, perhaps, the beginning of a CONNECT."""
AUTHENTICATING: Final = 1
"""CONNECT has come, and its sender is being checked. MQTT 5's AUTH packets are exchanged here."""
OPENING: Final = 2
"""The client is who it says; the core has not sent CONNACK yet."""
OPEN: Final = 3
"""CONNACK has been sent: packets go to the core as they come."""
CLOSING: Final = 4
"""The end is decided: nothing is read any more, and what was gathered is sent before the end."""
CLOSED: Final = 5
"""Nothing is read and nothing is sent."""

CONNECT_RECEIVED: Final = "CONNECT received"
ACCEPTED: Final = "accepted"
CONNACK_SENT: Final = "CONNACK sent"
END_DECIDED: Final = "end decided"
LAST_SENT: Final = "last output sent"
CONNECTION_LOST: Final = "connection lost"

TRANSITIONS: Final[dict[tuple[int, str], int]] = {
    (AWAITING_CONNECT, CONNECT_RECEIVED): AUTHENTICATING,
    (AUTHENTICATING, ACCEPTED): OPENING,
    (OPENING, CONNACK_SENT): OPEN,
    (AWAITING_CONNECT, END_DECIDED): CLOSING,  # no CONNECT in time, another packet than CONNECT, bad bytes
    (AUTHENTICATING, END_DECIDED): CLOSING,  # refused, with CONNACK; or not answered in time
    (OPENING, END_DECIDED): CLOSING,
    (OPEN, END_DECIDED): CLOSING,
    (CLOSING, LAST_SENT): CLOSED,
    (AWAITING_CONNECT, CONNECTION_LOST): CLOSED,
    (AUTHENTICATING, CONNECTION_LOST): CLOSED,
    (OPENING, CONNECTION_LOST): CLOSED,
    (OPEN, CONNECTION_LOST): CLOSED,
    (CLOSING, CONNECTION_LOST): CLOSED,
    (CLOSED, CONNECTION_LOST): CLOSED,
}
"""What is not listed cannot happen: a KeyError is a bug of ours."""


@final
class Connection:
    """The state machine of one connection.

    `failure`: why the connection must end now; the packets that came before the bad one have been returned.
    `pending_bytes`: output that was gathered, and output that was written but has not left as far as the shell has said
    (`buffered`). `answer_bytes`: the part of it that answers the client's own packets, which is never dropped.
    `out` is what was gathered, `encoded` what the receivers of one message share; `packets_taken`: how many packets the
    last `data_to_send` took.
    `output_waits` is called when output is gathered for the first time since the last `data_to_send`; `make_room` when
    more output waits than may: the shell sends what the peer takes, and returns whether there is room.
    """

    __slots__ = (
        "state",
        "failure",
        "pending_bytes",
        "answer_bytes",
        "output_bytes_max",
        "packets_taken",
        "encoded",
        "out",
        "_output_waits",
        "_make_room",
        "_decoder",
        "_has_shortcuts",
        "_encodings",
        "_stash",
        "_payload_parts",
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
    ) -> None:
        self.state = AWAITING_CONNECT
        self.failure: PeerError | None = None
        self.pending_bytes = 0
        self.answer_bytes = 0
        self.output_bytes_max: Final = output_bytes_max
        self.packets_taken = 0
        self._output_waits = output_waits
        self._make_room = make_room
        self._decoder: Final = Decoder(
            packet_bytes_max, first_bytes_max=min(packet_bytes_max, CONNECT_BYTES_MAX), shortcuts=shortcuts
        )
        self._has_shortcuts: Final = shortcuts
        self._encodings: Final = encodings
        self.encoded: EncodedMessages = encodings.of(self._decoder.dialect)
        self._stash: list[Packet] = []  # what came after CONNECT and before CONNACK was sent
        self.out: list[bytes] = []
        self._payload_parts = 0  # parts of the output that are the payload of the part before
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
        return packets

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
            if self.state < OPEN:
                self._stash += packets
            return []
        if packets:
            first = packets[0]
            if isinstance(first, Connect):
                self._move(CONNECT_RECEIVED)
                self.encoded = self._encodings.of(self._decoder.dialect)
                self._stash = packets[1:]
                return [first]
            name = type(first).__name__
            self.failure = ProtocolError(f"the first packet is {name}, not CONNECT", "MQTT-3.1.0-1")
            return []
        error = self._decoder.error
        if error is not None:
            self.failure = error
            if error.reason == ReasonCode.UNSUPPORTED_PROTOCOL_VERSION:
                self.send(Connack(False, error.reason))
        return []

    def accepted(self) -> None:
        """The client is who it says: the core may send CONNACK."""
        self._move(ACCEPTED)

    def opened(self) -> list[Packet]:
        """CONNACK has been sent; returns what the client has sent since its CONNECT. See `failure` afterwards."""
        self._move(CONNACK_SENT)
        stash = self._stash
        self._stash = []
        self.failure = self._decoder.error
        return stash

    def close(self) -> bool:
        """The end is decided. False: it was decided before."""
        if self.state >= CLOSING:
            return False
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
        """Whether no more output waits than may."""
        return self.pending_bytes <= self.output_bytes_max or self._make_room()

    def forward(self, message: Publish) -> bool:
        """Gather a message at QoS 0 without RETAIN. False: too much output waits, and it was dropped."""
        if self.pending_bytes > self.output_bytes_max and not self._make_room():
            return False
        encoded = self.encoded
        if encoded.message is message or encoded.keep(message):
            frame = encoded.forwarded
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
        """Gather a message. False: it was QoS 0, too much output waits, and it was dropped."""
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
        frame += delivery.packet_id.to_bytes(2, "big")
        if len(payload) >= SHARED_BYTES_MIN:
            self._gather(frame)
            self._gather(payload)
            self._payload_parts += 1
            return True
        frame += payload
        out = self.out
        if not out:
            self._output_waits()
        out.append(frame)
        self.pending_bytes += len(frame)
        return True

    def acknowledge(self, packet_type: int, packet_id: int, reason: int) -> None:
        """Gather PUBACK, PUBREC, PUBREL or PUBCOMP. Before MQTT 5 they cannot carry the reason."""
        out = self.out
        if not out:
            self._output_waits()
        out.append(ACKNOWLEDGEMENT_HEADERS[packet_type] + packet_id.to_bytes(2, "big"))
        self.pending_bytes += 4
        self.answer_bytes += 4

    def send(self, packet: Packet) -> None:
        """Gather any other packet; nothing if the dialect cannot express it."""
        frame = encode(packet, self._decoder.dialect)
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

    def data_to_send(self) -> list[bytes]:
        """Take what was gathered, as few writes."""
        out = self.out
        self.packets_taken = len(out)
        if not out:
            return []
        self.out = []
        if not self._has_large:
            return [b"".join(out)]
        self.packets_taken -= self._payload_parts
        self._has_large = False
        self._payload_parts = 0
        return joined(out)

    def last_sent(self) -> None:
        """What was gathered before the end was decided has been taken: nothing follows."""
        self._move(LAST_SENT)

    def buffered(self, size: int) -> None:
        """The shell says how many of the bytes that it took have not left yet."""
        self.pending_bytes = size + sum(map(len, self.out))


def _nothing() -> None:
    """Output of a connection that is lost waits for nothing."""


def _no_room() -> bool:
    return False

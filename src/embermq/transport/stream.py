"""One client on a byte stream: TCP, TLS, unix socket or WebSocket.

Owns: the socket's two directions: bytes in to packets, packets to bytes that leave once a turn; backpressure.
Never: a decision about a message. The core makes those; this only tells it what came and what was lost.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol, final

from embermq.broker.access import Identity
from embermq.broker.link import Link
from embermq.protocol.errors import PeerError, ProtocolError, Refused
from embermq.protocol.mqtt import encode
from embermq.protocol.mqtt.decode import CONNECT_BYTES_MAX, Decoder
from embermq.protocol.packets import Connack, Connect, Delivery, Packet, Publish
from embermq.protocol.reasons import ReasonCode
from embermq.transport.frames import SHARED_BYTES_MIN, joined
from embermq.transport.tls import common_name

if TYPE_CHECKING:
    from embermq.transport.server import Server

logger: Final = logging.getLogger("embermq")

CLOSE_GRACE_S: Final = 5.0
"""How long a connection that the server ends may take to read what was sent before."""
WRITE_HIGH_WATER_BYTES: Final = 64 * 1024
PENDING_BYTES_ASKED: Final = 16 * 1024
"""From here on the transport is asked how much of what was written has left."""
NAME_MAX: Final = 100
"""So many characters of a client id are logged; it may have 65,535."""
QUIET: Final = frozenset({ReasonCode.SUCCESS, ReasonCode.SERVER_SHUTTING_DOWN})

# Why a client is not read from. Each reason ends by itself, and reading goes on when none is left.
OPENING: Final = 1
"""Its CONNECT is not answered yet."""
DISK: Final = 2
"""Too much waits for the disk: of all clients, or of answers to this one."""
UNREAD: Final = 4
"""It leaves the answers to what it sent unread."""
TURN: Final = 8
"""It has brought much in this turn, and others are to have theirs."""
READ_MUCH_BYTES: Final = 128 * 1024
"""After a read of so many bytes the turn comes first: libuv would go on reading from a client that fills its buffer."""
WAITING_MAX: Final = 10_000
"""How many answers to one client may wait for the disk: a group's size counts records, and not every answer has one."""

PROTOCOL_NAMES: Final = {3: "MQTT 3.1", 4: "MQTT 3.1.1"}


class ByteTransport(Protocol):
    """What a connection needs of an asyncio transport; the WebSocket listener has one of its own."""

    def write(self, data: bytes) -> None: ...
    def get_write_buffer_size(self) -> int: ...
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def get_extra_info(self, name: str, default: object = None) -> object: ...


@final
class StreamConnection(asyncio.Protocol, Link):
    """A connection from its first byte to its last.

    It goes from waiting for CONNECT, over authenticating and waiting for CONNACK to leave, to open; then it is closed.
    Packets that come before it is open are kept (reading is paused, so they are few) and handed over when it is.
    """

    __slots__ = (
        "_server",
        "_counters",
        "_frames",
        "_decoder",
        "_transport",
        "_out",
        "_shared",
        "_large",
        "_pending_bytes",
        "_output_bytes_max",
        "_asking_bytes",
        "_answer_bytes",
        "_starved",
        "_connecting",
        "_open",
        "_closed",
        "_stash",
        "_timeout",
        "_paused",
        "_name",
    )

    def __init__(self, server: "Server") -> None:
        Link.__init__(self)
        self._server: Final = server
        self._counters: Final = server.core.counters
        self._frames: Final = server.frames
        self._decoder: Final = Decoder(server.limits.packet_bytes_max, first_bytes_max=CONNECT_BYTES_MAX)
        self._transport: ByteTransport | None = None
        self._out: list[bytes] = []
        self._shared = 0  # messages in it whose payload is a part of its own
        self._large = False  # something in it is not to be copied
        # Written but not taken by the kernel, and gathered in this turn. While they are few, the kernel may have taken
        # some of them: asking the transport after every write would be felt.
        self._pending_bytes = 0
        self._output_bytes_max: Final = server.limits.output_bytes_max
        self._asking_bytes: Final = min(PENDING_BYTES_ASKED, self._output_bytes_max)
        self._answer_bytes = 0  # of `_pending_bytes`, what answers the client's own packets; nothing drops those
        self._starved = False  # something was held back or dropped for want of room
        self._connecting = False  # CONNECT has come
        self._open = False
        self._closed = False
        self._stash: list[Packet] = []
        self._timeout: asyncio.TimerHandle | None = None
        self._paused = 0  # the reasons not to read
        self._name = "a client"

    # -- from the transport --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.attach(transport)  # type: ignore[arg-type]  # asyncio types the argument by its base class

    def attach(self, transport: ByteTransport) -> None:
        """The connection begins."""
        self._transport = transport
        if not self._server.admit(self):
            self._closed = True
            transport.abort()
            return
        transport.set_write_buffer_limits(high=min(WRITE_HIGH_WATER_BYTES, self._output_bytes_max))
        self._timeout = self._server.loop.call_later(self._server.limits.connect_timeout_s, self._connect_timed_out)

    def data_received(self, data: bytes) -> None:
        if self._closed:
            return
        server = self._server
        decoder = self._decoder
        size = len(data)
        try:
            if size == 4 and self._open:
                packet_id = decoder.puback_alone(data)
                if packet_id and server.core.acknowledged(self, packet_id, server.now_ms()):
                    self._counters.bytes_received += 4
                    return
            now_ms = server.begin_turn()
            self._counters.bytes_received += size
            packets = decoder.feed(data)
            if packets:
                if self._open:
                    server.core.receive(self, packets, now_ms)
                else:
                    self._before_open(packets)
            if decoder.error is not None and not self._stash and (self._open or not self._connecting):
                self._fail(decoder.error)
            elif self.waiting > WAITING_MAX or server.store.group_bytes() > server.group_bytes_max:
                server.pause(self)
            if size >= READ_MUCH_BYTES:
                server.rest(self)
        except Exception as error:  # our own bug: this connection ends, the others go on
            server.bug(error)
            if self.session is not None:
                server.core.lost(self, "internal error", server.now_ms())
            self.close(ReasonCode.UNSPECIFIED_ERROR, "internal error")

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
        self._server.forget(self)
        # What a commit still releases for this client has nowhere to go: a transport that is gone raises on a write.
        self._transport = None
        if not self._closed:
            self._closed = True
            if self.session is not None:
                now_ms = self._server.begin_turn()
                self._server.core.lost(self, str(exc) if exc else "connection closed", now_ms)
        self._out.clear()

    def resume_writing(self) -> None:
        transport = self._transport
        if transport is not None and not self._closed:
            self._pending_bytes = transport.get_write_buffer_size() + sum(map(len, self._out))
            self._weigh_answers()
            if self._starved:
                self._starved = False
                self._server.begin_turn()
                self._server.core.writable(self)

    def _weigh_answers(self) -> None:
        """Something was written or read: a client that leaves its answers unread gets no more of them."""
        if self._pending_bytes <= self._output_bytes_max:
            self._answer_bytes = 0
            if self._paused & UNREAD:
                self.resume_reading(UNREAD)
        elif self._answer_bytes > self._output_bytes_max:
            self.pause_reading(UNREAD)

    # -- before CONNACK ------------------------------------------------------------------------------------------

    def _connect_timed_out(self) -> None:
        if self._closed or self._open:
            return
        detail = "CONNECT could not be answered in time" if self._connecting else "no CONNECT in time"
        now_ms = self._server.begin_turn()
        if self.session is not None:
            self._server.core.lost(self, detail, now_ms)
        self.close(ReasonCode.KEEP_ALIVE_TIMEOUT, detail)

    def _before_open(self, packets: list[Packet]) -> None:
        if self._connecting:
            self._stash.extend(packets)
            return
        first = packets[0]
        if not isinstance(first, Connect):
            self._fail(ProtocolError(f"the first packet is {type(first).__name__}, not CONNECT", "MQTT-3.1.0-1"))
            return
        self._connecting = True
        self._stash = packets[1:]
        self.pause_reading(OPENING)
        assert self._transport is not None
        self._server.authenticator.authenticate(
            first,
            common_name(self._transport.get_extra_info("peercert")),
            lambda identity: self.authenticated(first, identity),
            self.refused,
            lambda: self.close(ReasonCode.SERVER_UNAVAILABLE, "authentication failed"),
            is_slow=self._server.access.slow,
        )

    def authenticated(self, connect: Connect, identity: Identity) -> None:
        """The client is who it says: on to the core."""
        if not self._closed:
            protocol = PROTOCOL_NAMES.get(connect.protocol_level, "MQTT")
            client_id = connect.client_id
            shown = client_id if len(client_id) <= NAME_MAX else client_id[:NAME_MAX] + "..."
            self._name = repr(shown)
            self._server.core.connect(self, connect, identity, protocol, self.address())

    def refused(self, refusal: Refused) -> None:
        """The client is not who it says, or may not be here."""
        if not self._closed:
            self._counters.connections_refused += 1
            self.send(Connack(False, refusal.reason))
            self.close(refusal.reason, refusal.detail)

    def address(self) -> str:
        """Where the client is, for the log and the history."""
        peer = self._transport.get_extra_info("peername") if self._transport is not None else None
        if isinstance(peer, tuple) and len(peer) >= 2:
            return f"{peer[0]}:{peer[1]}"
        return str(peer) if peer else "unix"

    def _fail(self, error: PeerError) -> None:
        if error.reason == ReasonCode.UNSUPPORTED_PROTOCOL_VERSION and not self._connecting:
            self.send(Connack(False, error.reason))
        self._server.core.failed(self, error)

    # -- Link: from the core ---------------------------------------------------------------------------------------

    def forward(self, message: Publish) -> bool:
        if self._pending_bytes > self._output_bytes_max and not self._relieved():
            self._starved = True
            return False
        frame = message.frame  # never large
        if not frame or message.qos:
            frame = self._frames.qos0(message, False)
            if len(frame) >= SHARED_BYTES_MIN:
                self._large = True
        out = self._out
        if not out:
            self._server.touched.append(self)
        out.append(frame)
        self._pending_bytes += len(frame)
        return True

    def deliver(self, delivery: Delivery) -> bool:
        message = delivery.message
        qos = delivery.qos
        retain = delivery.retain
        if qos == 0:
            if not retain:
                return self.forward(message)
            if self._pending_bytes > self._output_bytes_max and not self._relieved():
                self._starved = True
                return False
            frame = self._frames.qos0(message, retain)
            if len(frame) >= SHARED_BYTES_MIN:
                self._large = True
        else:
            frame = message.frame
            dup = delivery.dup
            payload = message.payload
            if retain or dup:
                frame = encode.publish_head(message.topic_name, len(payload), qos, retain, dup)
            elif not frame or qos != message.qos:
                frame = self._frames.head(message, qos)
            frame += delivery.packet_id.to_bytes(2, "big")
            if len(payload) < SHARED_BYTES_MIN:
                frame += payload
            else:
                self._gather(frame)
                self._shared += 1
                self._large = True
                frame = payload
        out = self._out
        if not out:
            self._server.touched.append(self)
        out.append(frame)
        self._pending_bytes += len(frame)
        return True

    def _gather(self, frame: bytes) -> None:
        if not self._out:
            self._server.touched.append(self)
        self._out.append(frame)
        self._pending_bytes += len(frame)

    def acknowledge(self, packet_type: int, packet_id: int, reason: int) -> None:
        out = self._out
        if not out:
            self._server.touched.append(self)
        out.append(encode.acknowledgement(packet_type, packet_id))
        self._pending_bytes += 4
        self._answer_bytes += 4

    def send(self, packet: Packet) -> None:
        frame = encode.encode(packet, self._decoder.protocol_level or 4)
        if frame:
            self._gather(frame)
            self._answer_bytes += len(frame)

    def has_room(self) -> bool:
        if self._pending_bytes <= self._output_bytes_max or self._relieved():
            return True
        self._starved = True
        return False

    def _relieved(self) -> bool:
        """More was gathered in one turn than may wait: let the kernel take what it can before anything is dropped."""
        if self._out and self._transport is not None:
            self._send_gathered(self._transport)
        return self._pending_bytes <= self._output_bytes_max

    def opened(self) -> None:
        self._open = True
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None
        logger.debug("%s connected from %s", self._name, self.address())
        stash = self._stash
        self._stash = []
        if stash:
            self._server.core.receive(self, stash, self._server.now_ms())
        if self._decoder.error is not None and not self._closed:
            self._fail(self._decoder.error)
        self.resume_reading(OPENING)

    def close(self, reason: ReasonCode, detail: str) -> None:
        if self._closed:
            return
        self._closed = True
        level = logging.DEBUG if reason in QUIET else logging.WARNING
        logger.log(level, "%s (%s) disconnected: %s", self._name, self.address(), detail)
        if not self._out:
            self._server.touched.append(self)

    # -- once a turn -----------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send all that this turn gathered in one write, and end the connection if that was decided."""
        transport = self._transport
        if transport is None:
            self._out.clear()
            return
        if self._out:
            self._send_gathered(transport)
        if self._closed:
            self._pending_bytes = transport.get_write_buffer_size()
            if self._pending_bytes > self._output_bytes_max:
                transport.abort()
            else:
                transport.close()
                if self._pending_bytes:
                    self._server.loop.call_later(CLOSE_GRACE_S, transport.abort)
            return
        if self._answer_bytes:
            if self._pending_bytes > self._output_bytes_max or self._paused:
                self._weigh_answers()
            else:
                self._answer_bytes = 0
        if self._starved and self._pending_bytes <= self._output_bytes_max:
            self._starved = False
            self._server.begin_turn()
            self._server.core.writable(self)

    def _send_gathered(self, transport: ByteTransport) -> None:
        out = self._out
        self._out = []
        counters = self._counters
        counters.messages_sent += len(out)
        if self._large:
            counters.messages_sent -= self._shared
            self._large = False
            self._shared = 0
            for data in joined(out):
                counters.bytes_sent += len(data)
                transport.write(data)
        else:
            data = b"".join(out)
            counters.bytes_sent += len(data)
            transport.write(data)
        if self._pending_bytes > self._asking_bytes:
            self._pending_bytes = transport.get_write_buffer_size()

    def abort(self) -> None:
        """End at once, whatever has not been read by the client."""
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self, reason: int) -> None:
        """Stop taking bytes; what has arrived waits in the kernel."""
        if not self._paused and self._transport is not None:
            self._transport.pause_reading()
        self._paused |= reason

    def resume_reading(self, reason: int) -> None:
        """A reason is gone: take bytes again, if it was the last."""
        if self._paused == reason and not self._closed and self._transport is not None:
            self._transport.resume_reading()
        self._paused &= ~reason

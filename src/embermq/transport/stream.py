"""One client on a byte stream: TCP, TLS, unix socket or WebSocket.

Owns: the socket: reading and pausing, writing once a turn, the end. A shell around `protocol.mqtt.connection`.
Never: a packet's meaning, or a decision about a message. The core makes those; this only tells it what came.
"""

import time
from typing import Final, final

from embermq.broker.access import Identity
from embermq.protocol.errors import PeerError, Refused
from embermq.protocol.mqtt.shortcuts import LONE_PUBACK_BYTES
from embermq.protocol.mqtt.states import AUTHENTICATING, CLOSING, OPEN
from embermq.protocol.packets import Acknowledgement, Connack, Connect, Delivery, Packet
from embermq.protocol.reasons import ReasonCode
from embermq.transport.authentication import Authenticator
from embermq.transport.client_rates import METERED_SHARE_BYTES, ClientRates
from embermq.transport.enhanced_authentication import EnhancedAuthentication
from embermq.transport.listener import Listener
from embermq.transport.server import Server
from embermq.transport.sockets.addresses import shown_peer
from embermq.transport.sockets.interface import ByteReceiver, ByteTransport
from embermq.transport.sockets.stream_socket import StreamSocket
from embermq.transport.stream_link import (
    FULL,
    OPENING,
    RATE,
    TURN,
    UNREAD,
    WAITING_MAX,
    StreamLink,
    pause_names,
)
from embermq.transport.tls import common_name
from embermq.transport.turn_time import LIGHT_S, SHARE_BYTES, SHARE_BYTES_MIN, SHARE_TIMED_BYTES, adapted_share

CLOSE_GRACE_S: Final = 5.0
"""How long a connection that the server ends may take to read what was sent before."""
WRITE_HIGH_WATER_BYTES: Final = 64 * 1024
PENDING_BYTES_ASKED: Final = 16 * 1024
"""From here on the transport is asked how much of what was written has left; asking after every write costs time."""
_give_way: Final = time.sleep
"""With 0: let the store's thread have the interpreter if it waits for it. Compiled code does not do so by itself, and a
commit needs it several times, each of which would wait for the end of a long turn."""


@final
class StreamConnection(StreamLink, ByteReceiver):
    """A connection from its first byte to its last: its socket, its protocol (`Connection`), and the core's link."""

    def __init__(self, server: Server, listener: Listener) -> None:
        StreamLink.__init__(self)
        self._server: Final = server
        self._listener: Final = listener
        self._mount: Final = listener.mount
        self._counters: Final = server.core.counters
        limits = listener.limits
        self._connection: Final = server.new_protocol(listener, self._output_waits, self._make_room)
        self._transport: ByteTransport | None = None
        self._output_bytes_max = limits.output_bytes_max  # less while it is throttled
        self._asking_bytes: Final = min(PENDING_BYTES_ASKED, self._output_bytes_max)
        self._is_slow_reader = False  # the core was told that there is no room
        self._paused = 0  # the reasons not to read
        self._turn_time: Final = server.turn_time
        self._share_bytes = SHARE_BYTES
        self._took_s = 0.0  # CPU time of its last read that was timed
        self._rates: Final = ClientRates(limits, server) if limits.has_client_rates() else None
        self._unread = b""  # has come, and is processed in the next turns
        self._client_id = self._address = ""  # for log lines, and the latter for the record of its connection
        self._end_detail = ""  # why the transport is gone
        self._enhanced: EnhancedAuthentication | None = None  # of a client that sends AUTH

    # -- from the transport --------------------------------------------------------------------------------------

    def connection_made(self, transport: ByteTransport) -> None:
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self._address = shown_peer(peer)
        self.address_key = self._server.addresses.key(peer)
        if not self._server.admit(self, transport, self._listener):
            self._connection.lost()
            transport.abort()
            return
        if self._output_bytes_max < WRITE_HIGH_WATER_BYTES:
            transport.set_write_buffer_limits(high=self._output_bytes_max)
        self._server.unopened.add(self)

    def data_received(self, data: bytes) -> None:
        if len(data) < self._turn_time.timed_bytes:
            self._receive(data)
        else:
            self._receive_share(data)

    def proceed(self) -> None:
        if self._paused & ~TURN and self._unread:
            self._server.rest(self)  # there is another reason not to read from it
            return
        unread, self._unread = self._unread, b""
        if unread:
            self._receive_share(unread)
        if not self._unread:
            self.resume_reading(TURN)
            if self._transport is None:
                self._lost()

    def cut_share(self) -> None:
        # A fourth: the share has just been doubled if processing the packets themselves was quick.
        self._share_bytes = max(SHARE_BYTES_MIN, self._share_bytes // 4)

    def _receive_share(self, data: bytes) -> None:
        """Process as much as takes a fair time; the rest waits for the next turn, behind what others have sent."""
        turn_time, server = self._turn_time, self._server
        if turn_time.must_wait(self._took_s, len(data)) and self._connection.state < CLOSING:
            self._unread = data
            server.begin_turn()
            server.rest(self)
            return
        is_behind = server.core.is_behind() and server.overfull()  # not while the disk fails
        if is_behind and len(data) >= SHARE_TIMED_BYTES and self._connection.state < CLOSING:
            self._unread = data  # else each of many clients would add its share to what waits
            server.begin_turn()
            server.pause(self)
            server.rest(self)
            return
        share_bytes = self._share_bytes
        rates = self._rates if self._transport is not None else None  # the last that a client sent is not metered
        if rates is not None:
            share_bytes = min(share_bytes, METERED_SHARE_BYTES)
        is_whole = len(data) >= share_bytes
        publishes = self._counters.publish_received
        before_s = time.thread_time()
        self._receive(data[:share_bytes] if is_whole else data)
        took_s = self._took_s = time.thread_time() - before_s
        turn_time.spent(took_s)
        if took_s > LIGHT_S:
            _give_way(0)
        is_behind = server.core.is_behind() and (took_s > LIGHT_S or is_whole)
        self._share_bytes = adapted_share(share_bytes, took_s, is_whole, is_behind)
        if rates is not None:
            rates.charge(self, self._counters.publish_received - publishes, min(len(data), share_bytes))
        if is_behind:
            server.pause(self)
        if is_whole and self._connection.state < CLOSING:
            self._unread = data[share_bytes:]
            server.rest(self)

    def _receive(self, data: bytes) -> None:
        connection = self._connection
        if connection.state >= CLOSING:
            return
        server, size = self._server, len(data)
        try:
            if size == LONE_PUBACK_BYTES:
                packet_id = connection.lone_puback(data)
                if packet_id and server.core.acknowledged(self, packet_id, server.now_ms()):
                    self._counters.bytes_received += size
                    return
            now_ms = server.begin_turn()
            self._counters.bytes_received += size
            packets = connection.receive_data(data)
            if packets:
                if connection.state == OPEN:
                    server.core.receive(self, packets if self._mount is None else self._mounted(packets), now_ms)
                else:
                    self._authenticate(packets[0])
            if connection.auths:
                self._enhanced_authentication().take_auths()
            if connection.failure is not None:
                self.fail(connection.failure)
            elif self.waiting > WAITING_MAX or server.store.group_bytes() > server.group_bytes_max:
                server.pause(self)
        except Exception as error:  # our own bug: only this connection ends
            server.bug(error)
            if self.session is not None:
                server.core.lost(self, "internal error", server.now_ms())
            self.close(ReasonCode.UNSPECIFIED_ERROR, "internal error")

    def _mounted(self, packets: list[Packet]) -> list[Packet]:
        """With whole topics, if the listener has a mount point; none if that is an error."""
        if self._mount is None:
            return packets
        try:
            return self._mount.received(packets)
        except Refused as refusal:
            self.fail(refusal)
            return []

    def connection_lost(self, exc: Exception | None) -> None:
        # What a commit still releases for this client has nowhere to go: a transport that is gone raises on a write.
        self._transport = None
        self._end_detail = str(exc) if exc else "connection closed"
        self._paused &= ~(UNREAD | RATE)  # nothing would end these
        if not self._unread or self._connection.state >= CLOSING or self._paused & OPENING:
            self._lost()
        else:  # what has come before is processed first, in shares as before
            self._server.begin_turn()

    def _lost(self) -> None:
        if self._unread:
            self._receive(self._unread)
            self._unread = b""
        self._server.unopened.remove(self)
        self._server.forget(self, self._listener)
        self._enhanced = None
        if self._connection.state < CLOSING and self.session is not None:
            now_ms = self._server.begin_turn()
            self._server.core.lost(self, self._end_detail, now_ms)
        self._connection.lost()

    def resume_writing(self) -> None:
        if self._transport is not None and self._connection.state < CLOSING:
            self._connection.buffered(self._transport.get_write_buffer_size())
            self._weigh_output()

    # -- before CONNACK ------------------------------------------------------------------------------------------

    def connect_timed_out(self) -> None:
        state = self._connection.state
        if state >= OPEN:
            return
        detail = "CONNECT could not be answered in time" if state >= AUTHENTICATING else "no CONNECT in time"
        now_ms = self._server.begin_turn()
        if self.session is not None:
            self._server.core.lost(self, detail, now_ms)
        self.close(ReasonCode.KEEP_ALIVE_TIMEOUT, detail)

    def _authenticate(self, connect: Packet) -> None:
        assert isinstance(connect, Connect) and self._transport is not None
        self._client_id = connect.client_id
        if self._mount is not None:
            try:
                connect = self._mount.connect(connect)
            except Refused as refusal:
                self.refused(refusal)
                return
        certificate = self._transport.get_extra_info("peercert")
        certificate_name = None if certificate is None else common_name(certificate)
        if connect.authentication_method is not None:
            self.pause_reading(OPENING)
            self._enhanced_authentication().begin(connect, connect.authentication_method, certificate_name)
            return
        try:
            identity = self._authenticator().identity_now(connect, certificate_name)
        except Refused as refusal:
            self.refused(refusal)
            return
        if identity is not None:
            self.accepted(connect, identity)
        else:
            self._authenticate_later(connect, certificate_name)
        if self._connection.state < OPEN:  # it waits for a thread or for a commit
            self.pause_reading(OPENING)

    def _authenticate_later(self, connect: Connect, certificate_name: str | None) -> None:
        self._authenticator().authenticate(
            connect,
            certificate_name,
            lambda identity: self.accepted(connect, identity),
            self.refused,
            lambda: self.close(ReasonCode.SERVER_UNAVAILABLE, "authentication failed"),
            lambda: self._connection.state == AUTHENTICATING,
            self.address_key,
        )

    def _authenticator(self) -> Authenticator:
        return self._server.authenticator(self._listener.access)

    def _enhanced_authentication(self) -> EnhancedAuthentication:
        if self._enhanced is None:
            self._enhanced = EnhancedAuthentication(self, self._connection, self._authenticator())
        return self._enhanced

    def accepted(self, connect: Connect, identity: Identity) -> None:
        if self._connection.state == AUTHENTICATING:  # else it has ended while it was checked
            self._connection.accepted()
            self._server.core.connect(self, connect, identity, self._connection.dialect.name, self._address)

    def has_properties(self) -> bool:
        return self._connection.dialect.has_properties

    def tells_reasons(self) -> bool:
        return self._connection.dialect.has_properties

    def refused(self, refusal: Refused) -> None:
        if self._connection.state == AUTHENTICATING:
            self._server.addresses.refused_login(self.address_key, refusal.reason)
            self._counters.refuse_connection(refusal.reason)
            self.send(Connack(False, refusal.reason))
            self.close(refusal.reason, refusal.detail)

    def fail(self, error: PeerError) -> None:
        if self._connection.state < CLOSING:
            self._server.core.failed(self, error)

    # -- Link: from the core ---------------------------------------------------------------------------------------

    def deliver(self, delivery: Delivery) -> int:
        return self._connection.deliver(delivery if self._mount is None else self._mount.sent(delivery))

    def fits(self, delivery: Delivery) -> bool:
        negotiation = self._connection.negotiation
        if negotiation is not None and self._mount is not None:
            delivery = self._mount.sent(delivery)
        return negotiation is None or negotiation.fits(delivery)

    def _count_too_large(self) -> None:
        self._counters.dropped_too_large += self._connection.take_dropped()

    def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        self._connection.acknowledge(acknowledgement)

    def has_room(self) -> bool:
        return self._connection.pending_bytes <= self._output_bytes_max or self._make_room()

    def send(self, packet: Packet) -> None:
        self._connection.send(packet)

    def hold_back(self, is_held: bool) -> None:
        if is_held:
            self.pause_reading(FULL)
        elif self._paused & FULL:
            self.resume_reading(FULL)

    def is_open(self) -> bool:
        return self._transport is not None and self._connection.state < CLOSING

    def listener_name(self) -> str:
        return self._listener.name

    def retained_rate_max(self) -> int:
        return self._listener.limits.client_retained_rate_max

    def is_at(self, listener: Listener) -> bool:
        return self._listener is listener

    def slowed_by(self) -> list[str]:
        return pause_names(self._paused) + (["slow reader"] if self._is_slow_reader else [])

    def unread_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def own_unread_bytes(self) -> int:
        """Other transports than the server's own sockets, which may be below a WebSocket, copy what they are given."""
        transport = self._transport
        if transport is None or isinstance(transport.get_extra_info("socket"), StreamSocket):
            return 0
        return transport.get_write_buffer_size()

    def throttle(self, is_throttled: bool) -> None:
        most = self._listener.limits.output_bytes_max
        self._output_bytes_max = min(most, WRITE_HIGH_WATER_BYTES) if is_throttled else most
        self._connection.bound_output(self._output_bytes_max)

    def opened(self) -> None:
        self._server.unopened.remove(self)
        if self.session is not None:  # the core has given an id to a client without one
            self._client_id = self.session.client_id
        self._server.log.begin(self._client_id, self._address, self._listener.name)
        if self._connection.negotiation is not None and self.session is not None:
            self._connection.negotiation.resumed(self.session.received_ids.ids())
        packets = self._connection.opened()
        if self._connection.auths:
            self._enhanced_authentication().take_auths()
        if packets:
            self._server.core.receive(self, self._mounted(packets), self._server.now_ms())
        if self._connection.failure is not None:
            self.fail(self._connection.failure)
        self.resume_reading(OPENING)

    def close(self, reason: ReasonCode, detail: str) -> None:
        if self._connection.close(reason):
            self._server.log.end(reason, self._client_id, self._address, self._listener.name, detail)
            self._server.dirty.append(self)

    # -- out -------------------------------------------------------------------------------------------------------

    def _output_waits(self) -> None:
        self._server.dirty.append(self)

    def flush(self) -> None:
        connection, transport = self._connection, self._transport
        if transport is None or connection.state > CLOSING:
            connection.data_to_send()  # it has nowhere to go
            return
        self._write(transport)
        if connection.dropped_too_large:
            self._count_too_large()
        if connection.failure is not None and connection.state == OPEN:  # an answer that the client cannot take
            self._server.begin_turn()
            self.fail(connection.failure)
        elif connection.state == CLOSING:
            self._end(transport)
        elif self._paused or self._is_slow_reader or connection.pending_bytes > self._output_bytes_max:
            self._weigh_output()
        else:
            connection.answers_left()

    def _write(self, transport: ByteTransport) -> None:
        connection = self._connection
        if isinstance(transport, StreamSocket):
            parts = connection.take()
            if parts:
                self._counters.bytes_sent += transport.write_parts(parts, connection.took_large)
        else:
            for data in connection.data_to_send():
                self._counters.bytes_sent += len(data)
                transport.write(data)
        self._counters.messages_sent += connection.packets_taken
        if connection.pending_bytes > self._asking_bytes:
            connection.buffered(transport.get_write_buffer_size())

    def _end(self, transport: ByteTransport) -> None:
        self._connection.last_sent()
        unsent_bytes = transport.get_write_buffer_size()
        if unsent_bytes > self._output_bytes_max:
            transport.abort()
            return
        transport.close()
        if unsent_bytes or transport.get_write_buffer_size():  # TLS has a last word
            self._server.loop.call_later(CLOSE_GRACE_S, transport.abort)

    def _make_room(self) -> bool:
        """More was gathered in one turn than may wait: let the kernel take what it can before anything is dropped."""
        if self._transport is not None:
            self._write(self._transport)
        if self._connection.pending_bytes <= self._output_bytes_max:
            return True  # a slow reader stays one: what found no room before is sent when the turn ends
        self._is_slow_reader = True
        return False

    def _weigh_output(self) -> None:
        """A client that leaves its answers unread gets no more of them; one that has caught up gets what it is owed."""
        connection = self._connection
        if connection.pending_bytes <= self._output_bytes_max:
            connection.answers_left()
            if self._paused & UNREAD:
                self.resume_reading(UNREAD)
            if self._is_slow_reader:
                self._is_slow_reader = False
                self._server.begin_turn()
                self._server.core.writable(self)
        elif connection.answer_bytes > self._output_bytes_max:
            self.pause_reading(UNREAD)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self, reason: int) -> None:
        if not self._paused and self._transport is not None:
            self._transport.pause_reading()
        self._paused |= reason

    def resume_reading(self, reason: int) -> None:
        if self._paused == reason and self._connection.state < CLOSING and self._transport is not None:
            self._transport.resume_reading()
        self._paused &= ~reason
        if self._unread and self._paused == TURN:
            self._server.begin_turn()

"""MQTT-SN over UDP: one socket, and all clients that send to it.

Owns: the socket, the timer, and the order in which the engine's events are carried out. A shell around
`protocol.sn.session.engine`.
Never: what a datagram means, or a decision about a message. The engine and the core make those.
"""

import asyncio
import logging
import socket
from contextlib import suppress
from functools import partial
from random import SystemRandom
from typing import TYPE_CHECKING, Final, final

from embermq.broker.access import Identity
from embermq.broker.link import Link
from embermq.protocol.errors import Refused
from embermq.protocol.packets import Connack, Delivery, Disconnect, Packet, Publish
from embermq.protocol.reasons import ReasonCode
from embermq.protocol.sn.events import (
    Address,
    ClientEvent,
    ClientLost,
    ClientWritable,
    ConnectRequest,
    Event,
    PacketReceived,
    RuleViolation,
    SendDatagram,
    SessionlessPublish,
    WillChange,
)
from embermq.protocol.sn.session.connection import VirtualConnection
from embermq.protocol.sn.session.engine import Engine
from embermq.protocol.sn.settings import SnSettings
from embermq.store.interface import StoreError
from embermq.transport.addresses import shown
from embermq.transport.authentication import Authenticator
from embermq.transport.byte_transport import DatagramTransport
from embermq.transport.multicast import Group, receive_from_group, send_on_own_network
from embermq.transport.rate_limited_log import RateLimitedLog, shown_name
from embermq.transport.sockets.datagram_socket import DatagramSocket
from embermq.transport.sockets.poll import Poll
from embermq.transport.timer import Timer

if TYPE_CHECKING:
    from embermq.transport.server import Server

logger: Final = logging.getLogger("embermq")

RECEIVE_BUFFER_BYTES: Final = 4 * 1024 * 1024
"""For datagrams that are not read yet: the kernel must not drop a burst of a thousand sensors."""
SO_RCVBUFFORCE: Final = 33
"""Linux: beyond net.core.rmem_max, for a privileged process. The socket module has no name for it."""
CHECKS_MAX: Final = 32
"""How many passwords may wait to be checked. Any host can send a CONNECT, and each check takes milliseconds."""
QUIET: Final = frozenset({ReasonCode.SUCCESS, ReasonCode.SERVER_SHUTTING_DOWN})
"""Reasons of an end that are logged at debug level."""


@final
class SnLink(Link):
    """A virtual connection as the core sees it."""

    __slots__ = ("_listener", "_connection")

    def __init__(self, listener: "SnListener", connection: VirtualConnection) -> None:
        # Only the engine knows that a silent client sleeps; and all clients send to one socket.
        super().__init__(supervises_keep_alive=True, can_be_held_back=False)
        self._listener: Final = listener
        self._connection: Final = connection

    def deliver(self, delivery: Delivery) -> bool:
        return self._connection.deliver(delivery, self._listener.begin_turn())

    def forward(self, message: Publish) -> bool:
        return self.deliver(Delivery(message))

    def acknowledge(self, packet_type: int, packet_id: int, reason: int) -> None:
        self._connection.acknowledge(packet_type, packet_id, reason, self._listener.begin_turn())

    def send(self, packet: Packet) -> None:
        self._connection.send(packet, self._listener.begin_turn())

    def has_room(self) -> bool:
        return self._connection.has_room()

    def hold_back(self, is_held: bool) -> None:
        raise AssertionError("a client of MQTT-SN cannot be held back")

    def opened(self) -> None:
        self._connection.opened(self._listener.begin_turn())

    def close(self, reason: ReasonCode, detail: str) -> None:
        level = logging.DEBUG if reason in QUIET else logging.WARNING
        self._listener.log.log(
            level, "%s (%s) disconnected: %s", shown_name(self._connection.client_id), self.address(), detail
        )
        self._connection.close(reason, self._listener.begin_turn())
        self._listener.forget(self._connection)

    def address(self) -> str:
        """Where the client is, for log lines and the record of its connection."""
        host, port = self._connection.peer.address()[:2]
        return shown(str(host), int(port))


@final
class SnListener:
    """One UDP socket and all clients that send to it. It has the methods of `asyncio.DatagramProtocol`."""

    def __init__(self, server: "Server", settings: SnSettings) -> None:
        self.engine: Final = Engine(settings, SystemRandom())
        self.log: Final = RateLimitedLog(logger, "MQTT-SN clients")  # a forged datagram can cause a line
        self._server: Final = server
        self._links: Final[dict[VirtualConnection, SnLink]] = {}
        self._transport: DatagramTransport | None = None
        self._is_dirty = False  # something happened in this turn
        self._out: list[SendDatagram] = []  # sent at the end of the turn
        self._timer: Final = Timer(server, self._tick)
        self._timer_ms = 0
        self._groups: Final[list[Group]] = []
        self._group_transport: asyncio.BaseTransport | None = None  # receives from the group that clients search in
        self._advertise_timer: asyncio.TimerHandle | None = None
        # One thread of its own: a flood of CONNECTs here does not delay clients on TCP.
        self._authenticator: Final = Authenticator(
            server.access, self.begin_turn, threads=1, waiting_max=CHECKS_MAX, name="authenticate-sn"
        )
        server.log.kinds.append(self.log)
        server.core.counters.others.append(self.engine.counters.counts)
        server.end_of_turn.append(self._end_turn)

    # -- socket ------------------------------------------------------------------------------------------------------

    async def listen(self, host: str, port: int, group: Group | None = None, poll: Poll | None = None) -> int:
        """Bind, and take part in the group that clients search in; returns the port. Without a poll, the loop reads."""
        loop = self._server.loop
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE)
        bound = _bind(found[0][0], found[0][4])
        _enlarge_receive_buffer(bound)
        if poll is not None:
            self._transport = DatagramSocket(poll, bound, self.datagram_received)
        else:  # type: it has the methods, without the base class, which would make the compiled class slow
            await loop.create_datagram_endpoint(lambda: self, sock=bound)  # type: ignore[type-var]
        if group is not None:
            try:
                await self._join_group(bound, group)
            except OSError:
                self.close()
                raise
        return int(bound.getsockname()[1])

    async def _join_group(self, bound: socket.socket, group: Group) -> None:
        if self.engine.settings.answer_search:
            self._group_transport = await receive_from_group(self._server.loop, bound, group, self._multicast_received)
        if self.engine.settings.advertise_s:
            send_on_own_network(bound)
            self._groups.append(group)
            self._advertise()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's is no subclass of asyncio's

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket was closed, by `close`."""

    def error_received(self, exc: Exception) -> None:
        """A peer cannot be reached, which clients that are gone are known by anyway."""

    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...

    def close(self) -> None:
        """Send what is to be sent, then close the socket."""
        self.flush()
        self._timer.cancel()
        if self._advertise_timer is not None:
            self._advertise_timer.cancel()
        if self._transport is not None:
            self._transport.close()
        if self._group_transport is not None:
            self._group_transport.close()
        self._transport = None
        self._group_transport = None
        self._authenticator.close()

    def forget(self, connection: VirtualConnection) -> None:
        """The core has ended a client's connection."""
        self._links.pop(connection, None)

    # -- the turn ----------------------------------------------------------------------------------------------------

    def datagram_received(self, data: bytes, addr: Address) -> None:  # of IPv6: four values
        now_ms = self.begin_turn()
        self._server.core.counters.bytes_received += len(data)
        if self._server.overfull():
            self.engine.counters.dropped_disk_behind += 1  # the sender tries again
            return
        try:
            self._carry_out(self.engine.receive(data, addr, now_ms))
        except Exception as error:
            self._server.bug(error)

    def _multicast_received(self, data: bytes, addr: Address) -> None:
        """A datagram was sent to the group that clients search in."""
        now_ms = self.begin_turn()
        try:
            self._carry_out(self.engine.receive_multicast(data, addr, now_ms))
        except Exception as error:
            self._server.bug(error)

    def begin_turn(self) -> int:
        """Something happens in this turn: have `flush` called at its end; returns the instant of the turn."""
        self._is_dirty = True
        return self._server.begin_turn()

    def _end_turn(self) -> None:
        if self._is_dirty:
            self.flush()

    def flush(self) -> None:
        """The core has ended the turn: let awake clients that have everything sleep again, send, set the timer."""
        self._is_dirty = False
        now_ms = self._server.now_ms()
        try:
            self._carry_out(self.engine.take_events())
            for connection in list(self.engine.awake):
                link = self._links.get(connection)
                if link is not None:
                    connection.flushed(self._server.core.owed(link), now_ms)
            self._carry_out(self.engine.take_events())
        except Exception as error:
            self._server.bug(error)
        out = self._out
        self._out = []
        for event in out:
            self._send(event.datagram, event.address)
        self._set_timer(now_ms)

    def _set_timer(self, now_ms: int) -> None:
        due_ms = self.engine.next_deadline_ms()
        if due_ms is None or self._transport is None:
            return
        if self._timer.is_set() and self._timer_ms <= due_ms:
            return
        self._timer_ms = due_ms
        self._timer.set(max(0, due_ms - now_ms) / 1000)

    def _tick(self) -> None:
        self.begin_turn()
        try:
            self._carry_out(self.engine.tick(self._server.now_ms()))
        except Exception as error:
            self._server.bug(error)

    def _advertise(self) -> None:
        for address in self._groups:
            for datagram in self.engine.advertisement():
                self._send(datagram, address)
        self._advertise_timer = self._server.loop.call_later(self.engine.settings.advertise_s, self._advertise)

    # -- events ------------------------------------------------------------------------------------------------------

    def _carry_out(self, events: list[Event]) -> None:
        """Carry out events, and those that follow from them, in order. Datagrams are sent at the end of the turn."""
        while events:
            for event in events:
                if isinstance(event, SendDatagram):
                    self._out.append(event)
                elif isinstance(event, ClientEvent):
                    self._tell_core(event)
                elif isinstance(event, ConnectRequest):
                    self._authenticate(event)
                elif isinstance(event, SessionlessPublish):
                    self._publish_sessionless(event.message)
            events = self.engine.take_events()

    def _send(self, datagram: bytes, address: tuple[str | int, ...]) -> None:
        if self._transport is not None:
            self._transport.sendto(datagram, address)
            self._server.core.counters.bytes_sent += len(datagram)
            self._server.core.counters.messages_sent += 1

    def _tell_core(self, event: ClientEvent) -> None:
        link = self._links.get(event.connection)
        if link is None:
            return
        core = self._server.core
        if isinstance(event, PacketReceived):
            core.receive(link, [event.packet], self._server.begin_turn())
        elif isinstance(event, ClientWritable):
            core.writable(link)
        elif isinstance(event, ClientLost):
            del self._links[event.connection]
            self.log.log(
                logging.WARNING,
                "%s (%s) lost: %s",
                shown_name(event.connection.client_id),
                link.address(),
                event.reason,
            )
            core.lost(link, event.reason, self._server.begin_turn())
        elif isinstance(event, RuleViolation):
            core.failed(link, event.error)
        elif isinstance(event, WillChange):
            core.replace_will(link, event.will)

    # -- access ------------------------------------------------------------------------------------------------------

    def _publish_sessionless(self, message: Publish) -> None:
        """A message without a session has no client: it has the rights of anonymous clients."""
        try:
            identity = self._server.access.authenticate("", None, None, None)
            self._server.core.publish_sessionless(message, identity)
        except Refused:
            self.engine.counters.dropped_sessionless += 1
        except StoreError:
            self._server.core.counters.store_refusals += 1

    def _authenticate(self, event: ConnectRequest) -> None:
        connect = event.connect
        link = SnLink(self, event.connection)
        self._links[event.connection] = link
        if self._server.capacity.is_memory_full:
            self._server.capacity.refused_for_memory += 1
            busy = Refused("limits.memory_bytes_max is reached", reason=ReasonCode.SERVER_BUSY)
            self._refused(event, link, busy)
            return
        self._authenticator.authenticate(
            connect,
            None,
            partial(self._accepted, event, link),
            partial(self._refused, event, link),
            partial(self._not_checked, event, link),
            lambda: not self._is_gone(event, link),
        )

    def _is_gone(self, event: ConnectRequest, link: SnLink) -> bool:
        """Whether the connection has ended while its password was checked."""
        return self._links.get(event.connection) is not link

    def _accepted(self, event: ConnectRequest, link: SnLink, identity: Identity) -> None:
        if not self._is_gone(event, link):
            self._connect(event, link, identity)

    def _refused(self, event: ConnectRequest, link: SnLink, refusal: Refused) -> None:
        if not self._is_gone(event, link):
            self._server.core.counters.refuse_connection(refusal.reason)
            link.send(Connack(False, refusal.reason))
            link.close(refusal.reason, refusal.detail)

    def _not_checked(self, event: ConnectRequest, link: SnLink) -> None:
        if not self._is_gone(event, link):
            link.close(ReasonCode.SERVER_UNAVAILABLE, "authentication failed")

    def _connect(self, event: ConnectRequest, link: SnLink, identity: Identity) -> None:
        core = self._server.core
        sleeper = self._links.get(event.sleeper) if event.sleeper is not None else None
        if sleeper is not None and self._may_take_over(identity, sleeper):
            core.receive(sleeper, [Disconnect()], self._server.begin_turn())
        protocol = f"MQTT-SN {event.connection.peer.profile.name}"
        core.connect(link, event.connect, identity, protocol, link.address())

    def _may_take_over(self, identity: Identity, sleeper: SnLink) -> bool:
        session = sleeper.session
        return session is not None and self._server.access.may_take_over(identity, session.identity.user_name)


def _bind(family: int, address: tuple[str | int | bytes, ...]) -> socket.socket:
    """A socket bound to an address. The loop's own binding would lose the number of an error."""
    bound = socket.socket(family, socket.SOCK_DGRAM)
    try:
        bound.setblocking(False)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


def _enlarge_receive_buffer(bound: socket.socket) -> None:
    """Ask for a buffer for bursts; an unprivileged process gets at most what the system allows."""
    for option in (socket.SO_RCVBUF, SO_RCVBUFFORCE):
        with suppress(OSError):
            bound.setsockopt(socket.SOL_SOCKET, option, RECEIVE_BUFFER_BYTES)
    got = bound.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    if got < RECEIVE_BUFFER_BYTES:
        logger.info("the system keeps at most %d bytes of unread datagrams; raise net.core.rmem_max for bursts", got)

"""MQTT-SN over UDP: one socket, and all clients that send to it.

Owns: the socket, the multicast group in which clients search for a server (SEARCHGW and ADVERTISE are sent to it), the
timer, and the order in which the engine's events are carried out. A shell around `protocol.sn.engine`.
Never: what a datagram means, or a decision about a message. The engine and the core make those.
"""

import asyncio
import errno
import logging
import os
import socket
from contextlib import suppress
from functools import partial
from random import SystemRandom
from typing import Final, final

from embermq.broker.access import Identity
from embermq.broker.session import ClientLink
from embermq.protocol.errors import Refused
from embermq.protocol.packets import Acknowledgement, Connack, Delivery, Disconnect, Packet, Publish
from embermq.protocol.reasons import ReasonCode
from embermq.protocol.sn.connection import VirtualConnection
from embermq.protocol.sn.engine import Engine
from embermq.protocol.sn.events import (
    Address,
    ClientEvent,
    ClientLost,
    ClientWritable,
    ConnectRequest,
    Event,
    PacketReceived,
    RuleViolation,
    SessionlessPublish,
    WillChange,
)
from embermq.protocol.sn.settings import SnSettings
from embermq.store.interface import StoreError
from embermq.transport.authentication import Authenticator
from embermq.transport.listener import Group, Listener
from embermq.transport.rate_limited_log import QUIET, RateLimitedLog, shown_name
from embermq.transport.server import Server
from embermq.transport.sockets.addresses import shown
from embermq.transport.sockets.datagram_socket import DATAGRAM_BYTES_MAX, DatagramSocket
from embermq.transport.sockets.interface import DatagramTransport
from embermq.transport.sockets.poll import Poll

logger: Final = logging.getLogger("embermq")

RECEIVE_BUFFER_BYTES: Final = 4 * 1024 * 1024
"""For datagrams that are not read yet: the kernel must not drop a burst of a thousand sensors."""
SO_RCVBUFFORCE: Final = 33
"""Linux: beyond net.core.rmem_max, for a privileged process. The socket module has no name for it."""
CHECKS_MAX: Final = 32
"""How many passwords may wait to be checked. Any host can send a CONNECT, and each check takes milliseconds."""


@final
class SnLink(ClientLink):
    """A virtual connection as the core sees it."""

    def __init__(self, listener: "SnSocket", connection: VirtualConnection) -> None:
        # Only the engine knows that a silent client sleeps; and all clients send to one socket.
        super().__init__(supervises_keep_alive=True, can_be_held_back=False)
        self._listener: Final = listener
        self._connection: Final = connection

    def deliver(self, delivery: Delivery) -> int:
        return self._connection.deliver(delivery)

    def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        self._connection.acknowledge(acknowledgement)

    def send(self, packet: Packet) -> None:
        self._connection.send(packet)

    def has_room(self) -> bool:
        return self._connection.has_room()

    def hold_back(self, is_held: bool) -> None:
        raise AssertionError("a client of MQTT-SN cannot be held back")

    def opened(self) -> None:
        self._connection.opened()

    def listener_name(self) -> str:
        return self._listener.listener.name

    def retained_rate_max(self) -> int:
        return self._listener.listener.limits.client_retained_rate_max

    def close(self, reason: ReasonCode, detail: str) -> None:
        level = logging.DEBUG if reason in QUIET else logging.WARNING
        self._listener.log_end(level, self, "disconnected", detail)
        self._connection.close(reason)
        self._listener.forget(self._connection)

    def client_id(self) -> str:
        return self._connection.client_id

    def address(self) -> str:
        """Where the client is, for log lines and the record of its connection."""
        host, port = self._connection.peer.address()[:2]
        return shown(str(host), int(port))


@final
class SnSocket:
    """One UDP socket and all clients that send to it. It has the methods of `asyncio.DatagramProtocol`."""

    def __init__(self, server: Server, listener: Listener) -> None:
        self.listener: Final = listener
        self.engine: Final = Engine(listener.sn or SnSettings(), SystemRandom(), self.begin_turn)
        self._log: Final = RateLimitedLog(logger, "MQTT-SN clients")  # a forged datagram can cause a line
        self._server: Final = server
        self._links: Final[dict[VirtualConnection, SnLink]] = {}
        self._transport: DatagramTransport | None = None
        self._is_dirty = False  # something happened in this turn
        self._timer: Final = server.new_timer(self._tick)
        self._timer_ms = 0
        self._groups: Final[list[Group]] = []
        self._group_socket: socket.socket | None = None  # receives from the group that clients search in
        self._advertise_timer: asyncio.TimerHandle | None = None
        # With its own thread: a flood of CONNECTs here does not delay clients on TCP.
        self._authenticator: Final = Authenticator(
            listener.access, self.begin_turn, threads=1, waiting_max=CHECKS_MAX, name="authenticate-sn"
        )
        server.log.kinds.append(self._log)
        server.core.add_counts(self.engine.counters.counts)
        server.end_of_turn.append(self._end_turn)

    # -- socket ------------------------------------------------------------------------------------------------------

    async def listen(self, poll: Poll | None = None) -> int:
        """Bind, and take part in the group that clients search in; returns the port. Without a poll, the loop reads."""
        loop, listener = self._server.loop, self.listener
        group = listener.sn_group
        found = await loop.getaddrinfo(
            listener.hosts[0], listener.port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
        )
        bound = _bind(found[0][0], found[0][4])
        _enlarge_receive_buffer(bound)
        if poll is not None:
            self._transport = DatagramSocket(poll, bound, self.datagram_received)
        else:  # type: it has the methods, without the base class, which would make the compiled class slow
            await loop.create_datagram_endpoint(lambda: self, sock=bound)  # type: ignore[type-var]
        if group is not None:
            try:
                self._join_group(bound, group)
            except OSError:
                self.close()
                raise
        return int(bound.getsockname()[1])

    def _join_group(self, bound: socket.socket, group: Group) -> None:
        if self.engine.settings.answer_search:
            self._group_socket = _socket_of_group(bound, group)
            if self._group_socket is not None:
                self._server.loop.add_reader(self._group_socket.fileno(), self._read_group, self._group_socket)
        if self.engine.settings.advertise_s:
            bound.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, _own_network(bound))
            self._groups.append(group)
            self._advertise()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's does not derive from asyncio's

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket was closed, by `close`."""

    def error_received(self, exc: Exception) -> None:
        """A peer cannot be reached: the engine finds out by its retries."""

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
        if self._group_socket is not None:
            self._server.loop.remove_reader(self._group_socket.fileno())
            self._group_socket.close()
        self._transport = None
        self._group_socket = None
        self._authenticator.close()

    def log_end(self, level: int, link: SnLink, what: str, detail: str) -> None:
        """A client was disconnected, or lost."""
        name = shown_name(link.client_id())
        self._log.log(level, "%s (%s, %s) %s: %s", name, link.address(), self.listener.name, what, detail)

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

    def _read_group(self, group: socket.socket) -> None:
        """A datagram was sent to the group that clients search in. The answer comes from the listener's own socket."""
        try:
            data, addr = group.recvfrom(DATAGRAM_BYTES_MAX)
        except OSError:
            return
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
        for datagram, address in self.engine.data_to_send():
            self._send(datagram, address)
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
                if isinstance(event, ClientEvent):
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
            self.log_end(logging.WARNING, link, "lost", event.reason)
            core.lost(link, event.reason, self._server.begin_turn())
        elif isinstance(event, RuleViolation):
            core.failed(link, event.error)
        elif isinstance(event, WillChange):
            core.replace_will(link, event.will)

    # -- access ------------------------------------------------------------------------------------------------------

    def _publish_sessionless(self, message: Publish) -> None:
        """A message without a session has no client: it has the rights of anonymous clients."""
        try:
            identity = self.listener.access.authenticate("", None, None, None)
            self._server.core.publish_sessionless(message, identity)
        except Refused:
            self.engine.counters.dropped_sessionless += 1
        except StoreError:
            self._server.core.counters.store_refusals += 1

    def _authenticate(self, event: ConnectRequest) -> None:
        connect = event.connect
        link = SnLink(self, event.connection)
        self._links[event.connection] = link
        if self._server.capacity.is_memory_refusal():
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
        return session is not None and self.listener.access.may_take_over(identity, session.identity.user_name)


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


def _socket_of_group(bound: socket.socket, group: Group) -> socket.socket | None:
    """A socket that receives from a group on the network of the listener's. None: that one itself receives it now."""
    membership = socket.inet_aton(group[0]) + _own_network(bound)
    host, port = bound.getsockname()[:2]
    if port == group[1] and host == "0.0.0.0":
        bound.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        return None
    # A socket receives from a group only on the group's port, and never if it is bound to an address of this machine.
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        own.setblocking(False)
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # other servers of this machine receive it too
        own.bind(group)
        own.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    except OSError:
        own.close()
        raise
    return own


def _own_network(bound: socket.socket) -> bytes:
    """The address of a socket, by which multicast finds the network; only IPv4 has groups here."""
    if bound.family != socket.AF_INET:
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
    return socket.inet_aton(bound.getsockname()[0])

"""MQTT-SN over UDP: joins the session engine, which knows datagrams, and the core, which knows sessions.

Owns: the socket, the timer, and the order in which the engine's events are carried out.
Never: what a datagram means (the engine's), or a decision about a message (the core's).
"""

import asyncio
import logging
import socket
from contextlib import suppress
from random import SystemRandom
from typing import TYPE_CHECKING, Final, final

from embermq.broker.access import Identity
from embermq.broker.link import Link
from embermq.protocol.errors import Refused
from embermq.protocol.packets import Connack, Connect, Delivery, Disconnect, Packet, Publish
from embermq.protocol.reasons import ReasonCode
from embermq.protocol.sn.events import (
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
from embermq.transport.multicast import Group, hear_group, speak_to_group
from embermq.transport.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from embermq.transport.server import Server

logger: Final = logging.getLogger("embermq")

RECEIVE_BUFFER_BYTES: Final = 4 * 1024 * 1024
"""Datagrams that no loop pass has read yet: a burst of a thousand sensors must not be lost in the kernel."""
SO_RCVBUFFORCE: Final = 33
"""Linux: past net.core.rmem_max, for a privileged process. The socket module has no name for it."""
CHECKS_MAX: Final = 32
"""How many passwords may wait to be checked. Anybody can send a CONNECT, and each costs milliseconds of a core."""
QUIET: Final = frozenset({ReasonCode.SUCCESS, ReasonCode.SERVER_SHUTTING_DOWN})


@final
class SnLink(Link):
    """A virtual connection as the core sees it."""

    __slots__ = ("_listener", "_connection")

    def __init__(self, listener: "SnListener", connection: VirtualConnection) -> None:
        super().__init__(supervises_keep_alive=True)  # a sleeping client is silent, and is not lost
        self._listener: Final = listener
        self._connection: Final = connection

    def deliver(self, delivery: Delivery) -> bool:
        return self._connection.deliver(delivery, self._listener.touch())

    def forward(self, message: Publish) -> bool:
        return self.deliver(Delivery(message))

    def acknowledge(self, packet_type: int, packet_id: int, reason: int) -> None:
        self._connection.acknowledge(packet_type, packet_id, reason, self._listener.touch())

    def send(self, packet: Packet) -> None:
        self._connection.send(packet, self._listener.touch())

    def has_room(self) -> bool:
        return self._connection.has_room()

    def opened(self) -> None:
        self._connection.opened(self._listener.touch())

    def close(self, reason: ReasonCode, detail: str) -> None:
        level = logging.DEBUG if reason in QUIET else logging.WARNING
        self._listener.log.log(level, "%r (%s) disconnected: %s", self._connection.client_id, self.address(), detail)
        self._connection.close(reason, self._listener.touch())
        self._listener.forget(self._connection)

    def address(self) -> str:
        """Where the client is, for the log and the history."""
        host, port = self._connection.peer.address()[:2]
        return shown(str(host), int(port))


@final
class SnListener(asyncio.DatagramProtocol):
    """One UDP socket and all clients that come through it."""

    def __init__(self, server: "Server", settings: SnSettings) -> None:
        self.engine: Final = Engine(settings, SystemRandom())
        self.log: Final = RateLimitedLog(logger, "MQTT-SN clients")  # a forged datagram can cause a line
        self._server: Final = server
        self._links: Final[dict[VirtualConnection, SnLink]] = {}
        self._transport: asyncio.DatagramTransport | None = None
        self._settling = False
        self._out: list[SendDatagram] = []  # gathered in this turn
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._groups: Final[list[Group]] = []
        self._hearing: asyncio.BaseTransport | None = None  # the socket in the group that clients search in
        self._advertising: asyncio.TimerHandle | None = None
        # One thread of its own: a flood of CONNECTs here does not delay clients on TCP.
        self._authenticator: Final = Authenticator(
            server.access, self.touch, threads=1, waiting_max=CHECKS_MAX, name="authenticate-sn"
        )
        server.core.counters.others.append(self.engine.counters.counts)
        server.end_of_turn.append(self._end_turn)

    # -- life --------------------------------------------------------------------------------------------------------

    async def listen(self, host: str, port: int, group: Group | None = None) -> int:
        """Bind, and take part in the group that clients search in; returns the port."""
        loop = self._server.loop
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE)
        bound = _bind(found[0][0], found[0][4])
        _enlarge(bound)
        await loop.create_datagram_endpoint(lambda: self, sock=bound)
        if group is not None:
            try:
                await self._join(bound, group)
            except OSError:
                self.close()
                raise
        return int(bound.getsockname()[1])

    async def _join(self, bound: socket.socket, group: Group) -> None:
        if self.engine.settings.answer_search:
            self._hearing = await hear_group(self._server.loop, bound, group, self._overheard)
        if self.engine.settings.advertise_s:
            speak_to_group(bound)
            self._groups.append(group)
            self._advertise()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's is no subclass of asyncio's

    def close(self) -> None:
        """Send what is left to say, then leave the socket."""
        self._settle()
        for handle in (self._timer, self._advertising):
            if handle is not None:
                handle.cancel()
        for transport in (self._transport, self._hearing):
            if transport is not None:
                transport.close()
        self._transport = None
        self._hearing = None
        self._authenticator.close()

    def forget(self, connection: VirtualConnection) -> None:
        """The core has let go of a client."""
        self._links.pop(connection, None)

    # -- the turn ----------------------------------------------------------------------------------------------------

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        now_ms = self.touch()
        self._server.core.counters.bytes_received += len(data)
        if self._server.overfull():
            self.engine.counters.dropped_disk_behind += 1  # the sender tries again
            return
        try:
            self._carry_out(self.engine.receive(data, addr, now_ms))
        except Exception as error:
            self._server.bug(error)

    def _overheard(self, data: bytes, addr: tuple[str, int]) -> None:
        """Somebody speaks to the group that clients search in."""
        now_ms = self.touch()
        try:
            self._carry_out(self.engine.receive_multicast(data, addr, now_ms))
        except Exception as error:
            self._server.bug(error)

    def touch(self) -> int:
        """Something happens in this turn: see to it that it is carried out when the turn has ended."""
        now_ms = self._server.begin_turn()
        self._settling = True
        return now_ms

    def _end_turn(self) -> None:
        if self._settling:
            self._settle()

    def _settle(self) -> None:
        """The core has ended the turn: send what it said, let clients sleep that have got all, set the timer."""
        self._settling = False
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
        if self._timer is not None:
            if self._timer_ms <= due_ms:
                return
            self._timer.cancel()
        self._timer_ms = due_ms
        self._timer = self._server.loop.call_later(max(0, due_ms - now_ms) / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.touch()
        try:
            self._carry_out(self.engine.tick(self._server.now_ms()))
        except Exception as error:
            self._server.bug(error)

    def _advertise(self) -> None:
        for address in self._groups:
            for datagram in self.engine.advertisement():
                self._send(datagram, address)
        self._advertising = self._server.loop.call_later(self.engine.settings.advertise_s, self._advertise)

    # -- events ------------------------------------------------------------------------------------------------------

    def _carry_out(self, events: list[Event]) -> None:
        """Do what the engine wants, and what comes of that, in order. Datagrams leave when the turn has ended."""
        while events:
            for event in events:
                if isinstance(event, SendDatagram):
                    self._out.append(event)
                else:
                    self._tell_core(event)
            events = self.engine.take_events()

    def _send(self, datagram: bytes, address: tuple[str | int, ...]) -> None:
        if self._transport is not None:
            self._transport.sendto(datagram, address)
            self._server.core.counters.bytes_sent += len(datagram)
            self._server.core.counters.messages_sent += 1

    def _tell_core(self, event: Event) -> None:
        core = self._server.core
        if isinstance(event, PacketReceived):
            link = self._links.get(event.connection)
            if link is not None:
                core.receive(link, [event.packet], self._server.begin_turn())
        elif isinstance(event, ConnectRequest):
            self._open(event)
        elif isinstance(event, ClientWritable):
            link = self._links.get(event.connection)
            if link is not None:
                core.writable(link)
        elif isinstance(event, ClientLost):
            link = self._links.pop(event.connection, None)
            if link is not None:
                self.log.log(
                    logging.WARNING, "%r (%s) lost: %s", event.connection.client_id, link.address(), event.reason
                )
                core.lost(link, event.reason, self._server.begin_turn())
        elif isinstance(event, RuleViolation):
            link = self._links.get(event.connection)
            if link is not None:
                core.failed(link, event.error)
        elif isinstance(event, WillChange):
            link = self._links.get(event.connection)
            if link is not None:
                core.replace_will(link, event.will)
        elif isinstance(event, SessionlessPublish):
            self._publish(event.message)

    # -- who is it ---------------------------------------------------------------------------------------------------

    def _publish(self, message: Publish) -> None:
        """A message without a session is nobody's: it has the rights of the anonymous."""
        try:
            identity = self._server.access.authenticate("", None, None, None)
            self._server.core.publish_sessionless(message, identity)
        except Refused:
            self.engine.counters.dropped_sessionless += 1
        except StoreError:
            self._server.core.counters.store_refusals += 1

    def _open(self, event: ConnectRequest) -> None:
        connect = event.connect
        link = SnLink(self, event.connection)
        self._links[event.connection] = link
        self._authenticator.authenticate(
            connect,
            None,
            lambda identity: self._accepted(event, link, identity),
            lambda refusal: self._refused(event, link, refusal),
            lambda: self._not_checked(event, link),
            is_slow=self._server.access.slow and connect.user_name is not None,
        )

    def _accepted(self, event: ConnectRequest, link: SnLink, identity: Identity) -> None:
        if self._links.get(event.connection) is link:  # else it has gone while its password was checked
            self._connect(event, link, identity)

    def _refused(self, event: ConnectRequest, link: SnLink, refusal: Refused) -> None:
        if self._links.get(event.connection) is link:
            self._refuse(link, refusal)

    def _not_checked(self, event: ConnectRequest, link: SnLink) -> None:
        if self._links.get(event.connection) is link:
            link.close(ReasonCode.SERVER_UNAVAILABLE, "authentication failed")

    def _refuse(self, link: SnLink, refusal: Refused) -> None:
        self._server.core.counters.connections_refused += 1
        link.send(Connack(False, refusal.reason))
        link.close(refusal.reason, refusal.detail)

    def _connect(self, event: ConnectRequest, link: SnLink, identity: Identity) -> None:
        core = self._server.core
        sleeper = self._links.get(event.sleeper) if event.sleeper is not None else None
        if sleeper is not None and self._is_same(identity, sleeper):
            core.receive(sleeper, [Disconnect()], self._server.begin_turn())
        connect: Connect = event.connect
        core.connect(link, connect, identity, f"MQTT-SN {event.connection.peer.profile.name}", link.address())

    def _is_same(self, identity: Identity, sleeper: SnLink) -> bool:
        session = sleeper.session
        return session is not None and self._server.access.may_take_over(identity, session.identity.user_name)


def _bind(family: int, address: tuple[str | int | bytes, ...]) -> socket.socket:
    """A socket at an address; an error has its number, which the loop's own binding loses."""
    bound = socket.socket(family, socket.SOCK_DGRAM)
    try:
        bound.setblocking(False)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


def _enlarge(bound: socket.socket) -> None:
    """Ask for room for a burst; an unprivileged process gets no more than the system allows to all."""
    for option in (socket.SO_RCVBUF, SO_RCVBUFFORCE):
        with suppress(OSError):
            bound.setsockopt(socket.SOL_SOCKET, option, RECEIVE_BUFFER_BYTES)
    got = bound.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    if got < RECEIVE_BUFFER_BYTES:
        logger.info("the system holds %d bytes of unread datagrams; raise net.core.rmem_max for bursts", got)

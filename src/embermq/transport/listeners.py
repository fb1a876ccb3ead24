"""Listeners: where clients of MQTT connect to a server: TCP, TLS, unix sockets, WebSockets, and UDP for MQTT-SN.

Owns: the sockets that are listened on, from the start to the end of a server.
Never: a connection. Not compiled: event loops answer with other types than asyncio's own, which compiled code checks.
"""

import asyncio
import errno
import os
import select
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from embermq.transport.addresses import is_loopback
from embermq.transport.sockets.listening_socket import ListeningSocket
from embermq.transport.sockets.loop import SocketLoop
from embermq.transport.sockets.poll import EVENTS_MAX, Poll
from embermq.transport.stream import StreamConnection

if TYPE_CHECKING:
    from embermq.protocol.sn.settings import SnSettings
    from embermq.transport.server import Server
    from embermq.transport.udp import SnListener
    from embermq.transport.websocket import WebSocketSettings

BACKLOG: Final = 4_096
HAS_POLL: Final = hasattr(select, "epoll") and hasattr(os, "eventfd")
"""Whether the server can look after sockets itself; otherwise the event loop does."""


@final
class Listeners:
    """All listeners of one server."""

    __slots__ = ("_entered", "_poll", "_server", "_sockets", "_streams", "_unix_paths", "datagrams")

    def __init__(self, server: "Server") -> None:
        self._server: Final = server
        self._streams: Final[list[asyncio.Server]] = []
        self._poll: Poll | None = None
        self._entered: Poll | None = None  # the same, if it is not the loop's own
        self._sockets: Final[list[ListeningSocket]] = []
        self.datagrams: Final[list[SnListener]] = []
        self._unix_paths: Final[list[Path]] = []

    async def listen_tcp(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen on TCP, or TLS; returns the port, which the system chose if 0 was asked for."""
        return await self._listen(host, port, tls, None)

    async def listen_websocket(
        self,
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        path: str | None = None,
        origins: Sequence[str] = (),
    ) -> int:
        """Listen for WebSockets; returns the port, which the system chose if 0 was asked for.

        Without a `path`, every path is theirs.
        """
        from embermq.transport.websocket import WebSocketSettings  # it loads numpy, and few need it

        return await self._listen(host, port, tls, WebSocketSettings(path, origins, is_loopback(host)))

    async def _listen(
        self, host: str, port: int, tls: ssl.SSLContext | None, websockets: "WebSocketSettings | None"
    ) -> int:
        server = self._server
        is_loops = not HAS_POLL
        listener = await server.loop.create_server(
            lambda: self._new_connection(websockets),
            host,
            port,
            ssl=tls if is_loops else None,
            ssl_handshake_timeout=server.limits.connect_timeout_s if is_loops and tls is not None else None,
            backlog=BACKLOG,
            reuse_address=True,
            start_serving=is_loops,
        )
        self._streams.append(listener)
        if not is_loops:
            self._accept_from(listener, tls, websockets)
        return int(listener.sockets[0].getsockname()[1])

    async def listen_unix(self, path: str, mode: int = 0o600) -> None:
        """Listen on a unix socket; one that a dead server left behind is replaced."""
        place = Path(path)
        if place.is_socket():
            if _answers(path):  # the loop would take its place without a word
                raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
            place.unlink()
        listener = await self._server.loop.create_unix_server(
            lambda: self._new_connection(None), path, backlog=BACKLOG, start_serving=not HAS_POLL
        )
        place.chmod(mode)
        self._unix_paths.append(place)
        self._streams.append(listener)
        if not listener.is_serving():
            self._accept_from(listener)

    async def listen_sn(
        self, host: str, port: int, settings: "SnSettings", group: tuple[str, int] | None = None
    ) -> int:
        """Listen for MQTT-SN on UDP; returns the port, which the system chose if 0 was asked for."""
        from embermq.transport.udp import SnListener  # not needed by most servers

        listener = SnListener(self._server, settings)
        bound = await listener.listen(host, port, group, self._own_poll() if HAS_POLL else None)
        self.datagrams.append(listener)
        return bound

    def _new_connection(self, websockets: "WebSocketSettings | None") -> asyncio.Protocol:
        if websockets is None:
            return StreamConnection(self._server)  # type: ignore[return-value]  # it has the methods, without the base
        return websockets.stream(self._server)  # type: ignore[return-value]  # as above

    def _accept_from(
        self,
        listener: asyncio.Server,
        tls: ssl.SSLContext | None = None,
        websockets: "WebSocketSettings | None" = None,
    ) -> None:
        """Accept the connections of sockets that the loop has bound; it does not serve them."""
        poll = self._own_poll()
        for bound in listener.sockets:
            listening = socket.socket(fileno=os.dup(bound.fileno()))
            listening.setblocking(False)
            if listening.family != socket.AF_UNIX:
                listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # for what is accepted from it
            listening.listen(BACKLOG)
            self._sockets.append(ListeningSocket(self._server, poll, listening, tls, websockets))

    def unsent_bytes(self) -> int:
        """The output that the kernel has not taken from the server's own sockets; what they share counts once."""
        return 0 if self._poll is None else self._poll.unsent.size_bytes

    def _own_poll(self) -> Poll:
        """The poll of the server's own event loop, or one that is entered in a loop of another kind as one file."""
        if self._poll is None:
            loop = self._server.loop
            poll = loop.poll if isinstance(loop, SocketLoop) else None
            if poll is None or not poll.take(self._server):
                poll = self._entered = Poll(loop)
                poll.take(self._server)
                loop.add_reader(poll.epoll.fileno(), lambda: poll.look(poll.wait(0, EVENTS_MAX)))
            self._poll = poll
        return self._poll

    def close(self) -> None:
        """Accept no more connections; those that there are go on. UDP is listened on until `close_datagrams`."""
        for listening in self._sockets:
            listening.close()
        for listener in self._streams:
            listener.close()

    def close_datagrams(self) -> None:
        """The clients of MQTT-SN have been told the end: listen no more."""
        for datagrams in self.datagrams:
            datagrams.close()

    async def wait_closed(self) -> None:
        """All connections have ended: leave nothing behind."""
        if self._poll is not None:
            self._poll.leave()
        if self._entered is not None:
            self._server.loop.remove_reader(self._entered.epoll.fileno())
            self._entered.close()
        for place in self._unix_paths:
            with suppress(FileNotFoundError):
                place.unlink()


def _answers(path: str) -> bool:
    """Whether a server listens on a unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        try:
            probe.connect(path)
        except OSError:
            return False
    return True

"""Listeners of the HTTP interface: the unix socket in the data directory and, where asked for, a TCP port.

Owns: the sockets, how many connections each takes, which one makes room for another, and the end of all of them.
A connection that waits for its client has the least right to its place: those without a login go first, the one that
has waited longest before the others. So clients that only hold connections keep nobody out.
"""

import asyncio
import logging
import ssl
from collections.abc import Iterable
from functools import partial
from typing import Final, final

from aiohttp import web

from embermq.http.application import Application
from embermq.http.connection import KEEP_ALIVE_S, HttpConnection, TlsHandshake
from embermq.http.control_socket import ControlSocket
from embermq.http.counts import HttpCounts
from embermq.http.refusal import HttpRefusal
from embermq.http.service import Service
from embermq.transport.rate_limited_log import http_log
from embermq.transport.sockets.addresses import shown_peer

CONNECTIONS_MAX: Final = 256
"""How many connections one listener takes. For one more, the one that has waited longest for its client is closed."""
ADDRESS_CONNECTIONS_MAX: Final = 64
"""How many of them one address has, unless it is one of `listeners.shared_addresses`."""
HEADS_BYTES_MAX: Final = 16 * 1024 * 1024
"""How much the incomplete heads of requests have together; a large one beyond it is refused."""
BODIES_BYTES_MAX: Final = 64 * 1024 * 1024
"""How much the bodies that are being read have together; one alone may be larger."""
STOP_GRACE_S: Final = 1.0

Placed = HttpConnection | TlsHandshake
"""What has a place among the connections."""


@final
class HttpListener:
    """One socket."""

    __slots__ = (
        "_address_connections_max",
        "_bodies_bytes",
        "_bodies_bytes_max",
        "_connections",
        "_connections_max",
        "_listener",
        "_runner",
        "_service",
        "counts",
        "head_timeout_s",
    )

    def __init__(
        self,
        service: Service,
        application: Application,
        connections_max: int = CONNECTIONS_MAX,
        address_connections_max: int = ADDRESS_CONNECTIONS_MAX,
        head_timeout_s: float = KEEP_ALIVE_S,
        bodies_bytes_max: int = BODIES_BYTES_MAX,
    ) -> None:
        """`head_timeout_s`: how long a client that has not logged in may take for the head of a request."""
        self._service: Final = service
        self._bodies_bytes = 0
        self._bodies_bytes_max: Final = bodies_bytes_max
        self._connections: Final[dict[Placed, None]] = {}
        self._connections_max: Final = connections_max
        self._address_connections_max: Final = address_connections_max
        self._listener: asyncio.Server | None = None
        self._runner: Final = web.AppRunner(application.web, access_log=None, shutdown_timeout=STOP_GRACE_S)
        self.counts: Final[HttpCounts] = service.counts
        self.head_timeout_s: Final = head_timeout_s

    async def listen_unix(self, control: ControlSocket) -> None:
        """Take the connections of a control socket."""
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_unix_server(self._new_connection, sock=control.socket)

    async def listen_tcp(self, host: str, port: int, tls: ssl.SSLContext | None) -> int:
        """Listen on TCP, or TLS; returns the port, which the system chose if 0 was asked for."""
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        opened = partial(self._new_connection, tls)
        self._listener = await loop.create_server(opened, host, port, reuse_address=True)
        return int(self._listener.sockets[0].getsockname()[1])

    def _new_connection(self, tls: ssl.SSLContext | None = None) -> asyncio.Protocol:
        server = self._runner.server
        assert server is not None
        return HttpConnection(self, server) if tls is None else TlsHandshake(self, server, tls)

    # -- places ----------------------------------------------------------------------------------------------------

    def address_key(self, transport: asyncio.Transport) -> str:
        """What the address of a connection counts as; empty if it has no bound."""
        return self._service.server.addresses.key(transport.get_extra_info("peername"))

    def admit(self, connection: Placed) -> bool:
        """Whether there is a place for a new connection, after another one was closed for it if need be."""
        key = connection.address_key
        same = [each for each in self._connections if each.address_key == key] if key else []
        if len(same) >= self._address_connections_max and not self._make_room(same):
            return self._refuse(connection, f"{key} has {len(same)} connections already")
        if len(self._connections) >= self._connections_max and not self._make_room(self._connections):
            return self._refuse(connection, "all connections are in use")
        self._connections[connection] = None
        return True

    def _make_room(self, connections: Iterable[Placed]) -> bool:
        waiting = [each for each in connections if each.is_waiting()]
        if not waiting:
            return False
        closed = min(waiting, key=lambda each: (each.is_logged_in, each.since_s))
        self.counts.connections_closed += 1
        self.forget(closed)
        closed.abort()
        return True

    def _refuse(self, connection: Placed, reason: str) -> bool:
        self.counts.connections_refused += 1
        peer = shown_peer(connection.peername)
        http_log.log(logging.WARNING, "a new HTTP connection from %s was closed: %s", peer, reason)
        return False

    def forget(self, connection: Placed) -> None:
        """A connection is gone, or is being closed."""
        self._connections.pop(connection, None)

    # -- memory ----------------------------------------------------------------------------------------------------

    def has_room_for_head(self) -> bool:
        """Whether the heads that are being read are not too large together."""
        heads = [each.head_bytes for each in self._connections if isinstance(each, HttpConnection)]
        return sum(heads) <= HEADS_BYTES_MAX

    def add_body(self, size_bytes: int) -> None:
        """A body is going to be read; an `HttpRefusal` if there are too many. `remove_body` follows."""
        if self._bodies_bytes and self._bodies_bytes + size_bytes > self._bodies_bytes_max:
            raise HttpRefusal(503, "too large bodies at once, try again", {"Retry-After": "1"})
        self._bodies_bytes += size_bytes

    def remove_body(self, size_bytes: int) -> None:
        self._bodies_bytes -= size_bytes

    async def close(self) -> None:
        """Accept no more, and end what is open."""
        if self._listener is not None:
            self._listener.close()
        self._service.stopping.set()
        for connection in list(self._connections):
            if isinstance(connection, TlsHandshake):
                connection.abort()
        await self._runner.cleanup()

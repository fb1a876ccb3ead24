"""Listeners of the HTTP interface: the unix socket in the data directory and, where asked for, a TCP port.

Owns: the sockets, how many connections each takes, and the end of all of them.
"""

import asyncio
import logging
import socket
import ssl
from pathlib import Path
from typing import Final, final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from embermq.http.application import Application
from embermq.http.service import Service
from embermq.transport.addresses import unix_address
from embermq.transport.http_log import http_log

CONNECTIONS_MAX: Final = 256
"""How many connections one listener takes; one more is closed at once."""
LINE_BYTES_MAX: Final = 256 * 1024
"""Of the first line of a request: a topic filter may have 65,535 bytes, each written as three characters."""
KEEP_ALIVE_S: Final = 30.0
LINGERING_S: Final = 10.0
STOP_GRACE_S: Final = 1.0


class _RateLimit(logging.Filter):
    """Pass what the HTTP library logs on to `http_log`. A peer that does not speak HTTP is logged without a trace."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            http_log.log(logging.WARNING, "not HTTP from %s", *(record.args or ("a peer",)))
        else:
            http_log.log(record.levelno, "%s", record.getMessage(), error=error)
        return False


http_logger: Final = logging.getLogger("embermq.http")
http_logger.addFilter(_RateLimit())


class _Refused(asyncio.Protocol):
    """One connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


@final
class HttpListener:
    """One socket."""

    __slots__ = ("_application", "_connections_max", "_listener", "_runner", "_service")

    def __init__(self, service: Service, application: Application, connections_max: int = CONNECTIONS_MAX) -> None:
        self._service: Final = service
        self._application: Final = application
        self._connections_max: Final = connections_max
        self._listener: asyncio.Server | None = None
        self._runner: Final = web.AppRunner(
            application.web,
            access_log=None,
            logger=http_logger,
            keepalive_timeout=KEEP_ALIVE_S,
            lingering_time=LINGERING_S,
            max_line_size=LINE_BYTES_MAX,
            shutdown_timeout=STOP_GRACE_S,
        )

    async def listen_unix(self, path: Path) -> None:
        """Listen at a path. This server has the directory's lock, so a socket left there is old and is replaced."""
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with unix_address(path) as address:
                listener.bind(address)
            path.chmod(0o600)
            await self._runner.setup()
            loop = asyncio.get_running_loop()
            self._listener = await loop.create_unix_server(self._new_connection, sock=listener)
        except BaseException:
            listener.close()
            raise

    async def listen_tcp(self, host: str, port: int, tls: ssl.SSLContext | None) -> int:
        """Listen on TCP, or TLS; returns the port, which the system chose if 0 was asked for."""
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._new_connection, host, port, ssl=tls, reuse_address=True)
        return int(self._listener.sockets[0].getsockname()[1])

    def _new_connection(self) -> asyncio.Protocol:
        server = self._runner.server
        assert server is not None
        return server() if len(server.connections) < self._connections_max else _Refused()

    async def close(self) -> None:
        """Accept no more, and end what is open."""
        if self._listener is not None:
            self._listener.close()
        self._service.stopping.set()
        await self._runner.cleanup()

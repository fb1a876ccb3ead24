"""The HTTP interface of one server: its listeners, on the unix socket and on TCP.

Owns: joining service, logins, applications and listeners.
"""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from embermq.http.application import Application
from embermq.http.catalog import OPERATIONS
from embermq.http.listener import HttpListener
from embermq.http.login import UnixLogin
from embermq.http.options import HttpOptions
from embermq.http.service import Service

if TYPE_CHECKING:
    from embermq.transport.server import Server


@final
class HttpServer:
    """All listeners of one server."""

    __slots__ = ("_listeners", "_options", "_paths", "service")

    def __init__(
        self,
        server: "Server",
        options: HttpOptions,
        log_directory: Path | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.service: Final = Service(server, log_directory, settings, options.lake)
        self._options: Final = options
        self._listeners: Final[list[HttpListener]] = []
        self._paths: Final[list[Path]] = []

    async def listen_unix(self, path: Path) -> None:
        """Take the requests of operators at a path."""
        listener = HttpListener(self.service, Application(self.service, UnixLogin(), OPERATIONS))
        await listener.listen_unix(path)
        self._listeners.append(listener)
        self._paths.append(path)

    async def listen_tcp(self, tls: ssl.SSLContext | None) -> int:
        """Listen where the options say; returns the port."""
        raise NotImplementedError

    async def close(self) -> None:
        """End all requests."""
        for listener in self._listeners:
            await listener.close()
        for path in self._paths:
            path.unlink(missing_ok=True)

"""The HTTP interface of one server: its listeners, on the unix socket and on TCP.

Owns: joining service, logins, applications and listeners.
"""

import asyncio
import logging
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from embermq.access.tokens import TokenHolder, read_tokens
from embermq.http.alerts.watch import AlertWatch
from embermq.http.application import Application
from embermq.http.catalog import OPERATIONS
from embermq.http.control_socket import ControlSocket
from embermq.http.listener import HttpListener
from embermq.http.login import UnixLogin
from embermq.http.operation import OPERATOR, VIEWER
from embermq.http.options import BrokerCalls, HttpOptions
from embermq.http.resources.statistics_history import Sampler
from embermq.http.service import Service
from embermq.http.tcp_login import TcpLogin
from embermq.transport.authentication import Authenticator
from embermq.transport.sockets.addresses import is_loopback

if TYPE_CHECKING:
    from embermq.transport.server import Server

logger: Final = logging.getLogger("embermq")

CHECKS_MAX: Final = 16
"""How many requests may wait for a password to be checked; one more is told to try again."""


@final
class HttpServer:
    """All listeners of one server."""

    __slots__ = ("_authenticator", "_listeners", "_login", "_options", "_sampling", "_watching", "service")

    def __init__(
        self,
        server: "Server",
        options: HttpOptions,
        log_directory: Path | None = None,
        settings: Mapping[str, Any] | None = None,
        calls: BrokerCalls | None = None,
    ) -> None:
        self.service: Final = Service(
            server,
            log_directory,
            settings,
            options.lake,
            calls=calls,
            alerts=options.alerts,
            topic_metrics=options.topic_metrics,
        )
        self._options: Final = options
        self._listeners: Final[list[HttpListener]] = []
        self._authenticator: Authenticator | None = None
        self._login: TcpLogin | None = None
        loop = asyncio.get_running_loop()
        self._sampling: Final = loop.create_task(Sampler(self.service).run())
        self._watching: Final = loop.create_task(AlertWatch(self.service).run()) if options.alerts else None

    async def listen_unix(self, control: ControlSocket) -> None:
        """Take the requests of operators on this machine."""
        listener = HttpListener(self.service, Application(self.service, UnixLogin(), OPERATIONS))
        await listener.listen_unix(control)
        self._listeners.append(listener)

    async def listen_tcp(self, tls: ssl.SSLContext | None) -> int:
        """Listen where the options say; returns the port."""
        options = self._options
        assert options.port is not None
        if tls is None and not is_loopback(options.host):
            logger.warning("the HTTP interface on %s is not encrypted: tokens can be read on the way", options.host)
        login = self._tcp_login()
        listener = HttpListener(
            self.service,
            Application(self.service, login, OPERATIONS),
            head_timeout_s=self.service.server.limits.connect_timeout_s,
        )
        bound = await listener.listen_tcp(options.host, options.port, tls)
        self._listeners.append(listener)
        self._login = login
        return bound

    def _tcp_login(self) -> TcpLogin:
        options = self._options
        server = self.service.server
        users = dict.fromkeys(options.viewers, VIEWER) | dict.fromkeys(options.operators, OPERATOR)
        if options.has_users and users:
            self._authenticator = Authenticator(
                server.access,
                server.begin_turn,
                threads=1,
                waiting_max=CHECKS_MAX,
                name="authenticate-http",
                addresses=server.addresses,
            )
        hosts = frozenset({"localhost", options.host.lower(), *(name.lower() for name in options.names)})
        counts = self.service.counts
        return TcpLogin(self._read_tokens(), hosts, server.addresses, counts, self._authenticator, users)

    def _read_tokens(self) -> dict[str, TokenHolder]:
        return {} if self._options.token_file is None else read_tokens(self._options.token_file)

    def reload(self) -> bool:
        """Read the token file again, if there is one; on a `ConfigError` the old tokens stay valid."""
        if self._login is None or self._options.token_file is None:
            return False
        self._login.tokens = self._read_tokens()
        return True

    async def close(self) -> None:
        """End all requests."""
        self._sampling.cancel()
        if self._watching is not None:
            self._watching.cancel()
        for listener in self._listeners:
            await listener.close()
        if self._authenticator is not None:
            self._authenticator.close()
        self.service.close()

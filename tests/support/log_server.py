"""A log behind the HTTP interface of a server that does nothing else, for readers on other machines.

The server reads the log's directory; a test writes it with a `Recorder`.
"""

import asyncio
import threading
from pathlib import Path
from typing import Self

from embermq.access.tokens import TokenHolder, token_hash
from embermq.broker.access import AllowAll
from embermq.broker.limits import Limits
from embermq.http.application import Application
from embermq.http.catalog import OPERATIONS
from embermq.http.listener import HttpListener
from embermq.http.service import Service
from embermq.http.tcp_login import TcpLogin
from embermq.store.engines.memory import MemoryStore
from embermq.transport.server import Server

TOKEN = "ember_of-a-test"


class LogServer:
    """One server at a time on one port; it can be stopped and started again."""

    def __init__(self, data: Path, role: str = "reader") -> None:
        self._data = data
        self._role = role
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._listener: HttpListener | None = None
        self._server: Server | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, str]:
        """The options of the source for it."""
        return {"server": self.url, "token": TOKEN, "timeoutSeconds": "20"}

    def __enter__(self) -> Self:
        self._thread.start()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    def start(self) -> None:
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(60)

    async def _start(self) -> None:
        self._server = Server(store=MemoryStore(), access=AllowAll(), limits=Limits(), sys_interval_s=0)
        await self._server.start()
        service = Service(self._server, self._data / "log")
        tokens = {token_hash(TOKEN): TokenHolder("test", self._role)}
        login = TcpLogin(tokens, frozenset({"localhost"}), self._server.addresses, service.counts)
        self._listener = HttpListener(service, Application(service, login, OPERATIONS))
        self.port = await self._listener.listen_tcp("127.0.0.1", self.port, None)

    def stop(self) -> None:
        """End all connections."""
        if self._listener is not None:
            asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(60)

    async def _stop(self) -> None:
        assert self._listener is not None and self._server is not None
        await self._listener.close()
        await self._server.stop()
        self._listener = None

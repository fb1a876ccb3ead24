"""A server with its HTTP interface on a unix socket, in this event loop, and requests to it."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from embermq.broker.access import Access, AllowAll
from embermq.broker.limits import Limits
from embermq.http.alerts.rules import AlertRule
from embermq.http.application import REQUESTS_MAX, Application
from embermq.http.catalog import OPERATIONS
from embermq.http.connection import KEEP_ALIVE_S
from embermq.http.control_socket import ControlSocket
from embermq.http.fields import NDJSON
from embermq.http.listener import BODIES_BYTES_MAX, CONNECTIONS_MAX, HttpListener
from embermq.http.login import Login, UnixLogin
from embermq.http.service import Service
from embermq.http.unread import UNREAD_BYTES_MAX
from embermq.store.engines.memory import MemoryStore
from embermq.store.interface import Store
from embermq.transport.server import Server
from embermq.transport.sockets.addresses import unix_address


class Answered(NamedTuple):
    """Status, the JSON of the body, and the headers."""

    status: int
    json: Any
    headers: Any

    @property
    def error(self) -> str:
        assert self.json.keys() == {"error"}, self.json
        text = self.json["error"]
        assert text and "\n" not in text
        return str(text)


class Place:
    """A server, and an operator at its socket."""

    def __init__(self, server: Server, service: Service, path: Path, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.service = service
        self.path = path
        self.session = session

    async def get(self, path: str, **query: Any) -> Answered:
        return await self.ask("GET", path, params={name: str(value) for name, value in query.items()})

    async def post(self, path: str, **body: Any) -> Answered:
        return await self.ask("POST", path, json=body)

    async def ask(self, method: str, path: str, **options: Any) -> Answered:
        async with self.session.request(method, f"http://localhost{path}", **options) as response:
            return Answered(response.status, json.loads(await response.read()), response.headers)

    async def lines(self, path: str, **query: Any) -> list[Any]:
        """A whole stream; the last line may be an error."""
        params = {name: str(value) for name, value in query.items()}
        url = f"http://localhost{path}"
        async with self.session.get(url, params=params, headers={"Accept": NDJSON}) as response:
            assert response.status == 200, await response.text()
            return [json.loads(line) for line in (await response.read()).splitlines()]

    async def set(self, topic: str, payload: str, **more: Any) -> Answered:
        return await self.post("/api/v1/retained/set", messages=[{"topic": topic, "payload": payload, **more}])


def run(
    tmp_path: Path,
    test: Callable[[Place], Awaitable[None]],
    store: Store | None = None,
    limits: Limits | None = None,
    *,
    login: Login | None = None,
    access: Access | None = None,
    log_directory: Path | None = None,
    settings: dict[str, Any] | None = None,
    streams_max: int = 16,
    requests_max: int = REQUESTS_MAX,
    connections_max: int = CONNECTIONS_MAX,
    head_timeout_s: float = KEEP_ALIVE_S,
    unread_bytes_max: int = UNREAD_BYTES_MAX,
    bodies_bytes_max: int = BODIES_BYTES_MAX,
    alerts: Sequence[AlertRule] = (),
    internal_errors: int = 0,
) -> None:
    """Run a test against a server of its own."""
    path = tmp_path / "control.sock"

    async def served() -> None:
        server = Server(
            store=store or MemoryStore(), access=access or AllowAll(), limits=limits or Limits(), sys_interval_s=0
        )
        await server.start()
        service = Service(
            server,
            log_directory,
            settings,
            None,
            streams_max,
            failing_check_s=0.05,
            unread_bytes_max=unread_bytes_max,
            alerts=alerts,
        )
        application = Application(service, login or UnixLogin(), OPERATIONS, requests_max)
        listener = HttpListener(
            service, application, connections_max, head_timeout_s=head_timeout_s, bodies_bytes_max=bodies_bytes_max
        )
        await listener.listen_unix(ControlSocket(path))
        server.before_stop.append(listener.close)
        with unix_address(path) as address:
            connector = aiohttp.UnixConnector(address, limit=0)
            plain = {"Accept-Encoding": "identity"}  # the library would ask for gzip; tests count the bytes of answers
            async with aiohttp.ClientSession(connector=connector, headers=plain) as session:
                try:
                    await asyncio.wait_for(test(Place(server, service, path, session)), 60)
                finally:
                    await session.close()
                    await server.stop()
        assert server.core.counters.internal_errors == internal_errors

    asyncio.run(served())

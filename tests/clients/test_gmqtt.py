"""gmqtt, an asyncio client with a protocol engine of its own."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

import gmqtt  # type: ignore[import-untyped]  # it has no types
import pytest
from gmqtt.mqtt.constants import MQTTv311  # type: ignore[import-untyped]

from support.clauses import v311
from support.client_paths import TIMEOUT_S, Ways


class Client:
    """A gmqtt client whose callbacks have become things to wait for."""

    def __init__(self, client_id: str, clean: bool, will: gmqtt.Message | None) -> None:
        self.gmqtt = gmqtt.Client(client_id, clean_session=clean, will_message=will)
        self.messages: asyncio.Queue[tuple[str, bytes, int, object]] = asyncio.Queue()
        self._subscribed: asyncio.Queue[tuple[int, ...]] = asyncio.Queue()
        self.gmqtt.on_message = self._on_message
        self.gmqtt.on_subscribe = lambda _client, _mid, codes, _properties: self._subscribed.put_nowait(codes)

    def _on_message(
        self, _client: object, topic_name: str, payload: bytes, qos: int, properties: dict[str, object]
    ) -> int:
        self.messages.put_nowait((topic_name, bytes(payload), qos, properties["retain"]))
        return 0

    async def subscribe(self, topic_filter: str, qos: int) -> tuple[int, ...]:
        self.gmqtt.subscribe(topic_filter, qos)
        return await self._subscribed.get()


Connect = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture(params=["tcp", "tls"])
def connect(request: pytest.FixtureRequest, ways: Ways, space: str) -> Connect:
    tls: ssl.SSLContext | bool = ways.context() if request.param == "tls" else False
    port = ways.tls if request.param == "tls" else ways.tcp

    @asynccontextmanager
    async def connected(name: str, *, clean: bool = True, will: gmqtt.Message | None = None) -> AsyncIterator[Client]:
        client = Client(f"{space}{name}", clean, will)
        await client.gmqtt.connect(ways.host, port, ssl=tls, version=MQTTv311)
        yield client
        # The last acknowledgements may still be on their way to the client; its TLS calls that an error.
        with suppress(ssl.SSLError):
            await client.gmqtt.disconnect()

    return connected


def run(scene: Callable[[], Awaitable[None]]) -> None:
    async def within_time() -> None:
        async with asyncio.timeout(4 * TIMEOUT_S):
            await scene()

    asyncio.run(within_time())


@v311("MQTT-7.0.0-2")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_at_each_qos(connect: Connect, space: str, qos: int) -> None:
    async def scene() -> None:
        async with connect("r") as reader, connect("w") as writer:
            assert await reader.subscribe(f"{space}/+", qos) == (qos,)
            for number in range(20):
                writer.gmqtt.publish(f"{space}/a", b"%d" % number, qos)
            received = [await reader.messages.get() for _ in range(20)]
            assert received == [(f"{space}/a", b"%d" % number, qos, 0) for number in range(20)]

    run(scene)


def test_retained_messages(connect: Connect, space: str) -> None:
    async def scene() -> None:
        async with connect("w") as writer, connect("r") as reader:
            await writer.subscribe(f"{space}/a", 1)
            writer.gmqtt.publish(f"{space}/a", b"state", 1, retain=True)
            assert await writer.messages.get() == (f"{space}/a", b"state", 1, 0)
            await reader.subscribe(f"{space}/#", 2)
            assert await reader.messages.get() == (f"{space}/a", b"state", 1, 1)

    run(scene)


def test_a_will(connect: Connect, space: str) -> None:
    async def scene() -> None:
        async with connect("watcher") as watcher:
            await watcher.subscribe(f"{space}/will", 1)
            async with connect("c", will=gmqtt.Message(f"{space}/will", b"gone", qos=1)) as client:
                client.gmqtt.stop_reconnect()
                client.gmqtt._connection._transport.abort()
                assert await watcher.messages.get() == (f"{space}/will", b"gone", 1, 0)

    run(scene)


def test_a_persistent_session(connect: Connect, space: str) -> None:
    async def scene() -> None:
        async with connect("r", clean=False) as reader:
            await reader.subscribe(f"{space}/a", 1)
        async with connect("w") as writer:
            await writer.subscribe(f"{space}/a", 1)
            for number in range(10):
                writer.gmqtt.publish(f"{space}/a", b"%d" % number, 1)
            for _ in range(10):
                await writer.messages.get()
        async with connect("r", clean=False) as reader:
            received = [await reader.messages.get() for _ in range(10)]
            assert received == [(f"{space}/a", b"%d" % number, 1, 0) for number in range(10)]

    run(scene)

"""aiomqtt, for programs on asyncio."""

import asyncio
from collections.abc import Awaitable, Callable

import aiomqtt
import pytest

from support.clauses import v311
from support.client_paths import TIMEOUT_S, Ways

WAYS = ["tcp", "tls", "websocket", "websocket over tls"]

Connect = Callable[..., aiomqtt.Client]


@pytest.fixture(params=WAYS)
def connect(request: pytest.FixtureRequest, ways: Ways, space: str) -> Connect:
    """Makes clients for one way to the broker; `async with` connects them."""
    way = request.param
    port = {"tcp": ways.tcp, "tls": ways.tls, "websocket": ways.ws, "websocket over tls": ways.wss}[way]
    options: dict[str, object] = {"timeout": TIMEOUT_S, "protocol": aiomqtt.ProtocolVersion.V311}
    if "tls" in way:
        options["tls_context"] = ways.context()
    if "websocket" in way:
        options |= {"transport": "websockets", "websocket_path": "/mqtt"}

    def make(name: str, **more: object) -> aiomqtt.Client:
        return aiomqtt.Client(ways.host, port, identifier=f"{space}{name}", **(options | more))  # type: ignore[arg-type]  # handed through

    return make


def run(scene: Callable[[], Awaitable[None]]) -> None:
    async def within_time() -> None:
        async with asyncio.timeout(4 * TIMEOUT_S):
            await scene()

    asyncio.run(within_time())


async def take(client: aiomqtt.Client, count: int) -> list[aiomqtt.Message]:
    messages: list[aiomqtt.Message] = []
    async for message in client.messages:
        messages.append(message)
        if len(messages) == count:
            break
    return messages


@v311("MQTT-7.0.0-2", "MQTT-7.1.1-1")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_at_each_qos(connect: Connect, space: str, qos: int) -> None:
    async def scene() -> None:
        async with connect("r") as reader, connect("w") as writer:
            (code,) = await reader.subscribe(f"{space}/+", qos)
            assert not isinstance(code, int) and code.value == qos
            for number in range(20):
                await writer.publish(f"{space}/a", b"%d" % number, qos)
            received = await take(reader, 20)
            assert [m.payload for m in received] == [b"%d" % number for number in range(20)]
            assert {(str(m.topic), m.qos, m.retain) for m in received} == {(f"{space}/a", qos, False)}

    run(scene)


def test_retained_messages(connect: Connect, space: str) -> None:
    async def scene() -> None:
        async with connect("w") as writer, connect("r") as reader:
            await writer.publish(f"{space}/a", b"state", 1, retain=True)
            await reader.subscribe(f"{space}/#", 2)
            (found,) = await take(reader, 1)
            assert (found.payload, found.qos, found.retain) == (b"state", 1, True)
            await writer.publish(f"{space}/a", b"", 1, retain=True)
            (cleared,) = await take(reader, 1)
            assert (cleared.payload, cleared.retain) == (b"", False)

    run(scene)


def test_a_will(connect: Connect, space: str) -> None:
    async def scene() -> None:
        async with connect("watcher") as watcher:
            await watcher.subscribe(f"{space}/will", 1)
            client = connect("c", will=aiomqtt.Will(f"{space}/will", b"gone", 1))
            await client.__aenter__()
            # The socket goes away under the client: no DISCONNECT is sent.
            connection = client._client.socket()
            assert connection is not None
            connection.close()
            (message,) = await take(watcher, 1)
            assert message.payload == b"gone"

    run(scene)


def test_a_persistent_session(connect: Connect, space: str) -> None:
    async def scene() -> None:
        async with connect("r", clean_session=False) as reader:
            await reader.subscribe(f"{space}/a", 1)
        async with connect("w") as writer:
            for number in range(10):
                await writer.publish(f"{space}/a", b"%d" % number, 1)
        async with connect("r", clean_session=False) as reader:
            received = await take(reader, 10)
            assert [m.payload for m in received] == [b"%d" % number for number in range(10)]

    run(scene)

"""Listeners: every connection knows its own, with its limits and access rules; and how they work without epoll."""

import asyncio
import socket
import ssl
from pathlib import Path

import pytest

from embermq import Broker, embed
from embermq.broker.access import Access, Identity
from embermq.broker.limits import Limits
from embermq.certificates import Authority
from embermq.protocol.errors import Refused
from embermq.protocol.packets import Connack, Connect, Publish
from embermq.protocol.reasons import ReasonCode
from embermq.transport import listeners
from embermq.transport.listener import Listener
from embermq.transport.server import Server
from support.transports import Peer, joined, run, turn
from support.wire import Wire, connect

PAYLOAD = b"x" * 1_000_000
SN_CONNECT = bytes.fromhex("07040401003c63")
SN_CONNACK = bytes.fromhex("030500")
CONNACK = bytes.fromhex("20020000")
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def framed(data: bytes) -> bytes:
    return bytes((0x82, 0x80 | len(data))) + bytes(4) + data


async def stream_client(
    client_id: str, port: int | Path | None, tls: ssl.SSLContext | None = None
) -> asyncio.StreamWriter:
    assert port is not None
    if isinstance(port, Path):
        reader, writer = await asyncio.open_unix_connection(port)
    else:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    writer.write(connect(client_id))
    assert await reader.readexactly(4) == CONNACK
    return writer


async def websocket_client(client_id: str, port: int | None, tls: ssl.SSLContext | None = None) -> asyncio.StreamWriter:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    writer.write(UPGRADE)
    await reader.readuntil(b"\r\n\r\n")
    writer.write(framed(connect(client_id)))
    assert (await reader.readexactly(6))[2:] == CONNACK
    return writer


async def sn_client(port: int | None) -> None:
    """The client id is "c"."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.setblocking(False)
        await asyncio.get_running_loop().sock_sendto(client, SN_CONNECT, ("127.0.0.1", port))
        assert await asyncio.get_running_loop().sock_recv(client, 100) == SN_CONNACK


def test_every_connection_knows_its_listener(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.sign("server")
    context = ssl.create_default_context(cafile=authority.certificate)
    context.check_hostname = False
    path = tmp_path / "mqtt.sock"

    async def test() -> None:
        async with Broker(
            tls_port=0,
            ws_port=0,
            wss_port=0,
            sn_port=0,
            unix_path=path,
            certificate=pair.certificate,
            key=pair.key,
        ) as broker:
            writers = [
                await stream_client("tcp", broker.port),
                await stream_client("tls", broker.tls_port, context),
                await websocket_client("ws", broker.ws_port),
                await websocket_client("wss", broker.wss_port, context),
                await stream_client("unix", path),
            ]
            await sn_client(broker.sn_port)
            server = broker._server
            assert server is not None
            links = {session.client_id: session.connection() for session in server.core.sessions()}
            names = {client_id: link.listener_name() for client_id, link in links.items() if link is not None}
            assert names == {"c": "udp", "tcp": "tcp", "tls": "tls", "unix": "unix", "ws": "ws", "wss": "wss"}
            found = {listener.name: listener for listener in broker.listeners()}
            assert {name: listener.connections for name, listener in found.items()} == dict.fromkeys(found, 1) | {
                "udp": 0
            }
            assert (
                found["wss"].url() == f"wss://127.0.0.1:{broker.wss_port}" and found["unix"].url() == f"unix://{path}"
            )
            found["tcp"].close()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", broker.port)
            writers += [await stream_client("next", path)]
            assert (found["tcp"].connections, found["unix"].connections) == (1, 2)
            for writer in writers:
                writer.close()
            while server.connection_count():
                await asyncio.sleep(0.01)
            assert not any(listener.connections for listener in broker.listeners())

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await test()

    asyncio.run(bounded())


class NobodyKnown(Access):
    def __init__(self) -> None:
        super().__init__(slow=False, unrestricted=True)

    def authenticate(
        self, client_id: str, user_name: str | None, password: bytes | None, certificate_name: str | None
    ) -> Identity:
        raise Refused("nobody is known here", ReasonCode.NOT_AUTHORIZED)

    def may_publish(self, identity: Identity, topic_name: str, retain: bool) -> bool:
        return True

    def may_subscribe(self, identity: Identity, topic_filter: str) -> bool:
        return True


def test_the_limits_and_the_access_rules_are_those_of_the_listener() -> None:
    async def scenario(server: Server) -> None:
        small = Listener(kind="tcp", limits=Limits(packet_bytes_max=128), access=server.access)
        closed = Listener(kind="tls", limits=server.limits, access=NobodyKnown())
        bounded, refused = Peer(server, small), Peer(server, closed)
        others = await joined(server, "other")
        await bounded.send(Connect("bounded"))
        await refused.send(Connect("refused"))
        assert (bounded.packets(), refused.packets()) == (
            [Connack(False, 0)],
            [Connack(False, ReasonCode.NOT_AUTHORIZED)],
        )
        await bounded.send(Publish("t", bytes(200)))
        await others.send(Publish("t", bytes(200)))
        await turn()
        assert (bounded.ended, others.ended) == ("closed", "")

    run(scenario)


@pytest.fixture
def _without_epoll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "HAS_POLL", False)
    monkeypatch.setattr(embed, "HAS_POLL", False)


@pytest.mark.usefixtures("_without_epoll")
def test_clients_are_served_by_the_event_loop_where_there_is_no_epoll() -> None:
    with Broker.in_thread(port=0, sn_port=0) as broker:
        assert broker.port is not None and broker.sn_port is not None
        address = (broker.host, broker.port)
        with Wire(address) as publisher, Wire(address) as subscriber:
            subscriber.connect("s")
            subscriber.subscribe(("t", 1))
            publisher.connect("p")
            publisher.publish("t", PAYLOAD, qos=1)
            assert subscriber.receive_message().payload == PAYLOAD
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(60)
            client.sendto(SN_CONNECT, (broker.host, broker.sn_port))
            assert client.recv(100) == SN_CONNACK

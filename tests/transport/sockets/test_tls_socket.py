"""TLS on the server's own sockets: handshakes within limits, bytes both ways however they are cut, and the end."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from embermq import Broker
from embermq.broker.limits import Limits
from embermq.certificates import Authority, Pair
from embermq.transport.server import Server
from embermq.transport.sockets.tls_socket import ANSWERS_MAX, HANDSHAKE_BYTES_MAX, Handshakes, TlsSocket
from embermq.transport.stream import StreamConnection
from support.transports import connection_of
from support.wire import connect, packet, publish, subscribe

CONNACK = bytes.fromhex("20020000")
SUBACK = bytes.fromhex("9003000100")
PINGREQ, PINGRESP = packet(12, 0), bytes.fromhex("d000")
HELLO_BEGUN = b"\x16\x03\x01\x02\x00\x01"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    return authority.sign("server")


def run(test: Callable[[], Coroutine[None, None, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await test()

    asyncio.run(bounded())


def served(pair: Pair, **options: object) -> Broker:
    return Broker(tls_port=0, port=None, certificate=pair.certificate, key=pair.key, **options)  # type: ignore[arg-type]


def server_of(broker: Broker) -> Server:
    assert broker._server is not None
    return broker._server


class Client:
    """TLS over a socket that this class alone reads and writes, so that a test decides what is sent, and when."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cafile: Path) -> None:
        self.reader, self.writer = reader, writer
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cafile=str(cafile))
        context.check_hostname = False
        self.tls = context.wrap_bio(self.incoming, self.outgoing)

    async def _more(self) -> None:
        data = await self.reader.read(65_536)
        if not data:
            raise ConnectionResetError
        self.incoming.write(data)

    async def shake_hands(self, step: int = 65_536) -> None:
        while True:
            try:
                self.tls.do_handshake()
                is_over = True
            except ssl.SSLWantReadError:
                is_over = False
            await self.flush(step)
            if is_over:
                return
            await self._more()

    async def flush(self, step: int = 65_536) -> None:
        data = self.outgoing.read()
        for at in range(0, len(data), step):
            self.writer.write(data[at : at + step])
            await self.writer.drain()
            if step < len(data):
                await asyncio.sleep(0)

    async def send(self, data: bytes, step: int = 65_536) -> None:
        view = memoryview(data)
        while view:
            view = view[self.tls.write(view) :]
        await self.flush(step)

    async def expect(self, expected: bytes) -> None:
        received = b""
        while len(received) < len(expected):
            try:
                received += self.tls.read(len(expected) - len(received))
            except ssl.SSLWantReadError:
                await self._more()
        assert received == expected


@asynccontextmanager
async def dialled(broker: Broker, authority: Authority) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection(broker.host, broker.tls_port)
    try:
        yield Client(reader, writer, authority.certificate)
    finally:
        writer.close()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("step", [1, 7, 65_536])
def test_bytes_pass_both_ways_however_they_are_cut(authority: Authority, pair: Pair, step: int) -> None:
    async def test() -> None:
        payload = bytes(range(256)) * (8 if step == 1 else 2_048)
        async with served(pair) as broker, dialled(broker, authority) as client:
            await client.shake_hands(step)
            await client.send(connect("c1") + subscribe(1, ("a", 0)), step)
            await client.expect(CONNACK + SUBACK)
            await client.send(publish("a", payload) + PINGREQ, step)
            await client.expect(publish("a", payload) + PINGRESP)

    run(test)


def test_a_connection_counts_before_its_handshake(authority: Authority, pair: Pair) -> None:
    async def test() -> None:
        async with served(pair, limits=Limits(connections_max=2)) as broker:
            server = server_of(broker)
            half = [await asyncio.open_connection(broker.host, broker.tls_port) for _ in range(2)]
            half[0][1].write(HELLO_BEGUN)
            await until(lambda: len(server._connections) == 2)
            reader, writer = await asyncio.open_connection(broker.host, broker.tls_port)
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
            assert server.core.counters.connections_refused == 1
            half[0][1].close()
            await until(lambda: len(server._connections) == 1)
            async with dialled(broker, authority) as client:
                await client.shake_hands()
                await client.send(connect("c1"))
                await client.expect(CONNACK)
                assert server.handshakes.counts()["tls/handshakes"] == 1  # the other half one
            half[1][1].close()

    run(test)


def test_handshakes_have_a_bound_and_the_oldest_that_has_stalled_makes_room(authority: Authority, pair: Pair) -> None:
    async def test() -> None:
        async with served(pair) as broker:
            server = server_of(broker)
            server.handshakes.handshakes_max, server.handshakes.stalled_s = 2, 1e9
            half = [await asyncio.open_connection(broker.host, broker.tls_port) for _ in range(2)]
            await until(lambda: server.handshakes.counts()["tls/handshakes"] == 2)
            async with dialled(broker, authority) as client:
                shaking = asyncio.create_task(client.shake_hands())
                await asyncio.sleep(0.2)  # it is accepted by no turn of this time
                assert len(server._connections) == 2 and not shaking.done()
                server.handshakes.stalled_s = 0.0
                await shaking
                await client.send(connect("c1"))
                await client.expect(CONNACK)
            assert await half[0][0].read() == b""  # the oldest
            assert server.handshakes.ended >= 1
            for _, writer in half:
                writer.close()

    run(test)


def test_a_handshake_without_end_is_ended(pair: Pair) -> None:
    async def test() -> None:
        async with served(pair) as broker:
            server = server_of(broker)
            reader, writer = await asyncio.open_connection(broker.host, broker.tls_port)
            fragment = b"\x16\x03\x01\x40\x00" + b"\x01\x01\xff\x00" + bytes(16_380)
            with suppress(ConnectionError):
                for _ in range(HANDSHAKE_BYTES_MAX // len(fragment) + 2):
                    writer.write(fragment)
                    await writer.drain()
                await reader.read()
            await until(lambda: server.handshakes.failed == 1)
            await until(lambda: not server._connections)
            writer.close()

    run(test)


@pytest.mark.parametrize(
    ("sent", "reason"), [(b"GET / HTTP/1.1\r\n\r\n", "http request"), (bytes(200), "wrong version number")]
)
def test_what_is_not_tls_is_a_line_in_the_log(
    pair: Pair, caplog: pytest.LogCaptureFixture, sent: bytes, reason: str
) -> None:
    async def test() -> None:
        async with served(pair) as broker:
            reader, writer = await asyncio.open_connection(broker.host, broker.tls_port)
            writer.write(sent)
            await reader.read()
            writer.close()
            assert server_of(broker).handshakes.failed == 1

    run(test)
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert line.startswith("the TLS handshake of 127.0.0.1:") and line.endswith(f"failed: {reason}")


def test_the_end_does_not_wait_for_a_client_that_says_nothing(authority: Authority, pair: Pair) -> None:
    async def test() -> None:
        broker = served(pair)
        await broker.start()
        async with dialled(broker, authority) as client:
            await client.shake_hands()
            await client.send(connect("c1"))
            await client.expect(CONNACK)
            async with asyncio.timeout(4):  # STOP_GRACE_S is 5
                await broker.stop()
            client.incoming.write(await client.reader.read())
            assert client.tls.read(1) == b""  # it was told the end, not cut off

    run(test)


def test_a_client_that_ends_its_stream_is_gone(authority: Authority, pair: Pair) -> None:
    async def test() -> None:
        async with served(pair) as broker:
            for is_told in (True, False):
                async with dialled(broker, authority) as client:
                    await client.shake_hands()
                    await client.send(connect("c1"))
                    await client.expect(CONNACK)
                    if is_told:
                        with suppress(ssl.SSLWantReadError):
                            client.tls.unwrap()
                        await client.flush()
                    else:
                        client.writer.write_eof()
                    await until(lambda: not server_of(broker)._connections)

    run(test)


def test_broken_records_end_only_that_client(authority: Authority, pair: Pair) -> None:
    async def test() -> None:
        async with served(pair) as broker, dialled(broker, authority) as other:
            await other.shake_hands()
            await other.send(connect("c1"))
            await other.expect(CONNACK)
            async with dialled(broker, authority) as client:
                await client.shake_hands()
                client.writer.write(b"\x17\x03\x03\x00\x40" + bytes(64))
                with suppress(ConnectionError):
                    while await client.reader.read(1_000):
                        pass
            await other.send(PINGREQ)
            await other.expect(PINGRESP)

    run(test)


def test_the_name_in_a_certificate_of_a_client_is_known(authority: Authority, pair: Pair) -> None:
    async def test() -> None:
        async with served(pair, client_ca=authority.certificate) as broker:
            reader, writer = await asyncio.open_connection(broker.host, broker.tls_port)
            client = Client(reader, writer, authority.certificate)
            own = authority.sign("device-7")
            context = ssl.create_default_context(cafile=str(authority.certificate))
            context.check_hostname = False
            context.load_cert_chain(own.certificate, own.key)
            client.tls = context.wrap_bio(client.incoming, client.outgoing)
            await client.shake_hands()
            await client.send(connect("c1"))
            await client.expect(CONNACK)
            (connection,) = server_of(broker)._connections
            assert isinstance(connection, StreamConnection) and connection._transport is not None
            certificate = connection._transport.get_extra_info("peercert")
            assert isinstance(certificate, dict) and "device-7" in str(certificate["subject"])
            writer.close()

    run(test)


def test_answers_of_tls_to_a_client_that_does_not_read_are_bounded(pair: Pair) -> None:
    async def test() -> None:
        async with served(pair) as broker:
            server = server_of(broker)
            poll = server.own_poll()
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            handshakes = Handshakes(server.log.closed)
            stream = TlsSocket(poll, ours.detach(), None, connection_of(server), False, context, handshakes)
            poll.add(stream)
            stream.begin()
            stream._outgoing.write(bytes(1 << 22))
            stream._answer()  # the kernel does not take all of this
            for _ in range(ANSWERS_MAX):
                stream._outgoing.write(b"x")
                stream._answer()
            assert stream.descriptor >= 0
            stream._outgoing.write(b"x")
            stream._answer()
            assert stream.descriptor < 0
            theirs.close()

    run(test)

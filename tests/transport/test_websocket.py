"""MQTT over WebSocket: frames are only a way for bytes, and a frame that is not binary ends the connection."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
import uvloop

from embermq import Broker
from embermq.broker.access import AllowAll
from embermq.broker.limits import Limits
from embermq.certificates import Authority
from embermq.protocol.mqtt.decode import CONNECT_BYTES_MAX
from embermq.transport.listener import Listener
from embermq.transport.stream import StreamConnection
from embermq.transport.websocket import REQUEST_BYTES_MAX, may_come_from
from support.clauses import v311
from support.wire import connect, packet, publish, subscribe

TIMEOUT_S = 60
CONNACK = bytes.fromhex("20020000")
PINGREQ = packet(12, 0)
PINGRESP = bytes.fromhex("d000")
SUBACK = bytes.fromhex("9003000100")


LoopFactory = Callable[[], asyncio.AbstractEventLoop] | None


def run(test: Callable[[], Coroutine[None, None, None]], loop_factory: LoopFactory = None) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(asyncio.wait_for(test(), TIMEOUT_S))


class Socket:
    """A WebSocket whose messages are read as one stream of bytes."""

    def __init__(self, websocket: aiohttp.ClientWebSocketResponse) -> None:
        self.raw = websocket
        self._input = b""

    async def send(self, *frames: bytes) -> None:
        for frame in frames:
            await self.raw.send_bytes(frame)

    async def read(self, count: int) -> bytes:
        while len(self._input) < count:
            self._input += await self.raw.receive_bytes()
        taken, self._input = self._input[:count], self._input[count:]
        return taken

    async def expect(self, expected: bytes) -> None:
        assert await self.read(len(expected)) == expected

    async def expect_close(self) -> int | None:
        message = await self.raw.receive()
        assert message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED), message
        return self.raw.close_code


@asynccontextmanager
async def dialled(broker: Broker, path: str = "/mqtt", **options: object) -> AsyncIterator[Socket]:
    scheme, port = ("ws", broker.ws_port) if broker.ws_port is not None else ("wss", broker.wss_port)
    settings: dict[str, object] = {"protocols": ["mqtt"], **options}
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{scheme}://{broker.host}:{port}{path}", **settings) as websocket,  # type: ignore[call-overload]  # handed through
    ):
        yield Socket(websocket)


@v311("MQTT-6.0.0-4")
@pytest.mark.parametrize(
    ("offered", "selected"),
    [
        (["mqtt"], "mqtt"),
        (["mqttv3.1", "mqtt"], "mqtt"),
        (["other", "mqtt"], "mqtt"),
        (["mqttv3.1"], "mqttv3.1"),
    ],
)
def test_the_subprotocol_is_named_in_the_answer(offered: list[str], selected: str) -> None:
    async def test() -> None:
        async with Broker(ws_port=0) as broker, dialled(broker, protocols=offered) as client:
            assert client.raw.protocol == selected
            await client.send(connect("c1"))
            await client.expect(CONNACK)

    run(test)


def test_a_client_that_offers_no_subprotocol_gets_none_and_one_that_offers_others_is_refused() -> None:
    async def test() -> None:
        async with Broker(ws_port=0) as broker:
            async with dialled(broker, protocols=[]) as client:
                assert client.raw.protocol is None
                await client.send(connect("c1"))
                await client.expect(CONNACK)
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                async with dialled(broker, protocols=["soap"]):
                    pass
            assert refused.value.status == 400

    run(test)


@pytest.mark.parametrize("path", ["", "/", "/mqtt", "/ws?token=1", "/a%20b"])
def test_every_path_is_accepted_unless_one_is_set(path: str) -> None:
    async def test() -> None:
        async with Broker(ws_port=0) as broker, dialled(broker, path) as client:
            await client.send(connect("c1"))
            await client.expect(CONNACK)

    run(test)


def test_a_refused_upgrade_is_a_line_in_the_log_without_control_characters(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with Broker(ws_port=0, ws_path="/mqtt") as broker:
            async with dialled(broker, "/mqtt?a=b") as client:
                await client.send(connect("c1"))
                await client.expect(CONNACK)
            reader, writer = await asyncio.open_connection(broker.host, broker.ws_port)
            writer.write(
                b"GET /other\x1b[2J HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Protocol: so\x07ap\r\n\r\n"
            )
            assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
            writer.close()
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                async with dialled(broker, "/other", protocols=["soap", "mqtt"]):
                    pass
            assert refused.value.status == 404

    run(test)
    not_http, other = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "'/other\\x1b[2J' with the subprotocol 'so\\x07ap' was refused: not HTTP" in not_http
    assert "of 127.0.0.1:" in other
    assert "at '/other' with the subprotocol 'soap,mqtt' was refused: the path is not the listener's" in other


@v311("MQTT-6.0.0-2")
def test_packets_may_be_split_and_joined_across_frames() -> None:
    async def test() -> None:
        stream = connect("c1") + subscribe(1, ("a", 0)) + publish("a", b"hello") + PINGREQ
        answer = CONNACK + SUBACK + publish("a", b"hello") + PINGRESP
        async with Broker(ws_port=0) as broker:
            async with dialled(broker) as client:
                await client.send(stream)
                await client.expect(answer)
            async with dialled(broker) as client:
                await client.send(*(bytes([byte]) for byte in stream))
                await client.expect(answer)
            async with dialled(broker) as client:
                await client.send(stream[:40], stream[40:])
                await client.expect(answer)

    run(test)


@v311("MQTT-6.0.0-1")
def test_what_the_server_sends_is_binary_and_a_text_frame_ends_the_connection() -> None:
    async def test() -> None:
        async with Broker(ws_port=0) as broker, dialled(broker) as client, dialled(broker) as watcher:
            await watcher.send(connect("watcher") + subscribe(1, ("will", 0)))
            await watcher.expect(CONNACK + SUBACK)
            will = bytes.fromhex("10 17 0004 4d515454 04 06 003c 0002 6331 0004 77696c6c 0001 78")
            await client.send(will)
            first = await client.raw.receive()
            assert (first.type, first.data) == (aiohttp.WSMsgType.BINARY, CONNACK)
            await client.raw.send_str("not MQTT")
            assert await client.expect_close() == aiohttp.WSCloseCode.UNSUPPORTED_DATA
            await watcher.expect(publish("will", b"x"))

    run(test)


@pytest.mark.parametrize("loop_factory", [None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_qos_1_messages_wait_for_a_slow_client_and_all_arrive(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        payload = bytes(20_000)
        count = 300
        limits = Limits(output_bytes_max=50_000, inflight_max=1_000)
        async with Broker(ws_port=0, limits=limits) as broker, dialled(broker) as slow, dialled(broker) as quick:
            await slow.send(connect("slow") + subscribe(1, ("a", 1)))
            await slow.expect(CONNACK + bytes.fromhex("9003000101"))
            transport = slow.raw._response.connection.transport  # type: ignore[union-attr]
            assert transport is not None
            transport.pause_reading()
            await quick.send(connect("quick"))
            await quick.expect(CONNACK)
            for packet_id in range(1, count + 1):
                await quick.send(publish("a", payload, qos=1, packet_id=packet_id))
                await quick.expect(b"\x40\x02" + packet_id.to_bytes(2))
            transport.resume_reading()
            for packet_id in range(1, count + 1):
                await slow.expect(publish("a", payload, qos=1, packet_id=packet_id))
                await slow.send(b"\x40\x02" + packet_id.to_bytes(2))

    run(test, loop_factory)


@pytest.mark.parametrize("length", [0, 1, 125, 126, 127, 65_535, 65_536, 200_000])
def test_every_length_has_its_own_frame(length: int) -> None:
    async def test() -> None:
        # The head of the PUBLISH takes 5 to 7 bytes of the frame.
        async with Broker(ws_port=0) as broker, dialled(broker) as client:
            await client.send(connect("c1") + subscribe(1, ("a", 0)))
            await client.expect(CONNACK + SUBACK)
            for size in {length, max(0, length - 5), max(0, length - 6), max(0, length - 7)}:
                await client.send(publish("a", bytes(size)))
                await client.expect(publish("a", bytes(size)))

    run(test)


def test_a_large_message_goes_both_ways() -> None:
    async def test() -> None:
        payload = bytes(range(256)) * 4096
        limits = Limits(packet_bytes_max=len(payload) + 100, output_bytes_max=2 * len(payload))
        async with Broker(ws_port=0, limits=limits) as broker, dialled(broker, max_msg_size=0) as client:
            await client.send(connect("c1") + subscribe(1, ("a", 0)))
            await client.expect(CONNACK + SUBACK)
            await client.send(publish("a", payload))
            await client.expect(publish("a", payload))

    run(test)


def test_a_message_beyond_the_packet_limit_ends_the_connection() -> None:
    async def test() -> None:
        limits = Limits(packet_bytes_max=1000)
        async with Broker(ws_port=0, limits=limits) as broker:
            for size in (2_000, 200_000):
                async with dialled(broker) as client:
                    await client.send(connect("c1"))
                    await client.expect(CONNACK)
                    await client.send(publish("a", bytes(size)))
                    await client.expect_close()

    run(test)


@pytest.mark.parametrize("loop_factory", [None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_client_that_does_not_read_is_bounded_and_harms_no_other(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        limits = Limits(output_bytes_max=100_000)
        payload = bytes(50_000)
        count = 400
        async with Broker(ws_port=0, limits=limits) as broker, dialled(broker) as slow, dialled(broker) as quick:
            await slow.send(connect("slow") + subscribe(1, ("a", 0)))
            await slow.expect(CONNACK + SUBACK)
            await quick.send(connect("quick"))
            await quick.expect(CONNACK)
            # The client library would read ahead; the socket must not.
            transport = slow.raw._response.connection.transport  # type: ignore[union-attr]
            assert transport is not None
            transport.pause_reading()
            for _ in range(count):
                await quick.send(publish("a", payload))
            await quick.send(PINGREQ)
            await quick.expect(PINGRESP)
            server = broker._server
            assert server is not None
            transports = [each._transport for each in server._connections if isinstance(each, StreamConnection)]
            waiting = max(each.get_write_buffer_size() for each in transports if each is not None)
            assert 0 < waiting <= limits.output_bytes_max + 2 * len(payload)
            assert server.core.counters.dropped_output_full > 0
            transport.resume_reading()
            received = 0
            frame = publish("a", payload)
            dropped = server.core.counters.dropped_output_full
            while received < count - dropped:
                await slow.expect(frame)
                received += 1
            # It has caught up: what comes now is delivered again.
            await quick.send(publish("a", b"again"))
            await slow.expect(publish("a", b"again"))

    run(test, loop_factory)


def test_the_end_is_told_both_ways() -> None:
    async def test() -> None:
        async with Broker(ws_port=0) as broker:
            async with dialled(broker) as client:
                await client.send(connect("c1"))
                await client.expect(CONNACK)
                await client.send(connect("c1"))  # a second CONNECT: the server ends the connection
                assert await client.expect_close() == aiohttp.WSCloseCode.OK
            async with dialled(broker) as client:
                await client.send(connect("c2"))
                await client.expect(CONNACK)
                await broker.stop()
                assert await client.expect_close() is not None

    run(test)


def test_plain_http_and_other_paths_are_answered_and_forgotten() -> None:
    async def test() -> None:
        async with Broker(ws_port=0, ws_path="/mqtt") as broker, aiohttp.ClientSession() as session:
            base = f"http://{broker.host}:{broker.ws_port}"
            async with session.get(f"{base}/other") as other, session.get(f"{base}/mqtt") as plain:
                assert (other.status, plain.status) == (404, 400)
                assert "/mqtt" in await other.text()
            headers = {"Sec-WebSocket-Protocol": "mqtt"}
            async with session.get(f"{base}/mqtt", headers=headers) as no_upgrade:
                assert no_upgrade.status == 400

    run(test)


def test_a_peer_that_asks_for_nothing_is_ended() -> None:
    async def test() -> None:
        async with Broker(ws_port=0, limits=Limits(connect_timeout_s=1)) as broker:
            reader, writer = await asyncio.open_connection(broker.host, broker.ws_port)
            assert await reader.read() == b""
            writer.close()
            async with dialled(broker) as client:
                await client.expect_close()

    run(test)


def test_a_connection_counts_before_its_upgrade_and_no_more_when_it_is_gone() -> None:
    async def test() -> None:
        async with Broker(ws_port=0, limits=Limits(connections_max=2)) as broker:
            first = await asyncio.open_connection(broker.host, broker.ws_port)
            async with dialled(broker) as client:
                await client.send(connect("c1"))
                await client.expect(CONNACK)
                refused, writer = await asyncio.open_connection(broker.host, broker.ws_port)
                with suppress(ConnectionResetError):
                    assert await refused.read() == b""
                writer.close()
                assert broker._server is not None
                assert broker._server.core.counters.connections_refused == 1
                first[1].close()
                await first[1].wait_closed()
                while len(broker._server._connections) > 1:
                    await asyncio.sleep(0.01)
                async with dialled(broker) as second:
                    await second.send(connect("c2"))
                    await second.expect(CONNACK)

    run(test)


def test_requests_that_do_not_upgrade_do_not_prolong_a_connection() -> None:
    async def test() -> None:
        async with Broker(ws_port=0, limits=Limits(connect_timeout_s=1)) as broker:
            for path in (b"/other", b"/mqtt"):
                reader, writer = await asyncio.open_connection(broker.host, broker.ws_port)
                writer.write(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n")
                assert (await reader.read()).endswith(b"a request for a WebSocket is expected\n")
                writer.close()
            reader, writer = await asyncio.open_connection(broker.host, broker.ws_port)
            writer.write(b"GET /mqtt HTTP/1.1\r\nHost: x\r\n")  # and no end of it
            assert await reader.read() == b""
            writer.close()
            reader, writer = await asyncio.open_connection(broker.host, broker.ws_port)
            writer.write(b"GET /mqtt HTTP/1.1\r\nCookie: " + bytes([65]) * REQUEST_BYTES_MAX)
            assert (await reader.read()).startswith(b"HTTP/1.1 431 ")
            writer.close()

    run(test)


def test_an_unfinished_message_before_connect_is_bounded_and_after_it_by_the_packet_limit() -> None:
    async def test() -> None:
        async with Broker(ws_port=0) as broker:
            async with dialled(broker) as client:
                length = CONNECT_BYTES_MAX + 100_000
                await client.send(b"\x10\x80\x80\x80\x01" + bytes(length))  # it announces 2 MiB
                await client.expect_close()
            async with dialled(broker) as client:
                await client.send(connect("c1"))
                await client.expect(CONNACK)
                await client.send(publish("a", bytes(CONNECT_BYTES_MAX + 100_000)) + PINGREQ)
                await client.expect(PINGRESP)
            assert broker._server is not None
            assert broker._server.core.counters.protocol_errors == 1

    run(test)


def test_a_frame_that_is_not_masked_ends_the_connection() -> None:
    async def test() -> None:
        async with Broker(ws_port=0) as broker, dialled(broker) as client:
            await client.send(connect("c1"))
            await client.expect(CONNACK)
            transport = client.raw._response.connection.transport  # type: ignore[union-attr]
            assert transport is not None
            transport.write(b"\x82\x02" + PINGREQ)
            assert await client.expect_close() == aiohttp.WSCloseCode.PROTOCOL_ERROR
            assert broker._server is not None
            assert broker._server.core.counters.protocol_errors == 1

    run(test)


@pytest.mark.parametrize(
    ("host", "allowed", "origin", "status"),
    [
        ("127.0.0.1", (), None, 101),
        ("127.0.0.1", (), "http://localhost:3000", 101),
        ("127.0.0.1", (), "http://[::1]:3000", 101),
        ("127.0.0.1", (), "https://evil.example", 403),
        ("127.0.0.1", (), "null", 403),
        ("127.0.0.1", (), "http://[no address", 403),
        ("127.0.0.1", ("*",), "https://evil.example", 101),
        ("127.0.0.1", ("https://Good.example",), "https://good.example", 101),
        ("127.0.0.1", ("https://good.example",), "http://localhost", 403),
    ],
)
def test_a_web_page_of_another_origin_does_not_reach_a_server_of_this_machine(
    host: str, allowed: tuple[str, ...], origin: str | None, status: int
) -> None:
    async def test() -> None:
        async with Broker(host=host, ws_port=0, ws_origins=allowed) as broker:
            headers = {"Origin": origin} if origin else {}
            try:
                async with dialled(broker, headers=headers) as client:
                    await client.send(connect("c1"))
                    await client.expect(CONNACK)
                    assert status == 101
            except aiohttp.WSServerHandshakeError as refused:
                assert refused.status == status

    run(test)


def test_what_is_not_http_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with Broker(ws_port=0) as broker:
            reader, writer = await asyncio.open_connection(broker.host, broker.ws_port)
            writer.write(b"GET /mqtt HTTP/1.1\r\nHost: x\r\nOrigin: \x1b[2J\x07\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
            writer.close()

    run(test)
    (record,) = caplog.records
    assert (record.levelname, record.exc_info) == ("WARNING", None)
    assert record.getMessage().endswith("at '/mqtt' with the subprotocol (none) was refused: not HTTP")


@pytest.mark.parametrize("websocket", [False, True])
def test_a_tls_handshake_has_as_long_as_a_connect(tmp_path: Path, websocket: bool) -> None:
    async def test() -> None:
        pair = Authority(tmp_path).sign("server")
        limits = Limits(connect_timeout_s=1)
        wss_port, tls_port = (0, None) if websocket else (None, 0)
        async with Broker(
            limits=limits, certificate=pair.certificate, key=pair.key, wss_port=wss_port, tls_port=tls_port
        ) as broker:
            port = broker.wss_port if websocket else broker.tls_port
            reader, writer = await asyncio.open_connection(broker.host, port)
            writer.write(b"\x16\x03\x01\x02\x00\x01")  # the beginning of a hello, and no more
            async with asyncio.timeout(60):
                assert await reader.read() == b""
            writer.close()

    run(test)


def test_where_other_machines_connect_all_pages_may() -> None:
    for host, may_come in (("0.0.0.0", True), ("127.0.0.1", False)):
        listener = Listener(kind="ws", limits=Limits(), access=AllowAll(), hosts=[host])
        assert may_come_from("https://any.example", listener) is may_come


def test_over_tls(tmp_path: Path) -> None:
    async def test() -> None:
        authority = Authority(tmp_path)
        pair = authority.sign("server")
        options = {"wss_port": 0, "certificate": pair.certificate, "key": pair.key}
        async with Broker(**options) as broker:  # type: ignore[arg-type]
            context = ssl.create_default_context(cafile=str(authority.certificate))
            async with dialled(broker, ssl=context) as client:
                await client.send(connect("c1"))
                await client.expect(CONNACK)

    run(test)

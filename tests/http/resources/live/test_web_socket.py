"""Events over a WebSocket: the same as server-sent events, for programs and for pages."""

import asyncio
import json
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from embermq import Broker
from embermq.access.tokens import write_token
from embermq.http.options import HttpOptions
from embermq.http.resources.live import events, tail
from embermq.http.web_socket import AUTHORIZATION, PROTOCOL
from embermq.protocol.packets import Publish
from support.ember_command import wire
from support.http_place import Place, run
from support.transports import joined

TAIL = "http://localhost/api/v1/messages/tail"


async def taken(socket: aiohttp.ClientWebSocketResponse, count: int) -> list[Any]:
    return [json.loads(await asyncio.wait_for(socket.receive_str(), 60)) for _ in range(count)]


def offered(authorization: str) -> tuple[str, str]:
    """What a page offers as protocols."""
    return PROTOCOL, AUTHORIZATION + urlsafe_b64encode(authorization.encode()).decode().rstrip("=")


def test_messages_come_as_events_and_the_subscription_ends_with_the_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "QUIET_S", 600.0)  # the reader is not looked for: its end is heard

    async def test(place: Place) -> None:
        publisher = await joined(place.server, "p")
        for is_in_form in (True, False):
            socket = await place.session.ws_connect(TAIL, params={"filter": "a/#"})
            assert await taken(socket, 1) == [{"event": "begin", "data": {}}]
            await publisher.send(Publish("b", b"1"), Publish("a/\u202e", b"\xff"), Publish("a/2", b"2"))
            first, second = await taken(socket, 2)
            assert first["event"] == "message" and first["data"]["payload_base64"] == "/w=="
            assert (first["data"]["topic"], second["data"]["payload"]) == ("a/\u202e", "2")
            await socket.ping()
            await socket.send_str("nobody reads this")
            if is_in_form:
                await asyncio.wait_for(socket.close(), 60)
                assert socket.close_code == aiohttp.WSCloseCode.OK
            else:
                transport = socket.get_extra_info("socket")
                assert transport is not None
                transport.shutdown(2)
            async with asyncio.timeout(60):
                while place.server.core.subscription_count() or place.service.places.count:
                    await asyncio.sleep(0.01)
            await socket.close()
        assert place.service.unread.kept_bytes == 0

    run(tmp_path, test)


def test_what_is_wrong_is_refused_before_there_is_a_web_socket(tmp_path: Path) -> None:
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    key = {"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="}

    async def test(place: Place) -> None:
        for query, headers, status in (
            ({"filter": "a/#/b"}, key, 400),
            ({"filter": "$share/g/a"}, key, 422),
            ({}, {}, 400),
            ({}, {"Sec-WebSocket-Key": "short"}, 400),
            ({}, {**key, "Sec-WebSocket-Version": "1"}, 400),
            ({}, {**key, "Sec-WebSocket-Protocol": "other"}, 400),
            ({"from_offset": "1"}, key, 409),
        ):
            answer = await place.ask("GET", "/api/v1/messages/tail", params=query, headers={**upgrade, **headers})
            assert (answer.status, bool(answer.error)) == (status, True), (query, headers)
        other = await place.ask("GET", "/api/v1/clients", headers={**upgrade, **key})
        assert other.status == 200  # a WebSocket is not offered there: the answer is the usual one
        socket = await place.session.ws_connect(TAIL)
        refused = await place.ask("GET", "/api/v1/messages/tail", headers={**upgrade, **key})
        assert (refused.status, refused.headers["Retry-After"]) == (503, "5")
        await socket.close()

    run(tmp_path, test, streams_max=1)


def test_a_reader_who_says_much_is_sent_away(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        socket = await place.session.ws_connect(TAIL)
        await taken(socket, 1)
        await socket.send_bytes(bytes(events.MESSAGE_BYTES_MAX + 1))
        message = await asyncio.wait_for(socket.receive(), 60)
        assert message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)
        assert socket.close_code == aiohttp.WSCloseCode.MESSAGE_TOO_BIG
        async with asyncio.timeout(60):
            while place.service.places.count:
                await asyncio.sleep(0.01)

    run(tmp_path, test)


def test_a_reader_who_does_not_read_is_disconnected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "stall_s", lambda request: 0.2)

    async def test(place: Place) -> None:
        publisher = await joined(place.server, "p")
        _, writer = await asyncio.open_unix_connection(str(place.path), limit=1024)
        writer.write(
            b"GET /api/v1/messages/tail HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        async with asyncio.timeout(60):
            while not place.service.counts.streams_ended:
                await publisher.send(Publish("a", bytes(200_000)))
                await asyncio.sleep(0.001)
            while place.service.places.count:
                await asyncio.sleep(0.01)
        assert place.service.unread.kept_bytes == 0
        writer.close()

    run(tmp_path, test)


def test_a_web_socket_ends_with_the_server(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        socket = await place.session.ws_connect(TAIL)
        await taken(socket, 1)
        place.service.stopping.set()
        await (await joined(place.server, "p")).send(Publish("a", b"1"))
        await asyncio.wait_for(socket.receive(), 60)
        assert socket.close_code == aiohttp.WSCloseCode.GOING_AWAY

    run(tmp_path, test)


def test_a_page_logs_in_by_a_protocol_and_goes_on_where_it_was(tmp_path: Path) -> None:
    token = write_token(tmp_path / "tokens", "vera", "viewer")
    options = HttpOptions(port=0, token_file=tmp_path / "tokens")

    async def read(port: int) -> None:
        url = f"http://127.0.0.1:{port}/api/v1/messages/tail"
        page = {"Origin": f"http://127.0.0.1:{port}"}
        protocols = offered(f"Bearer {token}")
        async with aiohttp.ClientSession() as session:
            query = {"filter": "a/#", "from_offset": "1"}
            async with session.ws_connect(url, params=query, protocols=protocols, headers=page) as socket:
                assert socket.protocol == PROTOCOL
                _, *found = await taken(socket, 3)
            assert [each["data"]["payload"] for each in found] == ["0", "1"]
            assert [each["id"] for each in found] == [each["data"]["offset"] for each in found]
            query["from_offset"] = str(found[0]["id"] + 1)
            async with session.ws_connect(url, params=query, protocols=protocols) as socket:
                assert (await taken(socket, 2))[1]["data"]["payload"] == "1"
            for wrong in ("Bearer wrong", "", "Basic !", "\x00"):
                with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                    await session.ws_connect(url, protocols=offered(wrong))
                assert refused.value.status == 401
            for wrong_text in (f"{AUTHORIZATION}!!!", f"{AUTHORIZATION}a", AUTHORIZATION):
                with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                    await session.ws_connect(url, protocols=(PROTOCOL, wrong_text))
                assert refused.value.status == 401
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await session.ws_connect(url, protocols=protocols, headers={"Origin": "https://evil.example"})
            assert refused.value.status == 403
            other = {"Sec-WebSocket-Protocol": ", ".join(protocols)}
            async with session.get(f"http://127.0.0.1:{port}/api/v1/whoami", headers=other) as answer:
                assert answer.status == 401  # a login of this kind is for WebSockets only

    with Broker.in_thread(data=tmp_path / "data", http=options) as broker, wire(broker, "device") as device:
        for number in range(2):
            device.publish("a/x", b"%d" % number, qos=1)
        assert broker.http_port is not None
        asyncio.run(asyncio.wait_for(read(broker.http_port), 60))

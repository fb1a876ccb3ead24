"""Connections of the HTTP interface: what is read when, and who makes room for whom."""

import asyncio
import gc
import gzip
import json
import logging
import socket
import ssl
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web

from embermq import Broker
from embermq.access.tokens import write_token
from embermq.certificates import Authority
from embermq.http import listener
from embermq.http.connection import HEAD_BYTES_MAX
from embermq.http.listener import ADDRESS_CONNECTIONS_MAX
from embermq.http.login import Actor, Login
from embermq.http.operation import OPERATOR
from embermq.http.options import HttpOptions
from embermq.http.refusal import HttpRefusal
from embermq.http.unread import UnreadAnswer
from support.http_place import Place, run

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
STATISTICS = b"GET /api/v1/statistics HTTP/1.1\r\nHost: localhost\r\n\r\n"
BODY = b'{"client_ids":["x"]}'


class OnlyWithToken(Login):
    """Whoever sends an Authorization is an operator."""

    def __init__(self) -> None:
        self.requests: list[web.Request] = []

    async def actor(self, request: web.Request) -> Actor:
        self.requests.append(request)
        if "Authorization" not in request.headers:
            raise HttpRefusal(401, "expected a token")
        return Actor("operator", OPERATOR, "")


def post(*headers: str, length: int | None = len(BODY), login: bool = True) -> bytes:
    lines = ["POST /api/v1/clients/disconnect HTTP/1.1", "Host: localhost", "Content-Type: application/json", *headers]
    if login:
        lines.append("Authorization: right")
    if length is not None:
        lines.append(f"Content-Length: {length}")
    return "\r\n".join([*lines, "", ""]).encode()


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the next answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return int(head[0].split()[1]), headers, body


async def sent(place: Place, *data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_unix_connection(str(place.path))
    for piece in data:
        writer.write(piece)
        await writer.drain()
    return reader, writer


@pytest.mark.parametrize(
    "headers",
    [(), ("Content-Encoding: gzip",), ("Content-Encoding: deflate",), ("Content-Encoding: br",)],
    ids=lambda headers: str(headers),
)
def test_a_body_without_a_login_is_neither_read_nor_unpacked(tmp_path: Path, headers: tuple[str, ...]) -> None:
    login = OnlyWithToken()
    body = gzip.compress(bytes(1 << 20)) * 400

    async def test(place: Place) -> None:
        reader, writer = await sent(place, post(*headers, length=len(body), login=False), body)
        status, found, _ = await answer(reader)
        assert (status, found["connection"]) == (401, "close")
        assert login.requests[0].content.total_bytes == 0
        assert await reader.read() == b""
        writer.close()

    run(tmp_path, test, login=login)


def test_a_body_in_chunks_without_an_end_is_not_read(tmp_path: Path) -> None:
    login = OnlyWithToken()

    async def test(place: Place) -> None:
        for has_login, expected in ((False, 401), (True, 411)):
            head = post("Transfer-Encoding: chunked", length=None, login=has_login)
            reader, writer = await sent(place, head, b"1\r\n{\r\n" * 10_000)
            status, found, _ = await answer(reader)
            assert (status, found["connection"]) == (expected, "close")
            assert login.requests.pop().content.total_bytes == 0
            writer.close()

    run(tmp_path, test, login=login)


@pytest.mark.parametrize("body", [gzip.compress(BODY), b"no gzip", zlib.compress(BODY)], ids=["good", "bad", "deflate"])
def test_an_encoded_body_of_an_operator_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, body: bytes
) -> None:
    async def test(place: Place) -> None:
        reader, writer = await sent(place, post("Content-Encoding: gzip", length=len(body)), body)
        status, found, _ = await answer(reader)
        assert (status, found["accept-encoding"]) == (415, "identity")
        writer.close()

    run(tmp_path, test)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_body_that_its_head_says_is_too_large_is_not_waited_for(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        reader, writer = await sent(place, post(length=1 << 40))
        assert (await answer(reader))[0] == 413
        writer.close()

    run(tmp_path, test)


def test_bodies_have_a_bound_together_and_leave_it_with_their_connection(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        _, first = await sent(place, post(length=60_000))
        await asyncio.sleep(0)
        while (await place.post("/api/v1/clients/disconnect", client_ids=["x" * 50_000])).status != 503:
            await asyncio.sleep(0.01)  # until the head of the first one was read
        first.close()
        while (await place.post("/api/v1/clients/disconnect", client_ids=["x" * 50_000])).status != 200:
            await asyncio.sleep(0.01)
        assert (await place.post("/api/v1/clients/disconnect", client_ids=["x" * 150_000])).status == 200

    run(tmp_path, test, bodies_bytes_max=100_000)


def test_large_heads_have_a_bound_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "HEADS_BYTES_MAX", 100_000)

    async def test(place: Place) -> None:
        await sent(place, HEALTH[:-2] + b"x: " + b"y" * 8_000)
        large = b"GET /healthz?x=" + b"y" * 60_000
        opened = [await sent(place, large), await sent(place, large)]
        assert (await answer(opened[1][0]))[0] == 431
        opened[0][1].write(b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await answer(opened[0][0]))[0] == 400  # there is no parameter x

    run(tmp_path, test)


def test_a_client_is_told_to_go_on_after_its_login(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        reader, writer = await sent(place, post("Expect: 100-continue", login=False))
        assert (await answer(reader))[0] == 401
        writer.close()
        reader, writer = await sent(place, post("Expect: 100-continue"))
        assert (await answer(reader))[0] == 100
        writer.write(BODY)
        assert (await answer(reader))[0] == 200
        writer.close()

    run(tmp_path, test, login=OnlyWithToken())


def test_requests_that_come_together_or_byte_by_byte_are_answered_one_after_the_other(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        whole = b"\r\n" + HEALTH + post() + BODY + STATISTICS + HEALTH + post() + BODY
        for pieces in ([whole], [whole[at : at + 1] for at in range(len(whole))]):
            reader, writer = await sent(place, *pieces)
            statuses = [(await answer(reader))[0] for _ in range(5)]
            assert statuses == [200, 200, 401, 200, 200]
            writer.close()

    run(tmp_path, test, login=OnlyWithToken())


def test_a_head_has_a_bound(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        line = b"x: " + b"y" * 8_000 + b"\r\n"
        for many, expected in ((line * (HEAD_BYTES_MAX // len(line) + 2), (b"431",)), (b"x: y\r\n" * 200, (b"400",))):
            reader, writer = await sent(place, HEALTH[:-2] + many)
            assert (await reader.readline()).split()[1] in expected
            body = (await reader.read()).partition(b"\r\n\r\n")[2]
            assert json.loads(body) == {"error": "the head of the request is too large"}
            writer.close()

    run(tmp_path, test)


def test_a_head_that_does_not_come_in_time_ends_the_connection(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        reader, _ = await sent(place, HEALTH[:-2])
        assert await reader.read() == b""
        reader, _ = await sent(place, HEALTH + HEALTH[:-2])
        assert (await answer(reader))[0] == 200
        assert await reader.read() == b""
        assert place.service.counts.values()["http/connections/closed"] == 2

    run(tmp_path, test, login=OnlyWithToken(), head_timeout_s=0.5)


def test_the_connection_that_has_waited_longest_makes_room_and_one_without_a_login_before_others(
    tmp_path: Path,
) -> None:
    async def test(place: Place) -> None:
        logged_in, writer = await sent(place, post() + BODY)
        assert (await answer(logged_in))[0] == 200
        waiting = [await sent(place, HEALTH[:-2]) for _ in range(2)]
        reader, _ = await sent(place, HEALTH)  # one too many
        assert (await answer(reader))[0] == 200
        assert await waiting[0][0].read() == b""
        waiting[1][1].write(b"\r\n")
        assert (await answer(waiting[1][0]))[0] == 200
        writer.write(HEALTH)
        assert (await answer(logged_in))[0] == 200
        assert place.service.counts.values()["http/connections/closed"] == 1

    run(tmp_path, test, login=OnlyWithToken(), connections_max=3)


def test_clients_that_are_being_answered_keep_their_connections(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        tail = STATISTICS.replace(b"statistics", b"messages/tail")
        reader, _ = await sent(place, tail)
        await reader.readuntil(b"begins")
        refused, _ = await sent(place)
        assert await refused.read() == b""
        assert place.service.counts.values()["http/connections/refused"] == 1
        place.service.stopping.set()

    run(tmp_path, test, connections_max=1)


def test_an_address_has_a_share_of_the_connections_unless_it_is_shared(tmp_path: Path) -> None:
    write_token(tmp_path / "tokens", "a", "viewer")
    http = HttpOptions(port=0, token_file=tmp_path / "tokens")
    for shared, closed in (((), 3), (("127.0.0.0/8",), 0)):
        with Broker.in_thread(http=http, shared_addresses=shared) as broker:
            opened = [
                socket.create_connection(("127.0.0.1", broker.http_port), 20)
                for _ in range(ADDRESS_CONNECTIONS_MAX + 3)
            ]
            opened[-1].sendall(HEALTH)
            assert opened[-1].recv(12) == b"HTTP/1.1 200"
            for sock in opened[:closed]:
                assert sock.recv(1) == b""
            opened[closed].sendall(HEALTH)
            assert opened[closed].recv(12) == b"HTTP/1.1 200"
            for sock in opened:
                sock.close()


def test_handshakes_that_do_not_end_keep_nobody_out(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("server")
    write_token(tmp_path / "tokens", "a", "viewer")
    http = HttpOptions(port=0, tls=True, token_file=tmp_path / "tokens")
    context = ssl.create_default_context(cafile=str(authority.certificate))
    with Broker.in_thread(http=http, certificate=certificate, key=key, shared_addresses=()) as broker:
        address = ("127.0.0.1", broker.http_port)
        opened = [socket.create_connection(address, 20) for _ in range(ADDRESS_CONNECTIONS_MAX)]
        for _ in range(2):
            with context.wrap_socket(socket.create_connection(address, 20), server_hostname="localhost") as encrypted:
                encrypted.sendall(HEALTH)
                assert encrypted.recv(12) == b"HTTP/1.1 200"
        assert opened[0].recv(1) == b""
        for sock in opened:
            sock.close()


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_a_client_that_goes_away_is_no_error_and_leaves_no_garbage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, without_collector: None
) -> None:
    """In the middle of a body, of a large answer, and of a stream."""

    others = {id(each) for each in gc.get_objects() if isinstance(each, UnreadAnswer)}  # of a test before

    async def test(place: Place) -> None:
        for number in range(4):
            await place.set(f"a/{number}", "x" * 1_000_000)
        listed = STATISTICS.replace(b"statistics", b"retained")
        asked = [post() + BODY[:5], listed, listed.replace(b"Host", b"Accept: application/x-ndjson\r\nHost")]
        for request in asked * 3:
            reader, writer = await sent(place, request)
            if request.startswith(b"GET"):
                assert await reader.readexactly(15) == b"HTTP/1.1 200 OK"
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        while place.service.places.count or place.service.unread.kept_bytes:
            await asyncio.sleep(0.01)
        assert (await place.get("/healthz")).status == 200
        while any(isinstance(each, UnreadAnswer) and id(each) not in others for each in gc.get_objects()):
            await asyncio.sleep(0.01)

    with caplog.at_level(logging.INFO):
        run(tmp_path, test)
    # An alert of a test before may be on its way to a webhook that is gone.
    errors = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert [each for each in errors if not each.startswith("alert ")] == []


class Endless(Login):
    """Never knows who asks, and remembers whose requests were cancelled."""

    def __init__(self) -> None:
        self.methods: list[str] = []
        self.cancelled: list[str] = []

    async def actor(self, request: web.Request) -> Actor:
        self.methods.append(request.method)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.append(request.method)
            raise
        raise AssertionError


def test_a_question_is_cancelled_when_its_client_is_gone_and_a_change_is_not(tmp_path: Path) -> None:
    login = Endless()

    async def test(place: Place) -> None:
        for request in (post(), STATISTICS):
            _, writer = await asyncio.open_unix_connection(place.path)
            writer.write(request)
            while not login.methods:
                await asyncio.sleep(0)
            writer.close()
            if login.methods.pop() == "POST":
                continue
            while not login.cancelled:  # else the test ends by its time limit
                await asyncio.sleep(0)
        assert login.cancelled == ["GET"]

    run(tmp_path, test, login=login)

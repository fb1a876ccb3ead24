"""What readers leave unread is bounded for all answers together, and those who read nothing are ended first."""

import asyncio
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from aiohttp import web

from embermq.http import application, connection
from embermq.http.streaming import PIECE_BYTES
from embermq.http.unread import UnreadAnswer, UnreadAnswers
from support.http_place import Place, run

REQUEST = b"GET /api/v1/%s HTTP/1.1\r\nHost: localhost\r\n%s\r\n"


class Reader:
    """A request and its transport, as far as an answer that is counted needs them."""

    def __init__(self, unread_bytes: int) -> None:
        self.transport = self
        self.unread_bytes = unread_bytes
        self.is_aborted = False

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def abort(self) -> None:
        self.is_aborted = True


def answer_to(everything: UnreadAnswers, reader: Any) -> UnreadAnswer:
    request: web.Request = reader
    answer = UnreadAnswer(everything, request)
    everything.begin(answer)
    return answer


def test_the_answer_with_most_that_is_not_read_makes_room() -> None:
    everything = UnreadAnswers(bytes_max=100)
    small, large, fast = Reader(1), Reader(1), Reader(0)
    for reader, size in ((small, 10), (large, 40), (fast, 45)):
        assert answer_to(everything, reader).keep(size)
    assert everything.kept_bytes == 95
    new = answer_to(everything, Reader(0))
    assert new.keep(30)
    assert (small.is_aborted, large.is_aborted, fast.is_aborted) == (False, True, False)
    assert everything.kept_bytes == 85
    assert everything.counts.values()["http/streams/ended"] == 1
    assert not new.keep(60)  # the others are read: they stay, but for the small one
    assert (small.is_aborted, fast.is_aborted) == (True, False)
    everything.end(new)
    assert everything.kept_bytes == 45


def test_an_answer_alone_may_be_larger_than_the_bound() -> None:
    everything = UnreadAnswers(bytes_max=100)
    alone = answer_to(everything, Reader(1))
    assert alone.keep(50) and alone.keep(100)
    alone.release(100)
    alone.release(100)  # no more than it has kept
    assert everything.kept_bytes == 0


async def asked(place: Place, what: bytes, headers: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client that has asked, and reads no more than asyncio does ahead."""
    client = await asyncio.open_unix_connection(str(place.path), limit=1024)
    client[1].write(REQUEST % (what, headers))
    return client


def test_pages_and_lists_that_nobody_reads_are_counted_and_one_that_is_read_is_answered(tmp_path: Path) -> None:
    """The retained messages have 4 MB, the bound is 9: of three readers that do not read, one is ended for a fourth."""

    async def test(place: Place) -> None:
        for number in range(2):
            await place.set(f"a/{number}", "x" * 2_000_000)
        unread = [await asked(place, b"retained"), await asked(place, b"retained")]
        while place.service.unread.kept_bytes < 8_000_000:
            await asyncio.sleep(0.01)
        unread.append(await asked(place, b"retained?filter=a/0", b"Accept: application/x-ndjson\r\n"))
        while place.service.counts.streams_ended < 1:
            await asyncio.sleep(0.01)
        assert place.service.unread.kept_bytes <= 9_000_000
        answer = await place.get("/api/v1/retained")
        assert len(answer.json["items"]) == 2
        assert place.service.counts.streams_ended == 2

    run(tmp_path, test, unread_bytes_max=9_000_000)


@pytest.mark.parametrize(
    ("module", "payload_bytes"), [(application, 8_000_000), (connection, 1_000)], ids=["large", "small"]
)
def test_an_answer_that_is_not_read_ends_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, payload_bytes: int
) -> None:
    """A large answer is sent in pieces. Of small ones many are asked for together, until one finds the socket full."""
    monkeypatch.setattr(module, "stall_s", lambda request: 0.2)

    async def test(place: Place) -> None:
        await place.set("a", "x" * payload_bytes)
        reader, writer = await asked(place, b"retained")
        async with asyncio.timeout(60):
            while not place.service.counts.streams_ended:
                if payload_bytes == 1_000:
                    writer.write(REQUEST % (b"retained", b""))
                await asyncio.sleep(0.001)
        with suppress(ConnectionError):
            while await reader.read(1 << 20):
                pass  # what was sent before; then the connection is at its end
        assert place.service.unread.kept_bytes == 0
        assert (place.service.counts.streams_ended, (await place.get("/healthz")).status) == (1, 200)
        writer.close()

    run(tmp_path, test)


def test_a_large_answer_is_whole_and_an_answer_to_head_has_no_body(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        await place.set("a", "x" * 1_000_000)
        async with place.session.get("http://localhost/api/v1/retained") as response:
            data = await response.read()
            assert int(response.headers["Content-Length"]) == len(data) > PIECE_BYTES
            assert response.headers["Content-Type"] == "application/json"
        for path in ("/", "/page/app.js"):
            assert (await place.get("/healthz")).status == 200
            async with place.session.head(f"http://localhost{path}") as response:
                assert await response.read() == b""

    run(tmp_path, test)

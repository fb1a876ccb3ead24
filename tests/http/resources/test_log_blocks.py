"""Blocks and checkpoints over HTTP: the bytes of the disk, in answers that are bounded and read on from their end."""

import asyncio
import select
import socket
import ssl
from pathlib import Path

import aiohttp
import pytest

from embermq import Broker
from embermq.access.tokens import write_token
from embermq.certificates import Authority
from embermq.http.options import HttpOptions
from embermq.http.resources import file_range
from embermq.http.resources.log_blocks import COUNT
from embermq.store.log.checkpoint import checkpoint_path
from embermq.store.log.reader import LogReader
from embermq.store.log.segments import ENTRY_BYTES
from embermq.transport.sockets.addresses import unix_address
from support.checkpoints import trim_with_checkpoint
from support.ember_command import wire
from support.http_place import Place, run
from support.log_blocks import all_blocks, blocks_on_disk, bytes_of
from support.recorded import Recorder


def recorded(data: Path, records: int = 200, segment_bytes: int = 4_000) -> Recorder:
    made = Recorder(data, segment_bytes=segment_bytes, group_records=7)
    for number in range(records):
        made.publish(f"a/{number}", bytes(number % 50), retain=number % 3 == 0)
    return made.flush()


def test_blocks_come_as_they_are_on_disk(tmp_path: Path) -> None:
    made = recorded(tmp_path / "data")
    expected = blocks_on_disk(made.data)
    segments = len(LogReader(made.data / "log").segments())
    assert segments > 2

    async def test(place: Place) -> None:
        whole, answers = await all_blocks(place.session, "http://localhost", 1, 201)
        assert (whole == expected, answers) == (True, segments)
        single, answers = await all_blocks(place.session, "http://localhost", 1, 201, bytes_max=0)
        assert (single == expected, answers) == (True, len(made.whole))
        some, answers = await all_blocks(place.session, "http://localhost", 10, 12)
        assert answers == 1 and some in expected and len(some) < 1000

    run(tmp_path, test, log_directory=made.data / "log")
    made.close()


def test_what_cannot_be_had_is_refused_with_a_sentence(tmp_path: Path) -> None:
    made = recorded(tmp_path / "data")
    first = trim_with_checkpoint(made, 100, tmp_path / "scratch")

    begins, ends = "which now begins at offset", "which ends before offset"

    async def test(place: Place) -> None:
        for query, status, sentence in (
            (
                {"from_offset": 3, "to_offset": 9},
                410,
                f"offset 3 is no longer in the log, {begins} {first}",
            ),
            (
                {"from_offset": 201, "to_offset": 300},
                422,
                f"offset 201 is not in the log yet, {ends} 201",
            ),
            ({"from_offset": 150, "to_offset": 150}, 422, "to_offset: expected an offset above from_offset"),
            ({"from_offset": 150}, 400, "to_offset is missing"),
        ):
            answer = await place.get("/api/v1/log/blocks", **query)
            assert (answer.status, answer.error) == (status, sentence)
        gone = await place.get("/api/v1/log/checkpoint", offset=first + 1)
        assert (gone.status, gone.error) == (410, f"there is no checkpoint of offset {first + 1} any more")

    run(tmp_path, test, log_directory=made.data / "log")
    made.close()


def test_a_checkpoint_comes_in_pieces(tmp_path: Path) -> None:
    made = recorded(tmp_path / "data")
    first = trim_with_checkpoint(made, 100, tmp_path / "scratch")
    expected = checkpoint_path(made.data / "log", first).read_bytes()

    async def test(place: Place) -> None:
        url = "http://localhost/api/v1/log/checkpoint"
        assert await bytes_of(place.session, url, offset=first) == expected
        found = b""
        while piece := await bytes_of(place.session, url, offset=first, position=len(found), bytes_max=300):
            found += piece
        assert found == expected
        assert await bytes_of(place.session, url, offset=first, position=10**9) == b""

    run(tmp_path, test, log_directory=made.data / "log")
    made.close()


def test_a_long_answer_leaves_as_fast_as_it_is_read(tmp_path: Path) -> None:
    made = Recorder(tmp_path / "data", group_records=10)
    for number in range(100):
        made.publish(f"a/{number}", bytes([number]) * 100_000)
    made.close()
    expected = blocks_on_disk(made.data)
    assert len(expected) > 9_000_000

    async def test(place: Place) -> None:
        query = {"from_offset": 1, "to_offset": 101, "bytes_max": 16 << 20}
        gathered = b""
        async with place.session.get("http://localhost/api/v1/log/blocks", params=query) as response:
            async for piece in response.content.iter_chunked(1 << 20):
                gathered += piece
                assert (await place.get("/healthz")).status == 200  # others are answered meanwhile
        assert gathered[COUNT.size + 10 * ENTRY_BYTES :] == expected
        async with place.session.get("http://localhost/api/v1/log/blocks", params=query) as response:
            await response.content.readexactly(10)  # a reader that goes away
        assert (await place.get("/healthz")).status == 200

    run(tmp_path, test, log_directory=made.data / "log")


def test_a_reader_that_does_not_read_is_disconnected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Recorder(tmp_path / "data", group_records=10)
    for number in range(100):
        made.publish(f"a/{number}", bytes(100_000))
    made.close()
    monkeypatch.setattr(file_range, "stall_s", lambda request: 0.2)

    async def test(place: Place) -> None:
        with socket.socket(socket.AF_UNIX) as idle, unix_address(place.path) as address:
            idle.connect(address)
            idle.send(
                b"GET /api/v1/log/blocks?from_offset=1&to_offset=101&bytes_max=16777216 HTTP/1.1\r\nHost: a\r\n\r\n"
            )
            ended = select.poll()
            ended.register(idle, 0)
            assert await asyncio.to_thread(ended.poll, 20_000)

    run(tmp_path, test, log_directory=made.data / "log")


def test_blocks_over_tls_and_with_a_token(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("server")
    token = write_token(tmp_path / "tokens", "spark", "viewer")
    http = HttpOptions(port=0, tls=True, token_file=tmp_path / "tokens")
    with Broker.in_thread(data=tmp_path / "data", http=http, certificate=certificate, key=key) as broker:
        with wire(broker, "c") as client:
            for number in range(20):
                client.publish("a", bytes([number]) * 10_000, qos=1)
        end = LogReader(tmp_path / "data" / "log").bounds()[1]

        async def ask() -> bytes:
            context = ssl.create_default_context(cafile=str(authority.certificate))
            connector, headers = aiohttp.TCPConnector(ssl=context), {"Authorization": f"Bearer {token}"}
            async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
                return (await all_blocks(session, f"https://localhost:{broker.http_port}", 1, end))[0]

        blocks = asyncio.run(ask())  # the client's end may be recorded in the meantime
        assert len(blocks) > 200_000 and blocks_on_disk(tmp_path / "data").startswith(blocks)

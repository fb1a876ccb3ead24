"""Messages that only the archive has, over HTTP: by offset, time and filter, as if the log had them."""

import asyncio
import json
import shutil
from pathlib import Path
from threading import Event
from typing import Any

import aiohttp
import pytest

from embermq.archive.archive import open_archive
from embermq.archive.objects import Objects
from embermq.history.joined import JoinedLog
from embermq.http.fields import NDJSON
from embermq.http.resources.messages import MessagesQuery, _bounds
from embermq.instants import utc_text
from embermq.store.log.errors import LogTrimmed
from embermq.store.log.reader import LogReader
from support import archived_history
from support.archives import engine_with, publish_slowly, writer_of
from support.http_place import Place, run
from support.log_blocks import all_blocks, blocks_on_disk
from support.trimmed_log import SETTINGS, STEP_US, first_offset

START_US = 1_700_000_000_000_000
ROUNDS = 120


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("made")
    engine = engine_with(place / "data", str(place / "archive"), SETTINGS)
    engine.now_us = START_US
    publish_slowly(engine, ROUNDS, STEP_US)
    engine.store.close()
    assert first_offset(place / "data") > 100
    return place


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    """A data directory of 480 messages whose log was trimmed; the archive beside it has all but the newest."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path / "data"


def served(data: Path, test: Any) -> None:
    archived_history.served(data, test, str(data.parent / "archive"))


async def pages(place: Place, **query: Any) -> list[Any]:
    found: list[Any] = []
    while True:
        answer = await place.get("/api/v1/messages", **query)
        assert answer.status == 200, answer.json
        found += answer.json["items"]
        if "next" not in answer.json:
            return found
        query["cursor"] = answer.json["next"]


async def broken_off(place: Place, path: str) -> list[Any]:
    """The lines of a stream that cannot be completed."""
    lines: list[Any] = []
    async with place.session.get(f"http://localhost{path}", headers={"Accept": NDJSON}) as response:
        with pytest.raises(aiohttp.ClientPayloadError):
            while line := await response.content.readline():
                lines.append(json.loads(line))
    return lines


def test_messages_come_from_the_archive_and_then_from_the_log(data: Path) -> None:
    async def test(place: Place) -> None:
        everything = await place.lines("/api/v1/messages")
        assert [each["offset"] for each in everything] == list(range(1, 4 * ROUNDS + 1))
        assert await place.lines("/api/v1/messages", from_offset=1) == everything
        assert await pages(place, limit=7, payload_bytes=10, filter="much/2") == [
            {**each, "payload": each["payload"][:10]} for each in everything if each["topic"] == "much/2"
        ]
        since, until = (utc_text(START_US + round * STEP_US) for round in (11, 100))
        found = await pages(place, since=since, until=until, filter="much/1", limit=50)
        assert found == [each for each in everything[40:396] if each["topic"] == "much/1"]
        assert await place.lines("/api/v1/messages", from_offset=30, until=until) == everything[29:396]
        assert await pages(place, until=utc_text(START_US + 3 * STEP_US)) == everything[:8]
        assert (await place.get("/api/v1/messages", until=utc_text(START_US))).json == {"items": []}
        assert (await place.get("/api/v1/messages", from_offset=10_000_000)).json == {"items": []}

    served(data, test)


def test_of_the_instant_at_which_the_log_begins_the_archive_is_asked_too(data: Path) -> None:
    log = JoinedLog(data / "log")
    first, first_us = first_offset(data), LogReader(data / "log").segments()[0].first_timestamp_us
    with pytest.raises(LogTrimmed):
        _bounds(MessagesQuery(), first_us, None, True, log)
    assert _bounds(MessagesQuery(), first_us, None, False, log)[0] == first
    assert _bounds(MessagesQuery(), first_us + 1, None, True, log)[0] > first
    assert _bounds(MessagesQuery.model_validate({"cursor": str(first)}), first_us, None, True, log)[0] == first


def test_without_an_archive_they_are_gone(data: Path) -> None:
    async def test(place: Place) -> None:
        first = first_offset(data)
        answer = await place.get("/api/v1/messages", from_offset=5)
        assert answer.status == 410
        assert answer.error == f"offset 5 is no longer in the log, which now begins at offset {first}"
        assert (await place.get("/api/v1/messages", since=utc_text(START_US))).status == 410
        assert (await place.get("/api/v1/messages", cursor=5)).status == 410, "trimmed between two pages"
        assert (await pages(place))[0]["offset"] == first
        assert (await place.get("/api/v1/messages", until=utc_text(START_US))).json == {"items": []}

    run(data.parent, test, log_directory=data / "log")


def test_what_neither_has_is_gone_and_an_archive_that_cannot_be_read_is_said(data: Path) -> None:
    place_of_archive = data.parent / "archive"
    archive = open_archive(place_of_archive)
    oldest, second, third = archive.segments()[:3]
    writer_of(str(place_of_archive), data / "log").delete(oldest)
    damaged = place_of_archive / f"{third.name}.log"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")

    async def test(place: Place) -> None:
        for query in ({"from_offset": 1}, {"since": utc_text(START_US)}):
            answer = await place.get("/api/v1/messages", **query)
            assert answer.status == 410, answer.json
            assert "no longer in the log" in answer.error or "the history is kept from" in answer.error
        answer = await place.get("/api/v1/messages", limit=5)
        assert [each["offset"] for each in answer.json["items"]] == [second.first_offset + n for n in range(5)]
        lines = await broken_off(place, f"/api/v1/messages?from_offset={second.first_offset}")
        assert f"{third.name}.log of the archive {place_of_archive} is damaged" in lines[-1]["error"]
        found = [each["offset"] for each in lines[:-1]]
        assert found == list(range(second.first_offset, found[-1] + 1)) and found[-1] + 1 >= second.next_offset
        place_of_archive.rename(data.parent / "away")
        for headers in ({}, {"Accept": NDJSON}):
            answer = await place.ask("GET", f"/api/v1/messages?from_offset={third.first_offset}", headers=headers)
            assert answer.status == 503 and str(place_of_archive) in answer.error
        newest = LogReader(data / "log").bounds()[1] - 1
        answer = await place.get("/api/v1/messages", from_offset=newest)
        assert answer.status == 200, "what the log has needs no archive"

    served(data, test)


def test_the_messages_of_one_topic_go_on_in_the_archive_newest_first(data: Path) -> None:
    async def pages_of(place: Place, **query: Any) -> list[list[int]]:
        found: list[list[int]] = []
        while True:
            answer = await place.get("/api/v1/topic/values", **query)
            assert answer.status == 200, answer.json
            found.append([each["offset"] for each in answer.json["items"]])
            if "next" not in answer.json:
                return found
            query["cursor"] = answer.json["next"]

    async def test(place: Place) -> None:
        first = first_offset(data)
        every = list(range(4 * ROUNDS - 2, 0, -4))
        found = await pages_of(place, topic="much/1", limit=1000)
        assert found == [[each for each in every if each >= first], [each for each in every if each < first]]
        assert [each for page in await pages_of(place, topic="much/1", limit=7) for each in page] == every
        assert await pages_of(place, topic="none") == [[]]
        since, until = (utc_text(START_US + number * STEP_US) for number in (11, 30))
        assert await pages_of(place, topic="much/1", since=since, until=until) == [list(range(114, 41, -4))]
        newest = utc_text(START_US + ROUNDS * STEP_US)
        (data.parent / "archive").rename(data.parent / "away")
        assert await pages_of(place, topic="much/1", since=newest) == [[every[0]]], "the log has it"
        answer = await place.get("/api/v1/topic/values", topic="much/1", limit=1000)
        assert len(answer.json["items"]) == len([each for each in every if each >= first])
        answer = await place.get("/api/v1/topic/values", topic="much/1", cursor=answer.json["next"])
        assert answer.status == 503 and "archive is not an archive: " in answer.error

    served(data, test)


def test_blocks_that_only_the_archive_has_come_as_they_were_on_disk(data: Path) -> None:
    first, end = LogReader(data / "log").bounds()
    segments = open_archive(data.parent / "archive").segments()
    archived = [data.parent / "archive" / f"{one.name}.log" for one in segments if one.first_offset < first]
    expected = b"".join(path.read_bytes()[32:] for path in archived) + blocks_on_disk(data)

    async def test(place: Place) -> None:
        for size in (0, 3_000, 1 << 20):
            found, _ = await all_blocks(place.session, "http://localhost", 1, end, bytes_max=size)
            assert found == expected
        some, answers = await all_blocks(place.session, "http://localhost", 5, 6)
        assert answers == 1 and len(some) < 3_000
        url = "http://localhost/api/v1/log/blocks?from_offset=5&to_offset=6"
        (data.parent / "archive").rename(data.parent / "away")
        async with place.session.get(url) as response:
            assert response.status == 503

    served(data, test)


def test_other_requests_do_not_wait_for_the_archive(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, begun = Event(), asyncio.Event()
    reads = Objects.read

    async def test(place: Place) -> None:
        loop = asyncio.get_running_loop()

        def held(self: Objects, *arguments: Any) -> bytes:
            loop.call_soon_threadsafe(begun.set)
            assert go_on.wait(60)
            return reads(self, *arguments)

        monkeypatch.setattr(Objects, "read", held)
        waiting = [asyncio.create_task(place.get("/api/v1/messages", from_offset=1, limit=1)) for _ in range(5)]
        await begun.wait()
        newest = LogReader(data / "log").bounds()[1] - 1
        answer = await place.get("/api/v1/messages", from_offset=newest)
        assert answer.status == 200 and len(answer.json["items"]) == 1
        assert not any(task.done() for task in waiting)
        go_on.set()
        for answer in await asyncio.gather(*waiting):
            assert [each["offset"] for each in answer.json["items"]] == [1]

    try:
        served(data, test)
    finally:
        go_on.set()

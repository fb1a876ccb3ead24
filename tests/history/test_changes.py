"""The changes of one topic's retained message: from the archive, and from the history, as if it were never trimmed."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from embermq.archive.archive import open_archive
from embermq.history.archived_blocks import ArchivedBlocks
from embermq.history.changes import archived_changes
from embermq.instants import utc_text
from embermq.store.log.reader import LogReader
from support.archived_history import TOPICS, served
from support.archives import writer_of
from support.ember_command import ember
from support.http_place import Place
from support.trimmed_log import first_offset

Truth = dict[str, list[dict[str, Any]]]


@pytest.fixture
def data(place_of_all: Path) -> Path:
    return place_of_all / "data"


@pytest.fixture
def truth(place_of_all: Path) -> Truth:
    """The changes of each topic in a log that was never trimmed."""
    found: Truth = {}

    async def test(server: Place) -> None:
        for topic in ("once", *TOPICS):
            found[topic] = (await server.get("/api/v1/retained/history", topic=topic, limit=1_000)).json["items"]

    served(place_of_all / "kept", test)
    assert len(found["t/0"]) > 60 and any("message" not in change for change in found["t/0"])
    return found


def with_archive(data: Path, test: Any) -> None:
    served(data, test, str(data.parent / "archive"))


async def pages(place: Place, **query: Any) -> list[Any]:
    found: list[Any] = []
    while True:
        answer = await place.get("/api/v1/retained/history", **query)
        assert answer.status == 200, answer.json
        found += answer.json["items"]
        if "next" not in answer.json:
            return found
        query["cursor"] = answer.json["next"]


def test_all_changes_come_once_and_in_order(data: Path, truth: Truth) -> None:
    async def test(place: Place) -> None:
        for topic, changes in truth.items():
            assert await pages(place, topic=topic, limit=1_000) == changes
        assert await pages(place, topic="t/2", limit=3) == truth["t/2"]
        assert await pages(place, topic="unknown") == []
        answer = (await place.get("/api/v1/retained/history", topic="t/2")).json
        assert "begins" not in answer, "nothing is missing"
        for number in (0, 20, -3):
            since = truth["t/2"][number]["timestamp"]
            wanted = [change for change in truth["t/2"] if change["timestamp"] >= since]
            assert await pages(place, topic="t/2", since=since, limit=7) == wanted

    with_archive(data, test)


def test_without_an_archive_they_begin_where_the_history_does(data: Path, truth: Truth) -> None:
    async def test(place: Place) -> None:
        answer = (await place.get("/api/v1/retained/history", topic="t/2", limit=1_000)).json
        assert answer["items"] == truth["t/2"][-len(answer["items"]) :]
        assert 0 < len(answer["items"]) < len(truth["t/2"])
        assert answer["begins"] < answer["items"][1]["timestamp"]

    served(data, test)


def test_an_archive_that_begins_later_says_where(data: Path, truth: Truth) -> None:
    place_of_archive = str(data.parent / "archive")
    segments = open_archive(place_of_archive).segments()
    writer = writer_of(place_of_archive, data / "log")
    for segment in segments[:3]:
        writer.delete(segment)
    first = segments[3].first_offset

    async def test(place: Place) -> None:
        answer = (await place.get("/api/v1/retained/history", topic="t/2", limit=1_000)).json
        assert answer["items"] == [change for change in truth["t/2"] if change["offset"] >= first]
        assert answer["begins"] == utc_text(segments[3].first_timestamp_us)
        assert await pages(place, topic="once") == truth["once"], "the history has a copy of what is older"

    with_archive(data, test)


def test_an_archive_that_cannot_be_read_is_said_where_it_is_needed(data: Path, truth: Truth) -> None:
    shutil.rmtree(data.parent / "archive")

    async def test(place: Place) -> None:
        answer = await place.get("/api/v1/retained/history", topic="t/2")
        assert answer.status == 503
        assert answer.error == f"{data.parent}/archive is not an archive: no server has written to it"
        changes = truth["t/2"][-3:]
        assert await pages(place, topic="t/2", since=changes[0]["timestamp"]) == changes

    with_archive(data, test)


def test_the_command_gives_the_same_of_a_stopped_server(data: Path, truth: Truth) -> None:
    settings = data.parent / "ember.toml"
    settings.write_text(f'[store]\ndirectory = "{data}"\narchive = "{data.parent}/archive"\n')

    def shown(*options: str) -> list[dict[str, Any]]:
        done = ember("retained", "history", "t/2", "--json", "--config", str(settings), *options)
        return [json.loads(line) for line in done.lines]

    whole = shown()
    assert [change["offset"] for change in whole] == [change["offset"] for change in truth["t/2"]]
    since = truth["t/2"][20]["timestamp"]
    assert shown("--since", since) == whole[20:]


def test_segments_without_a_topic_index_are_read_too(data: Path, truth: Truth) -> None:
    for path in (data.parent / "archive" / "segments").glob("*.topics"):
        path.unlink()
    begins = first_offset(data)
    blocks = ArchivedBlocks(str(data.parent / "archive"), data / "log")
    assert LogReader(data / "log").bounds()[0] == begins
    parts = list(archived_changes(blocks, "t/1", 0, 50, begins))
    offsets = [change.offset for part in parts for change in part.changes]
    assert offsets == [change["offset"] for change in truth["t/1"] if 50 <= change["offset"] < begins]
    assert [part.next_offset for part in parts] == sorted(part.next_offset for part in parts)

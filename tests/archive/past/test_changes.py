"""The changes of one topic's retained message: from the archive, and from the history, as if it were never trimmed."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from random import Random
from typing import Any

import pytest

from embermq.archive.archive import open_archive
from embermq.archive.blocks import ArchivedBlocks
from embermq.archive.past.changes import archived_changes
from embermq.instants import utc_text
from embermq.store.journal import Journal
from embermq.store.log.reader import LogReader
from support.archives import KEPT, engine_with, wait_until, writer_of
from support.ember_command import ember
from support.http_place import Place, run
from support.store_contract import Engine, expiring
from support.trimmed_log import SETTINGS, STEP_US, first_offset

START_US = 1_700_000_000_000_000
TOPICS = [f"t/{number}" for number in range(6)]
ROUNDS = 200


def fill(engine: Engine) -> None:
    """Publish, replace, clear and remove; one topic is published once, and messages that are not retained."""
    random = Random(2)
    engine.now_us = START_US
    engine.turn(STEP_US)
    engine.publish("once", b"for ever")
    engine.commit()
    for number in range(ROUNDS):
        engine.turn(STEP_US)
        for _ in range(4):
            payload = b"" if random.random() < 0.2 else b"%d" % number + bytes(random.choice([1, 400]))
            properties = expiring(random.randrange(3 << 30, 1 << 32)) if payload and random.random() < 0.3 else b""
            engine.publish(random.choice(TOPICS), payload, retain=random.random() < 0.8, properties=properties)
        if number % 15 == 0:
            engine.store.append_retained_removed(random.choice(TOPICS), "expired")
        engine.commit()
        if number % 10 == 0:
            wait_until(lambda: engine.store.counts()["archive/pending-bytes"] == 0)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("made")
    engine = engine_with(place / "data", str(place / "archive"), SETTINGS)
    fill(engine)
    engine.store.close()
    assert first_offset(place / "data") > 300
    return place


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """The changes of each topic in a log that is never trimmed, as HTTP gives them."""
    place = tmp_path_factory.mktemp("truth")
    engine = engine_with(place / "data", str(place / "archive"), KEPT)
    fill(engine)
    engine.store.close()
    found: dict[str, list[dict[str, Any]]] = {}

    async def test(server: Place) -> None:
        for topic in ("once", *TOPICS):
            found[topic] = (await server.get("/api/v1/retained/history", topic=topic, limit=1_000)).json["items"]

    served(place / "data", test, False)
    assert len(found["t/0"]) > 60 and any("message" not in change for change in found["t/0"])
    return found


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Iterator[Path]:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    yield tmp_path / "data"


def served(data: Path, test: Any, has_archive: bool = True) -> None:
    calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
    journal = Journal(data, calls.put, KEPT)  # nothing is changed, so nobody waits for a commit
    archive = str(data.parent / "archive") if has_archive else ""
    run(data.parent, test, journal, log_directory=data / "log", settings={"store": {"archive": archive}})


async def pages(place: Place, **query: Any) -> list[Any]:
    found: list[Any] = []
    while True:
        answer = await place.get("/api/v1/retained/history", **query)
        assert answer.status == 200, answer.json
        found += answer.json["items"]
        if "next" not in answer.json:
            return found
        query["cursor"] = answer.json["next"]


Truth = dict[str, list[dict[str, Any]]]


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

    served(data, test)


def test_without_an_archive_they_begin_where_the_history_does(data: Path, truth: Truth) -> None:
    async def test(place: Place) -> None:
        answer = (await place.get("/api/v1/retained/history", topic="t/2", limit=1_000)).json
        assert answer["items"] == truth["t/2"][-len(answer["items"]) :]
        assert 0 < len(answer["items"]) < len(truth["t/2"])
        assert answer["begins"] < answer["items"][1]["timestamp"]

    served(data, test, False)


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

    served(data, test)


def test_an_archive_that_cannot_be_read_is_said_where_it_is_needed(data: Path, truth: Truth) -> None:
    shutil.rmtree(data.parent / "archive")

    async def test(place: Place) -> None:
        answer = await place.get("/api/v1/retained/history", topic="t/2")
        assert answer.status == 503
        assert answer.error == f"{data.parent}/archive is not an archive: no server has written to it"
        changes = truth["t/2"][-3:]
        assert await pages(place, topic="t/2", since=changes[0]["timestamp"]) == changes

    served(data, test)


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

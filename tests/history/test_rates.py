"""The rate of records that only the archive has: as counted in a log that was never trimmed."""

from pathlib import Path
from threading import Event
from typing import Any

import pytest

from embermq.archive.archive import open_archive
from embermq.archive.restore import restore
from embermq.history.archived_blocks import ArchivedBlocks
from embermq.history.joined import JoinedLog
from embermq.instants import utc_text
from support.archived_history import ROUNDS, START_US, served
from support.archives import engine_with, publish_slowly, writer_of
from support.http_place import Place
from support.trimmed_log import SETTINGS, STEP_US

BEGIN = utc_text(START_US + STEP_US)
END = utc_text(START_US + (ROUNDS + 2) * STEP_US)
SPANS: list[dict[str, Any]] = [
    {"until": END, "buckets": 8},
    {"since": BEGIN, "until": END, "buckets": 13},
    {"since": utc_text(START_US - STEP_US), "until": utc_text(START_US + 5 * STEP_US + 1), "buckets": 50},
    {"since": utc_text(START_US + 20 * STEP_US), "until": utc_text(START_US + 50 * STEP_US), "buckets": 60},
]


async def rate(place: Place, **query: Any) -> dict[str, Any]:
    answer = await place.get("/api/v1/messages/rate", **query)
    assert answer.status == 200, answer.json
    return dict(answer.json)


def test_the_counts_are_those_of_a_log_that_has_everything(place_of_all: Path) -> None:
    expected: list[dict[str, Any]] = []

    async def ask(place: Place) -> None:
        expected.extend([await rate(place, **span) for span in SPANS])

    async def compare(place: Place) -> None:
        for span, known in zip(SPANS, expected, strict=True):
            assert await rate(place, **span) == known
        newest = await rate(place, since=utc_text(START_US + (ROUNDS - 5) * STEP_US), until=END)
        assert newest["begins"] == BEGIN, "also where the archive is not needed"

    served(place_of_all / "kept", ask)
    assert [each["is_estimated"] for each in expected] == [False] * 4
    assert all(sum(each["counts"]) for each in expected) and expected[0]["begins"] == BEGIN
    served(place_of_all / "data", compare, str(place_of_all / "archive"))


def test_where_many_segments_are_asked_for_it_is_estimated_and_nothing_is_lost(
    place_of_all: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = str(place_of_all / "archive")
    monkeypatch.setattr("embermq.history.rates.INDEXES_MAX", len(open_archive(archive).segments()) // 2)
    expected: list[dict[str, Any]] = []

    async def test(place: Place) -> None:
        expected.append(await rate(place, since=BEGIN, until=END, buckets=400))

    served(place_of_all / "kept", test)
    served(place_of_all / "data", test, archive)
    exact, estimated = expected
    assert estimated["is_estimated"] and not exact["is_estimated"]
    assert sum(estimated["counts"]) == sum(exact["counts"])
    assert all(count >= 0 for count in estimated["counts"])
    for parts in (100, 200, 300):  # records come evenly here
        assert abs(sum(estimated["counts"][:parts]) - sum(exact["counts"][:parts])) < 30


def test_an_archive_that_begins_later_says_where(place_of_all: Path) -> None:
    archive = str(place_of_all / "archive")
    segments = open_archive(archive).segments()
    for segment in segments[:4]:
        writer_of(archive, place_of_all / "data" / "log").delete(segment)

    async def test(place: Place) -> None:
        begins = utc_text(segments[4].first_timestamp_us)
        found = await rate(place, until=END)
        assert found["begins"] == found["since"] == begins
        whole = await rate(place, since=BEGIN, until=END, buckets=7)
        assert whole["begins"] == begins and sum(whole["counts"]) == sum(found["counts"])

    served(place_of_all / "data", test, archive)


def test_an_archive_that_cannot_be_read_is_said_and_the_log_is_counted(place_of_all: Path) -> None:
    archive = place_of_all / "archive"
    sentence = f"{archive} is not an archive: no server has written to it"

    async def test(place: Place) -> None:
        archive.rename(place_of_all / "away")
        answer = await place.get("/api/v1/messages/rate", since=BEGIN)
        assert answer.status == 503 and answer.error == sentence
        found = await rate(place, until=END)
        assert found["archive_error"] == sentence
        assert found["begins"] == found["since"] > BEGIN and sum(found["counts"]) > 0
        (place_of_all / "away").rename(archive)
        assert "archive_error" not in (await rate(place)) and (await rate(place))["begins"] == BEGIN

    served(place_of_all / "data", test, str(archive))


def test_a_page_does_not_wait_for_an_archive_that_does_not_answer(
    place_of_all: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = Event()

    def held(*asked: object) -> object:
        assert go_on.wait(60)
        raise AssertionError("nobody asks again")

    async def test(place: Place) -> None:
        found = await rate(place)
        assert found["archive_error"] == "the archive has not answered within 0 s"
        assert found["begins"] > BEGIN
        go_on.set()

    monkeypatch.setattr("embermq.http.resources.rate.ARCHIVE_S_MAX", 0.05)
    monkeypatch.setattr(ArchivedBlocks, "reach", held)
    served(place_of_all / "data", test, str(place_of_all / "archive"))


def test_offsets_that_were_lost_with_a_machine_are_not_counted(tmp_path: Path) -> None:
    place = str(tmp_path / "archive")
    engine = engine_with(tmp_path / "data", place, SETTINGS)
    publish_slowly(engine, 60, STEP_US)
    engine.store.close()
    restored = restore(place, tmp_path / "new", SETTINGS)
    engine = engine_with(tmp_path / "new", place, SETTINGS)
    engine.now_us = restored.last_timestamp_us
    publish_slowly(engine, 20, STEP_US)
    log = tmp_path / "new" / "log"
    far_us = engine.now_us + STEP_US
    for blocks in (None, ArchivedBlocks(place, log)):
        offsets = JoinedLog(log, blocks).block_offsets_at([1, restored.last_timestamp_us + 1, far_us]).offsets
        assert offsets[2] - offsets[1] == 20 * 4
        assert offsets[1] - offsets[0] <= 60 * 4
    assert offsets[1] - offsets[0] == restored.lost_from - 1, "the archive has all that was not lost"
    engine.store.close()

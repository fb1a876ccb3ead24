"""The values of one topic: newest first, over closed and open segments, page by page."""

from pathlib import Path
from typing import Any

import pytest

from embermq.http.resources.messages import LogMessage
from embermq.store.log.writer import Log
from embermq.store.rows import Group, Kind
from support.http_place import Place, run


@pytest.fixture
def log_directory(tmp_path: Path) -> Path:
    """A log of several segments with three topics in each."""
    log = Log(tmp_path / "log", segment_bytes=4_000, segment_age_s=3600, sync=False)
    for number in range(90):
        group = Group(log.next_offset)
        for topic in (b"a", b"b", b"c"):
            group.append(1_000_000 + number, Kind.PUBLISH, 1, topic, b"%d" % number, b"client")
        group.append(1_000_000 + number, Kind.CONNECTED, 0, b"", b"", b"client")
        log.append(group, 1_000_000 + number)
    assert len(log.segments()) > 3
    log.close()
    return tmp_path / "log"


async def values(place: Place, **query: Any) -> tuple[list[int], str | None]:
    answer = await place.get("/api/v1/topic/values", **query)
    assert answer.status == 200, answer.json
    found = [LogMessage.model_validate(each) for each in answer.json["items"]]
    assert all(each.topic == query["topic"] for each in found)
    return [int(each.payload or "") for each in found], answer.json.get("next")


def test_the_newest_values_come_first(tmp_path: Path, log_directory: Path) -> None:
    async def test(place: Place) -> None:
        found, following = await values(place, topic="b", limit=7)
        assert found == list(range(89, 82, -1))
        while following is not None:
            more, following = await values(place, topic="b", limit=7, cursor=following)
            found += more
        assert found == list(range(89, -1, -1))
        assert await values(place, topic="none") == ([], None)
        assert await values(place, topic="a", since="1.00001", until="1.000013") == ([12, 11, 10], None)
        assert (await values(place, topic="a", until="1.00001", limit=2))[0] == [9, 8]
        assert await values(place, topic="a", cursor=0) == ([], None)

    run(tmp_path, test, log_directory=log_directory)


def test_bad_questions_are_refused(tmp_path: Path, log_directory: Path) -> None:
    async def test(place: Place) -> None:
        for status, query in ((400, {}), (400, {"topic": "a/#"}), (400, {"topic": "a", "limit": "0"})):
            assert (await place.get("/api/v1/topic/values", **query)).status == status
        assert (await place.get("/api/v1/topic/values", topic="a", since="2999-01-01")).status == 422

    run(tmp_path, test, log_directory=log_directory)

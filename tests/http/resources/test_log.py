"""The log over HTTP: what it has, where an instant lies, and readers that register."""

import logging
from pathlib import Path

import pytest

from embermq.http.resources.log import READERS_MAX
from embermq.instants import utc_text
from embermq.store.log.reader import LogReader
from embermq.store.log.readers import registered_readers
from support.checkpoints import trim_with_checkpoint
from support.http_place import Place, run
from support.recorded import Recorder


def recorded(data: Path, records: int = 60) -> Recorder:
    made = Recorder(data, segment_bytes=500)
    for number in range(records):
        made.publish(f"a/{number}", b"%d" % number, retain=True)
    made.close()
    return made


def test_the_log_says_what_it_has(tmp_path: Path) -> None:
    made = recorded(tmp_path / "data")
    reader = LogReader(made.data / "log")
    infos = reader.segments()
    assert len(infos) > 4

    async def test(place: Place) -> None:
        first, end = reader.bounds()
        found = (await place.get("/api/v1/log")).json
        assert found.pop("log_id")
        assert found == {"first_offset": first, "next_offset": end, "checkpoints": [], "readers": []}
        page = (await place.get("/api/v1/log/segments", limit=2)).json
        rest = (await place.get("/api/v1/log/segments", cursor=page["next"])).json
        listed = [*page["items"], *rest["items"]]
        assert "next" not in rest
        assert [(each["first_offset"], each["next_offset"], each["bytes"]) for each in listed] == [
            (info.first_offset, info.next_offset, info.size_bytes) for info in infos
        ]
        assert listed[1]["first_timestamp"] == utc_text(infos[1].first_timestamp_us)
        inside = (await place.get("/api/v1/log/segments", from_offset=infos[2].next_offset - 1, limit=1)).json
        assert inside["items"][0]["first_offset"] == infos[2].first_offset
        beyond = (await place.get("/api/v1/log/segments", from_offset=10**12)).json
        assert [each["first_offset"] for each in beyond["items"]] == [infos[-1].first_offset]

    run(tmp_path, test, log_directory=made.data / "log")


def test_an_instant_has_an_offset(tmp_path: Path) -> None:
    made = recorded(tmp_path / "data")

    async def test(place: Place) -> None:
        for offset, moment_us, *_ in made.published[::17]:
            assert (await place.get("/api/v1/log/offset", at=utc_text(moment_us))).json == {"offset": offset}
        assert (await place.get("/api/v1/log/offset", at="0001-01-01")).json == {"offset": 1}
        assert (await place.get("/api/v1/log/offset", at="2999-01-01")).json == {"offset": 61}
        assert (await place.get("/api/v1/log/offset", at="2026-02-31")).status == 422

    run(tmp_path, test, log_directory=made.data / "log")


def test_a_reader_registers_how_far_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = recorded(tmp_path / "data")
    caplog.set_level(logging.INFO, "embermq.audit")

    async def test(place: Place) -> None:
        for offset in (5, 9):
            answer = await place.post("/api/v1/log/readers", name="lake", next_offset=offset)
            assert (answer.status, answer.json) == (200, {"name": "lake", "next_offset": offset})
        assert (await place.get("/api/v1/log")).json["readers"] == [{"name": "lake", "next_offset": 9}]
        for number in range(READERS_MAX - 1):
            assert (await place.post("/api/v1/log/readers", name=f"{number}", next_offset=1)).status == 200
        refused = await place.post("/api/v1/log/readers", name="one more", next_offset=1)
        assert (refused.status, refused.error) == (422, "64 readers are registered already (GET /api/v1/log)")
        assert (await place.post("/api/v1/log/readers", name="lake", next_offset=10)).status == 200
        assert (await place.post("/api/v1/log/readers", name="", next_offset=10)).status == 400
        assert (await place.post("/api/v1/log/readers", name="lake", next_offset=-1)).status == 400

    run(tmp_path, test, log_directory=made.data / "log")
    found = {each.name: each.next_offset for each in registered_readers(made.data)}
    assert found["lake"] == 10 and len(found) == READERS_MAX
    assert caplog.text.count("registers the reader") == READERS_MAX


def test_a_server_in_memory_has_no_log(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        for path in ("log", "log/segments", "log/offset?at=now", "log/blocks?from_offset=1&to_offset=2"):
            answer = (
                await place.get(f"/api/v1/{path}") if "?" not in path else await place.ask("GET", f"/api/v1/{path}")
            )
            assert (answer.status, answer.error) == (409, "a store in memory keeps no log")
        assert (await place.post("/api/v1/log/readers", name="lake", next_offset=1)).status == 409

    run(tmp_path, test)


def test_checkpoints_are_listed(tmp_path: Path) -> None:
    made = Recorder(tmp_path / "data", segment_bytes=1_000)
    for number in range(60):
        made.publish(f"a/{number}", b"%d" % number, retain=True)
    made.flush()
    first = trim_with_checkpoint(made, 30, tmp_path / "scratch")
    made.close()

    async def test(place: Place) -> None:
        found = (await place.get("/api/v1/log")).json
        assert [each["offset"] for each in found["checkpoints"]] == [first] == [found["first_offset"]]
        assert found["checkpoints"][0]["timestamp"].endswith("Z") and found["checkpoints"][0]["bytes"] > 100

    run(tmp_path, test, log_directory=made.data / "log")

"""Every outcome is a status code and a sentence, and changes are logged with who made them."""

import asyncio
import logging
import os
from pathlib import Path

import pytest

from embermq.http.resources import facts
from embermq.http.service import Service
from support.http_place import Place, run


def test_unknown_resources_and_methods(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        missing = await place.get("/api/v1/nothing")
        assert (missing.status, missing.error) == (404, "there is no such resource, GET /openapi.json lists them")
        for method in ("DELETE", "PUT", "POST", "PATCH", "TRACE", "OPTIONS"):
            answer = await place.ask(method, "/api/v1/retained")
            assert (answer.status, answer.error) == (405, "this resource does not know the method")
            assert answer.headers["Allow"] == "GET"

    run(tmp_path, test)


def test_changes_are_logged_with_who_made_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(place: Place) -> None:
        await place.set("a\x1b[2J", "1")
        await place.post("/api/v1/retained/clear", filter="#")
        await place.post("/api/v1/clients/disconnect", client_ids=["c"])
        await place.post("/api/v1/sessions/end", client_ids=["c"])
        await place.get("/api/v1/retained")

    with caplog.at_level(logging.INFO, "embermq.audit"):
        run(tmp_path, test)
    who = f"uid {os.getuid()}, process {os.getpid()} (unix)"
    assert [record.getMessage() for record in caplog.records if record.name == "embermq.audit"] == [
        f"{who} retain 'a\\x1b[2J': 1 retained, 0 refused",
        f"{who} clear retained '#': 1 cleared",
        f"{who} disconnect 'c': not connected",
        f"{who} end session 'c': there is no such session",
    ]


def test_a_bug_is_told_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(place: Place) -> None:
        def broken(service: Service) -> None:
            raise RuntimeError("broken")

        monkeypatch.setattr(facts, "statistics_of", broken)
        answer = await place.get("/api/v1/statistics")
        monkeypatch.undo()
        assert (answer.status, answer.error) == (500, "internal error, the server's log has the details")

    run(tmp_path, test, internal_errors=1)


def test_too_many_requests_streams_and_connections(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        await place.set("a", "x" * 1000)
        place.service.places.count = 1
        stream = await place.ask("GET", "/api/v1/retained", headers={"Accept": "application/x-ndjson"})
        assert (stream.status, stream.error) == (503, "1 streams of this server are being read already")
        answers = await asyncio.gather(*(place.get("/api/v1/retained") for _ in range(20)))
        statuses = {answer.status for answer in answers}
        assert statuses <= {200, 503} and 200 in statuses

    run(tmp_path, test, streams_max=1, requests_max=4)


def test_ten_thousand_polls_leave_nothing_behind(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        for _ in range(100):
            answers = await asyncio.gather(*(place.get("/healthz") for _ in range(20)))
            assert all(answer.status == 200 for answer in answers)

    run(tmp_path, test)


def test_what_is_not_http_is_refused(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        reader, writer = await asyncio.open_unix_connection(str(place.path))
        writer.write(b"\x10\x0c\x00\x04MQTT\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.0 400")
        writer.close()

    run(tmp_path, test)

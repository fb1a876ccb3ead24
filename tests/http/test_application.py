"""Every outcome is a status code and a sentence, and changes are logged with who made them."""

import asyncio
import gzip
import json
import logging
import os
import re
from http.client import HTTPConnection
from pathlib import Path

import pytest

from embermq import Broker
from embermq.access.tokens import write_token
from embermq.http.catalog import OPERATIONS
from embermq.http.connection import NO_REQUEST
from embermq.http.fields import NDJSON
from embermq.http.operation import VIEWER
from embermq.http.options import HttpOptions
from embermq.http.resources import facts
from embermq.http.service import Service
from support.ember_command import wire
from support.http_place import Place, run


def test_unknown_resources_and_methods(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        missing = await place.get("/api/v1/nothing")
        assert (missing.status, missing.error) == (404, "there is no such resource, GET /openapi.json lists them")
        for method in ("DELETE", "PUT", "POST", "PATCH", "TRACE", "OPTIONS"):
            answer = await place.ask(method, "/api/v1/retained")
            assert (answer.status, answer.error) == (405, "this resource does not know the method")
            assert answer.headers["Allow"] == "GET,HEAD"

    run(tmp_path, test)


GETS = [operation.path for operation in OPERATIONS if operation.method == "GET"]
NEEDED = {
    "/api/v1/retained/message": "?topic=a",
    "/api/v1/retained/history": "?topic=a",
    "/api/v1/topic/values": "?topic=a",
    "/api/v1/tree/search": "?word=a",
    "/api/v1/log/offset": "?at=now",
    "/api/v1/log/blocks": "?from_offset=1&to_offset=2",
    "/api/v1/log/checkpoint": "?offset=1",
}
"""The parameters without which there is no answer."""
OF_OPERATORS = {each.path: 403 for each in OPERATIONS if each.role > VIEWER}
STATUSES = {"/api/v1/nothing": 404, "/api/v1/log/checkpoint": 410} | OF_OPERATORS


def test_head_is_answered_as_get_is_without_a_body(tmp_path: Path) -> None:
    token = write_token(tmp_path / "tokens", "ann", "viewer")
    http = HttpOptions(port=0, token_file=tmp_path / "tokens")
    headers = {"Authorization": f"Bearer {token}"}
    varying = {"Date", "Content-Length"}  # the numbers of the statistics grow between the two
    with Broker.in_thread(data=tmp_path / "data", http=http) as broker, wire(broker, "c") as client:
        client.publish("a", b"1", qos=1, retain=True)
        connection = HTTPConnection("127.0.0.1", broker.http_port or 0, timeout=60)
        for path in [*GETS, "/", "/page/main.js", "/api/v1/nothing"]:
            answers = []
            for method in ("HEAD", "GET"):
                connection.request(method, path + NEEDED.get(path, ""), headers=headers)
                answer = connection.getresponse()
                answers.append((answer.status, {name for name, _ in answer.getheaders()} - varying))
                is_stream = answer.getheader("Content-Type") == "text/event-stream"
                if method == "HEAD" or not is_stream:
                    assert (answer.read() == b"") == (method == "HEAD"), path
                else:
                    connection.close()  # it does not end
            head, get = answers
            assert head[0] == get[0] and head[1] == get[1] - {"Transfer-Encoding"}, path
            assert head[0] == STATUSES.get(path, 200), path
        connection.close()


def test_head_of_a_list_by_lines_has_its_type(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        await place.set("a", "1")
        url = "http://localhost/api/v1/retained"
        async with place.session.head(url, headers={"Accept": NDJSON}) as answer:
            assert (answer.status, answer.content_type) == (200, NDJSON)
        assert place.service.places.count == 0

    run(tmp_path, test)


def test_large_answers_are_compressed_for_those_who_accept_it(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        await place.post(
            "/api/v1/retained/set", messages=[{"topic": f"a/{n}", "payload": "x" * 50} for n in range(900)]
        )

        async def size(path: str, accepted: str) -> tuple[int, str | None, bytes]:
            reader, writer = await asyncio.open_unix_connection(place.path)
            request = (
                f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: {accepted}\r\nConnection: close\r\n\r\n"
            )
            writer.write(request.encode())
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            writer.close()
            fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
            assert int(fields["Content-Length"]) == len(body)
            assert (fields.get("Vary") == "Accept-Encoding") == (path != "/healthz")
            return len(body), fields.get("Content-Encoding"), body

        path = "/api/v1/retained?limit=1000"
        whole_bytes, encoding, whole = await size(path, "identity")
        assert encoding is None and whole_bytes > 100_000
        for accepted in ("gzip", "br, gzip;q=0.5", "*"):
            small_bytes, encoding, small = await size(path, accepted)
            assert encoding == "gzip" and small_bytes < whole_bytes / 5
            assert gzip.decompress(small) == whole
        for accepted in ("", "br", "gzip;q=0", "gzip;q=0.0, *"):
            assert (await size(path, accepted))[:2] == (whole_bytes, None)
        assert (await size("/page/main.js", "gzip"))[1] == "gzip"
        assert (await size("/healthz", "gzip"))[1] is None  # small

    run(tmp_path, test)


def test_no_answer_names_a_version_of_the_software(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        requests = [f"GET {path} HTTP/1.1\r\nHost: localhost" for path in ("/", "/healthz", "/api/v1/nothing")]
        lines = "GET /api/v1/retained HTTP/1.1\r\nHost: localhost\r\nAccept: application/x-ndjson"
        for request in [*requests, lines, "not HTTP at all"]:
            reader, writer = await asyncio.open_unix_connection(place.path)
            writer.write(f"{request}\r\nConnection: close\r\n\r\n".encode())
            head = (await reader.read()).partition(b"\r\n\r\n")[0].decode()
            writer.close()
            assert "\r\nServer: EmberMQ" in head and not re.search("aiohttp|Python", head), request

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
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        assert (b"application/json" in head, json.loads(body)) == (True, {"error": NO_REQUEST})
        writer.close()

    run(tmp_path, test)

"""SQL over HTTP: the rows of `ember sql`, in a process that ends in time, and sees no files."""

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped] # it has no types
import pytest

from embermq import Broker
from embermq.http.client import HttpClient, ServerRefusal
from embermq.http.resources.sql import NICENESS
from embermq.http.service import QUERIES_MAX
from support.http_place import Place, run

HOURS = "select count(*) from range(10000000000000) where sqrt(range) < 0"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    data = tmp_path_factory.mktemp("sql") / "data"
    with Broker.in_thread(data=data), HttpClient(data / "control.sock") as http:
        messages = [{"topic": f"a/{number}", "payload": str(number)} for number in range(20)]
        http.post("/api/v1/retained/set", {"messages": messages})
        yield data


def query(data: Path, text: str, **more: Any) -> dict[str, Any]:
    with HttpClient(data / "control.sock", 150) as http:
        return http.post("/api/v1/sql", {"sql": text, "timeout_s": 120, **more})


def refusal(data: Path, text: str, **more: Any) -> tuple[int, str]:
    with pytest.raises(ServerRefusal) as refused:
        query(data, text, **more)
    return refused.value.status, str(refused.value)


def running() -> list[int]:
    """The processes of queries."""
    found: list[int] = []
    for each in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):  # also one that has just ended
            if "sql" in each.cmdline():
                found.append(each.pid)
    return found


def test_rows_come_by_name_and_are_cut_at_a_bound(data: Path) -> None:
    found = query(data, "select topic, count(*) as n from messages group by topic order by topic", rows_max=3)
    assert found["rows"] == [{"topic": f"a/{number}", "n": 1} for number in (0, 1, 10)]
    assert found["is_cut"] is True and found["seconds"] > 0
    assert query(data, "select count(*) as n from retained")["rows"] == [{"n": 20}]
    assert query(data, "select 1 as x where false") | {"seconds": 0} == {"rows": [], "is_cut": False, "seconds": 0}


def test_what_is_wrong_is_one_sentence_and_files_are_not_reached(data: Path, tmp_path: Path) -> None:
    status, sentence = refusal(data, "select topc from messages")
    assert status == 422 and "Referenced column" in sentence and "\n" not in sentence
    (tmp_path / "secret.csv").write_text("a\nb\n")
    assert "disabled by configuration" in refusal(data, f"select * from '{tmp_path}/secret.csv'")[1]
    assert "disabled" in refusal(data, f"copy (select 1) to '{tmp_path}/out.csv'")[1]
    assert not (tmp_path / "out.csv").exists()
    assert "locked" in refusal(data, "set memory_limit = '8GB'")[1]


def test_a_query_that_takes_too_long_or_too_much_ends(data: Path) -> None:
    assert refusal(data, HOURS, timeout_s=2) == (422, "the query takes longer than timeout_s, 2 s")
    much = "select a.range, repeat('x', 1000) as t from range(10000000) a order by t, a.range desc"
    status, sentence = refusal(data, much, timeout_s=60)  # by DuckDB's own bound, or that of the process
    assert status == 422 and ("more memory than 512MB" in sentence or "much more memory than it may use" in sentence)
    assert refusal(data, "select repeat('x', 400000000) as x", timeout_s=60) == (
        422,
        "the query needs more memory than 512MB",
    )  # the row itself may be, but not also as Python and as JSON
    assert running() == []


def test_a_query_ends_with_the_client_that_has_asked(tmp_path: Path, data: Path) -> None:
    http = HttpClient(data / "control.sock", 3)
    with pytest.raises(Exception, match="does not answer"):
        http.post("/api/v1/sql", {"sql": HOURS, "timeout_s": 120})
    deadline_s = time.monotonic() + 60
    while running():
        assert time.monotonic() < deadline_s


def test_a_query_has_a_lower_priority_than_the_server_once_it_runs(data: Path) -> None:
    body = json.dumps({"sql": HOURS, "timeout_s": 120}).encode()
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(str(data / "control.sock"))
        head = b"POST /api/v1/sql HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        asking.sendall(head % len(body) + body)
        deadline_s = time.monotonic() + 60
        while not [pid for pid in running() if priorities(pid).count(NICENESS) > 1]:  # a thread of DuckDB has it too
            assert time.monotonic() < deadline_s
    while running():
        assert time.monotonic() < deadline_s + 60


def priorities(pid: int) -> list[int]:
    """Of the threads of a process."""
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        found += [os.getpriority(os.PRIO_PROCESS, int(thread)) for thread in os.listdir(f"/proc/{pid}/task")]
    return found


def test_what_is_missing_is_said_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: Path
) -> None:
    monkeypatch.setattr("embermq.lake.errors.find_spec", lambda name: None)
    status, sentence = refusal(data, "select 1")
    assert status == 409 and sentence.endswith("pip install 'embermq[sql]'")

    async def in_memory(place: Place) -> None:
        answer = await place.post("/api/v1/sql", sql="select 1")
        assert (answer.status, answer.error) == (409, "a store in memory keeps no log")

    run(tmp_path, in_memory)


def test_no_more_than_a_few_run_at_a_time(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(place: Place) -> None:
        for _ in range(QUERIES_MAX):
            await place.service.queries.acquire()
        answer = await place.post("/api/v1/sql", sql="select 1")
        assert (answer.status, answer.headers["Retry-After"]) == (503, "2")
        assert "queries are running" in answer.error

    run(tmp_path, test, log_directory=data / "log")

"""A machine is lost: its log comes back from the archive, and tables are built from it and continued with it."""

import json
import re
import shutil
from pathlib import Path

import pytest

from embermq.archive.archive import open_archive
from embermq.store.log.reader import LogReader
from embermq.store.rows import Kind
from support.archives import wait_until
from support.ember_command import ember
from support.pipeline_process import PipelineProcess
from support.server_process import ServerProcess, client, retained

TOPICS = 40
EARLY = 300
MESSAGES = 3_000
PAYLOAD_BYTES = 2_000
SEGMENT_BYTES = 1024 * 1024


def publish(server: ServerProcess, first: int, end: int) -> None:
    with client(server, "publisher") as publisher:
        for number in range(first, end):
            publisher.publish(f"room/{number * 7 % TOPICS}", b"%d " % number * (PAYLOAD_BYTES // 8), qos=1, retain=True)
        publisher.disconnect()


def run_once(data: Path, lake: Path) -> None:
    with PipelineProcess(data, lake, "--once") as pipeline:
        assert pipeline.process.wait(300) == 0, pipeline.said[-20:]


def query(lake: Path, text: str) -> list[dict[str, object]]:
    done = ember("pipeline", "query", text, "--lake", lake, "--json", "--limit", str(2 * MESSAGES))
    assert done.code == 0, done.errors
    return [json.loads(line) for line in done.lines]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_tables_equal_the_truth_up_to_the_first_lost_offset(tmp_path: Path) -> None:
    data, place, continued, new = (tmp_path / name for name in ("data", "archive", "continued", "new"))
    settings = {"store.archive": str(place), "store.segment_bytes": str(SEGMENT_BYTES)}
    with ServerProcess(data, tmp_path / "log.txt", settings) as server:
        publish(server, 0, EARLY)
        run_once(data, continued)
        publish(server, EARLY, MESSAGES)
        wait_until(lambda: place.exists() and open_archive(place).bounds()[1] > MESSAGES * 3 // 4)
        server.kill()
    shutil.move(data, tmp_path / "lost")
    truth = [
        (row["offset"], row["topic"], row["payload"].decode())
        for batch in LogReader(tmp_path / "lost" / "log").batches(1)
        for row in batch.to_pylist()
        if row["kind"] == Kind.PUBLISH
    ]
    done = ember("log", "restore", "--from", place, "--data", data)
    assert done.code == 0, done.errors
    found = re.search(r"the first lost offset is (\d+)", done.text)
    assert found is not None
    first_lost = int(found[1])
    known = [row for row in truth if row[0] < first_lost]
    assert MESSAGES * 3 // 4 < len(known) < len(truth) == MESSAGES
    with ServerProcess(data, tmp_path / "log.txt", settings) as server:
        kept = retained(server)
        assert kept == {topic: payload.encode() for _, topic, payload in known}
        publish(server, 0, 50)
        kept = retained(server)
        for lake in (continued, new):
            run_once(data, lake)
    for lake in (continued, new):
        rows = query(lake, 'select "offset", topic, payload from messages order by "offset"')
        assert [(row["offset"], row["topic"], row["payload"]) for row in rows[:-50]] == known
        assert len(rows) == len(known) + 50
        current = query(lake, "select topic, payload from retained")
        assert {str(row["topic"]): str(row["payload"]).encode() for row in current} == kept
        assert ember("pipeline", "audit", "--data", data, "--lake", lake).code == 0

"""`ember up` over gaps: its log is trimmed past the pipeline, under it and while it is away."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil  # type: ignore[import-untyped] # it has no types
import pytest

from embermq.store.log.reader import LogReader
from support.pipeline_process import settings_beside
from support.wire import Wire

SETTINGS = {
    "EMBERMQ_STORE__SEGMENT_BYTES": str(1 << 20),
    "EMBERMQ_STORE__RETENTION_BYTES": str(1 << 20),
    "EMBERMQ_STORE__UNREAD_BYTES_MAX": "0",
    "EMBERMQ_STORE__DURABILITY": "os",
}
FILLER = bytes(200_000)
JOBS = {"messages", "retained", "topic_stats", "clients"}


class Up:
    """`ember up`, what was published to it, and the pipeline that it has started."""

    def __init__(self, directory: Path) -> None:
        self.data, self.lake, self._log = directory / "data", directory / "lake", directory / "up.log"
        places = ["--port", "0", "--data", str(self.data), "--lake", str(self.lake), "--master", "local[2]"]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "embermq", "up", *places],
                env={**os.environ, **SETTINGS, "SPARK_CONF_DIR": str(settings_beside(self.lake))},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.wait_until(lambda: "\nready\n" in self.log())
        found = re.search(r" mqtt://.*?:(\d+)", self.log())
        assert found is not None
        self._port = int(found[1])

    def log(self) -> str:
        return self._log.read_text()

    def wait_until(self, holds: Callable[[], bool], timeout_s: float = 400) -> None:
        """What happens in other processes has no event to wait for."""
        deadline_s = time.monotonic() + timeout_s
        while not holds():
            assert time.monotonic() < deadline_s and self.process.poll() is None, self.log()[-4000:]
            time.sleep(0.2)

    def pipeline(self) -> psutil.Process:
        (pipeline,) = [one for one in psutil.Process(self.process.pid).children() if "pipeline" in one.cmdline()]
        return pipeline

    def publish(self, payload: bytes) -> None:
        with Wire(("127.0.0.1", self._port)) as publisher:
            assert publisher.connect("publisher").return_code == 0
            for number in range(20):
                publisher.publish(f"room/{number}", payload, qos=1, retain=True)
            publisher.disconnect()

    def trim(self) -> None:
        """Publish until all that is there now was trimmed."""
        first, end = LogReader(self.data / "log").bounds()
        with Wire(("127.0.0.1", self._port)) as publisher:
            assert publisher.connect("filler").return_code == 0
            for _ in range(400):
                publisher.publish("filler", FILLER, qos=1)
                if LogReader(self.data / "log").bounds()[0] > end:
                    publisher.disconnect()
                    return
        raise AssertionError(f"the log began at {first} and was not trimmed:\n{self.log()[-4000:]}")

    def is_read(self) -> bool:
        """Whether every job has read all of the log."""
        end = LogReader(self.data / "log").bounds()[1]
        try:
            jobs = json.loads((self.lake / "_embermq" / "positions.json").read_text())
        except (FileNotFoundError, ValueError):
            return False
        return jobs.keys() == JOBS and all(position["offset"] >= end for position in jobs.values())

    def rows(self, sql: str) -> list[dict[str, object]]:
        command = [sys.executable, "-m", "embermq", "pipeline", "query", "--json", "--lake", str(self.lake), sql]
        printed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
        return [json.loads(line) for line in printed.splitlines()]

    def end(self) -> None:
        """Stop it; kill what is left if a test has failed."""
        left = [self.process, *psutil.Process(self.process.pid).children(recursive=True)]
        self.process.terminate()
        try:
            self.process.wait(90)
        finally:
            for one in left:
                if one is self.process or one.is_running():
                    one.kill()


@pytest.mark.long
def test_up_goes_on_after_gaps_and_starts_spark_once_for_each_kill(tmp_path: Path) -> None:
    up = Up(tmp_path)
    try:
        up.publish(b"before")
        up.wait_until(up.is_read)
        pipeline = up.pipeline()

        # Under a pipeline that is alive but does not get to run.
        family = [pipeline, *pipeline.children(recursive=True)]
        for one in family:
            one.suspend()
        up.publish(b"trimmed")
        up.trim()
        up.publish(b"between")
        for one in family:
            one.resume()
        up.wait_until(up.is_read)
        assert up.pipeline() == pipeline
        assert "is started again" not in up.log()
        assert {row["job"] for row in up.rows("select job from gaps")} == JOBS

        # While it is away: `ember up` starts it again, once.
        os.killpg(pipeline.pid, signal.SIGKILL)
        up.publish(b"trimmed too")
        up.trim()
        up.publish(b"after")
        up.wait_until(up.is_read)
        assert up.log().count("is started again") == 1
        gaps = up.rows("select job, from_offset, to_offset, why from gaps order by job, from_offset")
        assert [row["job"] for row in gaps] == sorted([*JOBS, *JOBS])
        assert {row["why"] for row in gaps} == {"trimmed before it was read"}
        first = LogReader(up.data / "log").bounds()[0]
        assert all(int(str(row["from_offset"])) <= int(str(row["to_offset"])) < first for row in gaps)
        kept = up.rows("select topic, decode(payload) as payload from retained where topic like 'room/%'")
        assert {row["topic"]: row["payload"] for row in kept} == {f"room/{number}": "after" for number in range(20)}
    finally:
        up.end()

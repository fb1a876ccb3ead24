"""A log that was trimmed under a lake, by a real server that is killed, and commands in processes of their own.

What the tables say is compared with what was published, with the server's own answers, and with the audit.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from embermq.lake.lake import Lake
from embermq.store.log.reader import LogReader
from support.pipeline_process import PipelineProcess, settings_beside
from support.server_process import ServerProcess, client, persistent

SETTINGS = {
    "store.segment_bytes": str(1 << 20),
    "store.retention_bytes": str(1 << 20),
    "store.unread_bytes_max": "0",
    "store.durability": "os",
}
FILLER = bytes(200_000)


class House:
    """A server, what was published to it, and the commands of its operator."""

    def __init__(self, directory: Path) -> None:
        self.data = directory / "data"
        self.lake = directory / "lake"
        self.server = ServerProcess(self.data, directory / "server.log", SETTINGS)
        self.retained: dict[str, str] = {}
        self._published = 0

    def change(self, count: int, clears: int = 0) -> None:
        """Change some topics and clear others."""
        with client(self.server, "publisher") as publisher:
            for number in range(count):
                self._published += 1
                topic, payload = f"room/{(number * 7) % 40}", f"{self._published}"
                publisher.publish(topic, payload.encode(), qos=1, retain=True)
                self.retained[topic] = payload
            for topic in sorted(self.retained)[:clears]:
                publisher.publish(topic, b"", qos=1, retain=True)
                del self.retained[topic]
            publisher.disconnect()

    def first_offset(self) -> int:
        return LogReader(self.data / "log").bounds()[0]

    def trim_past(self, offset: int) -> None:
        """Publish until the server has trimmed its log beyond an offset."""
        with client(self.server, "filler") as publisher:
            for _ in range(400):
                publisher.publish("filler", FILLER, qos=1)
                if self.first_offset() > offset:
                    publisher.disconnect()
                    return
        raise AssertionError(f"the log begins at {self.first_offset()}:\n{self.server.log()[-2000:]}")

    def ember(self, *arguments: str | Path, code: int = 0) -> str:
        """What a command prints, or says when it exits with another code."""
        done = subprocess.run(
            [sys.executable, "-m", "embermq", *map(str, arguments)],
            env={**os.environ, "SPARK_CONF_DIR": str(settings_beside(self.lake))},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == code, done
        return done.stdout if code == 0 else done.stderr

    def run_once(self, lake: Path) -> None:
        self.ember("pipeline", "run", "--once", "--master", "local[2]", "--data", self.data, "--lake", lake)

    def query(self, lake: Path, sql: str) -> list[dict[str, object]]:
        printed = self.ember("pipeline", "query", "--json", "--lake", lake, sql)
        return [json.loads(line) for line in printed.splitlines()]

    def check(self, lake: Path) -> None:
        """The tables equal what was published, and the audit agrees."""
        found = self.query(lake, "select topic, decode(payload) as payload from retained")
        assert {row["topic"]: row["payload"] for row in found} == self.retained
        listed = [json.loads(line) for line in self.ember("retained", "ls", "--json", "--data", self.data).splitlines()]
        assert {row["topic"]: row["payload"] for row in listed} == self.retained
        audited = self.ember("pipeline", "audit", "--master", "local[2]", "--data", self.data, "--lake", lake)
        assert audited == "all 8 rules are kept\n"
        sessions = self.query(
            lake,
            "select distinct client_id from clients where event = 'session_opened' and session_id not in"
            " (select session_id from clients where event = 'session_ended')",
        )
        assert [row["client_id"] for row in sessions] == ["later"]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path)
    with house.server:
        yield house


@pytest.mark.long
@pytest.mark.timeout(1800)  # it starts Spark seven times
def test_a_lake_is_right_after_a_gap_and_a_new_one_on_a_trimmed_log(house: House, tmp_path: Path) -> None:
    persistent(house.server, "away", "room/#", 1)
    house.change(60)
    with client(house.server, "away"):  # a clean session: what the persistent one was owed is forgotten
        pass
    persistent(house.server, "ends in the gap", "nothing", 1)
    house.run_once(house.lake)
    (row,) = house.query(house.lake, 'select max("offset") as last from messages')
    position = int(str(row["last"])) + 1

    house.change(30, clears=12)
    with client(house.server, "ends in the gap"):
        pass
    persistent(house.server, "later", "nothing", 1)
    house.trim_past(position + 30)
    house.server.restart()
    house.change(25, clears=5)

    with PipelineProcess(house.data, house.lake, "--once") as killed:
        killed.wait_until(lambda: Lake(house.lake).has_table("gaps"))
    house.run_once(house.lake)
    house.check(house.lake)
    gaps = house.query(house.lake, "select * from gaps")
    assert {"messages", "retained", "clients", "topic_stats"} == {row["job"] for row in gaps}
    assert all(row["why"] == "trimmed before it was read" for row in gaps)
    (retained,) = [row for row in gaps if row["job"] == "retained"]
    # Behind the last message there are the records of the clients that came and went.
    assert position <= int(str(retained["from_offset"])) <= position + 15
    assert retained["to_offset"] == house.first_offset() - 1
    middle = house.ember("pipeline", "as-of", str(retained["from_timestamp"]), "--lake", house.lake)
    assert middle  # the last instant before the gap is known
    unknown = house.query(
        house.lake, "select from_timestamp + (to_timestamp - from_timestamp) / 2 as at from gaps where job = 'retained'"
    )
    said = house.ember("pipeline", "as-of", str(unknown[0]["at"]), "--lake", house.lake, code=2)
    assert "were trimmed before the pipeline had read them" in said and said.count("\n") == 1

    fresh = tmp_path / "fresh"
    house.run_once(fresh)
    house.check(fresh)
    assert {row["why"] for row in house.query(fresh, "select why from gaps")} == {"trimmed before the table was made"}

"""`ember sql` and `ember pipeline` over a lake, without Spark: its tables, their text, how far they are."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from support.ember_command import ember, sentence
from support.local_lake import local_lake
from support.recorded import Recorder

HOSTILE = "a\x1b[2J\u202eb"


@pytest.fixture
def places(recorder: Callable[..., Recorder], tmp_path: Path) -> tuple[Path, Path]:
    """A data directory and a lake."""
    made = recorder()
    made.publish(HOSTILE, HOSTILE.encode(), retain=True)
    made.publish("t/1", b"1", retain=True)
    made.flush()
    return made.data, local_lake(tmp_path / "lake", made).directory


def test_sql_sees_the_log_and_the_lake(places: tuple[Path, Path]) -> None:
    data, lake = places
    query = 'select count(*) as n from messages m join lake.messages l using ("offset") where m.topic = l.topic'
    done = ember("sql", query, "--json", "--data", data, "--lake", lake)
    assert json.loads(done.text) == {"n": 2}, done
    stats = ember("sql", "select count(*) as n from topic_stats", "--csv", "--data", data, "--lake", lake)
    assert stats.lines == ["n", "2"]


@pytest.mark.parametrize("format", [[], ["--json"], ["--csv"]])
def test_tables_of_the_pipeline_are_safe_to_show(places: tuple[Path, Path], format: list[str]) -> None:
    _, lake = places
    for arguments in (["query", "select topic, payload from messages"], ["as-of", "now"]):
        done = ember("pipeline", *arguments, *format, "--lake", lake)
        assert done.code == 0 and len(done.lines) >= 2
        if format != ["--csv"]:  # which is for files, as it is
            assert all(line.isprintable() for line in done.lines)


def test_status_as_json(places: tuple[Path, Path]) -> None:
    data, lake = places
    shown = json.loads(ember("pipeline", "status", "--json", "--data", data, "--lake", lake).text)
    assert shown["state"] == "never run" and shown["next_offset"] == 3 and shown["jobs"] == {}


def test_as_of_says_how_far_it_is_known_and_refuses_what_is_behind_that(
    recorder: Callable[..., Recorder], tmp_path: Path
) -> None:
    made = recorder()
    for number in range(4):
        made.publish(f"t/{number}", b"%d" % number, retain=True)
    made.flush()
    lake = local_lake(tmp_path / "lake", made, through=3).directory
    newest = ember("pipeline", "as-of", "now", "--csv", "--lake", lake)
    assert newest.code == 0 and len(newest.lines) == 1 + 3
    assert newest.errors == "(known up to 2023-11-14T22:13:20.003999Z, the log before offset 4)\n"
    for instant, reason in (
        ("2023-11-14T22:13:20.004Z", "the lake has read the log up to 2023-11-14T22:13:20.003999Z (before offset 4)"),
        ("1s", "the lake has read the log up to"),
        ("2020-01-01", "the lake knows it from 2023-11-14T22:13:20.001000Z"),
    ):
        assert reason in sentence(ember("pipeline", "as-of", instant, "--lake", lake))

"""Rollups against plain Python: late values, batches that come again, and what only the typed table has."""

import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from embermq.instants import EPOCH
from embermq.lake.lake import Lake
from embermq.lake.rollups import Rollup
from embermq.lake.schema import ROLLUP
from embermq.lake.typed_tables import TypedTable
from embermq.spark.jobs.catalog import JobSettings
from embermq.spark.jobs.rollups import AHEAD_MAX
from support.lakes import feed, job_named, new_lake, rows
from support.recorded import START_US, Recorder

Recorders = Callable[..., Recorder]
Value = tuple[str, int, float]
"""A topic, the time in microseconds, and the value, in the order in which they were published."""

HOUR_US = 3_600_000_000
STATUS = TypedTable(
    name="status",
    topic_filter="plant/+",
    format="json",
    columns="load struct<cpu: double>, measured timestamp",
)
NUMBERS = TypedTable(name="numbers", topic_filter="n/+", format="number")


def rollup(**settings: Any) -> Rollup:
    return Rollup.model_validate({"name": "hours", "table": "status", "every": "hour", **settings})


def model(values: Iterable[Value], window_us: int, gap_us: int) -> dict[tuple[str, int], dict[str, Any]]:
    """What a rollup of these values must be, by topic and the beginning of the window."""
    windows: dict[tuple[str, int], list[tuple[int, int, float]]] = defaultdict(list)
    for number, (topic, at_us, value) in enumerate(values):
        windows[topic, at_us - at_us % window_us].append((at_us, number, value))
    found = {}
    for (topic, start_us), ones in windows.items():
        ones.sort()
        numbers = [value for _, _, value in ones]
        edges = [start_us, *(at_us for at_us, _, _ in ones), start_us + window_us]
        silences = [(since, until) for since, until in pairwise(edges) if until - since > gap_us]
        found[topic, start_us] = {
            "window_end": start_us + window_us,
            "count": len(numbers),
            "total": sum(numbers),
            "min": min(numbers),
            "max": max(numbers),
            "avg": sum(numbers) / len(numbers),
            "first": numbers[0],
            "last": numbers[-1],
            "first_seen": ones[0][0],
            "last_seen": ones[-1][0],
            "gaps": len(silences),
            "longest_silence_us": max((until - since for since, until in silences), default=0),
            "silences": silences,
        }
    return found


def stored(spark: SparkSession, lake: Lake, name: str) -> dict[tuple[str, int], dict[str, Any]]:
    """The rows of a rollup in the form of the model."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for row in rows(spark, lake, name):
        assert tuple(row) == ROLLUP.names
        shown: dict[str, Any] = {
            key: _us(value) if isinstance(value, datetime) else value for key, value in row.items()
        }
        shown["silences"] = [(_us(one["since"]), _us(one["until"])) for one in row["silences"]]
        key = shown.pop("topic"), shown.pop("window_start")
        assert key not in found
        found[key] = shown
    return found


def _us(instant: datetime) -> int:
    return (instant.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)


def document(at_us: int | None, value: float | None) -> bytes:
    measured = None if at_us is None else (EPOCH + timedelta(microseconds=at_us)).isoformat()
    return json.dumps({"load": {"cpu": value}, "measured": measured}).encode()


def publish_late(made: Recorder, count: int, seed: int) -> list[Value]:
    """Values of two topics whose own times lie within five hours, in no order; quarters add up without rounding."""
    chance = random.Random(seed)
    values: list[Value] = []
    for _ in range(count):
        topic = f"plant/{chance.randrange(2)}"
        at_us = START_US - chance.choice((0, chance.randrange(5 * HOUR_US)))
        values.append((topic, at_us, chance.randrange(-400, 400) / 4))
        made.publish(topic, document(*values[-1][1:]))
    return values


def test_late_values_and_batches_that_come_again_leave_what_all_at_once_give(
    spark: SparkSession, recorder: Recorders, tmp_path: Path
) -> None:
    made = recorder()
    values = publish_late(made, 60, seed=7)
    made.publish("plant/1", document(0, 1.0))  # a clock that was not set
    made.publish("plant/1", document(made.now_us + AHEAD_MAX // timedelta(microseconds=1) + 2000, 1.0))
    made.publish("plant/1", document(None, 1.0))
    made.publish("plant/1", document(START_US, None))
    made.publish("plant/1", b'{"load": {"cpu": "high"}}')
    made.publish("plant/1", b"", retain=True)
    made.flush()
    chosen = rollup(value="load.cpu", time="measured", gap_s="10m")
    job = job_named("hours", JobSettings(typed_tables=(STATUS,), rollups=(chosen,)))
    lake = new_lake(spark, tmp_path / "lake", job)
    feed(spark, lake, made.data, job, [1, 31])
    feed(spark, lake, made.data, job, [1, 21, 67])  # positions were lost: it comes again, with other bounds
    assert stored(spark, lake, "hours") == model(values, HOUR_US, 600_000_000)


def test_a_new_rollup_has_what_the_log_has_no_more(spark: SparkSession, recorder: Recorders, tmp_path: Path) -> None:
    made = recorder()
    values: list[Value] = []
    for number in range(30):
        made.publish(f"n/{number % 2}", b"%d" % number, step_us=number * 1_000_000)
        values.append((f"n/{number % 2}", made.now_us, float(number)))
    made.flush()
    settings = JobSettings(
        typed_tables=(NUMBERS,), rollups=(rollup(name="minutes", table="numbers", every="minute", gap_s=5),)
    )
    numbers, minutes = job_named("numbers", settings), job_named("minutes", settings)
    lake = new_lake(spark, tmp_path / "lake", numbers, minutes)
    feed(spark, lake, made.data, numbers, [1, 25])
    feed(spark, lake, made.data, minutes, [11, 31])  # as after a trim: the log begins at 11
    assert stored(spark, lake, "minutes") == model(values, 60_000_000, 5_000_000)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_any_cuts_of_late_values_leave_the_same(
    spark: SparkSession, recorder: Recorders, tmp_path: Path, seed: int
) -> None:
    made, chance = recorder(), random.Random(seed)
    values = publish_late(made, 200, seed)
    made.flush()
    every, length_us = [("minute", 60_000_000), ("hour", HOUR_US), ("day", 24 * HOUR_US)][seed % 3]
    chosen = rollup(value="load.cpu", time="measured", every=every, gap_s=length_us / 1e6 / 20)
    job = job_named("hours", JobSettings(typed_tables=(STATUS,), rollups=(chosen,)))
    lake = new_lake(spark, tmp_path / "lake", job)
    cuts = sorted(chance.sample(range(2, 201), 6))
    feed(spark, lake, made.data, job, [1, *cuts, 201])
    assert stored(spark, lake, "hours") == model(values, length_us, length_us // 20)

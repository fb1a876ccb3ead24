"""Expectations against plain Python: each rule, changes over batches, and batches that come again."""

import json
import random
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from embermq.lake.expectations import Expectation
from embermq.lake.typed_tables import TypedTable
from embermq.spark.jobs.catalog import JobSettings
from support.lakes import feed, job_named, new_lake, rows
from support.recorded import Recorder

STATUS = TypedTable(
    name="status", topic_filter="plant/+", format="json", columns="state string, load struct<cpu: double>"
)
EXPECTED = (
    Expectation(typed_name="status", column="state", not_null=True, allowed=("on", "off")),
    Expectation(typed_name="status", column="load.cpu", min=-2, max=50, rate_max=4),
)

Violation = tuple[int, str, str, str | None]
"""The offset, the column, the rule and the value."""


def test_each_value_that_is_not_as_expected_is_there_once(
    spark: SparkSession, recorder: Callable[..., Recorder], tmp_path: Path
) -> None:
    made, chance = recorder(), random.Random(3)
    violations: list[Violation] = []
    last: dict[str, tuple[int, float]] = {}
    for _ in range(80):
        topic = f"plant/{chance.randrange(3)}"
        state = chance.choice(["on", "off", "idle", None])
        load = chance.choice([None, *(chance.randrange(-10, 60) / 4 for _ in range(3)), 200.0])
        offset = made.publish(
            topic, json.dumps({"state": state, "load": {"cpu": load}}).encode(), step_us=chance.choice((0, 900_000))
        )
        if state is None:
            violations.append((offset, "state", "not_null", None))
        elif state == "idle":
            violations.append((offset, "state", "allowed", state))
        if load is None:
            continue
        if load < -2:
            violations.append((offset, "load.cpu", "min", str(load)))
        if load > 50:
            violations.append((offset, "load.cpu", "max", str(load)))
        before_us, before = last.get(topic, (made.now_us, load))
        if made.now_us > before_us and abs(load - before) > 4 * (made.now_us - before_us) / 1e6:
            violations.append((offset, "load.cpu", "rate_max", str(load)))
        last[topic] = made.now_us, load
    made.publish("plant/1", b'{"state": 7}')  # a reject
    made.publish("plant/1", b"", retain=True)
    made.flush()
    job = job_named("status_violations", JobSettings(typed_tables=(STATUS,), expectations=EXPECTED))
    lake = new_lake(spark, tmp_path / "lake", job)
    feed(spark, lake, made.data, job, [1, 30])
    feed(spark, lake, made.data, job, [1, 17, 83])  # positions were lost: it comes again, with other bounds
    found = [(row["offset"], row["field"], row["rule"], row["value"]) for row in rows(spark, lake, "status_violations")]
    assert sorted(found, key=str) == sorted(violations, key=str)
    assert {rule for _, _, rule, _ in violations} == {"not_null", "allowed", "min", "max", "rate_max"}
    kept = {row["topic"]: row["last"] for row in rows(spark, lake, "status_last_values")}
    assert kept == {topic: value for topic, (_, value) in last.items()}

"""`topic_stats` and `silences` against plain Python."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from embermq.spark.jobs.catalog import JobSettings
from embermq.spark.queries.silences import silences
from support.lakes import feed, job_named, new_lake, rows
from support.recorded import Recorder

Recorders = Callable[..., Recorder]


@pytest.mark.long
def test_statistics_add_up_over_batches_that_cut_windows(
    spark: SparkSession, recorder: Recorders, tmp_path: Path
) -> None:
    made = recorder()
    for number in range(120):
        made.publish(f"t/{number % 5}", b"x" * (number % 9), step_us=7_000_000 if number % 40 else 900_000_000)
    made.flush()
    job = job_named("topic_stats", JobSettings(stats_window="1 minute"))
    lake = new_lake(spark, tmp_path / "lake", job)
    feed(spark, lake, made.data, job, [1, 39, 121])
    feed(spark, lake, made.data, job, [30, 121])
    expected: dict[tuple[str, int], list[int]] = {}
    for _, at_us, topic, payload, *_ in made.published:
        window = expected.setdefault((topic, at_us // 60_000_000), [0, 0, at_us, at_us, 0])
        window[4] = max(window[4], at_us - window[3])
        window[0], window[1], window[3] = window[0] + 1, window[1] + len(payload), at_us
    found = {}
    for row in rows(spark, lake, "topic_stats"):
        first, last = (int(row[name].timestamp() * 1e6 + 0.5) for name in ("first_seen", "last_seen"))
        key = (row["topic"], int(row["window_start"].timestamp()) // 60)
        assert key not in found
        found[key] = [row["messages"], row["bytes"], first, last, row["longest_silence_us"]]
    assert found == expected
    longest = {row["topic"]: row["silence_us"] for row in silences(spark, lake).collect()}
    for topic in {topic for topic, _ in expected}:
        times = [at_us for _, at_us, name, *_ in made.published if name == topic]
        assert longest[topic] == max(after - before for before, after in pairwise(times))

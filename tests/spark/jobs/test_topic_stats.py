"""`topic_stats` and `silences` against plain Python."""

from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from embermq.history.directory import DirectoryLog
from embermq.lake.errors import LakeError
from embermq.lake.positions import Positions
from embermq.spark.jobs.catalog import JobSettings
from embermq.spark.jobs.preparation import prepare_job, reset_job
from embermq.spark.pipeline import _check_definitions
from embermq.spark.queries.silences import silences
from support.lakes import feed, job_named, new_lake, rows
from support.recorded import Recorder

Recorders = Callable[..., Recorder]


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


@pytest.mark.parametrize("is_earlier", [False, True], ids=["kept", "of an earlier version"])
def test_another_window_is_refused_until_the_table_is_built_again(
    spark: SparkSession, recorder: Callable[..., Recorder], tmp_path: Path, is_earlier: bool
) -> None:
    made = recorder()
    for number in range(20):
        made.publish("t", b"%d" % number, step_us=120_000_000)
    made.flush()
    lake = new_lake(spark, tmp_path / "lake")
    positions = Positions(lake, DirectoryLog(made.data))
    minutes, same, hour = (
        job_named("topic_stats", JobSettings(stats_window=length)) for length in ("5 minutes", "300 seconds", "1 hour")
    )
    assert prepare_job(spark, minutes, lake, positions) is None
    feed(spark, lake, made.data, minutes, [1, 21])
    if is_earlier:  # it has not kept the length, but its rows have one
        lake.files.remove("_embermq/definitions/topic_stats.json")
    said = (
        "was built with window '300 s', the settings say '3600 s': restore the setting, or `ember pipeline run "
        "--rebuild topic_stats` builds it again from the log"
    )
    if is_earlier:
        with pytest.raises(LakeError, match=said):
            prepare_job(spark, hour, lake, positions)
    with pytest.raises(LakeError, match=said):  # from now on before Spark is started
        _check_definitions(lake, [hour], ())
    _check_definitions(lake, [hour], ["topic_stats"])
    _check_definitions(lake, [same], ())
    assert prepare_job(spark, same, lake, positions) == 21
    lake.epoch = 1
    reset_job(spark, hour, lake, positions)
    assert prepare_job(spark, hour, lake, positions) is None
    feed(spark, lake, made.data, hour, [1, 21])
    lengths = {row["window_end"] - row["window_start"] for row in rows(spark, lake, "topic_stats")}
    assert lengths == {timedelta(hours=1)}

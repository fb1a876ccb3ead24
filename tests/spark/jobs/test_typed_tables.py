"""Typed tables: rows, rejects, and wrong settings."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from embermq.history.directory import DirectoryLog
from embermq.lake.errors import LakeError
from embermq.lake.lake import Lake
from embermq.lake.payloads.sparkplug import read_messages
from embermq.lake.positions import Positions
from embermq.lake.retry import Retried, retry
from embermq.lake.typed_tables import TypedTable
from embermq.spark.jobs.catalog import JobSettings
from embermq.spark.jobs.preparation import prepare_job
from support.lakes import feed, job_named, new_lake, rows
from support.payloads import SPARKPLUG
from support.recorded import Recorder

Recorders = Callable[..., Recorder]


def test_payloads_that_fit_are_typed_and_the_others_are_kept(
    spark: SparkSession, recorder: Recorders, tmp_path: Path
) -> None:
    made = recorder()
    numbers = [b"1", b"-2.5e3", b" 7 ", b"", b"abc", b"\xff\xfe", b"1 2", b"NaN"]
    for payload in numbers:
        made.publish("air/x/pm25", payload)
    made.publish("air/x/pm25", b"", retain=True)  # a clear is no value
    documents = [b'{"state":"on","load":1.5}', b'{"load":2}', b"{}", b'{"load":"high"}', b"{", b"null", b"[1]", b"\xff"]
    for payload in documents:
        made.publish("plant/7/status", payload)
    made.flush()
    air = TypedTable(name="air", topic_filter="air/+/+", format="number", levels=("", "station", "measure"))
    status = TypedTable(
        name="status", topic_filter="plant/+/status", format="json", columns="state string, load double"
    )
    settings = JobSettings(typed_tables=(air, status))
    jobs = [job_named("air", settings), job_named("status", settings)]
    lake = new_lake(spark, tmp_path / "lake", *jobs)
    feed(spark, lake, made.data, jobs[0], [1, 4, 18])
    feed(spark, lake, made.data, jobs[1], [1, 18])
    feed(spark, lake, made.data, jobs[1], [1, 18])
    typed = sorted(rows(spark, lake, "air"), key=lambda row: int(row["offset"]))
    assert [(row["offset"], row["station"], row["measure"]) for row in typed[:3]] == [
        (n, "x", "pm25") for n in (1, 2, 3)
    ]
    assert [row["value"] for row in typed[:3]] == [1.0, -2500.0, 7.0]
    rejected = {(bytes(row["payload"]), row["reason"]) for row in rows(spark, lake, "air_rejects")}
    assert {(b"", "not a number"), (b"abc", "not a number"), (b"\xff\xfe", "not UTF-8")} <= rejected
    assert len(typed) + len(rejected) == len(numbers)
    typed = sorted(rows(spark, lake, "status"), key=lambda row: int(row["offset"]))
    assert [(row["state"], row["load"]) for row in typed] == [("on", 1.5), (None, 2.0), (None, None)]
    rejects = rows(spark, lake, "status_rejects")
    assert ("load", "expected a number, found a string") in [(row["field"], row["reason"]) for row in rejects]
    assert sorted(bytes(row["payload"]) for row in rejects) == sorted(documents[3:])


def test_metrics_are_named_by_births_of_earlier_batches(
    spark: SparkSession, recorder: Recorders, tmp_path: Path
) -> None:
    made = recorder()
    offsets = [made.publish(topic, payload) for topic, payload in SPARKPLUG]
    made.flush()
    metrics = TypedTable(name="metrics", topic_filter="spBv1.0/+/+/+/#", format="sparkplug")
    job = job_named("metrics", JobSettings(typed_tables=(metrics,)))
    lake = new_lake(spark, tmp_path / "lake", job)
    first, cut, end = offsets[0], offsets[3], offsets[-1] + 1
    feed(spark, lake, made.data, job, [first, cut, end])
    feed(spark, lake, made.data, job, [first, end])  # comes again with other bounds: nothing changes
    whole = list(read_messages((topic, payload, False) for topic, payload in SPARKPLUG))
    read = list(zip(offsets, whole, strict=True))
    expected = [(at, row["metric"], row.get("value_double"), row["is_stale"]) for at, one in read for row in one[0]]
    found = rows(spark, lake, "metrics")
    shown = [(row["offset"], row["metric"], row["value_double"], row["is_stale"]) for row in found]
    assert sorted(shown, key=str) == sorted(expected, key=str)
    rejects = {row["offset"]: row["reason"] for row in rows(spark, lake, "metrics_rejects")}
    assert rejects == {at: one[2].reason for at, one in read if one[2] is not None}
    newest = {topic: at for (topic, _), (at, one) in zip(SPARKPLUG, read, strict=True) if one[1]}
    assert {row["topic"]: row["offset"] for row in rows(spark, lake, "metrics_births")} == newest


def test_a_table_takes_new_columns_and_then_its_rejects(
    spark: SparkSession, recorder: Recorders, tmp_path: Path
) -> None:
    made = recorder()
    for payload in (b'{"n": 1, "v": 2}', b'{"n": 3000000000, "v": 4}', b'{"n": 5, "speed": 6, "new": "x"}'):
        made.publish("d/1", payload)
    made.flush()
    settings = [
        TypedTable.model_validate({"name": "docs", "filter": "d/+", "format": "json", **more})
        for more in (
            {"schema": "n int, v int"},
            {"schema": "n int, v int, new string"},
            {"schema": "n long, speed int, new string", "aliases": {"speed": ["v"]}},
        )
    ]
    jobs = [job_named("docs", JobSettings(typed_tables=(table,))) for table in settings]
    lake = Lake(tmp_path / "lake")
    lake.open()
    positions = Positions(lake, DirectoryLog(made.data))
    assert prepare_job(spark, jobs[0], lake, positions) is None
    feed(spark, lake, made.data, jobs[0], [1, 3])
    assert prepare_job(spark, jobs[1], lake, positions) == 3
    assert prepare_job(spark, jobs[2], lake, positions) == 3
    settings[2].check(lake)
    with pytest.raises(LakeError, match=r"was built with schema .*--rebuild docs"):
        settings[0].check(lake)
    feed(spark, lake, made.data, jobs[2], [3, 4])
    assert retry(lake, settings[2]) == Retried(1, 0)
    assert prepare_job(spark, jobs[2], lake, positions) == 4
    found = sorted((row["offset"], row["n"], row["speed"], row["new"]) for row in rows(spark, lake, "docs"))
    assert found == [(1, 1, 2, None), (2, 3_000_000_000, 4, None), (3, 5, 6, "x")]
    assert rows(spark, lake, "docs_rejects") == []

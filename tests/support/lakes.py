"""Lakes for tests: tables fed batch by batch, as the pipeline feeds them."""

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from embermq.history.directory import DirectoryLog
from embermq.instants import EPOCH
from embermq.lake.lake import Lake
from embermq.lake.positions import Positions
from embermq.lake.progress import JobProgress, write_progress
from embermq.lake.schema import LOG, spark_sql
from embermq.spark.jobs.catalog import JobSettings, all_jobs
from embermq.spark.jobs.job import Batch, Job
from embermq.spark.lake.tables import create_table, read_table
from support.recorded import START_US, Recorder


def job_named(name: str, settings: JobSettings | None = None) -> Job:
    (job,) = [job for job in all_jobs(settings or JobSettings()) if job.name == name]
    return job


def new_lake(spark: SparkSession, directory: Path, *jobs: Job) -> Lake:
    lake = Lake(directory)
    lake.open()
    for job in jobs:
        for table in job.tables:
            create_table(spark, lake, table)
    return lake


def records(spark: SparkSession, data: Path, job: Job, start: int, end: int) -> DataFrame:
    """What a batch from one offset to another is for a job."""
    types = {column.name: spark_sql(column.type) for column in LOG.columns}
    reader = (
        spark.read.format("embermq")
        .schema(", ".join(f"{name} {types[name]}" for name in job.columns))
        .option("kinds", ",".join(job.kinds))
        .option("startingOffsets", start)
        .option("endingOffsets", end)
    )
    if job.topic_filter is not None:
        reader = reader.option("filter", job.topic_filter)
    return reader.load(str(data))


def feed(spark: SparkSession, lake: Lake, data: Path, job: Job, edges: Iterable[int]) -> None:
    """Apply the batches between neighbouring offsets."""
    positions = Positions(lake, DirectoryLog(data))
    for start, end in pairwise(edges):
        job.apply(Batch(records(spark, data, job, start, end), start, end - 1, EPOCH, is_small=True), lake)
        positions.save({job.name: end}, {})


def say_all_is_known(lake: Lake, made: Recorder) -> None:
    """Write the progress of a pipeline that has read the whole log."""
    end = DirectoryLog(made.data).end()
    job = JobProgress("retained", offset=end.next_offset)
    job.know(START_US + 1000, None, end)
    write_progress(lake, [job], end, "done")


def rows(spark: SparkSession, lake: Lake, name: str) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in read_table(spark, lake, name).collect()]


def retained_of(frame: DataFrame) -> dict[str, tuple[bytes, int, int]]:
    """topic -> payload, qos, offset; fails on a topic that is there twice."""
    found: dict[str, tuple[bytes, int, int]] = {}
    for row in frame.collect():
        assert row["topic"] not in found, f"{row['topic']} is there twice"
        found[row["topic"]] = (bytes(row["payload"]), row["qos"], row["offset"])
    return found

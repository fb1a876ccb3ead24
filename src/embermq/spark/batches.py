"""One batch: a range of the log, read once and applied to the tables of every job that takes part.

Owns: what the jobs of a batch see, and when the positions are written.
Never: which batch is next (`schedule`), and what a job does with it.
"""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from embermq.spark.jobs.job import Batch, Job
from embermq.spark.lake.lake import Lake
from embermq.spark.lake.positions import Positions
from embermq.spark.lake.scratch import Scratch
from embermq.spark.lake.transactions import version_after
from embermq.spark.schedule import Plan
from embermq.spark.session import INTERPRETED
from embermq.spark.source.columns import FLAGS_FIELD, SOURCE_SCHEMA
from embermq.spark.source.logs.location import LogLocation
from embermq.spark.source.logs.readable import ReadableLog
from embermq.spark.source.staging import stage
from embermq.spark.source.topic_filters import matches

COMPILE_ABOVE: Final = 100_000
"""Records of a batch from which it pays to compile its queries to Java code."""

_STAGING: Final = "batch"
_STAGED_SCHEMA: Final = StructType([*SOURCE_SCHEMA.fields, FLAGS_FIELD])
_COMPILED: Final = {
    **INTERPRETED,
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}


@dataclass(frozen=True)
class BatchContext:
    """What all batches of one pipeline share."""

    spark: SparkSession
    location: LogLocation
    log: ReadableLog
    lake: Lake
    jobs: Mapping[str, Job]
    positions: Positions
    scratch: Scratch


def run_batch(context: BatchContext, plan: Plan) -> tuple[dict[str, float], dict[str, int]]:
    """Apply a batch to the tables of its jobs, then write their positions.

    Returns how long each job took, in seconds, and the version that each of their tables has now.
    """
    spark, lake = context.spark, context.lake
    jobs = [context.jobs[name] for name in plan.jobs]
    _set_for_size(spark, plan.end - plan.start)
    began_s = time.monotonic()
    kinds = sorted({kind for job in jobs for kind in job.kinds})
    staging, tasks = context.scratch.directory(_STAGING), spark.sparkContext.defaultParallelism
    staged = stage(context.location, plan.start, plan.end, kinds, staging, tasks)
    took_s = dict.fromkeys(plan.jobs, (time.monotonic() - began_s) / len(jobs))
    try:
        if staged.since is not None:
            rows = spark.read.schema(_STAGED_SCHEMA).parquet(*context.scratch.urls(_STAGING, staged.files))
            batches = [
                (job, Batch(_rows_of(job, rows), plan.end - 1, staged.since))
                for job in jobs
                if not staged.kinds.isdisjoint(job.kinds)
            ]
            for name, applying_s in _apply(batches, lake, plan.end - plan.start >= COMPILE_ABOVE).items():
                took_s[name] += applying_s
    finally:
        context.scratch.clear(_STAGING)
    versions = {job.name: _versions(spark, lake, job) for job in jobs}
    context.positions.save(dict.fromkeys(plan.jobs, plan.end), versions)
    return took_s, {name: version for of_job in versions.values() for name, version in of_job.items()}


def _apply(batches: Sequence[tuple[Job, Batch]], lake: Lake, is_large: bool) -> dict[str, float]:
    """Have every job apply its batch; how long each took, in seconds.

    Of a large batch, those that merge run beside those that append: planning, commits and the end of a write leave
    cores idle. No two merges at once: their transaction identifier is a setting of the session (`lake.transactions`).
    A lake at a URL has one thread: only that which has added the jar of a lake on `s3a` finds the class in it.
    """
    took_s: dict[str, float] = {}

    def apply(is_merged: tuple[bool, ...]) -> None:
        for job, batch in batches:
            if job.is_merged in is_merged:
                began_s = time.monotonic()
                job.apply(batch, lake)
                took_s[job.name] = time.monotonic() - began_s

    if not (is_large and lake.is_local):
        apply((False, True))
        return took_s
    with ThreadPoolExecutor(2) as pool:
        for applied in [pool.submit(apply, (is_merged,)) for is_merged in (False, True)]:
            applied.result()
    return took_s


def _rows_of(job: Job, rows: DataFrame) -> DataFrame:
    chosen = rows.where(F.col("kind").isin(*job.kinds))
    if job.topic_filter is not None:
        chosen = chosen.where(matches(F.col("topic"), job.topic_filter))
    return chosen.select(*job.columns)


def _versions(spark: SparkSession, lake: Lake, job: Job) -> dict[str, int]:
    return {name: version_after(spark, lake, name, job.transaction_id(name)) for name in job.tables}


def _set_for_size(spark: SparkSession, records: int) -> None:
    """Only the queries of a large batch are compiled; its shuffles have a task for each core."""
    is_large = records >= COMPILE_ABOVE
    settings = dict(_COMPILED if is_large else INTERPRETED)
    settings["spark.sql.shuffle.partitions"] = str(spark.sparkContext.defaultParallelism if is_large else 1)
    for key, value in settings.items():
        if spark.conf.get(key) != value:
            spark.conf.set(key, value)

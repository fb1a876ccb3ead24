"""One batch: a range of the log, read once and applied to the tables of every job that takes part.

Owns: what the jobs of a batch see, and when the positions are written.
Never: which batch is next (`schedule`), and what a job does with it.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from embermq.history.location import LogLocation
from embermq.history.source import ReadableLog
from embermq.lake.delta import applied
from embermq.lake.lake import Lake
from embermq.lake.positions import Positions
from embermq.lake.schema import LOG_ARROW, struct_json
from embermq.spark.jobs.job import Batch, Job
from embermq.spark.lake.scratch import Scratch, is_local
from embermq.spark.options import location_options
from embermq.spark.schedule import Plan
from embermq.spark.session import INTERPRETED
from embermq.spark.source.staging import stage
from embermq.spark.source.topic_filters import matches

COMPILE_ABOVE: Final = 100_000
"""Records of a batch from which it pays to compile its queries to Java code."""
SMALL_BYTES: Final = 32 << 20
"""The most bytes of a batch whose rows are appended from the memory of this process (`lake.transactions`)."""

_STAGING: Final = "batch"
_AUTHORITIES: Final = "authorities.pem"
_LOG_SCHEMA: Final = StructType.fromJson(struct_json(LOG_ARROW))
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


@dataclass(frozen=True)
class _Records:
    """The records of a batch, for all of its jobs."""

    rows: DataFrame
    kinds: frozenset[str]
    since: datetime | None
    """The oldest timestamp; None if there is no record."""
    is_small: bool


def run_batch(context: BatchContext, plan: Plan) -> tuple[dict[str, float], dict[str, int]]:
    """Apply a batch to the tables of its jobs, then write their positions.

    Returns how long each job took, in seconds, and the version that each of their tables has now.
    """
    jobs = [context.jobs[name] for name in plan.jobs]
    _set_for_size(context.spark, plan.end - plan.start)
    began_s = time.monotonic()
    kinds = sorted({kind for job in jobs for kind in job.kinds})
    with (_read_here if is_local(context.spark) else _read_by_tasks)(context, plan, kinds) as found:
        took_s = dict.fromkeys(plan.jobs, (time.monotonic() - began_s) / len(jobs))
        if found.since is not None:
            batches = [
                (job, Batch(_rows_of(job, found.rows), plan.start, plan.end - 1, found.since, found.is_small))
                for job in jobs
                if not found.kinds.isdisjoint(job.kinds)
            ]
            for name, applying_s in _apply(batches, context.lake, plan.end - plan.start >= COMPILE_ABOVE).items():
                took_s[name] += applying_s
    versions = {job.name: _versions(context.lake, job) for job in jobs}
    context.positions.save(dict.fromkeys(plan.jobs, plan.end), versions)
    return took_s, {name: version for of_job in versions.values() for name, version in of_job.items()}


@contextmanager
def _read_here(context: BatchContext, plan: Plan, kinds: Sequence[str]) -> Iterator[_Records]:
    """The records as Parquet files, which threads of this process write: on one machine that is faster."""
    staging, tasks = context.scratch.directory(_STAGING), context.spark.sparkContext.defaultParallelism
    try:
        staged = stage(context.location, plan.start, plan.end, kinds, staging, tasks)
        rows = context.spark.read.schema(_LOG_SCHEMA).parquet(*context.scratch.urls(_STAGING, staged.files))
        yield _Records(rows, staged.kinds, staged.since, staged.size_bytes <= SMALL_BYTES)
    finally:
        context.scratch.clear(_STAGING)


@contextmanager
def _read_by_tasks(context: BatchContext, plan: Plan, kinds: Sequence[str]) -> Iterator[_Records]:
    """The records as the tasks of a cluster read them, each its own range; executors keep them for all jobs."""
    spark = context.spark
    reader = (
        spark.read.format("embermq")
        .schema(_LOG_SCHEMA)
        .options(
            **location_options(context.location, context.scratch.directory(_AUTHORITIES)),
            kinds=",".join(kinds),
            startingOffsets=plan.start,
            endingOffsets=plan.end,
            minPartitions=spark.sparkContext.defaultParallelism,
        )
    )
    rows = reader.load().persist(StorageLevel.MEMORY_AND_DISK)
    try:
        found = rows.agg(F.collect_set("kind"), F.min("timestamp")).collect()[0]
        since = None if found[1] is None else found[1].astimezone(UTC)
        yield _Records(rows, frozenset(found[0]), since, is_small=False)
    finally:
        rows.unpersist()


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
        for applying in [pool.submit(apply, (is_merged,)) for is_merged in (False, True)]:
            applying.result()
    return took_s


def _rows_of(job: Job, rows: DataFrame) -> DataFrame:
    chosen = rows.where(F.col("kind").isin(*job.kinds))
    if job.topic_filter is not None:
        chosen = chosen.where(matches(F.col("topic"), job.topic_filter))
    return chosen.select(*job.columns)


def _versions(lake: Lake, job: Job) -> dict[str, int]:
    return {name: applied(lake, name, job.transaction_id(name)).version for name in job.table_names}


def _set_for_size(spark: SparkSession, records: int) -> None:
    """Only the queries of a large batch are compiled; its shuffles have a task for each core."""
    is_large = records >= COMPILE_ABOVE
    settings = dict(_COMPILED if is_large else INTERPRETED)
    settings["spark.sql.shuffle.partitions"] = str(spark.sparkContext.defaultParallelism if is_large else 1)
    for key, value in settings.items():
        if spark.conf.get(key) != value:
            spark.conf.set(key, value)

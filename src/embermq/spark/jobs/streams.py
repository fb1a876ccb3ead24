"""Jobs: the streams from the log to the tables, each with a checkpoint of its own.

Owns: which job feeds which tables, and starting one so that it goes on exactly where its tables are.
A job of its own for each group of tables: one that is new, or was deleted, is built from the log's beginning while the
others go on.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from embermq.spark.errors import LakeError, PipelineError
from embermq.spark.jobs import client_events as clients
from embermq.spark.jobs import retained, topic_stats, typed
from embermq.spark.jobs.applied import applied_version
from embermq.spark.lake.tables import (
    MESSAGES_SCHEMA,
    REJECTS_SCHEMA,
    TABLES,
    Lake,
    create_table,
    read_table,
    source_schema,
)
from embermq.spark.options import KIND_NAMES

MESSAGES_EVERY_S: Final = 2.0
TABLES_EVERY_S: Final = 30.0
"""A MERGE costs seconds whatever its size: large and rare is cheap. `messages` has what is newer."""
RECORDS_PER_TRIGGER: Final = 2_500_000

Turns = AbstractContextManager[object]


@dataclass(frozen=True)
class Job:
    """A stream: what it reads, the tables it feeds, and how; without `apply` it appends to its one table."""

    name: str
    tables: Mapping[str, StructType]
    columns: Sequence[str]
    kinds: Sequence[str]
    apply: Callable[[DataFrame, Lake], None] | None
    every_s: float
    topic_filter: str | None = None


@dataclass(frozen=True)
class JobSettings:
    """How the jobs run."""

    messages_every_s: float = MESSAGES_EVERY_S
    tables_every_s: float = TABLES_EVERY_S
    records_per_trigger: int = RECORDS_PER_TRIGGER
    stats_window: str = topic_stats.WINDOW
    skip_trimmed: bool = False
    typed_tables: tuple[typed.TypedTable, ...] = ()
    only: tuple[str, ...] = ()


def chosen_jobs(settings: JobSettings) -> list[Job]:
    """The jobs that are asked for: all of them unless `only` names some."""
    jobs = all_jobs(settings)
    names = [job.name for job in jobs]
    for name in settings.only:
        if name not in names:
            raise PipelineError(f"there is no job {name!r}: expected one of {', '.join(names)}")
    return [job for job in jobs if not settings.only or job.name in settings.only]


def all_jobs(settings: JobSettings) -> list[Job]:
    """Every job of a lake."""
    every_s = settings.tables_every_s

    def tables(*names: str) -> dict[str, StructType]:
        return {name: TABLES[name] for name in names}

    stats = partial(topic_stats.apply_topic_stats, window=settings.stats_window)
    return [
        Job("messages", tables("messages"), MESSAGES_SCHEMA.names, ("publish",), None, settings.messages_every_s),
        Job(
            retained.JOB,
            tables("retained", "retained_closed"),
            retained.COLUMNS,
            retained.KINDS,
            retained.apply_retained,
            every_s,
        ),
        Job(topic_stats.JOB, tables("topic_stats"), topic_stats.COLUMNS, topic_stats.KINDS, stats, every_s),
        Job(clients.JOB, tables("clients"), clients.COLUMNS, clients.KINDS, clients.apply_clients, every_s),
        *(_typed_job(table, every_s) for table in settings.typed_tables),
    ]


def _typed_job(table: typed.TypedTable, every_s: float) -> Job:
    schemas = {table.name: table.table_schema(), table.rejects: REJECTS_SCHEMA}
    apply = partial(typed.apply_typed, table=table)
    return Job(table.name, schemas, typed.COLUMNS, typed.KINDS, apply, every_s, table.topic_filter)


def start_job(
    spark: SparkSession, job: Job, data: Path, lake: Lake, settings: JobSettings, once: bool, turns: Turns
) -> StreamingQuery:
    """Start a job's stream: until the log's end of now with `once`, else until it is stopped.

    Batches that merge take one of the `turns` each, so that those of `messages` find a core free.
    """
    found = _prepare_tables(spark, job, lake)
    reader = (
        spark.readStream.format("embermq")
        .schema(source_schema([KIND_NAMES[name] for name in job.kinds], job.columns))
        .option("kinds", ",".join(job.kinds))
        .option("maxRecordsPerTrigger", settings.records_per_trigger)
        .option("minPartitions", spark.sparkContext.defaultParallelism)
        .option("failOnDataLoss", str(not settings.skip_trimmed).lower())
    )
    if job.topic_filter is not None:
        reader = reader.option("filter", job.topic_filter)
    if found and job.apply is None and not Path(lake.checkpoint(job.name)).exists():
        # The sink knows batches by their checkpoint; without one the rows themselves tell where to go on.
        (name,) = job.tables
        last = read_table(spark, lake, name).agg(F.max("offset")).collect()[0][0]
        if last is not None:
            reader = reader.option("startingOffsets", last + 1)
    # Local properties pass to the stream's thread: each job gets its share of the cores.
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", job.name)
    writer = (
        reader.load(str(data.absolute()))
        .writeStream.queryName(job.name)
        .option("checkpointLocation", lake.checkpoint(job.name))
    )
    writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{job.every_s} seconds")
    if job.apply is None:
        (name,) = job.tables
        return writer.format("delta").outputMode("append").start(lake.table(name))
    return writer.foreachBatch(partial(_apply_batch, job.apply, lake, turns)).start()


def _apply_batch(
    apply: Callable[[DataFrame, Lake], None], lake: Lake, turns: Turns, batch: DataFrame, batch_id: int
) -> None:
    # Adaptive execution more than doubles the Spark jobs of a micro-batch and plans nothing better for it.
    batch.sparkSession.conf.set("spark.sql.adaptive.enabled", "false")
    with turns:
        apply(batch, lake)


def _prepare_tables(spark: SparkSession, job: Job, lake: Lake) -> bool:
    """Whether the job's tables were there; if not, they are created, and the job starts over.

    Half of a job's tables cannot be continued, unless a crash came while they were created: then they are all new.
    """
    present = [name for name in job.tables if lake.exists(name)]
    missing = ", ".join(name for name in job.tables if name not in present)
    if missing and all(applied_version(spark, lake.table(name), job.name)[0] == 0 for name in present):
        shutil.rmtree(lake.checkpoint(job.name), ignore_errors=True)
        for name, schema in job.tables.items():
            create_table(spark, lake, name, schema)
        return False
    if missing:
        raise LakeError(
            f"the table {missing} is missing beside {', '.join(present)}: delete these too, and both are rebuilt"
        )
    for name, schema in job.tables.items():
        found = read_table(spark, lake, name).schema
        if [(field.name, field.dataType) for field in found] != [(field.name, field.dataType) for field in schema]:
            raise LakeError(
                f"the table {name} in {lake.directory} has other columns ({found.simpleString()}) than this version "
                "or this configuration writes: delete the table, and it is rebuilt"
            )
    return True

"""Starting a job's stream, so that it goes on exactly where its tables are.

Owns: the options of a stream, its checkpoint, and whether a job's tables can be continued.
Never: what a job does with a batch.
"""

import shutil
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader

from embermq.spark.errors import LakeError
from embermq.spark.jobs.catalog import JobSettings
from embermq.spark.jobs.job import Apply, Job
from embermq.spark.lake.definitions import write_definition
from embermq.spark.lake.lake import Lake
from embermq.spark.lake.tables import create_table, read_table
from embermq.spark.lake.transactions import applied_version
from embermq.spark.options import KIND_NAMES
from embermq.spark.source.columns import source_schema

BatchSlots = AbstractContextManager[object]
"""A semaphore: as many batches are applied at once as it has slots, so that those of `messages` find a core free."""


@dataclass(frozen=True)
class StreamContext:
    """What all streams of one pipeline share. With an `end` each runs up to this offset, then ends."""

    spark: SparkSession
    data: Path
    lake: Lake
    settings: JobSettings
    end: int | None
    batch_slots: BatchSlots


def start_job(context: StreamContext, job: Job) -> StreamingQuery:
    """Start a job's stream."""
    spark, lake = context.spark, context.lake
    is_continued = _prepare_tables(spark, job, lake)
    reader = _reader(context, job)
    if is_continued and job.apply is None and not Path(lake.checkpoint(job.name)).exists():
        # Delta's sink knows batches by their checkpoint; without one, the rows themselves tell where to go on.
        (name,) = job.tables
        last = read_table(spark, lake, name).agg(F.max("offset")).collect()[0][0]
        if last is not None:
            reader = reader.option("startingOffsets", last + 1)
    # The stream's thread inherits local properties: each job gets its share of the cores.
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", job.name)
    writer = (
        reader.load(str(context.data.absolute()))
        .writeStream.queryName(job.name)
        .option("checkpointLocation", lake.checkpoint(job.name))
    )
    if context.end is not None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{context.settings.every_s(job)} seconds")
    if job.apply is None:
        (name,) = job.tables
        return writer.format("delta").outputMode("append").start(lake.table(name))
    return writer.foreachBatch(partial(_apply_batch, job.apply, lake, context.batch_slots)).start()


def _reader(context: StreamContext, job: Job) -> DataStreamReader:
    settings = context.settings
    reader = (
        context.spark.readStream.format("embermq")
        .schema(source_schema([KIND_NAMES[name] for name in job.kinds], job.columns))
        .option("kinds", ",".join(job.kinds))
        .option("maxRecordsPerTrigger", settings.records_per_trigger)
        .option("minPartitions", context.spark.sparkContext.defaultParallelism)
        .option("failOnDataLoss", str(not settings.skip_trimmed).lower())
    )
    if context.end is not None:
        reader = reader.option("endingOffsets", context.end)
    return reader if job.topic_filter is None else reader.option("filter", job.topic_filter)


def _apply_batch(apply: Apply, lake: Lake, batch_slots: BatchSlots, batch: DataFrame, batch_id: int) -> None:
    # Adaptive execution more than doubles the Spark jobs of a micro-batch, and its plans are no better.
    batch.sparkSession.conf.set("spark.sql.adaptive.enabled", "false")
    with batch_slots:
        apply(batch, lake)


def _prepare_tables(spark: SparkSession, job: Job, lake: Lake) -> bool:
    """Whether the job's tables existed; if not, they are created, and the job starts at the log's beginning.

    A job with only some of its tables cannot go on, unless a crash came while they were created: then none has rows.
    """
    present = [name for name in job.tables if lake.has_table(name)]
    missing = ", ".join(name for name in job.tables if name not in present)
    if missing and all(applied_version(spark, lake.table(name), job.name)[0] == 0 for name in present):
        shutil.rmtree(lake.checkpoint(job.name), ignore_errors=True)
        if job.definition is not None:
            write_definition(lake, job.name, job.definition)
        for name, schema in job.tables.items():
            create_table(spark, lake, name, schema)
        return False
    if missing:
        raise LakeError(f"the table {missing} is missing beside {', '.join(present)}: {_advice(job)}")
    for name, schema in job.tables.items():
        found = read_table(spark, lake, name).schema
        if [(field.name, field.dataType) for field in found] != [(field.name, field.dataType) for field in schema]:
            raise LakeError(
                f"the table {name} in {lake.directory} has other columns ({found.simpleString()}) than this version "
                f"or this configuration writes: {_advice(job)}"
            )
    return True


def _advice(job: Job) -> str:
    if job.definition is not None:
        return f"`ember pipeline run --rebuild {job.name}` builds it again from the log"
    return f"delete {' and '.join(job.tables)}, and the pipeline builds them again from the log"

"""The job of `retained` and `retained_closed`: the retained set, and its history.

Owns: how an event sets, replaces and clears a retained message (MQTT 3.1.1, 3.3.1.3), for a whole batch at once.
Two commits a batch, each with the last offset that it applies: first the intervals that end in this batch are appended
to `retained_closed`, then `retained` is merged. After a crash between the two, `queries.as_of` ignores the intervals
above the offset that `retained` has applied.
"""

from typing import Final

from delta.tables import DeltaTable
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from embermq.lake.delta import applied_offset
from embermq.lake.epochs import NOTHING_APPLIED
from embermq.lake.errors import LakeError
from embermq.lake.lake import Lake
from embermq.lake.schema import PUBLISHED_COLUMNS, RETAINED, RETAINED_CLOSED
from embermq.spark.jobs.job import Batch, Job
from embermq.spark.lake.tables import read_table
from embermq.spark.lake.transactions import append_once, merge_once

NAME: Final = "retained"


def retained_events(records: DataFrame) -> DataFrame:
    """The records that set or clear a retained message: the columns of `retained`, cleared."""
    return retained_columns(
        records.where((F.col("kind") == "retained_removed") | F.col("retain")),
        # A zero-byte payload clears and is never stored (MQTT-3.3.1-10, MQTT-3.3.1-11).
        ((F.col("kind") == "retained_removed") | (F.length("payload") == 0)).alias("cleared"),
    )


def retained_columns(records: DataFrame, *more: Column) -> DataFrame:
    """Records as rows of `retained`."""
    return records.withColumn("valid_from", F.col("timestamp")).select(*RETAINED.names, *more)


def with_successors(events: DataFrame) -> DataFrame:
    """Each event with the instant and offset of the next one of its topic, and whether it is the first of the batch."""
    of_topic = Window.partitionBy("topic").orderBy("offset")
    return events.select(
        "*",
        F.lead("valid_from").over(of_topic).alias("valid_to"),
        F.lead("offset").over(of_topic).alias("offset_to"),
        F.lag("offset").over(of_topic).isNull().alias("is_first"),
    )


def apply_retained(batch: Batch, lake: Lake) -> None:
    """Bring both tables up to the end of a batch."""
    spark = batch.rows.sparkSession
    closed_through = applied_offset(lake, "retained_closed", NAME)
    through = applied_offset(lake, "retained", NAME)
    if closed_through < through:
        raise LakeError(
            f"retained_closed has applied the log up to {closed_through}, retained up to {through}: "
            "delete both tables and run the pipeline again to rebuild them"
        )
    events = with_successors(retained_events(batch.rows).where(F.col("offset") > through))
    events = events.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        if events.isEmpty():
            return
        if batch.through > closed_through:
            # After a crash between the two commits some are there already: the next batches may have other bounds.
            current = None if through == NOTHING_APPLIED else read_table(spark, lake, "retained")
            closed = closed_by(events, current).where(F.col("offset_to") > closed_through)
            append_once(closed, lake, "retained_closed", NAME, batch.through)
        if through == NOTHING_APPLIED:  # to an empty table they need only be appended
            first = last_events(events).where(~F.col("cleared")).drop("cleared")
            append_once(first, lake, "retained", NAME, batch.through)
            return
        merge_once(spark, lake, "retained", NAME, batch.through, lambda table: _merge_current(table, events))
    finally:
        events.unpersist()


def closed_by(events: DataFrame, current: DataFrame | None) -> DataFrame:
    """The intervals that end in a batch: those that began in it, and those of `retained` that its events replace."""
    columns: list[str | Column] = [*RETAINED_CLOSED.names]
    began_here = events.where(~F.col("cleared") & F.col("offset_to").isNotNull()).select(*columns)
    if current is None:
        return began_here
    first = events.where("is_first").select(
        "topic", F.col("valid_from").alias("valid_to"), F.col("offset").alias("offset_to")
    )
    return began_here.unionByName(current.select(*RETAINED.names).join(first, "topic").select(*columns))


def last_events(events: DataFrame) -> DataFrame:
    """The last event of each topic."""
    return events.where(F.col("offset_to").isNull()).select(*RETAINED.names, "cleared")


def _merge_current(table: DeltaTable, events: DataFrame) -> None:
    last = last_events(events)
    values: dict[str, str | Column] = {name: f"s.{name}" for name in RETAINED.names}
    newer = "s.offset > t.offset"
    (
        table.alias("t")
        .merge(last.alias("s"), "t.topic = s.topic")
        .whenMatchedDelete(f"s.cleared and {newer}")
        .whenMatchedUpdate(newer, values)
        .whenNotMatchedInsert("not s.cleared", values)
        .execute()
    )


RETAINED_JOB: Final = Job(
    name=NAME,
    tables=(RETAINED, RETAINED_CLOSED),
    columns=("offset", "timestamp", "kind", "topic", "payload", "qos", "retain", *PUBLISHED_COLUMNS),
    kinds=("publish", "retained_removed"),
    apply=apply_retained,
    is_merged=True,
)

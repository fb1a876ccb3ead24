"""The job of `topic_stats`: how many messages each topic had in each window of time, and how long it was silent.

Owns: the statistics of a batch, and adding them to those of earlier batches. `queries.silences` reads them.
"""

from functools import partial
from typing import Final

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from embermq.lake.delta import applied_offset
from embermq.lake.epochs import NOTHING_APPLIED
from embermq.lake.lake import Lake
from embermq.lake.made_from import Definition
from embermq.lake.schema import TOPIC_STATS
from embermq.spark.jobs.job import Batch, Job
from embermq.spark.lake.tables import read_table
from embermq.spark.lake.transactions import append_once, merge_once

NAME: Final = "topic_stats"


def topic_stats_job(window: str, window_us: int) -> Job:
    """The job, with windows of a length that Spark understands, and the same in microseconds."""
    return Job(
        name=NAME,
        tables=(TOPIC_STATS,),
        columns=("offset", "timestamp", "topic", "payload"),
        kinds=("publish",),
        apply=partial(apply_topic_stats, window=window),
        is_merged=True,
        definition=_definition(window_us),
        found_definition=_found_definition,
    )


def _definition(window_us: int) -> Definition:
    seconds, rest = divmod(window_us, 1_000_000)
    return {"window": f"{window_us} us" if rest else f"{seconds} s"}


def _found_definition(spark: SparkSession, lake: Lake) -> Definition | None:
    """By the newest row: earlier versions went on with windows of another length."""
    length_us = F.unix_micros("window_end") - F.unix_micros("window_start")
    found = read_table(spark, lake, NAME).agg(F.max_by(length_us, "window_start")).collect()[0][0]
    return None if found is None else _definition(found)


def batch_stats(messages: DataFrame, window: str) -> DataFrame:
    """The statistics of messages, a row for each topic and window."""
    slot = F.window("timestamp", window)
    in_slot = Window.partitionBy("topic", "slot").orderBy("offset")
    silence_us = F.unix_micros("timestamp") - F.lag(F.unix_micros("timestamp")).over(in_slot)
    return (
        messages.select("topic", "offset", "timestamp", F.length("payload").alias("bytes"), slot.alias("slot"))
        .withColumn("silence_us", silence_us)
        .groupBy("topic", "slot")
        .agg(
            F.count("*").alias("messages"),
            F.sum("bytes").cast("long").alias("bytes"),
            F.min("timestamp").alias("first_seen"),
            F.max("timestamp").alias("last_seen"),
            F.coalesce(F.max("silence_us"), F.lit(0)).cast("long").alias("longest_silence_us"),
        )
        .select("*", F.col("slot.start").alias("window_start"), F.col("slot.end").alias("window_end"))
        .select(*TOPIC_STATS.names)
    )


def apply_topic_stats(batch: Batch, lake: Lake, window: str) -> None:
    """Add a batch to the statistics."""
    spark = batch.rows.sparkSession
    through = applied_offset(lake, NAME, NAME)
    stats = batch_stats(batch.rows.where(F.col("offset") > through), window)
    if through == NOTHING_APPLIED:  # to an empty table they need only be appended
        append_once(stats, lake, NAME, NAME, batch.through)
        return
    merge_once(spark, lake, NAME, NAME, batch.through, lambda table: _add(table, stats, window, batch.since))


def _add(table: DeltaTable, stats: DataFrame, window: str, since: object) -> None:
    values: dict[str, str | Column] = {name: f"s.{name}" for name in TOPIC_STATS.names}
    sums: dict[str, str | Column] = {
        "messages": "t.messages + s.messages",
        "bytes": "t.bytes + s.bytes",
        "first_seen": "least(t.first_seen, s.first_seen)",
        "last_seen": "greatest(t.last_seen, s.last_seen)",
        "longest_silence_us": (
            "greatest(t.longest_silence_us, s.longest_silence_us, unix_micros(s.first_seen) - unix_micros(t.last_seen))"
        ),
    }
    # The bound on the window lets Delta skip files of older windows: the cost does not grow with the history.
    recent = F.col("t.window_start") >= F.lit(since) - F.expr(f"interval {window}")
    same = (F.col("t.topic") == F.col("s.topic")) & (F.col("t.window_start") == F.col("s.window_start"))
    (
        table.alias("t")
        .merge(stats.alias("s"), same & recent)
        .whenMatchedUpdate(set=sums)
        .whenNotMatchedInsert(values=values)
        .execute()
    )

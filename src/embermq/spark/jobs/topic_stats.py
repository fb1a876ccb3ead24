"""`topic_stats`: how much came on each topic in each window of time, and how long it was silent.

Owns: the statistics of a batch, adding them to what is there, and the query for gaps.
A silence is kept exactly: within a window as a column, between windows through `first_seen` and `last_seen`.
"""

from pathlib import Path
from typing import Final

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from embermq.spark.jobs.applied import applied_offset, merge_once
from embermq.spark.lake.tables import TOPIC_STATS_SCHEMA, Lake, read_table

JOB: Final = "topic_stats"
COLUMNS: Final = ("offset", "timestamp", "topic", "payload")
KINDS: Final = ("publish",)
WINDOW: Final = "5 minutes"


def batch_stats(messages: DataFrame, window: str = WINDOW) -> DataFrame:
    """The statistics of some messages, one row a topic and window."""
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
        .select(*TOPIC_STATS_SCHEMA.names)
    )


def apply_topic_stats(batch: DataFrame, lake: Lake, window: str = WINDOW) -> None:
    """Add a batch to the statistics."""
    spark = batch.sparkSession
    new = batch.where(F.col("offset") > applied_offset(spark, lake.table("topic_stats"), JOB))
    row = new.agg(F.max("offset"), F.min("timestamp")).collect()[0]
    if row[0] is None:
        return
    stats = batch_stats(new, window)
    merge_once(spark, lake.table("topic_stats"), JOB, row[0], lambda table: _add(table, stats, window, row[1]))


def _add(table: DeltaTable, stats: DataFrame, window: str, since: object) -> None:
    values: dict[str, str | Column] = {name: f"s.{name}" for name in TOPIC_STATS_SCHEMA.names}
    sums: dict[str, str | Column] = {
        "messages": "t.messages + s.messages",
        "bytes": "t.bytes + s.bytes",
        "first_seen": "least(t.first_seen, s.first_seen)",
        "last_seen": "greatest(t.last_seen, s.last_seen)",
        "longest_silence_us": (
            "greatest(t.longest_silence_us, s.longest_silence_us, unix_micros(s.first_seen) - unix_micros(t.last_seen))"
        ),
    }
    # The bound on the window lets Delta skip the files of the past: the cost does not grow with the history.
    recent = F.col("t.window_start") >= F.lit(since) - F.expr(f"interval {window}")
    same = (F.col("t.topic") == F.col("s.topic")) & (F.col("t.window_start") == F.col("s.window_start"))
    (
        table.alias("t")
        .merge(stats.alias("s"), same & recent)
        .whenMatchedUpdate(set=sums)
        .whenNotMatchedInsert(values=values)
        .execute()
    )


def gaps(spark: SparkSession, lake: "Lake | Path | str") -> DataFrame:
    """The longest silence of each topic between two messages: topic, silent_from, silence_us, last_seen."""
    of_topic = Window.partitionBy("topic").orderBy("window_start")
    between_us = F.unix_micros(F.lead("first_seen").over(of_topic)) - F.unix_micros("last_seen")
    silences = read_table(spark, lake, "topic_stats").select(
        "topic",
        "window_start",
        "last_seen",
        F.greatest("longest_silence_us", F.coalesce(between_us, F.lit(0))).alias("silence_us"),
        F.when(between_us >= F.col("longest_silence_us"), F.col("last_seen")).alias("silent_from"),
    )
    return silences.groupBy("topic").agg(
        F.max("silence_us").alias("silence_us"),
        F.max_by(F.coalesce("silent_from", "window_start"), "silence_us").alias("silent_from"),
        F.max("last_seen").alias("last_seen"),
    )

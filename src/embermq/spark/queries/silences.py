"""How long each topic was silent, from `topic_stats`.

Owns: `silences`. A silence is known exactly: within a window as a column, between two windows by `first_seen` and
`last_seen`.
"""

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from embermq.lake.lake import Lake
from embermq.spark.lake.tables import read_table


def silences(spark: SparkSession, lake: Lake) -> DataFrame:
    """The longest silence of each topic between two messages: topic, silence_us, silent_from, last_seen."""
    of_topic = Window.partitionBy("topic").orderBy("window_start")
    between_us = F.unix_micros(F.lead("first_seen").over(of_topic)) - F.unix_micros("last_seen")
    found = read_table(spark, lake, "topic_stats").select(
        "topic",
        "window_start",
        "last_seen",
        F.greatest("longest_silence_us", F.coalesce(between_us, F.lit(0))).alias("silence_us"),
        F.when(between_us >= F.col("longest_silence_us"), F.col("last_seen")).alias("silent_from"),
    )
    return found.groupBy("topic").agg(
        F.max("silence_us").alias("silence_us"),
        F.max_by(F.coalesce("silent_from", "window_start"), "silence_us").alias("silent_from"),
        F.max("last_seen").alias("last_seen"),
    )

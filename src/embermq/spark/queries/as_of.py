"""The retained set at any instant, from what is current and what was closed.

Owns: `retained_as_of`, and the view `retained_history`.
Between its two commits a batch has closed intervals whose successors are not in `retained` yet. Closings above what
`retained` has applied do not count, so the two tables always answer as one.
"""

from datetime import datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from embermq.instants import EPOCH, in_utc, instant_us
from embermq.spark.jobs.applied import applied_version
from embermq.spark.jobs.retained import JOB
from embermq.spark.lake.tables import HISTORY_VIEW, RETAINED_CLOSED_SCHEMA, Lake, as_lake, read_table
from embermq.spark.source.topic_filters import matches


def retained_history(spark: SparkSession, lake: "Lake | Path | str") -> DataFrame:
    """Every interval in which a message was retained; `valid_to` and `offset_to` are null while it still is.

    It shows the tables as they are now; ask again for what is newer.
    """
    place = as_lake(lake)
    # The version first: a batch may be merged while this is put together.
    version, through = applied_version(spark, place.table("retained"), JOB)
    current = spark.read.format("delta").option("versionAsOf", version).load(place.table("retained"))
    closed = read_table(spark, place, "retained_closed").where(F.col("offset_to") <= through)
    open_ended = current.select(
        "*", F.lit(None).cast("timestamp").alias("valid_to"), F.lit(None).cast("long").alias("offset_to")
    )
    return closed.unionByName(open_ended).select(*RETAINED_CLOSED_SCHEMA.names)


def retained_as_of(
    spark: SparkSession, lake: "Lake | Path | str", instant: datetime | str, topic_filter: str = "#"
) -> DataFrame:
    """The retained messages at an instant, those of topics that a filter matches.

    The instant is UTC unless it names a zone. Without wildcards at its front, a filter sees `$` topics as well (4.7.2).
    """
    if isinstance(instant, str):
        instant = EPOCH + timedelta(microseconds=instant_us(instant))
    moment = F.lit(in_utc(instant))
    then = (F.col("valid_from") <= moment) & (F.col("valid_to").isNull() | (F.col("valid_to") > moment))
    history = retained_history(spark, lake)
    return history.where(then & matches(F.col("topic"), topic_filter)).select(
        "topic", "payload", "qos", "offset", "valid_from"
    )


def create_history_view(spark: SparkSession, lake: "Lake | Path | str") -> None:
    """Make `retained_history` known to SQL in this session."""
    retained_history(spark, lake).createOrReplaceTempView(HISTORY_VIEW)

"""The retained set as of any instant, from `retained` and `retained_closed`.

Owns: `retained_as_of`, and the view `retained_history`.
Between the two commits of a batch, intervals are closed whose successors are not in `retained` yet. An interval that
was closed above the offset that `retained` has applied is left out, so the two tables always agree.
"""

from datetime import datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from embermq.instants import EPOCH, in_utc, instant_us
from embermq.spark.jobs.retained import RETAINED_JOB
from embermq.spark.lake.gaps import check_no_gap
from embermq.spark.lake.lake import Lake
from embermq.spark.lake.tables import HISTORY_VIEW, RETAINED_CLOSED_SCHEMA, read_table
from embermq.spark.queries.applied import applied
from embermq.spark.source.topic_filters import matches


def retained_history(spark: SparkSession, lake: Lake) -> DataFrame:
    """Every interval in which a message was retained; `valid_to` and `offset_to` are null while it still is.

    It shows the tables as they are when it is called.
    """
    # The version first: a batch may be merged between this and the next line.
    version, _, through = applied(spark, lake, "retained", RETAINED_JOB.name)
    current = spark.read.format("delta").option("versionAsOf", version).load(lake.table("retained"))
    closed = read_table(spark, lake, "retained_closed").where(F.col("offset_to") <= through)
    open_ended = current.select(
        "*", F.lit(None).cast("timestamp").alias("valid_to"), F.lit(None).cast("long").alias("offset_to")
    )
    return closed.unionByName(open_ended).select(*RETAINED_CLOSED_SCHEMA.names)


def retained_as_of(spark: SparkSession, lake: Lake, instant: datetime | str, topic_filter: str = "#") -> DataFrame:
    """The retained messages as of an instant, of the topics that a filter matches.

    PipelineError if the instant lies in a gap: records were trimmed before they were read. The instant is UTC unless it
    names a zone. A filter that starts with a wildcard does not match `$` topics
    (MQTT 3.1.1, 4.7.2).
    """
    if isinstance(instant, str):
        instant = EPOCH + timedelta(microseconds=instant_us(instant))
    check_no_gap(spark, lake, instant)
    moment = F.lit(in_utc(instant))
    then = (F.col("valid_from") <= moment) & (F.col("valid_to").isNull() | (F.col("valid_to") > moment))
    history = retained_history(spark, lake)
    return history.where(then & matches(F.col("topic"), topic_filter)).select(
        "topic", "payload", "qos", "offset", "valid_from"
    )


def create_history_view(spark: SparkSession, lake: Lake) -> None:
    """Create the view `retained_history` in this session."""
    retained_history(spark, lake).createOrReplaceTempView(HISTORY_VIEW)

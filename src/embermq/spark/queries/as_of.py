"""The retained set as of any instant, from `retained` and `retained_closed`.

Owns: `retained_as_of`, up to which instant it is known, and the view `retained_history`.
Between the two commits of a batch, intervals are closed whose successors are not in `retained` yet. An interval that
was closed above the offset that `retained` has applied is left out, so the two tables always agree.
"""

from datetime import datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from embermq.instants import EPOCH, NOW, in_utc, instant_us, microseconds
from embermq.spark.errors import NotKnown
from embermq.spark.jobs.retained import RETAINED_JOB
from embermq.spark.lake.gaps import check_no_gap
from embermq.spark.lake.known import Known, RowInstants, recorded
from embermq.spark.lake.lake import Lake
from embermq.spark.lake.tables import (
    HISTORY_VIEW,
    RETAINED_CLOSED_SCHEMA,
    RETAINED_SCHEMA,
    read_table,
    with_all_columns,
)
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
    whole = [with_all_columns(rows, RETAINED_CLOSED_SCHEMA) for rows in (closed, current)]
    return whole[0].unionByName(whole[1])


def retained_known(spark: SparkSession, lake: Lake) -> Known:
    """Between which instants the retained set is known. NotKnown if the lake has read nothing yet."""
    before = recorded(lake)
    table, closed = (applied(spark, lake, name, RETAINED_JOB.name) for name in RETAINED_JOB.tables)
    versions = dict(zip(RETAINED_JOB.tables, (table.version, closed.version), strict=True))

    def rows_us() -> RowInstants:
        oldest = F.min(F.unix_micros("valid_from"))
        newest = F.greatest(F.max(F.unix_micros("valid_from")), F.max(F.unix_micros("valid_to")))
        found = retained_history(spark, lake).agg(oldest, newest).collect()[0]
        return found[0], found[1]

    found = before.known(RETAINED_JOB.name, versions, table.through, rows_us)
    if found is None:
        raise NotKnown(f"{lake.place} has read nothing of the log yet")
    return found


def retained_as_of(spark: SparkSession, lake: Lake, instant: datetime | str, topic_filter: str = "#") -> DataFrame:
    """The retained messages as of an instant, of the topics that a filter matches.

    NotKnown if the instant lies in a gap, before the log's beginning, or after what the lake has read: `retained_known`
    has the bounds, and "now" is the last instant that is known. The instant is UTC unless it names a zone. A filter
    that starts with a wildcard does not match `$` topics (MQTT 3.1.1, 4.7.2).
    """
    known = retained_known(spark, lake)
    if isinstance(instant, str):
        asked_us = known.until_us if instant.strip() == NOW else instant_us(instant)
        instant = EPOCH + timedelta(microseconds=asked_us)
    check_no_gap(spark, lake, instant)
    known.check(microseconds(instant))
    moment = F.lit(in_utc(instant))
    then = (F.col("valid_from") <= moment) & (F.col("valid_to").isNull() | (F.col("valid_to") > moment))
    history = retained_history(spark, lake)
    return history.where(then & matches(F.col("topic"), topic_filter)).select(*RETAINED_SCHEMA.names)


def create_history_view(spark: SparkSession, lake: Lake) -> None:
    """Create the view `retained_history` in this session."""
    retained_history(spark, lake).createOrReplaceTempView(HISTORY_VIEW)

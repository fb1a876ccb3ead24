"""After a gap: tables that hold a present state are closed, and filled again from a checkpoint of the log.

Owns: what a gap means for `retained`, `retained_closed` and `clients`.
Never: noticing a gap (`after_gap`).
Each commit has the last offset before the checkpoint as its transaction. After a crash between two of them all is done
again, perhaps with a newer checkpoint.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from embermq.lake.delta import applied_offset
from embermq.lake.lake import Lake
from embermq.lake.schema import CLIENTS, RETAINED, RETAINED_CLOSED, spark_sql
from embermq.spark.jobs.clients import client_events
from embermq.spark.jobs.retained import retained_columns
from embermq.spark.lake.tables import read_table
from embermq.spark.lake.transactions import append_once, merge_once

GAP_REASON: Final = "gap"
"""The `reason` of rows of `clients` that stand for what happened in a gap."""


@dataclass(frozen=True)
class Seed:
    """A checkpoint of the log, as rows; `from_offset` is the first record that a job has missed.

    `known_until` is the last instant that its tables know before that; None if there is none.
    """

    rows: DataFrame
    offset: int
    timestamp: datetime
    from_offset: int
    known_until: datetime | None


def reseed_retained(spark: SparkSession, lake: Lake, seed: Seed) -> None:
    """Close what the checkpoint does not have any more, then make `retained` equal to it.

    A message that is in both is retained all the time. The others ended in the gap, nobody knows when: they are closed
    at the last instant that is known.
    """
    through = seed.offset - 1
    known = retained_columns(seed.rows.where(F.col("kind") == "publish"))
    if applied_offset(lake, "retained_closed", "retained") < through:
        closed = _ended_in_gap(spark, lake, known, seed)
        append_once(closed, lake, "retained_closed", "retained", through)
    values: dict[str, str | Column] = {name: f"s.{name}" for name in RETAINED.names}

    def merge(table: DeltaTable) -> None:
        (
            table.alias("t")
            .merge(known.alias("s"), "t.topic = s.topic")
            .whenMatchedUpdate("s.offset != t.offset", values)
            .whenNotMatchedInsert(values=values)
            .whenNotMatchedBySourceDelete()
            .execute()
        )

    merge_once(spark, lake, "retained", "retained", through, merge)


def _ended_in_gap(spark: SparkSession, lake: Lake, known: DataFrame, seed: Seed) -> DataFrame:
    """The intervals of the messages that `retained` has and the checkpoint has not.

    A crash after an earlier commit may have left some of them in `retained_closed` already, with an end in the gap.
    """
    closed = read_table(spark, lake, "retained_closed").where(F.col("offset_to") >= seed.from_offset)
    ended = read_table(spark, lake, "retained")
    for other in (known, closed):
        ended = ended.join(other.select("topic", "offset"), ["topic", "offset"], "left_anti")
    # At the last instant that is known they were retained still.
    until = F.lit(seed.known_until).cast("timestamp") + F.expr("interval 1 microsecond")
    ended = ended.join(known.select("topic", F.col("valid_from").alias("next_from")), "topic", "left")
    rows = ended.withColumn("valid_to", F.least(until, F.col("next_from")))
    rows = rows.withColumn("offset_to", F.lit(seed.from_offset).cast("long"))
    return rows.select(*RETAINED_CLOSED.names)


def reseed_clients(spark: SparkSession, lake: Lake, seed: Seed) -> None:
    """Append what the checkpoint says of sessions and the table does not, and the end of what it does not have."""
    rows = seed.rows.where(F.col("kind").isin("session_opened", "subscribed", "disconnected"))
    # The event of an unknown offset is as of the checkpoint.
    rows = rows.withColumn("offset", F.coalesce("offset", F.lit(seed.offset - 1)))
    there = client_events(rows)
    table = read_table(spark, lake, "clients")
    sessions = there.where(F.col("event") == "session_opened").select("session_id")
    subscriptions = there.where(F.col("event") == "subscribed").select("session_id", "topic_filter")
    known = table.where(F.col("event") == "subscribed").select("event", "offset").distinct()
    # A checkpoint does not know which record has opened a session.
    known_sessions = table.where(F.col("event") == "session_opened").select("event", "session_id").distinct()
    left = table.where(F.col("event") == "disconnected").select("event", "client_id", "timestamp").distinct()
    new = there.where(F.col("event") != "disconnected")
    new = new.join(known, ["event", "offset"], "left_anti").join(known_sessions, ["event", "session_id"], "left_anti")
    disconnected = there.where(F.col("event") == "disconnected").join(
        left, ["event", "client_id", "timestamp"], "left_anti"
    )
    opened = _open_sessions(table)
    ended = opened.join(sessions, "session_id", "left_anti").withColumn("event", F.lit("session_ended"))
    surviving = opened.join(sessions, "session_id", "left_semi").select("session_id")
    dropped = (
        _open_subscriptions(table)
        .join(surviving, "session_id", "left_semi")
        .join(subscriptions, ["session_id", "topic_filter"], "left_anti")
        .withColumn("event", F.lit("unsubscribed"))
    )
    gone = [
        frame.withColumn("offset", F.lit(seed.offset - 1)).withColumn("timestamp", F.lit(seed.timestamp))
        for frame in (ended, dropped)
    ]
    appended = [frame.withColumn("reason", F.lit(GAP_REASON)) for frame in (new, disconnected, *gone)]
    whole = appended[0]
    for frame in appended[1:]:
        whole = whole.unionByName(frame, allowMissingColumns=True)
    columns = [F.col(column.name).cast(spark_sql(column.type)) for column in CLIENTS.columns]
    append_once(whole.select(*columns), lake, "clients", "clients", seed.offset - 1)


def _open_sessions(table: DataFrame) -> DataFrame:
    """The persistent sessions that have no end in the table: session_id, client_id."""
    ended = table.where(F.col("event") == "session_ended").select("session_id")
    opened = table.where(F.col("event") == "session_opened").select("session_id", "client_id").distinct()
    return opened.join(ended, "session_id", "left_anti")


def _open_subscriptions(table: DataFrame) -> DataFrame:
    """The subscriptions of persistent sessions that the table has no end of: session_id, topic_filter, client_id."""
    events = table.where(F.col("event").isin("subscribed", "unsubscribed") & F.col("session_id").isNotNull())
    newest = Window.partitionBy("session_id", "topic_filter").orderBy(F.col("offset").desc())
    last = events.withColumn("newest", F.row_number().over(newest)).where("newest = 1")
    return last.where(F.col("event") == "subscribed").select("session_id", "topic_filter", "client_id")


RESEEDS: Final[Mapping[str, Callable[[SparkSession, Lake, Seed], None]]] = {
    "retained": reseed_retained,
    "clients": reseed_clients,
}
"""The jobs whose tables hold a present state. Those of the others have a row for a record: a gap needs nothing more."""

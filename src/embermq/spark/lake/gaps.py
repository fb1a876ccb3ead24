"""The table `gaps`: records of the log that a job has not read, because they were trimmed before it came to them, or
whose rows the lake's own retention has removed.

Owns: the rows of `gaps`, one for each job and gap, and whether an instant lies in a gap of `retained`.
"""

from datetime import UTC, datetime
from typing import Final

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from embermq.instants import in_utc
from embermq.spark.errors import REMOVED, InGap
from embermq.spark.lake.lake import Lake
from embermq.spark.lake.tables import GAPS_SCHEMA, create_table, read_table
from embermq.spark.lake.transactions import merge_once
from embermq.store.log.segments import FIRST_OFFSET

NAME: Final = "gaps"


def record_gap(spark: SparkSession, lake: Lake, gap: dict[str, object]) -> None:
    """Add a gap, or extend the one of this job that began at the same offset: after a crash it may have grown."""
    create_table(spark, lake, NAME, GAPS_SCHEMA)
    row = spark.createDataFrame([gap], GAPS_SCHEMA)
    values: dict[str, str | Column] = {name: f"s.{name}" for name in GAPS_SCHEMA.names}

    def merge(table: DeltaTable) -> None:
        (
            table.alias("t")
            .merge(row.alias("s"), "t.job = s.job and t.from_offset = s.from_offset and t.why = s.why")
            .whenMatchedUpdate("s.to_offset > t.to_offset", values)
            .whenNotMatchedInsert(values=values)
            .execute()
        )

    merge_once(spark, lake, NAME, gap_transaction(str(gap["job"])), int(str(gap["to_offset"])), merge)


def record_removal(spark: SparkSession, lake: Lake, table: str, through: int, known_from: datetime) -> None:
    """Say that rows of a table are removed which are older than an instant; `through` is the last offset of these.

    To be called before they are removed: a crash in between must not leave answers that are not whole.
    """
    create_table(spark, lake, NAME, GAPS_SCHEMA)
    gap = {
        "job": "retained" if table == "retained_closed" else table,
        "from_offset": FIRST_OFFSET,
        "to_offset": through,
        "from_timestamp": None,
        "to_timestamp": known_from,
        "why": REMOVED,
        "noticed": datetime.now(UTC),
    }
    row = spark.createDataFrame([gap], GAPS_SCHEMA)
    values: dict[str, str | Column] = {name: f"s.{name}" for name in GAPS_SCHEMA.names}

    def merge(table: DeltaTable) -> None:
        (
            table.alias("t")
            .merge(row.alias("s"), "t.job = s.job and t.why = s.why")
            .whenMatchedUpdate("s.to_timestamp > t.to_timestamp", values)
            .whenNotMatchedInsert(values=values)
            .execute()
        )

    # In milliseconds, which have room in a version; a later removal may end at a lower offset, but never earlier.
    bound_ms = int(known_from.timestamp() * 1000)
    merge_once(spark, lake, NAME, f"{NAME}-removed-{table}", bound_ms, merge)


def gap_transaction(job: str) -> str:
    """The transaction identifier under which the gaps of a job are recorded."""
    return f"{NAME}-{job}"


def retained_gaps(spark: SparkSession, lake: Lake) -> DataFrame | None:
    """The gaps of `retained`; None if the lake has none."""
    if not lake.has_table(NAME):
        return None
    return read_table(spark, lake, NAME).where(F.col("job") == "retained")


def check_no_gap(spark: SparkSession, lake: Lake, instant: datetime) -> None:
    """InGap if the retained set at an instant is not known."""
    found = retained_gaps(spark, lake)
    if found is None:
        return
    moment = F.lit(in_utc(instant))
    after = F.col("from_timestamp").isNull() | (F.col("from_timestamp") < moment)
    for row in found.where(after & (moment < F.col("to_timestamp"))).limit(1).collect():
        known_from = row["to_timestamp"].astimezone(UTC)
        raise InGap(in_utc(instant), row["from_offset"], row["to_offset"], known_from, row["why"])

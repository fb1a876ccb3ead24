"""The table `gaps`: records of the log that a job has not read, because they were trimmed before it came to them, or
whose rows the lake's own retention has removed.

Owns: the rows of `gaps`, one for each job and gap, and whether an instant lies in a gap of `retained`.
"""

from datetime import UTC, datetime
from typing import Final

from delta.tables import DeltaTable
from pyspark.sql import Column, SparkSession

from embermq.instants import in_utc, microseconds
from embermq.lake.delta import gap_identifiers
from embermq.lake.errors import REMOVED, InGap
from embermq.lake.history import gap_sql
from embermq.lake.lake import Lake
from embermq.lake.schema import GAPS
from embermq.spark.lake.tables import create_table, read_table, spark_schema
from embermq.spark.lake.transactions import merge_once
from embermq.store.log.segments import FIRST_OFFSET

NAME: Final = GAPS.name


def record_gap(spark: SparkSession, lake: Lake, gap: dict[str, object]) -> None:
    """Add a gap, or extend the one of this job that began at the same offset: after a crash it may have grown."""
    create_table(spark, lake, GAPS)
    row = spark.createDataFrame([gap], spark_schema(GAPS))
    values: dict[str, str | Column] = {name: f"s.{name}" for name in GAPS.names}

    def merge(table: DeltaTable) -> None:
        (
            table.alias("t")
            .merge(row.alias("s"), "t.job = s.job and t.from_offset = s.from_offset and t.why = s.why")
            .whenMatchedUpdate("s.to_offset > t.to_offset", values)
            .whenNotMatchedInsert(values=values)
            .execute()
        )

    merge_once(spark, lake, NAME, gap_identifiers(str(gap["job"]))[0], int(str(gap["to_offset"])), merge)


def record_removal(spark: SparkSession, lake: Lake, table: str, through: int, known_from: datetime) -> None:
    """Say that rows of a table are removed which are older than an instant; `through` is the last offset of these.

    To be called before they are removed: a crash in between must not leave answers that are not whole.
    """
    create_table(spark, lake, GAPS)
    gap = {
        "job": "retained" if table == "retained_closed" else table,
        "from_offset": FIRST_OFFSET,
        "to_offset": through,
        "from_timestamp": None,
        "to_timestamp": known_from,
        "why": REMOVED,
        "noticed": datetime.now(UTC),
    }
    row = spark.createDataFrame([gap], spark_schema(GAPS))
    values: dict[str, str | Column] = {name: f"s.{name}" for name in GAPS.names}

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
    merge_once(spark, lake, NAME, gap_identifiers(table)[1], bound_ms, merge)


def check_no_gap(spark: SparkSession, lake: Lake, instant: datetime) -> None:
    """InGap if the retained set at an instant is not known."""
    if not lake.has_table(NAME):
        return
    found = read_table(spark, lake, NAME).where(gap_sql(f"timestamp_micros({microseconds(instant)})"))
    for row in found.limit(1).collect():
        known_from = row["to_timestamp"].astimezone(UTC)
        raise InGap(in_utc(instant), row["from_offset"], row["to_offset"], known_from, row["why"])

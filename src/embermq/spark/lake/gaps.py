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
    same = "t.job = s.job and t.from_offset = s.from_offset and t.why = s.why"
    version = int(str(gap["to_offset"]))
    _merge(spark, lake, gap, same, "s.to_offset > t.to_offset", gap_identifiers(str(gap["job"]))[0], version)


def record_removal(spark: SparkSession, lake: Lake, table: str, through: int, known_from: datetime) -> None:
    """Say that rows of a table are removed which are older than an instant; `through` is the last offset of these.

    To be called before they are removed: a crash in between must not leave answers that are not whole.
    """
    gap: dict[str, object] = {
        "job": "retained" if table == "retained_closed" else table,
        "from_offset": FIRST_OFFSET,
        "to_offset": through,
        "from_timestamp": None,
        "to_timestamp": known_from,
        "why": REMOVED,
        "noticed": datetime.now(UTC),
    }
    # In milliseconds, which have room in a version; a later removal may end at a lower offset, but never earlier.
    bound_ms = int(known_from.timestamp() * 1000)
    same, is_later = "t.job = s.job and t.why = s.why", "s.to_timestamp > t.to_timestamp"
    _merge(spark, lake, gap, same, is_later, gap_identifiers(table)[1], bound_ms)


def _merge(
    spark: SparkSession, lake: Lake, gap: dict[str, object], same: str, is_later: str, identifier: str, version: int
) -> None:
    """Add a gap, or replace the same one if this is a later one."""
    create_table(spark, lake, GAPS)
    row = spark.createDataFrame([gap], spark_schema(GAPS))
    values: dict[str, str | Column] = {name: f"s.{name}" for name in GAPS.names}

    def merge(table: DeltaTable) -> None:
        merging = table.alias("t").merge(row.alias("s"), same)
        merging.whenMatchedUpdate(is_later, values).whenNotMatchedInsert(values=values).execute()

    merge_once(spark, lake, NAME, identifier, version, merge)


def check_no_gap(spark: SparkSession, lake: Lake, instant: datetime) -> None:
    """InGap if the retained set at an instant is not known."""
    if not lake.has_table(NAME):
        return
    found = read_table(spark, lake, NAME).where(gap_sql(f"timestamp_micros({microseconds(instant)})"))
    for row in found.limit(1).collect():
        known_from = row["to_timestamp"].astimezone(UTC)
        raise InGap(in_utc(instant), row["from_offset"], row["to_offset"], known_from, row["why"])

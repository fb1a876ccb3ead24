"""The table `gaps`: records of the log that a job has not read, because they were trimmed before it came to them.

Owns: the rows of `gaps`, one for each job and gap, and whether an instant lies in a gap of `retained`.
"""

from datetime import UTC, datetime
from typing import Final

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from embermq.instants import in_utc
from embermq.spark.errors import InGap
from embermq.spark.lake.lake import Lake
from embermq.spark.lake.tables import GAPS_SCHEMA, create_table, read_table
from embermq.spark.lake.transactions import merge_once

NAME: Final = "gaps"


def record_gap(spark: SparkSession, lake: Lake, gap: dict[str, object]) -> None:
    """Add a gap, or extend the one of this job that began at the same offset: after a crash it may have grown."""
    create_table(spark, lake, NAME, GAPS_SCHEMA)
    row = spark.createDataFrame([gap], GAPS_SCHEMA)
    values: dict[str, str | Column] = {name: f"s.{name}" for name in GAPS_SCHEMA.names}

    def merge(table: DeltaTable) -> None:
        (
            table.alias("t")
            .merge(row.alias("s"), "t.job = s.job and t.from_offset = s.from_offset")
            .whenMatchedUpdate("s.to_offset > t.to_offset", values)
            .whenNotMatchedInsert(values=values)
            .execute()
        )

    merge_once(spark, lake, NAME, gap_transaction(str(gap["job"])), int(str(gap["to_offset"])), merge)


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
        raise InGap(in_utc(instant), row["from_offset"], row["to_offset"], row["to_timestamp"].astimezone(UTC))

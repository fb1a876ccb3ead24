"""The newest instant that is in the tables of a job, where nothing else says how far they are known."""

from datetime import UTC, datetime
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from embermq.spark.lake.lake import Lake
from embermq.spark.lake.tables import read_table

_COLUMNS: Final = {"topic_stats": "last_seen"}
"""The column with the timestamp of a record; in other tables it is `timestamp`."""


def newest_instant(spark: SparkSession, lake: Lake, job: str, before_offset: int) -> datetime | None:
    """The newest instant in the rows of a job, in UTC, that come from records before an offset; None without rows."""
    if job == "retained":
        found = [
            _newest(read_table(spark, lake, "retained"), "valid_from", "offset", before_offset),
            _newest(read_table(spark, lake, "retained_closed"), "valid_to", "offset_to", before_offset),
        ]
    else:
        found = [_newest(read_table(spark, lake, job), _COLUMNS.get(job, "timestamp"), "offset", before_offset)]
    return max((instant.astimezone(UTC) for instant in found if instant is not None), default=None)


def _newest(rows: DataFrame, column: str, offset: str, before_offset: int) -> datetime | None:
    if offset in rows.columns:
        rows = rows.where(F.col(offset) < before_offset)
    newest: datetime | None = rows.agg(F.max(column)).collect()[0][0]
    return newest

"""Compaction: small files are joined, and files that no table version needs are removed.

Owns: which tables are compacted, and the retry after a conflict with the running pipeline.
Never: changing a row. It may run beside the pipeline: each of the two retries after a conflict.
"""

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from embermq.lake.lake import Lake
from embermq.spark.lake.tables import table_names
from embermq.spark.lake.transactions import CONFLICT_ATTEMPTS, CONFLICTS

KEEP_HOURS: Final = 168.0
"""Queries that began earlier must have ended; Delta itself asks for a week."""


@dataclass(frozen=True)
class Compaction:
    """What was done to one table."""

    table: str
    files_removed: int
    files_added: int

    def __str__(self) -> str:
        return f"{self.table}: {self.files_removed} files became {self.files_added}"


def compact(
    spark: SparkSession, lake: Lake, keep_hours: float = KEEP_HOURS, only: Collection[str] = ()
) -> Iterator[Compaction]:
    """Optimize and vacuum every table, or only some, one after the other."""
    if keep_hours < KEEP_HOURS:
        spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    for name in [name for name in table_names(lake) if not only or name in only]:
        yield _compact_table(spark, lake, name, keep_hours)


def _compact_table(spark: SparkSession, lake: Lake, name: str, keep_hours: float) -> Compaction:
    for attempt in range(1, CONFLICT_ATTEMPTS + 1):
        try:
            table = DeltaTable.forPath(spark, lake.table(name))
            done = join_files(name, table)
            break
        except CONFLICTS:
            if attempt == CONFLICT_ATTEMPTS:
                raise
            time.sleep(0.5 * attempt)
    table.vacuum(keep_hours)
    return done


def join_files(name: str, table: DeltaTable) -> Compaction:
    """Join the small files of a table, in one commit."""
    metrics = table.optimize().executeCompaction().select("metrics.*").collect()[0]
    return Compaction(name, int(metrics["numFilesRemoved"]), int(metrics["numFilesAdded"]))

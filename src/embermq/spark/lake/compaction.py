"""Compaction: small files into large ones, and the files that nothing needs any more removed.

Owns: which tables, and coming back when the running pipeline was first.
Never: a row changed. It may run beside the pipeline: both retry when they meet.
"""

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from delta.exceptions import DeltaConcurrentModificationException
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from embermq.spark.jobs.applied import CONFLICT_ATTEMPTS
from embermq.spark.lake.tables import Lake

KEEP_HOURS: Final = 168.0
"""Readers and queries that began before this must be done; Delta itself asks for a week."""


@dataclass(frozen=True)
class Compacted:
    """What was done to one table."""

    table: str
    files_removed: int
    files_added: int


def compact(
    spark: SparkSession, lake: Lake, keep_hours: float = KEEP_HOURS, only: Collection[str] = ()
) -> Iterator[Compacted]:
    """Optimize and vacuum every table, or only some, one after the other."""
    if keep_hours < KEEP_HOURS:
        spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    for name in [name for name in lake.names() if not only or name in only]:
        yield _compact_table(spark, lake, name, keep_hours)


def _compact_table(spark: SparkSession, lake: Lake, name: str, keep_hours: float) -> Compacted:
    for attempt in range(1, CONFLICT_ATTEMPTS + 1):
        try:
            table = DeltaTable.forPath(spark, lake.table(name))
            metrics = table.optimize().executeCompaction().select("metrics.*").collect()[0]
            break
        except DeltaConcurrentModificationException:
            if attempt == CONFLICT_ATTEMPTS:
                raise
            time.sleep(0.5 * attempt)
    table.vacuum(keep_hours)
    return Compacted(name, int(metrics["numFilesRemoved"]), int(metrics["numFilesAdded"]))

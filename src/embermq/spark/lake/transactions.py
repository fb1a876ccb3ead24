"""Changing a table exactly once, by one writer: every commit carries the transaction of its job (`lake.delta`).

Owns: the four ways to change a table: append, merge, replace, empty; and what Delta raises when another commit
has come first.
Never: what the rows are.
"""

import time
from collections.abc import Callable
from typing import Final

from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from embermq.lake.delta import append_rows, open_table
from embermq.lake.epochs import NOTHING_APPLIED, transaction_version
from embermq.lake.lake import Lake
from embermq.lake.schema import Table
from embermq.spark.lake.tables import spark_schema

CONFLICT_ATTEMPTS: Final = 5
CONFLICTS: Final = (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
"""What Delta raises when another commit has come first. None of these classes is a base of the others."""

_TXN_APP: Final = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION: Final = "spark.databricks.delta.write.txnVersion"


def append_once(rows: DataFrame, lake: Lake, table: str, job: str, through: int, is_small: bool = False) -> None:
    """Append rows; does nothing if the table has applied `through` already, or if a newer writer has it.

    A table that an older version made gets the columns that it does not have. `is_small`: the rows fit in memory. To a
    table on this machine they are then written from here: Spark's own write reads all of the table's log for it, which
    costs more than the rows.
    """
    version = transaction_version(lake.epoch or 0, through)
    if is_small and lake.is_local:
        opened = open_table(lake, table)
        if {field.name for field in opened.schema().fields} == {*rows.columns}:
            append_rows(opened, rows.toArrow(), job, version)
            return
    write = rows.write.format("delta").mode("append").option("mergeSchema", "true")
    write.option("txnAppId", job).option("txnVersion", str(version)).save(lake.table(table))


def merge_once(
    spark: SparkSession, lake: Lake, table: str, job: str, through: int, merge: Callable[[DeltaTable], None]
) -> None:
    """Run a MERGE; does nothing if the table has applied `through` already, or if a newer writer has it.

    Retries after a conflict.
    """
    version = transaction_version(lake.epoch or 0, through)
    for attempt in range(1, CONFLICT_ATTEMPTS + 1):
        spark.conf.set(_TXN_APP, job)
        spark.conf.set(_TXN_VERSION, str(version))
        try:
            merge(DeltaTable.forPath(spark, lake.table(table)))
            return
        except CONFLICTS:
            if attempt == CONFLICT_ATTEMPTS:
                raise
            time.sleep(0.2 * attempt)
        finally:
            # Delta does not reset them: the next write of this session would use them.
            spark.conf.unset(_TXN_APP)
            spark.conf.unset(_TXN_VERSION)


def replace_once(rows: DataFrame, lake: Lake, table: str, job: str, through: int) -> None:
    """Replace all rows of a table; does nothing if it has applied `through` already, or if a newer writer has it."""
    version = transaction_version(lake.epoch or 0, through)
    write = rows.write.format("delta").mode("overwrite")
    write.option("txnAppId", job).option("txnVersion", str(version)).save(lake.table(table))


def reset_table(spark: SparkSession, lake: Lake, table: Table, job: str) -> None:
    """Remove all rows of a table, give it its columns, and forget what was applied, in one commit."""
    version = transaction_version(lake.epoch or 0, NOTHING_APPLIED)
    write = (
        spark.createDataFrame([], spark_schema(table))
        .write.format("delta")
        .mode("overwrite")
        .option("overwriteSchema", "true")
    )
    write.option("txnAppId", job).option("txnVersion", str(version)).save(lake.table(table.name))

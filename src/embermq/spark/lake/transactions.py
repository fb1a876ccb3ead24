"""Transactions on a table: how far it has applied the log, and how it is changed exactly once.

Owns: the transaction identifier that Delta keeps with every commit: the job's name, and as its version the last offset
of the log that was applied. It changes together with the rows, so that a batch which comes again after a crash is
recognised, even when positions are lost and the batches have other bounds.
Never: what the rows are.
"""

import time
from collections.abc import Callable
from typing import Any, Final

from delta.exceptions import DeltaConcurrentModificationException
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

NOTHING_APPLIED: Final = -1
CONFLICT_ATTEMPTS: Final = 5

_TXN_APP: Final = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION: Final = "spark.databricks.delta.write.txnVersion"


def applied_offset(spark: SparkSession, path: str, job: str) -> int:
    """The last offset that a job has applied to a table; NOTHING_APPLIED if none."""
    return applied_version(spark, path, job)[1]


def applied_version(spark: SparkSession, path: str, job: str) -> tuple[int, int]:
    """The newest version of a table, and the last offset that a job has applied in it."""
    # Delta has no public call for this; the tests check it for the pinned version.
    jvm: Any = spark._jvm
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path)
    defaults = [getattr(log, f"update$default${number}")() for number in (1, 2, 3)]
    snapshot = log.update(*defaults)
    offset = snapshot.transactions().get(job)
    return int(snapshot.version()), int(offset.get()) if offset.isDefined() else NOTHING_APPLIED


def append_once(rows: DataFrame, path: str, job: str, through: int) -> None:
    """Append rows; does nothing if the table has applied `through` already.

    A table that an older version made gets the columns that it does not have.
    """
    write = rows.write.format("delta").mode("append").option("mergeSchema", "true")
    write.option("txnAppId", job).option("txnVersion", str(through)).save(path)


def merge_once(spark: SparkSession, path: str, job: str, through: int, merge: Callable[[DeltaTable], None]) -> None:
    """Run a MERGE; does nothing if the table has applied `through` already. Retries after a conflict."""
    for attempt in range(1, CONFLICT_ATTEMPTS + 1):
        spark.conf.set(_TXN_APP, job)
        spark.conf.set(_TXN_VERSION, str(through))
        try:
            merge(DeltaTable.forPath(spark, path))
            return
        except DeltaConcurrentModificationException:
            if attempt == CONFLICT_ATTEMPTS:
                raise
            time.sleep(0.2 * attempt)
        finally:
            # Delta does not reset them: the next write of this session would use them.
            spark.conf.unset(_TXN_APP)
            spark.conf.unset(_TXN_VERSION)

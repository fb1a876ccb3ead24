"""Transactions on a table: how far it has applied the log, and how it is changed exactly once, by one writer.

Owns: the transaction identifier that Delta keeps with every commit: the job's name, and as its version the writer's
epoch with the last offset of the log that was applied (`lake.epochs`). It changes together with the rows, so that a
batch which comes again after a crash is recognised, even when positions are lost and the batches have other bounds; and
a writer that was deposed cannot commit: its version is lower, or Delta finds that the identifier has changed since.
Never: what the rows are.
"""

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

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
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from embermq.spark.errors import LeaseLost
from embermq.spark.lake.comments import with_comments
from embermq.spark.lake.epochs import NOTHING_APPLIED, epoch_and_offset, transaction_version
from embermq.spark.lake.lake import Lake
from embermq.spark.lake.tables import DAY

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

_DELTA: Final = "org.apache.spark.sql.delta"
_TXN_APP: Final = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION: Final = "spark.databricks.delta.write.txnVersion"

__all__ = ["NOTHING_APPLIED", "Applied", "append_once", "applied", "applied_offset", "merge_once"]


class Applied(NamedTuple):
    """The newest version of a table, the epoch of its last writer, and the last offset that a job has applied."""

    version: int
    epoch: int
    through: int


def applied_offset(spark: SparkSession, lake: Lake, table: str, job: str) -> int:
    """The last offset that a job has applied to a table; NOTHING_APPLIED if none."""
    return applied(spark, lake, table, job).through


def applied(spark: SparkSession, lake: Lake, table: str, job: str) -> Applied:
    """How far a job has brought a table. LeaseLost if a newer writer than the one of this lake has it."""
    snapshot = _snapshot(_log(spark, lake.table(table)))
    epoch, through = epoch_and_offset(_transaction_versions(snapshot).get(job))
    _check_epoch(lake, epoch)
    return Applied(int(snapshot.version()), epoch, through)


def version_after(spark: SparkSession, lake: Lake, table: str, job: str) -> int:
    """The newest version of a table after a batch of a job. LeaseLost if a newer writer than ours has it."""
    if lake.is_local:  # its lock keeps other writers away, and the state of the table need not be read
        return int(_snapshot(_log(spark, lake.table(table))).version())
    return applied(spark, lake, table, job).version


def table_bytes(spark: SparkSession, lake: Lake, table: str) -> int:
    """The size of the files that the newest version of a table has."""
    snapshot = _snapshot(_log(spark, lake.table(table)))
    checksum = snapshot.checksumOpt()
    return int(checksum.get().tableSizeBytes() if checksum.isDefined() else snapshot.sizeInBytes())


def day_bytes(spark: SparkSession, lake: Lake, table: str, day: str) -> int:
    """The size of the files that the newest version of a table has for a day."""
    files = DataFrame(_snapshot(_log(spark, lake.table(table))).allFiles().toDF(), spark)
    found = files.where(F.col("partitionValues")[DAY] == day).agg(F.sum("size")).collect()[0][0]
    return int(found or 0)


def newest_epoch(spark: SparkSession, path: str) -> int:
    """The highest epoch in the transactions of a table at a path."""
    versions = _transaction_versions(_snapshot(_log(spark, path))).values()
    return max((epoch_and_offset(version)[0] for version in versions), default=0)


def append_once(rows: DataFrame, lake: Lake, table: str, job: str, through: int) -> None:
    """Append rows; does nothing if the table has applied `through` already, or if a newer writer has it.

    A table that an older version made gets the columns that it does not have. All others are committed as Delta's own
    write with a transaction identifier does it, except for how the identifier is read: that write makes Delta read all
    of the table's log, which costs four times the CPU of a small append.
    """
    spark = rows.sparkSession
    version = transaction_version(lake.epoch or 0, through)
    transaction = _log(spark, lake.table(table)).startTransaction()
    if transaction.metadata().schema().catalogString() != rows._jdf.schema().catalogString():
        write = rows.write.format("delta").mode("append").option("mergeSchema", "true")
        write.option("txnAppId", job).option("txnVersion", str(version)).save(lake.table(table))
        return
    transaction.readTxn().append(job)  # Delta then refuses the commit if another one has changed the identifier
    if _transaction_versions(transaction.snapshot()).get(job, -1) < version:
        _commit(spark, transaction, {job: version}, transaction.writeFiles(rows._jdf))


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


def reset_table(spark: SparkSession, lake: Lake, table: str, job: str, schema: StructType) -> None:
    """Remove all rows of a table, give it a schema, and forget what was applied, in one commit."""
    version = transaction_version(lake.epoch or 0, NOTHING_APPLIED)
    write = (
        spark.createDataFrame([], with_comments(table, schema))
        .write.format("delta")
        .mode("overwrite")
        .option("overwriteSchema", "true")
    )
    write.option("txnAppId", job).option("txnVersion", str(version)).save(lake.table(table))


def claim_table(spark: SparkSession, lake: Lake, table: str, jobs: Collection[str] = ()) -> None:
    """Put this writer's epoch into all transaction identifiers of a table, and into those of some jobs.

    What they have applied stays. After that no writer of an earlier epoch can commit: Delta leaves its commit out, or
    refuses it because an identifier that it has read has changed. LeaseLost if a newer writer has the table.
    """
    epoch = lake.epoch or 0
    identifiers = sorted({*jobs, *_transaction_versions(_snapshot(_log(spark, lake.table(table))))})
    for attempt in range(1, CONFLICT_ATTEMPTS + 1):
        transaction = _log(spark, lake.table(table)).startTransaction()
        changes = {}
        for identifier in identifiers:
            found, through = epoch_and_offset(int(transaction.txnVersion(identifier)))
            _check_epoch(lake, found)
            if found < epoch:
                changes[identifier] = transaction_version(epoch, through)
        if not changes:
            return
        try:
            _commit(spark, transaction, changes)
            return
        except CONFLICTS:  # the other writer has committed a batch: what is applied now?
            if attempt == CONFLICT_ATTEMPTS:
                raise


def take_epoch(spark: SparkSession, path: str, identifier: str, before: int, epoch: int) -> bool:
    """Replace an epoch in a table at a path, unless another writer does so first: then the result is False."""
    transaction = _log(spark, path).startTransaction()
    if epoch_and_offset(int(transaction.txnVersion(identifier)))[0] != before:
        return False
    try:
        _commit(spark, transaction, {identifier: transaction_version(epoch, NOTHING_APPLIED)})
    except CONFLICTS:
        return False
    return True


def _commit(spark: SparkSession, transaction: Any, versions: Mapping[str, int], files: Any = None) -> None:
    """Commit versions of transaction identifiers, and nothing else but files that were written for the transaction."""
    # Delta has no public call for this; the tests check it for the pinned version.
    changes = _java_class(spark, "java.util.ArrayList")()
    set_transaction = _java_class(spark, f"{_DELTA}.actions.SetTransaction")
    none = _java_class(spark, "scala.Option").empty()
    for identifier, version in versions.items():
        changes.add(set_transaction(identifier, version, none))
    actions = _java_class(spark, "scala.jdk.javaapi.CollectionConverters").asScala(changes).toSeq()
    if files is None:
        operation = getattr(_java_class(spark, f"{_DELTA}.DeltaOperations$ManualUpdate$"), "MODULE$")
        transaction.commit(actions, operation)
        return
    append = _java_class(spark, "org.apache.spark.sql.streaming.OutputMode").Append()
    operation = _java_class(spark, f"{_DELTA}.DeltaOperations$StreamingUpdate")(append, identifier, version, none)
    transaction.commit(actions.appendedAll(files), operation)


def lost_to(lake: Lake, epoch: int) -> LeaseLost:
    """The error of a writer that was deposed."""
    return LeaseLost(
        f"another pipeline has taken over {lake.place} (epoch {epoch}, this one had {lake.epoch}): this one ends; "
        "nothing is lost, and nothing is there twice"
    )


def _check_epoch(lake: Lake, found: int) -> None:
    if lake.epoch is not None and found > lake.epoch:
        raise lost_to(lake, found)


def _log(spark: SparkSession, path: str) -> Any:
    return _java_class(spark, f"{_DELTA}.DeltaLog").forTable(spark._jsparkSession, path)


def _java_class(spark: SparkSession, name: str) -> Any:
    """A class of Java by its whole name: part by part, Java would look for a class for each part in every jar."""
    return getattr(spark._jvm, name)


def _snapshot(log: Any) -> Any:
    """The newest snapshot of a table, without a public call too."""
    return log.update(*[getattr(log, f"update$default${number}")() for number in (1, 2, 3)])


def _transaction_versions(snapshot: Any) -> dict[str, int]:
    """The version of each transaction identifier, from the checksum file of the snapshot's version if that has them."""
    checksum = snapshot.checksumOpt()
    known = checksum.get().setTransactions() if checksum.isDefined() else checksum
    each = (known.get() if known.isDefined() else snapshot.setTransactions()).iterator()
    versions = {}
    while each.hasNext():
        found = each.next()
        versions[str(found.appId())] = int(found.version())
    return versions

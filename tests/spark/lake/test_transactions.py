"""An append that is committed here does what Delta's own write with a transaction identifier does."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from embermq.spark.lake import transactions
from embermq.spark.lake.epochs import transaction_version
from embermq.spark.lake.lake import Lake
from embermq.spark.lake.tables import MESSAGES_SCHEMA, create_table, read_table
from embermq.spark.lake.transactions import CONFLICTS, append_once, applied
from support.lakes import new_lake

STEPS = [
    ("messages", 0, 3),
    ("messages", 0, 3),  # again
    ("messages", 0, 2),  # earlier than what was applied
    ("other", 0, 1),
    ("messages", 0, 9),
    ("messages", 2, 4),  # of a newer writer
    ("messages", 0, 20),  # of the one before it
]


def one_row(spark: SparkSession, offset: int) -> DataFrame:
    values = {"offset": F.lit(offset), "timestamp": F.timestamp_seconds(F.lit(offset * 86_400)), "topic": F.lit("a/b")}
    columns = [values.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in MESSAGES_SCHEMA]
    return spark.range(1).select(*columns).withColumn("day", F.to_date("timestamp"))


def with_deltas_own_write(rows: DataFrame, lake: Lake, job: str, through: int) -> None:
    version = transaction_version(lake.epoch or 0, through)
    writer = rows.write.format("delta").mode("append").option("txnAppId", job).option("txnVersion", str(version))
    writer.save(lake.table("messages"))


def test_an_append_leaves_what_deltas_own_write_leaves(spark: SparkSession, tmp_path: Path) -> None:
    ours, deltas = new_lake(spark, tmp_path / "ours"), new_lake(spark, tmp_path / "deltas")
    for lake in (ours, deltas):
        create_table(spark, lake, "messages", MESSAGES_SCHEMA)
    for job, epoch, through in STEPS:
        rows = one_row(spark, through)
        for lake in (ours, deltas):
            lake.epoch = epoch
        append_once(rows, ours, "messages", job, through)
        with_deltas_own_write(rows, deltas, job, through)
        for lake in (ours, deltas):
            lake.epoch = None
        for name in ("messages", "other"):
            assert applied(spark, ours, "messages", name) == applied(spark, deltas, "messages", name)
    found, expected = (read_table(spark, lake, "messages").orderBy("offset").collect() for lake in (ours, deltas))
    assert found == expected and [row.offset for row in found] == [1, 3, 4, 9]
    adds = [sorted(_statistics(spark, lake)) for lake in (ours, deltas)]
    assert adds[0] == adds[1] and len(adds[0]) == 4


def test_what_was_applied_is_the_same_without_checksum_files(spark: SparkSession, tmp_path: Path) -> None:
    lake = new_lake(spark, tmp_path)
    create_table(spark, lake, "messages", MESSAGES_SCHEMA)
    for through in (5, 8):
        append_once(one_row(spark, through), lake, "messages", "messages", through)
    before = applied(spark, lake, "messages", "messages")
    for path in tmp_path.rglob("*.crc"):
        path.unlink()
    _forget_snapshots(spark)
    assert applied(spark, lake, "messages", "messages") == before and before.through == 8
    append_once(one_row(spark, 8), lake, "messages", "messages", 8)
    append_once(one_row(spark, 11), lake, "messages", "messages", 11)
    assert read_table(spark, lake, "messages").count() == 3


def test_an_append_is_refused_if_the_identifier_has_changed_meanwhile(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = new_lake(spark, tmp_path)
    create_table(spark, lake, "messages", MESSAGES_SCHEMA)
    commit = transactions._commit

    def after_another(*arguments: Any) -> None:
        monkeypatch.undo()
        append_once(one_row(spark, 7), lake, "messages", "messages", 7)
        commit(*arguments)

    monkeypatch.setattr(transactions, "_commit", after_another)
    with pytest.raises(CONFLICTS):
        append_once(one_row(spark, 5), lake, "messages", "messages", 5)
    assert [row.offset for row in read_table(spark, lake, "messages").collect()] == [7]


def test_a_table_with_other_columns_gets_those_of_the_rows(spark: SparkSession, tmp_path: Path) -> None:
    lake = new_lake(spark, tmp_path)
    create_table(spark, lake, "messages", MESSAGES_SCHEMA)
    rows = one_row(spark, 4).withColumn("new", F.lit("x"))
    for _ in range(2):
        append_once(rows, lake, "messages", "messages", 4)
    assert [(row.offset, row.new) for row in read_table(spark, lake, "messages").collect()] == [(4, "x")]


def _statistics(spark: SparkSession, lake: Lake) -> list[str]:
    """The statistics and the day of every file that was added, as Delta's log has them."""
    log = spark.read.json(f"{lake.table('messages')}/_delta_log/*.json").where("add is not null")
    return [str(row[0]) + str(row[1]) for row in log.select("add.stats", "add.partitionValues.day").collect()]


def _forget_snapshots(spark: SparkSession) -> None:
    """As in another process: Delta keeps snapshots of tables in memory."""
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

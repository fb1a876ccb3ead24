"""An append is applied once, whichever way it is written."""

from pathlib import Path

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from embermq.lake.delta import applied
from embermq.lake.lake import Lake
from embermq.lake.schema import MESSAGES
from embermq.spark.lake.tables import create_table, read_table, spark_schema
from embermq.spark.lake.transactions import append_once
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


def one_row(spark: SparkSession, offset: int, **more: Column) -> DataFrame:
    instant = F.timestamp_seconds(F.lit(offset * 86_400))
    values = {"offset": F.lit(offset), "timestamp": instant, "topic": F.lit("a/b"), **more}
    fields = spark_schema(MESSAGES)
    columns = [values.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in fields]
    return spark.range(1).select(*columns).withColumn("day", F.to_date("timestamp"))


@pytest.mark.parametrize("is_small", [True, False])
def test_an_append_is_applied_once_and_only_by_the_newest_writer(
    spark: SparkSession, tmp_path: Path, is_small: bool
) -> None:
    lake = new_lake(spark, tmp_path)
    create_table(spark, lake, MESSAGES)
    for job, epoch, through in STEPS:
        lake.epoch = epoch
        append_once(one_row(spark, through), lake, "messages", job, through, is_small)
    lake.epoch = None
    assert [applied(lake, "messages", name)[1:] for name in ("messages", "other")] == [(2, 4), (0, 1)]
    found = read_table(spark, lake, "messages").orderBy("offset").collect()
    assert [row.offset for row in found] == [1, 3, 4, 9]
    assert [row.asDict() for row in found] == [one_row(spark, row.offset).collect()[0].asDict() for row in found]
    assert _statistics(spark, lake) == [(1, row.offset, row.day.isoformat()) for row in found]


def test_both_ways_to_append_give_the_same_rows_and_know_of_each_other(spark: SparkSession, tmp_path: Path) -> None:
    """A small batch and a large one take turns; every type of a column is among them."""
    lake = new_lake(spark, tmp_path)
    create_table(spark, lake, MESSAGES)
    properties = F.array(F.struct(F.lit("k").alias("name"), F.lit("v").alias("value")))
    for through, is_small in ((3, True), (5, False), (3, True), (5, True), (8, True), (8, False)):
        values = {"payload": F.lit(b"\x00\xff"), "qos": F.lit(1), "retain": F.lit(True), "user_properties": properties}
        append_once(one_row(spark, through, **values), lake, "messages", "messages", through, is_small)
    rows = read_table(spark, lake, "messages").orderBy("offset").drop("day").collect()
    assert [row.offset for row in rows] == [3, 5, 8] and applied(lake, "messages", "messages").through == 8
    assert {(bytes(row.payload), row.qos, row.retain, row.topic) for row in rows} == {(b"\x00\xff", 1, True, "a/b")}
    assert {row.user_properties[0].asDict()["value"] for row in rows} == {"v"}


def test_a_table_with_other_columns_gets_those_of_the_rows(spark: SparkSession, tmp_path: Path) -> None:
    lake = new_lake(spark, tmp_path)
    create_table(spark, lake, MESSAGES)
    rows = one_row(spark, 4).withColumn("new", F.lit("x"))
    for _ in range(2):
        append_once(rows, lake, "messages", "messages", 4, is_small=True)
    assert [(row.offset, row.new) for row in read_table(spark, lake, "messages").collect()] == [(4, "x")]


def _statistics(spark: SparkSession, lake: Lake) -> list[tuple[int, int, str]]:
    """Rows, least offset and day of every file that was added, as Delta's log has them."""
    log = spark.read.json(f"{lake.table('messages')}/_delta_log/*.json").where("add is not null")
    least = F.get_json_object("add.stats", "$.minValues.offset").cast("int").alias("least")
    rows = F.get_json_object("add.stats", "$.numRecords").cast("int")
    return [tuple(row) for row in log.select(rows, least, "add.partitionValues.day").orderBy("least").collect()]

"""How far a table is, from the files of Delta's log alone: the same as Delta itself says."""

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from embermq.spark.errors import LakeError
from embermq.spark.lake import transactions
from embermq.spark.lake.lake import Lake
from embermq.spark.lake.tables import GAPS_SCHEMA, create_table
from embermq.spark.lake.transactions import NOTHING_APPLIED, append_once
from embermq.spark.queries import applied as module
from embermq.spark.queries.applied import applied
from embermq.spark.queries.as_of import retained_as_of
from embermq.spark.queries.registration import SchemaName, register_tables
from support.lakes import new_lake


@pytest.fixture
def over_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a session of Spark Connect; `test_connect.py` has a real one."""
    monkeypatch.setattr(module, "is_connect", lambda spark: True)


@pytest.mark.usefixtures("over_connect")
def test_the_files_say_what_delta_says(spark: SparkSession, tmp_path: Path) -> None:
    lake = new_lake(spark, tmp_path)
    gap = spark.createDataFrame([], GAPS_SCHEMA)

    def check(epoch: int, through: int) -> None:
        found = applied(spark, lake, "gaps", "one")
        assert found == transactions.applied(spark, lake, "gaps", "one") and found[1:] == (epoch, through)

    create_table(spark, lake, "gaps", GAPS_SCHEMA)
    check(0, NOTHING_APPLIED)
    spark.sql(f"alter table delta.`{lake.table('gaps')}` set tblproperties ('delta.checkpointInterval' = '2')")
    for epoch, job, through in ((0, "one", 7), (3, "one", 20), (3, "another", 90)):
        lake.epoch = epoch
        append_once(gap, lake, "gaps", job, through)
    lake.epoch = None
    check(3, 20)
    remove_commits_of_checkpoint(lake)
    check(3, 20)


@pytest.mark.usefixtures("over_connect")
def test_a_lake_that_only_the_server_reaches_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Its gaps would not be seen, and an answer for an instant in one would be wrong."""
    here = re.escape(f"{tmp_path} is no lake here: over Spark Connect the client must reach it as the server does")
    with pytest.raises(LakeError, match=here):
        retained_as_of(spark, Lake(tmp_path), "2026-03-03T14:03:00Z")
    with pytest.raises(LakeError, match=here):
        register_tables(spark, Lake(tmp_path), SchemaName("spark_catalog", "ember_elsewhere"))


def remove_commits_of_checkpoint(lake: Lake) -> None:
    """As Delta does after a week."""
    log = lake.directory / "gaps" / "_delta_log"
    newest = max(int(file.name[:20]) for file in log.glob("*.checkpoint*.parquet"))
    for file in log.glob("*.json"):
        if int(file.name[:20]) < newest:
            file.unlink()

"""The lease of a lake at a URL, and that a pipeline which was deposed commits nothing."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from delta.tables import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyspark.sql import SparkSession

from embermq.lake.delta import append_rows, applied, claim_table, open_table
from embermq.lake.epochs import transaction_version
from embermq.lake.errors import LakeError, LeaseLost
from embermq.lake.files import json_object
from embermq.lake.lake import Lake
from embermq.lake.schema import GAPS
from embermq.spark.lake.hadoop_files import use_spark
from embermq.spark.lake.lease import Lease
from embermq.spark.lake.tables import create_table, read_table, spark_schema
from embermq.spark.lake.transactions import append_once, merge_once

LONG_S = 600.0
"""Longer than a test: the lease is renewed only when it is taken."""


@contextmanager
def leased(spark: SparkSession, place: Path, lease_s: float = LONG_S) -> Iterator[tuple[Lake, Lease]]:
    lake = use_spark(Lake(place.as_uri()), spark)
    lake.open()
    lease = Lease(spark, lake, lease_s)
    try:
        yield lake, lease
    finally:
        lease.end()


def expire(lake: Lake) -> None:
    """As if the one who has the lease had not renewed it for its time."""
    lease = json_object(lake.files.read("_embermq/lease.json"))
    lake.files.write("_embermq/lease.json", json.dumps({**lease, "lease_s": 0.01}))


def test_a_lease_that_is_renewed_is_refused_and_one_that_has_ended_is_free(spark: SparkSession, tmp_path: Path) -> None:
    with leased(spark, tmp_path, lease_s=6.0) as (lake, _):
        assert lake.epoch == 1
        with pytest.raises(LakeError, match=r"another pipeline writes to file:.*process"), leased(spark, tmp_path):
            pass
    with leased(spark, tmp_path) as (lake, _):
        assert lake.epoch == 2


def test_a_deposed_writer_commits_nothing_and_ends(spark: SparkSession, tmp_path: Path) -> None:
    row = spark.createDataFrame([("retained", 1, 2, None, None, "x", None)], spark_schema(GAPS))

    def insert(table: DeltaTable) -> None:
        table.alias("t").merge(row.alias("s"), "false").whenNotMatchedInsertAll().execute()

    with leased(spark, tmp_path) as (old, lease):
        create_table(spark, old, GAPS)
        append_once(row, old, "gaps", "gaps-retained", 10)
        in_flight = open_table(old, "gaps")
        expire(old)
        with leased(spark, tmp_path) as (new, _):
            assert applied(new, "gaps", "gaps-retained")[1:] == (2, 10)
            # What began before the takeover is refused, what begins after it is left out.
            with pytest.raises(CommitFailedError, match="Concurrent transaction"):
                append_rows(in_flight, row.toArrow(), "gaps-retained", transaction_version(1, 11))
            append_once(row, old, "gaps", "gaps-retained", 20)
            merge_once(spark, old, "gaps", "gaps-retained", 30, insert)
            assert read_table(spark, new, "gaps").count() == 1
            for look in (lambda: applied(old, "gaps", "gaps-retained"), lambda: claim_table(old, "gaps")):
                with pytest.raises(LeaseLost, match=r"taken over file:.* \(epoch 2, this one had 1\): stopping"):
                    look()
            assert lease.is_lost()
            with pytest.raises(LeaseLost):
                lease.check()
            append_once(row, new, "gaps", "gaps-retained", 11)
            assert read_table(spark, new, "gaps").count() == 2
            lease.end()  # of the deposed one: the other's file stays
            assert json_object(new.files.read("_embermq/lease.json"))["epoch"] == 2


def test_a_deposed_writer_is_told_by_the_table_if_it_has_replaced_the_file(spark: SparkSession, tmp_path: Path) -> None:
    with leased(spark, tmp_path) as (old, lease):
        expire(old)
        before = old.files.read("_embermq/lease.json")
        assert before is not None and not lease.is_lost()
        with leased(spark, tmp_path) as (new, _):
            new.files.write("_embermq/lease.json", before)  # as one does that stood still while it wrote
            assert lease.is_lost()
            lease.end()
            assert new.files.read("_embermq/lease.json") == before  # nobody is told that the lake is free

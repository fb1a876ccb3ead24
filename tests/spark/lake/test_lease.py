"""The lease of a lake at a URL, and that a pipeline which was deposed commits nothing."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from embermq.spark.errors import LakeError, LeaseLost
from embermq.spark.lake import transactions
from embermq.spark.lake.files import json_object
from embermq.spark.lake.lake import Lake
from embermq.spark.lake.lease import Lease
from embermq.spark.lake.tables import GAPS_SCHEMA, create_table, read_table
from embermq.spark.lake.transactions import CONFLICTS, append_once, applied, claim_table, merge_once, take_epoch

LONG_S = 600.0
"""Longer than a test: the lease is renewed only when it is taken."""


@contextmanager
def leased(spark: SparkSession, place: Path, lease_s: float = LONG_S) -> Iterator[tuple[Lake, Lease]]:
    lake = Lake(place.as_uri(), spark)
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
    with leased(spark, tmp_path, lease_s=1.5) as (lake, _):
        assert lake.epoch == 1
        with pytest.raises(LakeError, match=r"another pipeline writes to file:.*process"), leased(spark, tmp_path):
            pass
    with leased(spark, tmp_path) as (lake, _):
        assert lake.epoch == 2


def test_of_two_that_take_the_same_epoch_one_wins(spark: SparkSession, tmp_path: Path) -> None:
    with leased(spark, tmp_path) as (lake, _):
        path = lake.table("_embermq/writers")
        first, second = (transactions._log(spark, path).startTransaction() for _ in range(2))
        for one in (first, second):
            one.txnVersion("writer")
        transactions._commit(spark, first, {"writer": 99})
        with pytest.raises(CONFLICTS):
            transactions._commit(spark, second, {"writer": 99})
        assert not take_epoch(spark, path, "writer", 5, 6)


def test_a_deposed_writer_commits_nothing_and_ends(spark: SparkSession, tmp_path: Path) -> None:
    row = spark.createDataFrame([("retained", 1, 2, None, None, "x", None)], GAPS_SCHEMA)

    def insert(table: DeltaTable) -> None:
        table.alias("t").merge(row.alias("s"), "false").whenNotMatchedInsertAll().execute()

    with leased(spark, tmp_path) as (old, lease):
        create_table(spark, old, "gaps", GAPS_SCHEMA)
        append_once(row, old, "gaps", "job", 10)
        in_flight = transactions._log(spark, old.table("gaps")).startTransaction()
        in_flight.txnVersion("job")
        expire(old)
        with leased(spark, tmp_path) as (new, _):
            assert applied(spark, new, "gaps", "job")[1:] == (2, 10)
            # What began before the takeover is refused, what begins after it is left out.
            with pytest.raises(CONFLICTS):
                transactions._commit(spark, in_flight, {"job": 11})
            append_once(row, old, "gaps", "job", 20)
            merge_once(spark, old, "gaps", "job", 30, insert)
            assert read_table(spark, new, "gaps").count() == 1
            for look in (lambda: applied(spark, old, "gaps", "job"), lambda: claim_table(spark, old, "gaps")):
                with pytest.raises(LeaseLost, match=r"taken over file:.* \(epoch 2, this one had 1\): this one ends"):
                    look()
            assert lease.is_lost()
            with pytest.raises(LeaseLost):
                lease.check()
            append_once(row, new, "gaps", "job", 11)
            assert read_table(spark, new, "gaps").count() == 2
            lease.end()  # of the deposed one: the other's file stays
            assert json_object(new.files.read("_embermq/lease.json"))["epoch"] == 2


def test_a_claim_keeps_what_was_applied_also_by_a_commit_in_between(spark: SparkSession, tmp_path: Path) -> None:
    row = spark.createDataFrame([("retained", 1, 2, None, None, "x", None)], GAPS_SCHEMA)
    with leased(spark, tmp_path) as (old, _):
        create_table(spark, old, "gaps", GAPS_SCHEMA)
        claim_table(spark, old, "gaps", ["job", "other"])
        assert applied(spark, old, "gaps", "job")[1:] == (1, -1)
        append_once(row, old, "gaps", "job", 10)
        new = Lake(tmp_path.as_uri(), spark)
        new.epoch = 7
        commit = transactions._commit

        def after_a_batch_of_the_other(*arguments: object) -> None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(transactions, "_commit", commit)
                append_once(row, old, "gaps", "job", 15)
            monkey.undo()
            commit(*arguments)  # type: ignore[arg-type] # as they came

        monkey = pytest.MonkeyPatch()
        monkey.setattr(transactions, "_commit", after_a_batch_of_the_other)
        claim_table(spark, new, "gaps")
        assert applied(spark, new, "gaps", "job")[1:] == (7, 15)
        assert applied(spark, new, "gaps", "other")[1:] == (7, -1)

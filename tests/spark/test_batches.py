"""How a batch is applied to the tables of several jobs."""

import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from embermq.lake.lake import Lake
from embermq.spark import batches
from embermq.spark.jobs.job import Batch, Job
from embermq.spark.lake.tables import read_table
from embermq.spark.pipeline import run
from support.lakes import retained_of
from support.recorded import Recorder

WAIT_S = 60


class Applied:
    """Jobs that record what they did, and wait for one of the other sort."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.names: list[str] = []
        self.merging = threading.Lock()
        self.both = threading.Barrier(2)

    def job(self, name: str, is_merged: bool, meets: bool = False, fails: bool = False) -> tuple[Job, Batch]:
        def apply(batch: Batch, lake: Lake) -> None:
            if is_merged:
                assert self.merging.acquire(blocking=False), "two merges at once"
            if meets:
                self.both.wait(WAIT_S)
            self.names.append(name)
            if is_merged:
                self.merging.release()
            if fails:
                raise ValueError(name)

        nothing: Any = None
        job = Job(name=name, tables=(), columns=(), kinds=(), apply=apply, is_merged=is_merged)
        return job, Batch(nothing, 0, 1, nothing)

    def run(self, jobs: list[tuple[Job, Batch]], is_large: bool) -> dict[str, float]:
        return batches._apply(jobs, self.lake, is_large)


def test_a_small_batch_is_applied_by_one_job_after_the_other(tmp_path: Path) -> None:
    applied = Applied(Lake(tmp_path))
    took_s = applied.run([applied.job("a", False), applied.job("m", True), applied.job("b", False)], is_large=False)
    assert applied.names == ["a", "m", "b"]
    assert took_s.keys() == {"a", "b", "m"}


def test_of_a_large_batch_merges_run_beside_appends_but_not_beside_each_other(tmp_path: Path) -> None:
    applied = Applied(Lake(tmp_path))
    jobs = [
        applied.job("a", False),
        applied.job("b", False, meets=True),
        applied.job("m", True, meets=True),
        applied.job("n", True),
    ]
    took_s = applied.run(jobs, is_large=True)
    assert sorted(applied.names) == ["a", "b", "m", "n"]
    assert took_s.keys() == {"a", "b", "m", "n"}


def test_an_error_comes_when_no_job_writes_any_more(tmp_path: Path) -> None:
    applied = Applied(Lake(tmp_path))
    jobs = [applied.job("a", False, meets=True, fails=True), applied.job("m", True, meets=True), applied.job("n", True)]
    with pytest.raises(ValueError, match=r"^a$"):
        applied.run(jobs, is_large=True)
    assert sorted(applied.names) == ["a", "m", "n"]


@pytest.mark.long
def test_large_batches_are_in_every_table_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "COMPILE_ABOVE", 1)
    made, lake = Recorder(tmp_path / "data"), Lake(tmp_path / "lake")
    for count in (300, 200, 100):  # the first is appended to empty tables, the others are merged
        for number in range(count):
            payload = b"%d" % number if number % 13 else b""
            made.publish(f"t/{number % 9}", payload, number % 3, number % 2 == 0)
        made.flush()
        run(made.data, lake, once=True, lock_wait_s=0)
        offsets = [row[0] for row in read_table(spark, lake, "messages").select("offset").collect()]
        assert sorted(offsets) == [published[0] for published in made.published]
        assert retained_of(read_table(spark, lake, "retained")) == made.retained()
        counted = read_table(spark, lake, "topic_stats").groupBy().sum("messages").collect()[0][0]
        assert counted == len(made.published)
    made.close()

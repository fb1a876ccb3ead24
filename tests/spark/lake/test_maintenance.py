"""Maintenance inside a run: few files, days laid out by topic, old rows and unneeded files removed, nothing lost."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from embermq.instants import EPOCH
from embermq.lake import as_of as local
from embermq.lake.duck import open_tables
from embermq.lake.errors import REMOVED, InGap
from embermq.lake.lake import Lake
from embermq.spark.jobs.catalog import JobSettings
from embermq.spark.lake import maintenance
from embermq.spark.lake.maintenance import JOIN_ALL_EVERY, Maintenance, MaintenanceSettings
from embermq.spark.pipeline import run
from embermq.spark.queries.as_of import retained_as_of
from support.lakes import feed, job_named, new_lake, retained_of
from support.recorded import Recorder

Recorders = Callable[..., Recorder]
DAY_US = 86_400_000_000


def offsets(lake: Lake) -> list[int]:
    table = DeltaTable(lake.table("messages")).to_pyarrow_table(columns=["offset"])
    return sorted(table["offset"].to_pylist())


@pytest.mark.long
def test_a_run_of_many_small_batches_leaves_few_files(spark: SparkSession, recorder: Recorders, tmp_path: Path) -> None:
    made = recorder()
    for number in range(70):
        made.publish(f"t/{number % 7}", b"%d" % number)
    made.flush()
    lake = Lake(tmp_path / "lake")
    settings = JobSettings(records_max=5, only=("messages",), maintenance=MaintenanceSettings(compact_files=4))
    run(made.data, lake, once=True, settings=settings)
    table = DeltaTable(lake.table("messages"))
    assert table.version() > 14  # batches and compactions
    assert len(table.file_uris()) < 2 * 4
    assert offsets(lake) == [published[0] for published in made.published]
    # The next run goes on counting where this one stopped.
    made.publish("t/1", b"more")
    made.flush()
    run(made.data, lake, once=True, settings=settings)
    assert offsets(lake) == [published[0] for published in made.published]


def test_joined_files_stay_until_all_small_ones_are_joined(
    spark: SparkSession, recorder: Recorders, tmp_path: Path
) -> None:
    made, random = recorder(), Random(3)
    for _ in range(2 * JOIN_ALL_EVERY + 2):
        for _ in range(20):
            made.publish("t", random.randbytes(500))
    made.flush()
    job = job_named("messages")
    lake = new_lake(spark, tmp_path / "lake", job)
    upkeep = Maintenance(spark, lake, MaintenanceSettings(compact_files=2))
    counts = []
    for number in range(2 * JOIN_ALL_EVERY + 2):
        feed(spark, lake, made.data, job, [1 + 20 * number, 21 + 20 * number])
        before = set(DeltaTable(lake.table("messages")).file_uris())
        upkeep.after_batch({"messages": DeltaTable(lake.table("messages")).version()})
        after = set(DeltaTable(lake.table("messages")).file_uris())
        if after != before:
            counts.append((len(before), len(before & after), len(after)))
    # With each compaction one more joined file that stays, until all become one.
    until_all = [(2 + joined, joined, joined + 1) for joined in range(JOIN_ALL_EVERY - 1)]
    assert counts == [*until_all, (JOIN_ALL_EVERY + 1, 0, 1), (3, 1, 2)]
    assert offsets(lake) == [published[0] for published in made.published]


def test_days_are_laid_out_and_old_ones_removed(
    spark: SparkSession, recorder: Recorders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = recorder()
    for _ in range(3):
        for number in range(20):
            made.publish(f"t/{number % 2}", b"%d" % number)
        made.now_us += DAY_US
    made.now_us -= DAY_US
    made.flush()
    job = job_named("messages")
    lake = new_lake(spark, tmp_path / "lake", job)
    feed(spark, lake, made.data, job, [1, 11, 21, 31, 41, 61])
    days = [path.name for path in sorted((lake.directory / "messages").glob("day=*"))]
    assert days == ["day=2023-11-14", "day=2023-11-15", "day=2023-11-16"]
    settings = MaintenanceSettings(vacuum_hours=0, retention={"messages": timedelta(days=1)})
    now = EPOCH + timedelta(microseconds=made.published[-1][1])
    done = Maintenance(spark, lake, settings).tidy(now)
    assert done[-2:] == [f"messages: laid out 2023-11-{day} by topic" for day in (15, 16)]
    assert offsets(lake) == [published[0] for published in made.published[20:]]
    files = DeltaTable(lake.table("messages")).file_uris()
    assert sum("day=2023-11-15" in file for file in files) == 1
    # Nothing else is left on the disk, and what is laid out stays as it is.
    left = [str(path) for path in (lake.directory / "messages").rglob("*.parquet") if "_delta_log" not in path.parts]
    assert sorted(Path(file).name for file in files) == sorted(Path(file).name for file in left)
    assert not any("laid out" in sentence for sentence in Maintenance(spark, lake, settings).tidy(now))
    # The last day goes on: it is laid out again with what has come, unless it is large.
    made.publish("t/0", b"more", step_us=1)
    made.flush()
    feed(spark, lake, made.data, job, [61, 62])
    with monkeypatch.context() as patch:
        patch.setattr(maintenance, "RUNNING_DAY_BYTES_MAX", 100)
        assert Maintenance(spark, lake, settings).tidy(now) == []
    assert Maintenance(spark, lake, settings).tidy(now) == ["messages: laid out 2023-11-16 by topic"]
    assert sum("day=2023-11-16" in file for file in DeltaTable(lake.table("messages")).file_uris()) == 1


def test_rows_that_retention_removes_are_a_gap(spark: SparkSession, recorder: Recorders, tmp_path: Path) -> None:
    made = recorder()
    for number in range(40):
        made.publish(f"t/{number % 4}", b"%d" % number, retain=True, step_us=3_600_000_000)
    made.flush()
    job = job_named("retained")
    lake = new_lake(spark, tmp_path / "lake", job)
    feed(spark, lake, made.data, job, [1, 41])
    settings = MaintenanceSettings(vacuum_hours=0, retention={"retained_closed": timedelta(hours=20)})
    now_us = made.now_us
    for _ in range(2):  # the second one has nothing to remove
        done = Maintenance(spark, lake, settings).tidy(EPOCH + timedelta(microseconds=now_us))
    assert done == []
    bound_us = (now_us - 20 * 3_600_000_000) // 1_000_000 * 1_000_000
    for engine_as_of in (spark_as_of(spark, lake), local_as_of(lake)):
        assert engine_as_of(bound_us) == made.retained(bound_us)
        assert engine_as_of(now_us) == made.retained()
        for asked_us in (bound_us - 1, made.published[0][1], made.published[0][1] - 1):
            with pytest.raises(InGap, match="offsets 1 to 15 were removed by the retention of the lake; it is known"):
                engine_as_of(asked_us)
    now_us += 5 * 3_600_000_000
    assert len(Maintenance(spark, lake, settings).tidy(EPOCH + timedelta(microseconds=now_us))) == 1
    (gap,) = DeltaTable(lake.table("gaps")).to_pyarrow_table().to_pylist()
    assert (gap["job"], gap["from_offset"], gap["to_offset"], gap["why"]) == ("retained", 1, 20, REMOVED)
    with pytest.raises(InGap):
        local_as_of(lake)(bound_us)


def spark_as_of(spark: SparkSession, lake: Lake) -> Callable[[int], dict[str, tuple[bytes, int, int]]]:
    return lambda at_us: retained_of(retained_as_of(spark, lake, EPOCH + timedelta(microseconds=at_us)))


def local_as_of(lake: Lake) -> Callable[[int], dict[str, tuple[bytes, int, int]]]:
    def ask(at_us: int) -> dict[str, tuple[bytes, int, int]]:
        with open_tables(lake) as tables:
            found = local.retained_as_of(tables, at_us).to_pylist()
        return {row["topic"]: (row["payload"], row["qos"], row["offset"]) for row in found}

    return ask

"""The tables of a lake in Spark's own catalog, in memory."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from embermq.history.source import LogEnd
from embermq.instants import EPOCH
from embermq.lake.lake import Lake
from embermq.lake.progress import PROGRESS_FILE, JobProgress, write_progress
from embermq.lake.schema import CLIENTS, struct_json
from embermq.spark.jobs import retained
from embermq.spark.jobs.clients import CLIENTS_JOB
from embermq.spark.jobs.retained import RETAINED_JOB
from embermq.spark.lake.gaps import record_gap
from embermq.spark.lake.tables import create_table
from embermq.spark.queries.registration import SchemaName, register_tables
from support.lakes import feed, new_lake, retained_of, say_all_is_known
from support.recorded import START_US, Recorder

NAME = SchemaName("spark_catalog", "ember_tests")


@pytest.fixture(scope="module")
def registered(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lake, Recorder]]:
    directory = tmp_path_factory.mktemp("registered")
    made = Recorder(directory / "data")
    for number in range(30):
        made.publish(f"t/{number % 4}", b"%d" % number if number % 7 else b"", retain=True)
    made.close()
    lake = new_lake(spark, directory / "lake", RETAINED_JOB, CLIENTS_JOB)
    feed(spark, lake, made.data, RETAINED_JOB, [1, 12, 31])
    say_all_is_known(lake, made)
    assert register_tables(spark, lake, NAME) == []
    yield lake, made
    spark.sql(f"drop schema {NAME} cascade")


def test_every_table_and_column_has_a_name_and_a_comment(
    spark: SparkSession, registered: tuple[Lake, Recorder]
) -> None:
    shown = spark.sql(f"show tables in {NAME}").collect()
    names = {row["tableName"] for row in shown if not row["isTemporary"]}  # views of the session are shown as well
    assert names >= {"retained", "retained_closed", "clients", "gaps", "retained_history"}
    for name in names:
        for field in spark.table(f"{NAME}.{name}").schema:
            assert field.metadata.get("comment"), f"{name}.{field.name}"
    assert register_tables(spark, registered[0], NAME) == []  # once more changes nothing


@pytest.mark.newest_spark
def test_the_function_answers_as_the_model_does(spark: SparkSession, registered: tuple[Lake, Recorder]) -> None:
    _, made = registered
    for at_us in (START_US + 1_000, START_US + 9_000, START_US + 17_500, made.now_us):
        asked = spark.sql(f"select * from {NAME}.retained_as_of(timestamp_micros({at_us}))")
        assert retained_of(asked) == made.retained(at_us)
    asked = spark.sql(f"select * from {NAME}.retained_as_of(timestamp_micros({made.now_us}), 't/+/#')")
    assert retained_of(asked) == made.retained()
    asked = spark.sql(f"select * from {NAME}.retained_as_of(timestamp_micros({made.now_us}), 't/1')")
    assert set(retained_of(asked)) == {"t/1"} & set(made.retained())
    assert spark.sql(f"select count(*) from {NAME}.retained_history").collect()[0][0] == sum(
        1 for event in made.retained_events if event[3] is not None
    )


def test_between_the_two_commits_of_a_batch_the_view_is_as_before_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Recorder(tmp_path / "data")
    for topic, payload in (("t/old", b"1"), ("t/new", b"2"), ("t/new", b"3"), ("t/old", b"")):
        made.publish(topic, payload, retain=True)
    made.close()
    lake = new_lake(spark, tmp_path / "lake", RETAINED_JOB)
    feed(spark, lake, made.data, RETAINED_JOB, [1, 2])
    write_progress(lake, [JobProgress("retained", offset=2)], LogEnd(5, made.now_us), "running")
    name = SchemaName("spark_catalog", "between")

    def intervals() -> list[tuple[str, int, int | None]]:
        found = spark.sql(f"select topic, offset, offset_to from {name}.retained_history order by offset").collect()
        return [tuple(row) for row in found]

    def merge_fails(*_: object) -> None:
        raise OSError("no merge")

    try:
        assert register_tables(spark, lake, name) == []
        with monkeypatch.context() as patch:
            patch.setattr(retained, "merge_once", merge_fails)
            with pytest.raises(OSError, match="no merge"):
                feed(spark, lake, made.data, RETAINED_JOB, [2, 5])
        assert intervals() == [("t/old", 1, None)]
        feed(spark, lake, made.data, RETAINED_JOB, [2, 5])  # which the pipeline has not reported yet
        assert intervals() == [("t/old", 1, 4), ("t/new", 2, 3), ("t/new", 3, None)]
    finally:
        spark.sql(f"drop schema {name} cascade")


@pytest.mark.newest_spark
def test_in_a_gap_the_function_says_that_nothing_is_known(
    spark: SparkSession, registered: tuple[Lake, Recorder]
) -> None:
    lake, made = registered
    moments = {"from_timestamp": START_US + 4_000, "to_timestamp": START_US + 7_000}
    instants = {name: EPOCH + timedelta(microseconds=at_us) for name, at_us in moments.items()}
    gap = {"job": "retained", "from_offset": 31, "to_offset": 50, "why": "trimmed", "noticed": EPOCH, **instants}
    record_gap(spark, lake, gap)
    with pytest.raises(PySparkException, match=r"offsets 31 to 50 were trimmed before the pipeline had read them"):
        spark.sql(f"select count(*) from {NAME}.retained_as_of(timestamp_micros({START_US + 5_000}))").collect()
    for at_us in moments.values():
        asked = spark.sql(f"select * from {NAME}.retained_as_of(timestamp_micros({at_us}))")
        assert retained_of(asked) == made.retained(at_us)


@pytest.mark.newest_spark
def test_the_function_refuses_what_the_lake_does_not_know(
    spark: SparkSession, registered: tuple[Lake, Recorder]
) -> None:
    lake, made = registered
    job = JobProgress("retained", offset=31)
    job.know(START_US + 1000, START_US + 9_000, LogEnd(40, made.now_us))
    write_progress(lake, [job], LogEnd(40, made.now_us), "running")
    try:
        (bounds,) = spark.sql(f"select unix_micros(since), unix_micros(until) from {NAME}.retained_known").collect()
        assert tuple(bounds) == (START_US + 1000, START_US + 9_000)
        newest = f"select * from {NAME}.retained_as_of((select until from {NAME}.retained_known))"
        assert retained_of(spark.sql(newest)) == made.retained(START_US + 9_000)
        for outside_us in (START_US + 9_001, START_US + 999):
            with pytest.raises(PySparkException, match=r"not known: the lake knows it from 2023-.* up to 2023-.* UTC"):
                spark.sql(f"select * from {NAME}.retained_as_of(timestamp_micros({outside_us}))").collect()
    finally:
        say_all_is_known(lake, made)


@pytest.mark.newest_spark
def test_without_a_report_of_the_pipeline_the_rows_say_how_far_they_are(
    spark: SparkSession, registered: tuple[Lake, Recorder]
) -> None:
    lake, made = registered
    lake.files.remove(PROGRESS_FILE)
    try:
        assert register_tables(spark, lake, NAME) == []
        (bounds,) = spark.sql(f"select unix_micros(since), unix_micros(until) from {NAME}.retained_known").collect()
        assert tuple(bounds) == (START_US + 2_000, made.now_us - 1)  # another record may have the same timestamp
    finally:
        say_all_is_known(lake, made)


def test_a_table_of_an_earlier_version_gets_its_comments(spark: SparkSession, tmp_path: Path) -> None:
    lake = new_lake(spark, tmp_path)
    columns = StructType.fromJson(struct_json(CLIENTS.arrow()))
    spark.createDataFrame([], columns).write.format("delta").save(lake.table("clients"))
    other = SchemaName("spark_catalog", "earlier")
    try:
        assert register_tables(spark, lake, other) == []
        assert all(field.metadata["comment"] for field in spark.table(f"{other}.clients").schema)
    finally:
        spark.sql(f"drop schema {other} cascade")


def test_what_a_catalog_refuses_is_a_sentence_each(
    spark: SparkSession, registered: tuple[Lake, Recorder], tmp_path: Path
) -> None:
    (said,) = register_tables(spark, registered[0], SchemaName("nowhere", "x"))
    assert said.startswith("the catalog has refused the schema `nowhere`.`x`: ") and "\n" not in said
    other = new_lake(spark, tmp_path)
    create_table(spark, other, replace(CLIENTS, name="gaps"))
    (said,) = register_tables(spark, other, NAME)
    assert said.startswith(f"the catalog has refused the table gaps in {NAME}: it is there already, and lies in ")

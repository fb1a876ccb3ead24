"""`retained` and `retained_closed`: equal to a model at every instant, however the log is cut into batches."""

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from embermq.history.directory import DirectoryLog
from embermq.instants import EPOCH
from embermq.lake.as_of import retained_as_of as retained_as_of_local
from embermq.lake.delta import applied_offset
from embermq.lake.duck import open_tables
from embermq.lake.errors import LakeError, NotKnown
from embermq.lake.lake import Lake
from embermq.lake.positions import Positions
from embermq.protocol.mqtt.message_fields import FieldValue, message_properties
from embermq.protocol.topics import matches
from embermq.spark.jobs import retained
from embermq.spark.jobs.preparation import prepare_job
from embermq.spark.lake.tables import create_table, read_table
from embermq.spark.lake.transactions import append_once
from embermq.spark.queries.as_of import create_history_view, retained_as_of, retained_known
from support.lakes import feed, job_named, new_lake, records, retained_of, rows
from support.recorded import START_US, Recorder

Recorders = Callable[..., Recorder]


def random_log(made: Recorder, seed: int, count: int, topics: int = 12) -> Recorder:
    source = random.Random(seed)
    for _ in range(count):
        topic = f"plant/{source.randrange(3)}/{source.randrange(topics)}" if source.random() < 0.9 else "$ops/x"
        step_us = source.choice([0, 1, 1000])  # equal timestamps too: one turn of the server gives many
        choice = source.random()
        if choice < 0.1:
            made.remove_retained(topic)
        elif choice < 0.25:
            made.publish(topic, b"", retain=True, step_us=step_us)
        else:
            payload = b"%d" % source.randrange(1000)
            made.publish(topic, payload, qos=source.randrange(3), retain=choice < 0.8, step_us=step_us)
    return made.flush()


def as_of(spark: SparkSession, lake: Lake, at_us: int, topic_filter: str) -> dict[str, tuple[bytes, int, int]]:
    return retained_of(retained_as_of(spark, lake, EPOCH + timedelta(microseconds=at_us), topic_filter))


def test_tables_equal_the_model_at_many_instants(spark: SparkSession, recorder: Recorders, tmp_path: Path) -> None:
    made = random_log(recorder(), 3, 400)
    job = job_named("retained")
    lake = new_lake(spark, tmp_path / "lake", job)
    feed(spark, lake, made.data, job, [1, 130, 133, 401])
    assert retained_of(read_table(spark, lake, "retained")) == made.retained()
    history = read_table(spark, lake, "retained_closed").count() + len(made.retained())
    assert history == sum(1 for event in made.retained_events if event[3] is not None)
    source = random.Random(5)
    # One table of instants answers many questions with one query; the function is then held to it for a few.
    create_history_view(spark, lake)
    instants_us = sorted(
        {START_US, made.now_us, *(source.choice(made.published)[1] + source.choice([-1, 0]) for _ in range(60))}
    )
    spark.createDataFrame([(at,) for at in instants_us], "at long").createOrReplaceTempView("instants")
    found = spark.sql(
        "select at, topic, payload, qos, offset from instants join retained_history on unix_micros(valid_from) <= at "
        "and (valid_to is null or unix_micros(valid_to) > at)"
    )
    answers: dict[int, dict[str, tuple[bytes, int, int]]] = {at: {} for at in instants_us}
    for row in found.collect():
        assert row["topic"] not in answers[row["at"]]
        answers[row["at"]][row["topic"]] = (bytes(row["payload"]), row["qos"], row["offset"])
    assert answers == {at: made.retained(at) for at in instants_us}
    for at_us, topic_filter in [(instants_us[20], "#"), (instants_us[40], "plant/+/3"), (made.now_us, "$ops/#")]:
        expected = {name: value for name, value in made.retained(at_us).items() if matches(topic_filter, name)}
        assert as_of(spark, lake, at_us, topic_filter) == expected


def test_replayed_and_recut_batches_change_nothing(spark: SparkSession, recorder: Recorders, tmp_path: Path) -> None:
    made = random_log(recorder(), 9, 200)
    job = job_named("retained")
    lake = new_lake(spark, tmp_path / "lake", job)
    feed(spark, lake, made.data, job, [1, 120])
    closed = read_table(spark, lake, "retained_closed").count()
    feed(spark, lake, made.data, job, [1, 120])
    assert read_table(spark, lake, "retained_closed").count() == closed
    # As after a lost checkpoint: from the beginning, cut in other places.
    feed(spark, lake, made.data, job, [1, 160, 201])
    assert retained_of(read_table(spark, lake, "retained")) == made.retained()
    assert read_table(spark, lake, "retained_closed").count() + len(made.retained()) == sum(
        1 for event in made.retained_events if event[3] is not None
    )


def test_a_crash_between_the_two_commits_is_not_seen(spark: SparkSession, recorder: Recorders, tmp_path: Path) -> None:
    made = random_log(recorder(), 13, 200)
    job = job_named("retained")
    lake = new_lake(spark, tmp_path / "lake", job)
    feed(spark, lake, made.data, job, [1, 100])
    before_us = made.published[0][1] + 40_000
    events = retained.with_successors(retained.retained_events(records(spark, made.data, job, 100, 201)))
    last = events.agg(F.max("offset")).collect()[0][0]
    append_once(
        retained.closed_by(events, read_table(spark, lake, "retained")), lake, "retained_closed", retained.NAME, last
    )
    assert applied_offset(lake, "retained_closed", retained.NAME) == last
    assert retained_known(spark, lake).next_offset == 100
    with pytest.raises(NotKnown, match="the lake has read the log up to"):
        as_of(spark, lake, made.now_us, "#")
    # What came before the crash at the very instant of the next record is not known either.
    newest_us = retained_known(spark, lake).until_us
    answer = as_of(spark, lake, newest_us, "#") | as_of(spark, lake, newest_us, "$ops/#")
    assert answer == made.retained(newest_us)
    answer = retained_of(retained_as_of(spark, lake, "now"))
    assert answer == {name: kept for name, kept in made.retained(newest_us).items() if not name.startswith("$")}
    feed(spark, lake, made.data, job, [100, 201])
    answer = as_of(spark, lake, made.now_us, "#") | as_of(spark, lake, made.now_us, "$ops/#")
    assert answer == made.retained()
    assert as_of(spark, lake, before_us, "plant/#") == {
        name: value for name, value in made.retained(before_us).items() if name.startswith("plant/")
    }


def test_a_table_that_lost_its_pair_is_refused(spark: SparkSession, recorder: Recorders, tmp_path: Path) -> None:
    made = random_log(recorder(), 1, 20)
    job = job_named("retained")
    lake = new_lake(spark, tmp_path / "lake", job)
    append_once(read_table(spark, lake, "retained"), lake, "retained", retained.NAME, 9)
    with pytest.raises(LakeError, match="retained_closed has applied the log up to -1, retained up to 9: delete both"):
        feed(spark, lake, made.data, job, [1, 21])


def test_a_lake_of_an_earlier_version_gets_the_properties_of_new_messages(
    spark: SparkSession, recorder: Recorders, tmp_path: Path
) -> None:
    fields: dict[str, FieldValue] = {
        "expiry": 60,
        "payload_format": 1,
        "content_type": "text/plain",
        "response_topic": "answers",
        "correlation_data": b"\x00\x01",
        "user_properties": [("unit", "C"), ("unit", "F")],
    }
    nothing = dict.fromkeys(("client_id", *fields))
    made = recorder()
    made.publish("t/old", b"1", 1, True)
    for payload in (b"2", b"3"):
        made.publish("t/new", payload, 1, True, properties=message_properties(fields))
    made.flush()
    job = job_named("retained")
    lake = new_lake(spark, tmp_path / "lake")
    earlier = ("topic", "payload", "qos", "offset", "valid_from", "valid_to", "offset_to")
    for table in job.tables:
        columns = tuple(column for column in table.columns if column.name in earlier)
        create_table(spark, lake, replace(table, columns=columns))
    old = records(spark, made.data, job, 1, 2).select("topic", "payload", "qos", "offset", "timestamp")
    append_once(old.withColumnRenamed("timestamp", "valid_from"), lake, "retained", retained.NAME, 1)
    append_once(read_table(spark, lake, "retained_closed"), lake, "retained_closed", retained.NAME, 1)
    positions = Positions(lake, DirectoryLog(made.data))
    positions.save({"retained": 2}, {})
    before = {
        "topic": "t/old",
        "payload": b"1",
        "qos": 1,
        "offset": 1,
        "valid_from": instant(START_US + 1000),
        **nothing,
    }
    assert answers(spark, lake) == [before]  # queries do not wait for the pipeline
    assert prepare_job(spark, job, lake, positions) == 2
    assert answers(spark, lake) == [before]
    feed(spark, lake, made.data, job, [2, 4])
    shown = [{"name": name, "value": value} for name, value in (("unit", "C"), ("unit", "F"))]
    newest = {"topic": "t/new", "payload": b"3", "qos": 1, "offset": 3, "valid_from": instant(START_US + 3000)}
    assert answers(spark, lake) == [{**newest, "client_id": "c", **fields, "user_properties": shown}, before]
    assert [row["content_type"] for row in rows(spark, lake, "retained_closed")] == ["text/plain"]


def answers(spark: SparkSession, lake: Lake) -> list[dict[str, object]]:
    """The newest retained set, which both engines answer alike."""
    asked = retained_as_of(spark, lake, "now").orderBy("topic").collect()
    found = [row.asDict(recursive=True) for row in asked]
    with open_tables(lake) as tables:
        local = retained_as_of_local(tables, tables.retained_known().until_us).to_pylist()
    assert [list(row) for row in local] == [list(row) for row in found]
    for row in found:
        row |= {name: bytes(value) for name, value in row.items() if isinstance(value, bytearray)}
        row["valid_from"] = row["valid_from"].astimezone(UTC)
    assert local == found
    return found


def instant(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)

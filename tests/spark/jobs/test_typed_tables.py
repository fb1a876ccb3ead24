"""Typed tables: rows, rejects, and wrong settings."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from embermq.spark.errors import PipelineError
from embermq.spark.jobs.catalog import JobSettings
from embermq.spark.jobs.typed_tables import TypedTable, read_typed_tables
from support.lakes import feed, job_named, new_lake, rows
from support.recorded import Recorder

Recorders = Callable[..., Recorder]


@pytest.mark.long
def test_payloads_that_fit_are_typed_and_the_others_are_kept(
    spark: SparkSession, recorder: Recorders, tmp_path: Path
) -> None:
    made = recorder()
    numbers = [b"1", b"-2.5e3", b" 7 ", b"", b"abc", b"\xff\xfe", b"1 2", b"NaN"]
    for payload in numbers:
        made.publish("air/x/pm25", payload)
    made.publish("air/x/pm25", b"", retain=True)  # a clear is no value
    documents = [b'{"state":"on","load":1.5}', b'{"load":2}', b"{}", b'{"load":"high"}', b"{", b"null", b"[1]", b"\xff"]
    for payload in documents:
        made.publish("plant/7/status", payload)
    made.flush()
    air = TypedTable("air", "air/+/+", "number", levels=("", "station", "measure"))
    status = TypedTable("status", "plant/+/status", "json", "state string, load double")
    settings = JobSettings(typed_tables=(air, status))
    jobs = [job_named("air", settings), job_named("status", settings)]
    lake = new_lake(spark, tmp_path / "lake", *jobs)
    feed(spark, lake, made.data, jobs[0], [1, 4, 18])
    feed(spark, lake, made.data, jobs[1], [1, 18])
    feed(spark, lake, made.data, jobs[1], [1, 18])
    typed = sorted(rows(spark, lake, "air"), key=lambda row: int(row["offset"]))
    assert [(row["offset"], row["station"], row["measure"]) for row in typed[:3]] == [
        (n, "x", "pm25") for n in (1, 2, 3)
    ]
    assert [row["value"] for row in typed[:3]] == [1.0, -2500.0, 7.0]
    rejected = {(bytes(row["payload"]), row["reason"]) for row in rows(spark, lake, "air_rejects")}
    assert {(b"", "not a number"), (b"abc", "not a number"), (b"\xff\xfe", "not UTF-8")} <= rejected
    assert len(typed) + len(rejected) == len(numbers)
    typed = sorted(rows(spark, lake, "status"), key=lambda row: int(row["offset"]))
    assert [(row["state"], row["load"]) for row in typed] == [("on", 1.5), (None, 2.0), (None, None)]
    rejects = rows(spark, lake, "status_rejects")
    assert ("load", "expected a number, found a string") in [(row["field"], row["reason"]) for row in rejects]
    assert sorted(bytes(row["payload"]) for row in rejects) == sorted(documents[3:])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('name = "Messages"\nfilter = "a"\nformat = "number"', "name: 'Messages': expected small letters"),
        ('name = "messages"\nfilter = "a"\nformat = "number"', "name: 'messages': expected"),
        ('name = "x"\nfilter = "a#"\nformat = "number"', "filter: 'a#': expected an MQTT topic filter"),
        ('name = "x"\nfilter = "a"\nformat = "xml"', "format: 'xml': expected one of json, number"),
        ('name = "x"\nfilter = "a"\nformat = "json"', "schema: '': expected columns"),
        ('name = "x"\nfilter = "a"\nformat = "json"\nschema = "a nosuchtype"', "schema: 'a nosuchtype'"),
        ('name = "x"\nfilter = "a"\nformat = "number"\nlevels = ["topic"]', "the column 'topic' is used twice"),
        ('name = "x"\nfilter = "a"\nformat = "number"\nsort = 1', "sort: expected one of name, filter"),
    ],
)
def test_a_bad_typed_table_names_the_key(spark: SparkSession, tmp_path: Path, text: str, said: str) -> None:
    config = tmp_path / "ember.toml"
    config.write_text(f"[[pipeline.tables]]\n{text}\n")
    with pytest.raises(PipelineError) as caught:
        read_typed_tables(config)
    assert said in str(caught.value) and "pipeline.tables[0]" in str(caught.value)


def test_typed_tables_are_read_from_the_configuration(spark: SparkSession, tmp_path: Path) -> None:
    config = tmp_path / "ember.toml"
    config.write_text('[server]\nx = 1\n[[pipeline.tables]]\nname = "air"\nfilter = "air/+"\nformat = "number"\n')
    assert read_typed_tables(config) == (TypedTable("air", "air/+", "number"),)
    assert read_typed_tables(None) == ()

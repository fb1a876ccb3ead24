"""`topic_stats`, `clients` and typed payloads, each against plain Python."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from embermq.spark.errors import PipelineError
from embermq.spark.jobs.catalog import JobSettings
from embermq.spark.jobs.typed_tables import TypedTable, read_typed_tables
from embermq.spark.queries.gaps import gaps
from embermq.store.log.records import SESSION, SESSION_EXPIRY, SESSION_SEQUENCE, Kind
from support.lakes import feed, job_named, new_lake, rows
from support.recorded import Recorder

Recorders = Callable[..., Recorder]


@pytest.mark.long
def test_statistics_add_up_over_batches_that_cut_windows(
    spark: SparkSession, recorder: Recorders, tmp_path: Path
) -> None:
    made = recorder()
    for number in range(120):
        made.publish(f"t/{number % 5}", b"x" * (number % 9), step_us=7_000_000 if number % 40 else 900_000_000)
    made.flush()
    job = job_named("topic_stats", JobSettings(stats_window="1 minute"))
    lake = new_lake(spark, tmp_path / "lake", job)
    feed(spark, lake, made.data, job, [1, 39, 121])
    feed(spark, lake, made.data, job, [30, 121])
    expected: dict[tuple[str, int], list[int]] = {}
    for _, at_us, topic, payload, *_ in made.published:
        window = expected.setdefault((topic, at_us // 60_000_000), [0, 0, at_us, at_us, 0])
        window[4] = max(window[4], at_us - window[3])
        window[0], window[1], window[3] = window[0] + 1, window[1] + len(payload), at_us
    found = {}
    for row in rows(spark, lake, "topic_stats"):
        first, last = (int(row[name].timestamp() * 1e6 + 0.5) for name in ("first_seen", "last_seen"))
        key = (row["topic"], int(row["window_start"].timestamp()) // 60)
        assert key not in found
        found[key] = [row["messages"], row["bytes"], first, last, row["longest_silence_us"]]
    assert found == expected
    silences = {row["topic"]: row["silence_us"] for row in gaps(spark, lake).collect()}
    for topic in {topic for topic, _ in expected}:
        times = [at_us for _, at_us, name, *_ in made.published if name == topic]
        assert silences[topic] == max(after - before for before, after in pairwise(times))


@pytest.mark.long
def test_clients_come_and_go_in_the_table(spark: SparkSession, recorder: Recorders, tmp_path: Path) -> None:
    made = recorder()
    made.record(Kind.CONNECTED, 0, "", b"MQTT 3.1.1\n127.0.0.1:9\nan\nna\npersistent", "c1")
    opened = made.record(Kind.SESSION_OPENED, 0, "", SESSION_EXPIRY.pack(0, 3600) + b"anna", "c1")
    made.publish("a", b"not a client's event")
    made.record(Kind.SUBSCRIBED, 0b101_0110, "a/#", SESSION.pack(opened), "c1")
    made.record(Kind.UNSUBSCRIBED, 0, "a/#", SESSION.pack(opened), "c1")
    made.record(Kind.DISCONNECTED, 0, "", SESSION_SEQUENCE.pack(opened, 4) + b"keep alive", "c1")
    made.record(Kind.SESSION_ENDED, 0, "", SESSION.pack(opened), "c1")
    made.flush()
    job = job_named("clients")
    lake = new_lake(spark, tmp_path / "lake", job)
    feed(spark, lake, made.data, job, [1, 5])
    feed(spark, lake, made.data, job, [1, 8])
    found = sorted(rows(spark, lake, "clients"), key=lambda row: int(row["offset"]))
    said = [{key: value for key, value in row.items() if value is not None} for row in found]
    for row in said:
        assert row.pop("client_id") == "c1" and row.pop("timestamp") is not None
    session = {"session_id": opened}
    assert said == [
        {
            "offset": 1,
            "event": "connected",
            "protocol": "MQTT 3.1.1",
            "address": "127.0.0.1:9",
            "user_name": "an\nna",  # a user name may hold a line end
            "persistent": True,
        },
        {"offset": 2, "event": "session_opened", **session, "session_expiry_s": 3600, "user_name": "anna"},
        {
            "offset": 4,
            "event": "subscribed",
            **session,
            "topic_filter": "a/#",
            "qos": 2,
            "no_local": True,
            "retain_as_published": False,
            "retain_handling": 1,
        },
        {"offset": 5, "event": "unsubscribed", **session, "topic_filter": "a/#"},
        {"offset": 6, "event": "disconnected", **session, "reason": "keep alive"},
        {"offset": 7, "event": "session_ended", **session},
    ]


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

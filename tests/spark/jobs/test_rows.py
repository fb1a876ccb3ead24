"""What each job makes of records, on a few rows and without a table."""

from datetime import timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from embermq.instants import EPOCH
from embermq.lake.payloads.reader import payload_reader
from embermq.lake.schema import LOG_ARROW
from embermq.lake.typed_tables import TypedTable
from embermq.spark.jobs.clients import client_events
from embermq.spark.jobs.retained import closed_by, last_events, retained_events, with_successors
from embermq.spark.jobs.topic_stats import batch_stats
from embermq.spark.jobs.typed_tables import read_typed, split_typed
from embermq.store.records import SESSION_EXPIRY

START = EPOCH + timedelta(days=20_000)


def records(spark: SparkSession, *rows: tuple[str, bytes, dict[str, Any]]) -> DataFrame:
    """Messages, a second apart, by topic and payload, or other records by what is different."""
    common = {"kind": "publish", "qos": 1, "retain": True, "dup": False, "flags": 0, "client_id": "c"}
    found = [
        {"offset": at, "timestamp": START + timedelta(seconds=at), "topic": topic, "payload": payload}
        | {**common, **different}
        for at, (topic, payload, different) in enumerate(rows, 1)
    ]
    return spark.createDataFrame(pa.Table.from_pylist(found, LOG_ARROW))


def chosen(frame: DataFrame, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.select(*names).orderBy(*names).collect()]


def test_a_message_is_retained_until_the_next_one_of_its_topic_or_its_removal(spark: SparkSession) -> None:
    log = records(
        spark,
        ("a", b"1", {}),
        ("b", b"1", {}),
        ("a", b"2", {}),
        ("a", b"live", {"retain": False}),
        ("b", b"", {}),  # clears
        ("c", b"1", {}),
        ("c", b"", {"kind": "retained_removed", "retain": False}),
        ("d", b"1", {}),
    )
    events = with_successors(retained_events(log))
    began = chosen(events, "offset", "offset_to", "cleared", "is_first")
    assert began == [
        (1, 3, False, True),
        (2, 5, False, True),
        (3, None, False, False),
        (5, None, True, False),
        (6, 7, False, True),
        (7, None, True, False),
        (8, None, False, True),
    ]
    assert chosen(last_events(events).where("not cleared"), "topic", "offset") == [("a", 3), ("d", 8)]
    # What was retained before is closed by the first event of its topic.
    current = events.where("offset = 8").selectExpr("'a' topic", *events.columns[1:]).drop("cleared", "is_first")
    closed = closed_by(events, current.selectExpr(*[n if n != "offset" else "0L offset" for n in current.columns]))
    assert chosen(closed, "offset", "offset_to", "topic") == [(0, 1, "a"), (1, 3, "a"), (2, 5, "b"), (6, 7, "c")]


def test_statistics_have_a_row_for_each_topic_and_window(spark: SparkSession) -> None:
    log = records(spark, ("a", b"xx", {}), ("a", b"y", {}), ("b", b"", {}), ("a", b"z", {}))
    names = ("topic", "messages", "bytes", "longest_silence_us")
    assert chosen(batch_stats(log, "1 hour"), *names) == [("a", 3, 4, 2_000_000), ("b", 1, 0, 0)]
    assert chosen(batch_stats(log, "1 second"), *names) == [
        ("a", 1, 1, 0),
        ("a", 1, 1, 0),
        ("a", 1, 2, 0),
        ("b", 1, 0, 0),
    ]


def test_events_of_clients_have_their_payloads_as_columns(spark: SparkSession) -> None:
    connected = b"MQTT 5\n127.0.0.1:9\n\nclean"
    log = records(
        spark,
        ("", connected, {"kind": "connected"}),
        ("", SESSION_EXPIRY.pack(0, 60), {"kind": "session_opened"}),
        ("a/#", SESSION_EXPIRY.pack(2, 0)[:8], {"kind": "subscribed", "flags": 0b10_0001}),
    )
    names = ("offset", "event", "protocol", "persistent", "user_name", "session_id", "session_expiry_s", "qos")
    assert chosen(client_events(log), *names, "topic_filter", "retain_as_published") == [
        (1, "connected", "MQTT 5", False, None, None, None, None, None, None),
        (2, "session_opened", None, None, None, 2, 60, None, None, None),
        (3, "subscribed", None, None, None, 2, None, 1, "a/#", False),
    ]


def test_payloads_that_do_not_fit_are_rejects_with_a_reason(spark: SparkSession) -> None:
    table = TypedTable(name="air", topic_filter="air/+", format="number", levels=("", "place"))
    log = records(spark, ("air/x", b" 7 ", {}), ("air/y", b"warm", {}), ("air/y", b"\xff", {}), ("air/y", b"", {}))
    fitting, rejects = split_typed(read_typed(log, table, payload_reader(table)), table)
    assert chosen(fitting, "offset", "place", "value") == [(1, "x", 7.0)]
    assert chosen(rejects, "offset", "field", "reason") == [(2, "value", "not a number"), (3, None, "not UTF-8")]

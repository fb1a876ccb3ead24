"""`clients` against plain Python."""

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from embermq.store.records import SESSION, SESSION_EXPIRY, SESSION_SEQUENCE, WILL
from embermq.store.rows import Kind
from support.lakes import feed, job_named, new_lake, rows
from support.recorded import Recorder

Recorders = Callable[..., Recorder]


def test_clients_come_and_go_in_the_table(spark: SparkSession, recorder: Recorders, tmp_path: Path) -> None:
    made = recorder()
    made.record(Kind.CONNECTED, 0, "", b"MQTT 3.1.1\n127.0.0.1:9\nan\nna\npersistent", "c1")
    opened = made.record(Kind.SESSION_OPENED, 0, "", SESSION_EXPIRY.pack(0, 3600) + b"anna", "c1")
    made.publish("a", b"not a client's event")
    made.record(Kind.SUBSCRIBED, 0b101_0110, "a/#", SESSION.pack(opened), "c1")
    made.record(Kind.UNSUBSCRIBED, 0, "a/#", SESSION.pack(opened), "c1")
    made.record(Kind.WILL_SET, 1, "gone", WILL.pack(opened, 5, 4) + b"anna" + b"bye", "c1")
    made.record(Kind.WILL_CLEARED, 0, "", b"", "c1")
    made.record(Kind.SESSION_EXPIRY_CHANGED, 0, "", SESSION_EXPIRY.pack(opened, 60), "c1")
    made.record(Kind.DISCONNECTED, 0, "", SESSION_SEQUENCE.pack(opened, 4) + b"keep alive", "c1")
    made.record(Kind.SESSION_ENDED, 0, "", SESSION.pack(opened), "c1")
    made.flush()
    job = job_named("clients")
    lake = new_lake(spark, tmp_path / "lake", job)
    feed(spark, lake, made.data, job, [1, 5])
    feed(spark, lake, made.data, job, [1, 11])
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
        {"offset": 6, "event": "will_set", **session},
        {"offset": 7, "event": "will_cleared"},
        {"offset": 8, "event": "session_expiry_changed", **session, "session_expiry_s": 60},
        {"offset": 9, "event": "disconnected", **session, "reason": "keep alive"},
        {"offset": 10, "event": "session_ended", **session},
    ]

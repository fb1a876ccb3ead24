"""`ember sql` and Spark give the same answers to the same questions about one log."""

from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from embermq.spark.jobs.clients import CLIENTS_JOB, client_events
from embermq.sql.session import SqlSession, open_session
from embermq.store.records import SESSION, SESSION_EXPIRY, SESSION_SEQUENCE
from embermq.store.rows import RETAIN_FLAG, Group, Kind
from support.log_samples import NOW_US, open_log

PROPERTIES = b"\x02\x00\x00\x00\x3c\x03\x00\x04text\x26\x00\x01k\x00\x01v\x26\x00\x01k\x00\x02v2"
QUERIES = [
    "select topic, count(*), min(timestamp), max(octet_length(payload)), sum(qos) from messages group by topic",
    "select count(*), count(expiry), sum(expiry), count(content_type) from messages where topic = 'plant/3'",
    "select client_id, retain, dup, count(*) from messages group by client_id, retain, dup",
    "select topic, count(*) from messages where timestamp >= timestamp '2023-11-14 22:20:00+00:00'"
    " and timestamp < timestamp '2023-11-14 22:25:00+00:00' group by topic",
    "select count(*) from messages where topic in ('plant/1', 'größe') and qos = 1",
    "select count(*) from messages where mqtt_matches('plant/+', topic)",
    "select content_type, user_properties, correlation_data from messages where content_type is not null limit 5",
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("data")
    log = open_log(directory / "log", segment_bytes=20_000)
    random = Random(11)
    for number in range(300):
        group = Group(log.next_offset)
        for row in range(4):
            topic = random.choice([*(f"plant/{n}" for n in range(6)), "größe", "$SYS/x"]).encode()
            flags = random.choice([0, 1, 2, 1 | RETAIN_FLAG, 8 | 1])
            properties = PROPERTIES if random.random() < 0.2 else b""
            at_us = NOW_US + (number * 4 + row) * 1_000_000
            group.append(at_us, Kind.PUBLISH, flags, topic, random.randbytes(row), b"c%d" % row, properties)
        group.append(at_us, Kind.CONNECTED, 0, b"", b"MQTT 5\n10.0.0.1\nann\nb\nclean", b"c")
        group.append(at_us, Kind.SESSION_OPENED, 0, b"", SESSION_EXPIRY.pack(0, 60) + b"ann", b"c")
        group.append(at_us, Kind.SUBSCRIBED, 0b101_1101, b"plant/#", SESSION.pack(number), b"c")
        group.append(at_us, Kind.DISCONNECTED, 0, b"", SESSION_SEQUENCE.pack(number, 3) + b"keep alive", b"c")
        log.append(group, at_us)
    log.close()
    return directory


def answer(session: SqlSession, sql: str) -> list[list[object]]:
    return [list(row) for row in session.rows(sql)[1]]


def plain(value: object) -> object:
    """A value as both engines have it: Spark gives local times without a zone."""
    if hasattr(value, "timestamp"):
        return value.timestamp()
    if hasattr(value, "asDict"):
        return value.asDict()
    if isinstance(value, list):
        return [plain(each) for each in value]
    return bytes(value) if isinstance(value, bytearray) else value


def test_both_engines_give_the_same_answers(spark: SparkSession, data: Path) -> None:
    messages = spark.read.format("embermq").option("kinds", "publish").load(str(data))
    messages.createOrReplaceTempView("messages")
    kinds = ",".join(CLIENTS_JOB.kinds)
    records = spark.read.format("embermq").schema(
        "offset long, timestamp timestamp, kind string, flags byte, topic string, payload binary, client_id string"
    )
    client_events(records.option("kinds", kinds).load(str(data))).createOrReplaceTempView("clients")
    with open_session(data / "log", lambda as_of_us: iter(())) as session:
        for query in [*QUERIES, "select * from clients order by `offset` limit 40"]:
            expected = [[plain(value) for value in row] for row in spark.sql(query).collect()]
            found = [[plain(value) for value in row] for row in answer(session, query.replace("`", '"'))]
            assert sorted(found, key=repr) == sorted(expected, key=repr), query
            assert found

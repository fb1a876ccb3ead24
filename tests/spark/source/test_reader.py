"""The source: ranges, replay, bad logs. Most of it is plain Python and needs no Spark."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from embermq.instants import EPOCH
from embermq.spark.data_source import EmberDataSource
from embermq.spark.errors import OptionError
from embermq.spark.source.columns import SOURCE_SCHEMA, source_schema
from embermq.spark.source.reader import OffsetRange, split
from embermq.store.log.errors import LogCorrupt, NewerFormat, NotALog
from embermq.store.rows import DUP_FLAG, Kind
from support.recorded import Recorder

Recorders = Callable[..., Recorder]


def source(data: Path, **options: Any) -> EmberDataSource:
    return EmberDataSource({"path": str(data)} | {name: str(value) for name, value in options.items()})


def read(data: Path, columns: str | None = None, **options: Any) -> list[dict[str, Any]]:
    """A whole batch read, without Spark."""
    made = source(data, **options)
    schema = made.schema() if columns is None else StructType([made.schema()[name] for name in columns.split(",")])
    reader = made.reader(schema)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def filled(recorder: Recorders, count: int = 100, **options: int) -> Recorder:
    made = recorder(**options)
    for number in range(count):
        made.publish(f"a/{number % 7}", b"%d" % number, qos=number % 3, retain=number % 2 == 0)
    return made.flush()


def test_every_column_says_what_the_record_says(recorder: Recorders) -> None:
    made = recorder()
    made.record(Kind.PUBLISH, 2 | DUP_FLAG, "a/é", b"\x00\xff", "client")
    made.record(Kind.RETAINED_REMOVED, 0, "a/b", b"expired", "")
    made.record(Kind.SUBSCRIBED, 1, "a/#", b"\0" * 8, "client")
    made.flush()
    publish, removed, subscribed = read(made.data)
    assert publish["offset"] == 1 and publish["kind"] == "publish"
    assert (publish["timestamp"] - EPOCH).total_seconds() * 1e6 == made.now_us - 2000
    assert (publish["topic"], publish["payload"], publish["client_id"]) == ("a/é", b"\x00\xff", "client")
    assert (publish["qos"], publish["retain"], publish["dup"]) == (2, False, True)
    assert publish["expiry"] is publish["content_type"] is publish["user_properties"] is None
    assert (removed["kind"], removed["topic"], removed["qos"], removed["retain"]) == (
        "retained_removed",
        "a/b",
        None,
        None,
    )
    assert (subscribed["kind"], subscribed["qos"], subscribed["dup"]) == ("subscribed", 1, None)


def test_properties_become_columns(recorder: Recorders) -> None:
    made = recorder()
    properties = bytes.fromhex(
        "01 01  02 0000003c  03 0004 6a736f6e  08 0003 722f74  09 0002 0102  26 0001 61 0001 62  26 0001 61 0001 63"
    )
    made.record(Kind.PUBLISH, 0, "a", b"x", "c", properties)
    made.publish("b", b"y")
    made.flush()
    with_properties, without = read(made.data)
    assert (with_properties["expiry"], with_properties["content_type"]) == (60, "json")
    assert (with_properties["response_topic"], with_properties["correlation_data"]) == ("r/t", b"\x01\x02")
    assert with_properties["user_properties"] == [{"name": "a", "value": "b"}, {"name": "a", "value": "c"}]
    assert without["expiry"] is None and without["user_properties"] is None


def test_a_part_of_the_columns_can_be_asked_for(recorder: Recorders) -> None:
    made = filled(recorder, 10)
    assert read(made.data, "topic,offset")[3] == {"topic": "a/3", "offset": 4}
    wrong = StructType([SOURCE_SCHEMA["offset"]]).add("nonsense", "string")
    with pytest.raises(OptionError, match="nonsense"):
        source(made.data).reader(wrong)


def test_what_is_never_null_is_marked_and_nothing_else_may_be(recorder: Recorders) -> None:
    made = filled(recorder, 10)
    assert [field.name for field in source(made.data).schema().fields if not field.nullable] == ["offset", "timestamp"]
    of_messages = source(made.data, kinds="publish")
    known = [field.name for field in of_messages.schema().fields if not field.nullable]
    assert known == ["offset", "timestamp", "topic", "payload", "qos", "retain", "dup", "client_id"]
    strict = StructType([of_messages.schema()["topic"]])
    (part,) = of_messages.reader(strict).partitions()
    (batch,) = of_messages.reader(strict).read(part)
    assert isinstance(batch, pa.RecordBatch)
    assert not batch.schema.field("topic").nullable and batch["topic"].null_count == 0
    with pytest.raises(OptionError, match="topic NOT NULL"):
        source(made.data).reader(strict)


def test_filter_and_kinds_are_applied_while_reading(recorder: Recorders) -> None:
    made = filled(recorder, 70)
    made.record(Kind.SUBSCRIBED, 1, "a/3", b"\0" * 8, "client")
    made.remove_retained("a/3")
    made.flush()
    chosen = read(made.data, "topic,kind", filter="a/3")
    assert [row["topic"] for row in chosen] == ["a/3"] * 11
    assert [row["kind"] for row in chosen] == ["publish"] * 10 + ["retained_removed"]
    assert len(read(made.data, "offset", filter="+/3", kinds="publish")) == 10
    assert [row["kind"] for row in read(made.data, "kind", kinds="subscribed")] == ["subscribed"]
    assert read(made.data, filter="b/#") == []


def test_a_range_begins_and_ends_where_it_is_told(recorder: Recorders) -> None:
    made = filled(recorder, 100)
    offsets = [row["offset"] for row in read(made.data, "offset", startingOffsets=11, endingOffsets=21)]
    assert offsets == list(range(11, 21))
    moment = EPOCH.fromtimestamp(made.published[49][1] / 1e6, EPOCH.tzinfo)
    assert read(made.data, "offset", startingTimestamp=moment.isoformat())[0]["offset"] == 50
    assert read(made.data, "offset", startingOffsets="latest") == []
    with pytest.raises(OptionError, match=r"endingOffsets.*at most 101"):
        read(made.data, endingOffsets=102)
    with pytest.raises(OptionError, match=r"startingOffsets.*at most 101"):
        read(made.data, startingOffsets=500)


@pytest.mark.parametrize(
    ("start", "end", "pieces"), [(5, 5, 0), (0, 1, 1), (0, 40_000, 2), (7, 100_007, 4), (0, 5_000_000, 5)]
)
def test_ranges_are_cut_evenly_and_completely(start: int, end: int, pieces: int) -> None:
    parts = split([(start, end)], 4)
    assert len(parts) == pieces
    assert [offset for part in parts for offset in (part.start, part.end)] == sorted(
        [start, *[part.end for part in parts[:-1]] * 2, end] if parts else []
    )


def test_a_missing_directory_and_one_without_a_log_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotALog, match=r"nowhere.*no such directory"):
        read(tmp_path / "nowhere")
    (tmp_path / "log").mkdir()
    with pytest.raises(NotALog, match="is not an EmberMQ log"):
        read(tmp_path)


def test_a_newer_format_is_refused(recorder: Recorders) -> None:
    made = filled(recorder, 10)
    made.close()
    (segment,) = (made.data / "log").glob("*.log")
    data = bytearray(segment.read_bytes())
    data[12:16] = (99).to_bytes(4, "little")
    from zlib import crc32

    data[8:12] = crc32(bytes(data[12:32])).to_bytes(4, "little")
    segment.write_bytes(data)
    with pytest.raises(NewerFormat, match="log format 99"):
        read(made.data)


def test_a_corrupt_block_and_a_deleted_segment_are_found(recorder: Recorders) -> None:
    made = filled(recorder, 300, segment_bytes=2_000)
    made.close()
    segments = sorted((made.data / "log").glob("*.log"))
    assert len(segments) > 3
    whole = segments[1].read_bytes()
    damaged = bytearray(whole)
    damaged[200] ^= 1
    segments[1].write_bytes(damaged)
    with pytest.raises(LogCorrupt, match=segments[1].name):
        read(made.data)
    segments[1].write_bytes(whole)
    segments[1].unlink()
    segments[1].with_suffix(".idx").unlink()
    with pytest.raises(LogCorrupt):
        read(made.data)


def test_spark_reads_what_was_recorded(spark: SparkSession, recorder: Recorders) -> None:
    made = filled(recorder, 30_000, group_records=1000)
    frame = spark.read.format("embermq").option("minPartitions", 2).load(str(made.data))
    assert frame.schema == source_schema(())
    assert frame.rdd.getNumPartitions() == 2
    totals = frame.agg(F.count("*"), F.min("offset"), F.max("offset"), F.sum(F.length("payload"))).collect()[0]
    size = sum(len(payload) for _, _, _, payload, *_ in made.published)
    assert tuple(totals) == (30_000, 1, 30_000, size)
    rows = (
        frame.where("offset in (1, 17, 30000)").orderBy("offset").select("topic", "payload", "qos", "retain").collect()
    )
    assert [(row[0], bytes(row[1]), row[2], row[3]) for row in rows] == [
        made.published[number][2:6] for number in (0, 16, 29_999)
    ]


def test_spark_names_a_bad_option(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="option 'filtre' is 'a': expected one of the options path, server"):
        spark.read.format("embermq").option("filtre", "a").load(str(tmp_path)).count()
    with pytest.raises(PySparkException, match="no such directory"):
        spark.read.format("embermq").load(str(tmp_path / "nowhere")).count()


def test_the_installed_package_registers_itself(spark: SparkSession) -> None:
    from pyspark_embermq import DefaultSource

    assert DefaultSource is EmberDataSource
    assert OffsetRange(1, 2).value == (1, 2)


def test_a_copied_log_reads_the_same(recorder: Recorders, tmp_path: Path) -> None:
    made = filled(recorder, 60)
    shutil.copytree(made.data, tmp_path / "copy")
    assert read(tmp_path / "copy") == read(made.data)

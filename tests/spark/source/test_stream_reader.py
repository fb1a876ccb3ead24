"""The source as a stream: its limits, replay, trimmed and exchanged logs. Most of it needs no Spark session."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

pytest.importorskip("pyspark.sql.streaming.datasource", reason="Spark is older than 4.2")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from embermq.lake.errors import PipelineError
from embermq.spark import data_source
from embermq.spark.source.columns import SOURCE_SCHEMA
from embermq.store.log.errors import LogTrimmed
from spark.source.test_reader import filled, read, source
from support.recorded import Recorder

Recorders = Callable[..., Recorder]


def stream_reader(data: Path, **options: Any) -> Any:
    return source(data, **options).streamReader(SOURCE_SCHEMA)


def test_replaying_a_batch_gives_the_same_rows_while_the_server_writes(recorder: Recorders) -> None:
    made = filled(recorder, 100, segment_bytes=2_000)
    reader = stream_reader(made.data, maxRecordsPerTrigger=30)
    offset = reader.initialOffset()
    seen: list[tuple[Any, Any, list[Any]]] = []
    while (end := reader.latestOffset(offset, reader.getDefaultReadLimit())) != offset:
        rows = [batch.to_pylist() for part in reader.partitions(offset, end) for batch in reader.read(part)]
        seen.append((offset, end, rows))
        offset = end
        if len(seen) == 2:
            filled_more = [made.publish("late", b"x") for _ in range(15)]
            made.flush()
    assert [end["offset"] - start["offset"] for start, end, _ in seen] == [30, 30, 30, 25]
    assert filled_more[-1] == offset["offset"] - 1
    again = stream_reader(made.data)
    for start, end, rows in seen:
        assert rows == [batch.to_pylist() for part in again.partitions(start, end) for batch in again.read(part)]
    assert list(again.partitions(offset, offset)) == []


def test_limits_and_the_end_of_now_are_obeyed(recorder: Recorders) -> None:
    made = filled(recorder, 100)
    reader = stream_reader(made.data)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadMaxRows(7))["offset"] == start["offset"] + 7
    reader.prepareForTriggerAvailableNow()
    filled_until = made.publish("late", b"x")
    made.flush()
    assert reader.latestOffset(start, ReadAllAvailable())["offset"] == filled_until
    assert reader.reportLatestOffset()["offset"] == filled_until + 1


def test_an_index_that_is_short_after_a_crash_never_sends_a_stream_back(recorder: Recorders) -> None:
    made = filled(recorder, 100)
    reader = stream_reader(made.data)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    made.close()
    (index,) = (made.data / "log").glob("*.idx")
    index.write_bytes(index.read_bytes()[:-500])
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_trimmed_offsets_fail_loudly_or_are_skipped_with_a_word(
    recorder: Recorders, caplog: pytest.LogCaptureFixture
) -> None:
    made = filled(recorder, 100, segment_bytes=1_000)
    reader = stream_reader(made.data)
    start = reader.initialOffset()
    made.log.trim(51)
    first = made.log.first_offset
    assert 1 < first <= 51
    with pytest.raises(LogTrimmed, match=f"offset 1 is no longer in the log, which now begins at offset {first}"):
        reader.latestOffset(start, ReadAllAvailable())
    with pytest.raises(LogTrimmed):
        read(made.data, startingOffsets=1)
    skipping = stream_reader(made.data, failOnDataLoss="false")
    end = skipping.latestOffset(start, ReadAllAvailable())
    rows = [
        row for part in skipping.partitions(start, end) for batch in skipping.read(part) for row in batch.to_pylist()
    ]
    assert [row["offset"] for row in rows] == list(range(first, 101))
    assert f"{first - 1} records skipped" in caplog.text
    assert read(made.data, "offset", startingOffsets=1, failOnDataLoss="false")[0]["offset"] == first


def test_a_checkpoint_of_another_log_is_refused(recorder: Recorders) -> None:
    made = filled(recorder, 50)
    offset = stream_reader(made.data).reportLatestOffset()
    other = recorder("other")
    other.now_us += 5
    for _ in range(80):
        other.publish("x", b"y")
    other.flush()
    with pytest.raises(PipelineError, match="the checkpoint belongs to another log"):
        stream_reader(other.data).latestOffset(offset, ReadAllAvailable())
    stream_reader(made.data).latestOffset(offset, ReadAllAvailable())


def test_a_stream_goes_on_from_its_checkpoint(spark: SparkSession, recorder: Recorders, tmp_path: Path) -> None:
    made = filled(recorder, 100)

    def run() -> list[int]:
        query = (
            spark.readStream.format("embermq")
            .schema("offset long")
            .option("maxRecordsPerTrigger", 40)
            .load(str(made.data))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        query.awaitTermination()
        return sorted(row[0] for row in spark.read.parquet(str(tmp_path / "out")).collect())

    assert run() == list(range(1, 101))
    made.publish("late", b"x")
    made.flush()
    assert run() == list(range(1, 102))


def test_a_spark_that_does_not_say_where_a_batch_begins_is_refused(
    recorder: Recorders, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = filled(recorder, 10)
    monkeypatch.setattr(data_source, "find_spec", lambda name: None)
    with pytest.raises(PipelineError, match=r"^a stream of the log needs Spark 4.2 or newer: "):
        stream_reader(made.data)

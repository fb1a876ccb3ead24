"""After a gap the tables are right again, and they say what is missing; also if a crash comes in between."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from embermq.history.directory import DirectoryLog
from embermq.instants import EPOCH
from embermq.lake.errors import PipelineError
from embermq.lake.lake import Lake
from embermq.protocol.mqtt.message_fields import message_properties
from embermq.spark.after_gap import BEFORE_THE_TABLE, TRIMMED, _known_until, after_gap, is_at_gap
from embermq.spark.jobs import reseeding
from embermq.spark.lake.tables import read_table
from embermq.spark.queries.as_of import retained_as_of, retained_history
from embermq.store.log.checkpoint import checkpoint_path
from embermq.store.records import SESSION, SESSION_EXPIRY, SESSION_SEQUENCE
from embermq.store.rows import Kind
from support.checkpoints import trim_with_checkpoint
from support.lakes import feed, job_named, new_lake, retained_of, rows
from support.log_samples import flipped
from support.recorded import Recorder

Recorders = Callable[..., Recorder]

TOPICS = 15


def retained_log(made: Recorder, count: int = 300) -> Recorder:
    """Some topics change all the time, some never again, some are cleared."""
    for number in range(count):
        if number < TOPICS:
            made.publish(f"still/{number}", b"%d" % number, qos=1, retain=True)
        elif number % 5 == 0:
            made.publish(f"still/{number % 7}", b"" if number % 2 else b"%d" % number, retain=True)
        else:
            made.publish(f"busy/{number % 11}", b"%d" % number, retain=number % 3 > 0)
    return made.flush()


def as_of(spark: SparkSession, lake: Lake, at_us: int) -> dict[str, tuple[bytes, int, int]]:
    return retained_of(retained_as_of(spark, lake, EPOCH + timedelta(microseconds=at_us)))


def instant(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


def at_us(made: Recorder, offset: int) -> int:
    (found,) = [moment_us for published, moment_us, *_ in made.published if published == offset]
    return found


def check_history(spark: SparkSession, lake: Lake) -> None:
    """No interval is there twice, none overlaps the next one of its topic."""
    found = [row.asDict() for row in retained_history(spark, lake).orderBy("topic", "offset").collect()]
    assert len({(row["topic"], row["offset"]) for row in found}) == len(found)
    for one, after in pairwise(found):
        if one["topic"] == after["topic"]:
            assert one["valid_to"] is not None and one["valid_to"] <= after["valid_from"]


def test_retained_is_right_after_a_gap_and_says_what_is_missing(
    spark: SparkSession, recorder: Recorders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = retained_log(recorder(segment_bytes=1_500))
    job = job_named("retained")
    lake = new_lake(spark, tmp_path / "lake", job)
    feed(spark, lake, made.data, job, [1, 101])
    before_gap_us = max(moment_us for offset, moment_us, *_ in made.retained_events if offset < 101)
    log = DirectoryLog(made.data)
    assert not is_at_gap(log, 101)
    trim_with_checkpoint(made, 150, tmp_path / "first")
    assert is_at_gap(log, 101)

    # A crash between the two commits, and until the next start the log is trimmed further.
    def crash(*_: object) -> None:
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(reseeding, "merge_once", crash)
        with pytest.raises(OSError, match="killed"):
            after_gap(spark, DirectoryLog(made.data), lake, "retained", 101)
    assert as_of(spark, lake, before_gap_us) == made.retained(before_gap_us)
    first = trim_with_checkpoint(made, 200, tmp_path / "second")
    assert after_gap(spark, DirectoryLog(made.data), lake, "retained", 101) == first
    assert retained_of(read_table(spark, lake, "retained")) == made.retained(before=first)
    feed(spark, lake, made.data, job, [first, 250, 301])
    assert retained_of(read_table(spark, lake, "retained")) == made.retained()
    check_history(spark, lake)
    for instant_us in (at_us(made, 50), before_gap_us, at_us(made, first - 1), at_us(made, 250), made.now_us):
        assert as_of(spark, lake, instant_us) == made.retained(instant_us)
    with pytest.raises(PipelineError, match=f"offsets 101 to {first - 1} were trimmed before the pipeline had read"):
        as_of(spark, lake, at_us(made, 130))
    (gap,) = rows(spark, lake, "gaps")
    assert (gap["job"], gap["from_offset"], gap["to_offset"], gap["why"]) == ("retained", 101, first - 1, TRIMMED)
    assert gap["from_timestamp"].astimezone(UTC) == instant(at_us(made, 101) - 1)


def test_a_gap_begins_at_the_last_instant_that_each_job_knows(
    spark: SparkSession, recorder: Recorders, tmp_path: Path
) -> None:
    made = retained_log(recorder(segment_bytes=1_500))
    jobs = [job_named(name) for name in ("messages", "topic_stats", "clients")]
    lake = new_lake(spark, tmp_path / "lake", *jobs)
    for job in jobs:
        feed(spark, lake, made.data, job, [1, 101])
    known_us = at_us(made, 101) - 1
    trim_with_checkpoint(made, 150, tmp_path / "first")
    (lake.state_directory / "progress.json").write_text('{"log_end": 400, "log_known_us": 9000000000000000}')
    for job in jobs:
        after_gap(spark, DirectoryLog(made.data), lake, job.name, 101)
    gaps = {gap["job"]: gap["from_timestamp"].astimezone(UTC) for gap in rows(spark, lake, "gaps")}
    assert gaps == dict.fromkeys(("messages", "topic_stats", "clients"), instant(known_us))
    # A lake of an earlier version has not kept the instant of its positions: its rows have one.
    (lake.state_directory / "positions.json").write_text("{}")
    assert _known_until(spark, lake, "messages", 101) == instant(at_us(made, 100))
    assert _known_until(spark, lake, "topic_stats", 101) == instant(at_us(made, 100))
    assert _known_until(spark, lake, "clients", 101) is None


def test_a_new_lake_on_a_trimmed_log_starts_from_the_checkpoint(
    spark: SparkSession, recorder: Recorders, tmp_path: Path
) -> None:
    made = retained_log(recorder(segment_bytes=1_500), 20)
    made.publish("described", b"1", retain=True, properties=message_properties({"content_type": "text/plain"}))
    retained_log(made, 279)
    first = trim_with_checkpoint(made, 150, tmp_path / "state")
    job = job_named("retained")
    lake = new_lake(spark, tmp_path / "lake", job)
    assert after_gap(spark, DirectoryLog(made.data), lake, "retained", None) == first
    feed(spark, lake, made.data, job, [first, 301])
    assert retained_of(read_table(spark, lake, "retained")) == made.retained()
    described = {row["topic"]: row["content_type"] for row in rows(spark, lake, "retained") if row["content_type"]}
    assert described == {"described": "text/plain"}
    for instant_us in (at_us(made, first), at_us(made, 250)):
        assert as_of(spark, lake, instant_us) == made.retained(instant_us)
    with pytest.raises(PipelineError, match="is not known"):
        as_of(spark, lake, at_us(made, 20))
    assert after_gap(spark, DirectoryLog(made.data), lake, "messages", None) == first
    assert {(gap["job"], gap["from_offset"], gap["why"]) for gap in rows(spark, lake, "gaps")} == {
        ("retained", 1, BEFORE_THE_TABLE),
        ("messages", 1, BEFORE_THE_TABLE),
    }


def test_without_an_undamaged_checkpoint_nothing_is_changed(
    spark: SparkSession, recorder: Recorders, tmp_path: Path
) -> None:
    made = retained_log(recorder(segment_bytes=1_500))
    job = job_named("retained")
    lake = new_lake(spark, tmp_path / "lake", job)
    feed(spark, lake, made.data, job, [1, 101])
    first = trim_with_checkpoint(made, 200, tmp_path / "state")
    path = checkpoint_path(made.data / "log", first)
    path.write_bytes(flipped(path.read_bytes(), 300))
    with pytest.raises(PipelineError, match=f"no longer has offsets 101 to {first - 1}, and there is no undamaged"):
        after_gap(spark, DirectoryLog(made.data), lake, "retained", 101)
    assert retained_of(read_table(spark, lake, "retained")) == made.retained(before=101)
    assert not lake.has_table("gaps")


def test_clients_has_the_sessions_of_the_checkpoint_after_a_gap(
    spark: SparkSession, recorder: Recorders, tmp_path: Path
) -> None:
    made = recorder(segment_bytes=1_500)

    def opened(client_id: str) -> int:
        return made.record(Kind.SESSION_OPENED, 0, "", SESSION_EXPIRY.pack(0, 60) + b"user", client_id)

    def fill(count: int) -> None:
        for number in range(count):
            made.publish("busy", b"%d" % number)
        made.flush()

    def subscribe(session_id: int, topic_filter: str, client_id: str, kind: Kind = Kind.SUBSCRIBED) -> int:
        return made.record(kind, 1, topic_filter, SESSION.pack(session_id), client_id)

    stays, ends = opened("stays"), opened("ends")
    kept = subscribe(stays, "kept", "stays")
    subscribe(stays, "dropped", "stays")
    subscribe(ends, "with it", "ends")
    fill(60)
    position = made.log.next_offset
    made.record(Kind.SESSION_ENDED, 0, "", SESSION.pack(ends), "ends")
    subscribe(stays, "dropped", "stays", Kind.UNSUBSCRIBED)
    added = subscribe(stays, "added", "stays")
    new = opened("new")
    made.record(Kind.DISCONNECTED, 0, "", SESSION_SEQUENCE.pack(new, 0) + b"gone", "new")
    fill(100)
    job = job_named("clients")
    lake = new_lake(spark, tmp_path / "lake", job)
    feed(spark, lake, made.data, job, [1, position])
    first = trim_with_checkpoint(made, position + 50, tmp_path / "state")
    assert after_gap(spark, DirectoryLog(made.data), lake, "clients", position) == first
    after = [
        (row["event"], row["client_id"], row["session_id"], row["topic_filter"], row["offset"], row["reason"])
        for row in rows(spark, lake, "clients")
        if row["offset"] >= position
    ]
    assert sorted(after, key=str) == sorted(
        [
            ("session_ended", "ends", ends, None, first - 1, "gap"),
            ("unsubscribed", "stays", stays, "dropped", first - 1, "gap"),
            ("subscribed", "stays", stays, "added", added, "gap"),
            ("session_opened", "new", new, None, first - 1, "gap"),
            ("disconnected", "new", new, None, first - 1, "gap"),
        ],
        key=str,
    )
    assert [row["offset"] for row in rows(spark, lake, "clients") if row["topic_filter"] == "kept"] == [kept]

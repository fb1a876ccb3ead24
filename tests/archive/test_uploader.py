"""The uploader beside a store: everything that is closed is archived, and nothing waits for it."""

import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from embermq.archive.archive import missing, open_archive
from embermq.archive.retention import ArchiveRetention
from embermq.store.engines.disk import DiskStore
from embermq.store.engines.opening import JournalSettings
from embermq.store.log.identity import LogIdentity, log_identity, write_identity
from embermq.store.log.reader import LogReader
from support.archives import engine_with, publish, publish_slowly, read_all, wait_until, writer_of
from support.store_contract import Engine
from support.trimmed_log import SETTINGS, STEP_US, first_offset


def count(engine: Engine, name: str) -> int:
    return engine.store.counts()[f"archive/{name}"]


def of_log(data: Path) -> list[tuple[int, bytes]]:
    return [
        (offset, payload)
        for batch in LogReader(data / "log").batches(LogReader(data / "log").bounds()[0])
        for offset, payload in zip(batch["offset"].to_pylist(), batch["payload"].to_pylist(), strict=True)
    ]


def test_a_stopped_server_has_archived_everything(place: str, tmp_path: Path) -> None:
    engine = engine_with(tmp_path / "data", place)
    publish(engine, 60)
    engine.store.close()
    assert engine.store.counts()["archive/pending-bytes"] == 0
    found = read_all(open_archive(place), tmp_path / "fetched")
    assert len(found) == 240
    assert found == of_log(tmp_path / "data")


def test_segments_are_archived_before_they_are_trimmed(tmp_path: Path) -> None:
    data, place = tmp_path / "data", str(tmp_path / "archive")
    engine = engine_with(data, place, SETTINGS)
    for _ in range(200):
        publish_slowly(engine, 10, STEP_US)
        if first_offset(data) > 200:
            break
    engine.store.close()
    archive = open_archive(place)
    assert missing(archive.segments()) == [] and archive.bounds()[0] == 1
    kept = of_log(data)
    assert kept[0][0] > 200
    found = read_all(archive, tmp_path / "fetched")
    assert [offset for offset, _ in found] == list(range(1, kept[-1][0] + 1))
    assert found[-len(kept) :] == kept
    # Those that the log was trimmed to, at least; the store has deleted some of the others.
    assert first_offset(data) in [checkpoint.offset for checkpoint in archive.checkpoints()]


def test_a_restart_goes_on_where_the_archive_ends(tmp_path: Path) -> None:
    data, place = tmp_path / "data", str(tmp_path / "archive")
    engine = engine_with(data, place)
    publish(engine, 30)
    engine.reopen()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "archive" / "segments").iterdir()}
    publish(engine, 30)
    engine.store.close()
    assert read_all(open_archive(place), tmp_path / "fetched") == of_log(data)
    assert all(path.stat().st_mtime_ns == written for path, written in before.items())


def test_an_idle_server_archives_its_last_records(tmp_path: Path) -> None:
    data, place = tmp_path / "data", str(tmp_path / "archive")
    old = JournalSettings(durability="os", segment_age_s=1)
    engine = engine_with(data, place, old)
    publish(engine, 1)  # at an instant of 1970
    journal = engine.store
    assert isinstance(journal, DiskStore)
    log = journal._log  # what the committer does after some seconds without work
    assert log.close_old_segment(10_000_000)
    assert not log.close_old_segment(10_000_000)
    wait_until(lambda: count(engine, "uploads") == 1)
    engine.store.close()
    assert read_all(open_archive(place), tmp_path / "fetched") == of_log(data)


@pytest.fixture
def blocked(tmp_path: Path) -> Iterator[Path]:
    """A place for an archive that cannot be written to, as a disk that is not mounted."""
    path = tmp_path / "archive"
    path.write_text("not a directory")
    yield path


def test_an_archive_that_fails_is_tried_again_until_it_works(
    blocked: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = engine_with(tmp_path / "data", str(blocked))
    with caplog.at_level(logging.INFO):
        publish(engine, 30)
        wait_until(lambda: count(engine, "failures") > 2)
        wait_until(lambda: count(engine, "pending-bytes") > 10_000)
        assert caplog.text.count("not archived, this is tried again: the archive") == 1
        blocked.unlink()
        wait_until(lambda: count(engine, "pending-bytes") == 0)
        wait_until(lambda: "the archive is up to date again" in caplog.text)
    engine.store.close()
    assert read_all(open_archive(str(blocked)), tmp_path / "fetched") == of_log(tmp_path / "data")


def test_trimming_waits_for_the_archive_up_to_a_bound_and_says_what_is_lost(
    blocked: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"
    bounded = JournalSettings(
        durability="os", segment_bytes=16 * 1024, retention_bytes=64 * 1024, unarchived_bytes_max=128 * 1024
    )
    engine = engine_with(data, str(blocked), bounded)
    for _ in range(2_000):
        publish(engine, 1, STEP_US)
        if first_offset(data) > 1:
            break
    size_bytes = sum(path.stat().st_size for path in (data / "log").glob("*.log"))
    assert 128 * 1024 < size_bytes < 320 * 1024
    assert "the archive is late: the log keeps" in caplog.text
    assert "store.unarchived_bytes_max (131072)" in caplog.text
    first = first_offset(data)
    assert f"trimmed offsets 1 to {first - 1}, which the archive does not have" in caplog.text
    wait_until(lambda: count(engine, "lost-records") == first - 1)
    blocked.unlink()
    wait_until(lambda: "the archive is up to date again" in caplog.text)
    engine.store.close()
    archive = open_archive(str(blocked))
    assert archive.bounds()[0] == first == archive.checkpoints()[0].offset
    assert read_all(archive, tmp_path / "fetched") == of_log(data)


def test_an_unreachable_server_delays_neither_a_commit_nor_the_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-test")
    place = "s3://bucket/x?endpoint_override=127.0.0.1:1&scheme=http&region=us-east-1"
    engine = engine_with(tmp_path / "data", place)
    publish(engine, 30)
    wait_until(lambda: count(engine, "failures") > 0)
    publish(engine, 30)
    engine.store.close()
    assert "not archived, this is tried again: the archive s3://bucket/x cannot" in caplog.text
    assert "secret-of-the-test" not in caplog.text
    assert "stopped before all is archived" in caplog.text
    assert len(of_log(tmp_path / "data")) == 240


def test_the_archive_of_another_log_is_refused(place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = engine_with(tmp_path / "first", place)
    publish(first, 20)
    first.store.close()
    before = open_archive(place).segments()
    second = engine_with(tmp_path / "second", place)
    publish(second, 20)
    wait_until(lambda: count(second, "failures") > 0)
    second.store.close()
    assert "is the archive of another log" in caplog.text and "name another place in store.archive" in caplog.text
    assert open_archive(place).segments() == before


def test_of_two_servers_that_begin_at_once_one_goes_on(tmp_path: Path) -> None:
    place = str(tmp_path / "archive")
    engines = [engine_with(tmp_path / name, place) for name in ("first", "second")]
    for engine in engines:
        publish(engine, 20)
    wait_until(lambda: any(count(engine, "failures") > 0 for engine in engines))
    for engine in engines:
        engine.store.close()
    archive = open_archive(place)
    winner = [name for name in ("first", "second") if log_identity(tmp_path / name / "log").log_id == archive.log_id]
    assert len(winner) == 1
    assert read_all(archive, tmp_path / "fetched") == of_log(tmp_path / winner[0])


def test_a_copy_of_a_data_directory_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data, place = tmp_path / "data", str(tmp_path / "archive")
    engine = engine_with(data, place)
    publish(engine, 20)
    engine.store.close()
    shutil.copytree(data, tmp_path / "copy")
    engine = engine_with(data, place)
    publish(engine, 20)
    engine.store.close()
    before = open_archive(place).segments()
    copy = engine_with(tmp_path / "copy", place)
    publish(copy, 25, 2_000)
    wait_until(lambda: count(copy, "failures") > 0)
    copy.store.close()
    assert "a copy of this data directory writes there" in caplog.text
    assert open_archive(place).segments() == before


def test_a_server_whose_log_was_restored_elsewhere_stops_uploading(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, place = tmp_path / "data", str(tmp_path / "archive")
    engine = engine_with(data, place)
    publish(engine, 20)
    engine.store.close()
    archive = open_archive(place)
    end = archive.bounds()[1]
    identity = LogIdentity(archive.log_id, 2, "token", ((end, 2_000_000_000),))
    (tmp_path / "elsewhere").mkdir()
    write_identity(tmp_path / "elsewhere", identity)
    writer_of(place, tmp_path / "elsewhere").claim()
    writer_of(place, tmp_path / "elsewhere").claim()  # again, as for each upload
    engine = engine_with(data, place)
    publish(engine, 20)
    wait_until(lambda: count(engine, "failures") > 0)
    engine.store.close()
    assert "was restored by another server, which goes on with it from offset 2000000000" in caplog.text
    assert open_archive(place).bounds()[1] == end


def test_a_damaged_segment_is_left_out_and_said(
    blocked: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"
    engine = engine_with(data, str(blocked))
    publish(engine, 40)
    wait_until(lambda: count(engine, "failures") > 0)
    segments = sorted((data / "log").glob("*.log"))
    with segments[1].open("r+b") as file:
        file.seek(-20, os.SEEK_END)
        file.write(b"x")
    blocked.unlink()
    wait_until(lambda: "the archive is up to date again" in caplog.text)
    engine.store.close()
    assert f"the segment of offset {int(segments[1].stem)} cannot be archived: the log is damaged" in caplog.text
    found = [segment.first_offset for segment in open_archive(str(blocked)).segments()]
    assert found == [int(path.stem) for path in segments if path != segments[1]]


def test_the_archive_has_a_retention_of_its_own(tmp_path: Path) -> None:
    data, place = tmp_path / "data", str(tmp_path / "archive")
    engine = engine_with(data, place, SETTINGS, retention=ArchiveRetention(size_bytes=150_000))
    publish_slowly(engine, 200, STEP_US)
    engine.store.close()
    archive = open_archive(place)
    size_bytes = sum(segment.size_bytes for segment in archive.segments())
    assert 100_000 < size_bytes < 270_000
    assert archive.bounds()[0] == archive.checkpoints()[0].offset > 1
    names = {path.name.partition("-")[0] for path in (tmp_path / "archive" / "segments").iterdir()}
    assert names == {f"{segment.first_offset:020d}" for segment in archive.segments()}

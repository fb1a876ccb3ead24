"""The log's writer: what it wrote is there, in order, once, after any crash and any failure of the disk."""

import os
import stat
import threading
from pathlib import Path

import pytest

from embermq.store.log.errors import LogInUse
from embermq.store.log.writer import Log
from embermq.store.rows import RETAIN_FLAG, Group, Kind
from support.log_samples import (
    NOW_US,
    fill,
    open_log,
    read_many,
    replayed,
    row_of,
    rows_of,
    sample_group,
    segment_files,
)


def test_a_new_log_is_empty_and_begins_at_one(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    assert (log.first_offset, log.next_offset, log.last_timestamp_us) == (1, 1, 0)
    assert log.read(1) is None
    assert list(log.groups_from(1)) == []
    log.close()
    assert open_log(tmp_path / "log").next_offset == 1


def test_what_was_appended_is_read_back_now_and_after_reopening(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    rows = fill(log, [1, 10, 3, 100, 1])
    for opened in (log, None):
        if opened is None:
            log.close()
            log = open_log(tmp_path)
        assert (log.first_offset, log.next_offset) == (1, 116)
        assert log.last_timestamp_us == rows[-1][1]
        assert replayed(log) == rows
        assert [row_of(record) for record in read_many(log, range(1, 116))] == rows
    assert log.read(0) is None
    assert log.read(116) is None


def test_replay_begins_at_exactly_the_asked_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=2000)
    rows = fill(log, [5] * 20)
    assert len(log.segments()) > 3
    for offset in range(1, 103):
        assert replayed(log, offset) == rows[offset - 1 :]


def test_offsets_must_continue_the_log(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [3])
    for wrong in (1, 3, 5):
        with pytest.raises(ValueError, match="the log goes on at 4"):
            log.append(sample_group(wrong, 1), NOW_US)
    assert log.next_offset == 4


def test_timestamps_never_run_backwards(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for timestamps_us in ([100, 90, 120], [50, 60], [119, 130, 125]):
        group = Group(log.next_offset)
        for timestamp_us in timestamps_us:
            group.append(timestamp_us, Kind.PUBLISH, 0, b"t", b"", b"")
        log.append(group, 0)
    written = [row[1] for row in replayed(log)]
    assert written == [100, 100, 120, 120, 120, 120, 130, 130]
    log.close()
    log = open_log(tmp_path)
    assert log.last_timestamp_us == 130
    group = Group(log.next_offset)
    group.append(7, Kind.PUBLISH, 0, b"t", b"", b"")
    log.append(group, 0)
    assert group.rows[0].timestamp_us == 130


def test_timestamps_never_run_backwards_where_the_state_asks_for_some_records_only(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for timestamps_us in ([100, 90, 120], [50, 60], [119, 130, 125]):
        group = Group(log.next_offset)
        for number, timestamp_us in enumerate(timestamps_us):
            if number == 1:  # the state asks for this one
                group.append(timestamp_us, Kind.PUBLISH, RETAIN_FLAG, b"t", b"", b"")
            else:
                group.append_unapplied(timestamp_us, Kind.PUBLISH, 0, b"t", b"", b"", b"")
        log.append(group, 0)
        written = [row[1] for row in replayed(log, group.first_offset)]
        assert (group.columns.first_timestamp_us, group.columns.last_timestamp_us) == (written[0], written[-1])
        assert group.rows[0].timestamp_us == written[1]
    assert [row[1] for row in replayed(log)] == [100, 100, 120, 120, 120, 120, 130, 130]
    assert [segment.last_timestamp_us for segment in log.segments()] == [130]


def test_segments_roll_by_size_and_by_age(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=1500, segment_age_s=60)
    fill(log, [3] * 24)
    assert len(log.segments()) > 2
    assert all(path.stat().st_size <= 1500 for path in segment_files(tmp_path))
    log.roll()
    fill(log, [1])
    by_size = log.segments()
    fill(log, [1], now_us=by_size[-1].first_timestamp_us + 59_999_999)
    assert len(log.segments()) == len(by_size)
    fill(log, [1], now_us=by_size[-1].first_timestamp_us + 60_000_000)
    by_age = log.segments()
    assert len(by_age) == len(by_size) + 1
    assert [info.next_offset for info in by_age[:-1]] == [info.first_offset for info in by_age[1:]]
    assert by_age[-1].first_offset == log.next_offset - 1
    assert by_age[0].first_timestamp_us == NOW_US + 1000
    assert by_age[0].last_timestamp_us == NOW_US + (by_age[0].next_offset - 1) * 1000


def test_a_group_larger_than_a_segment_gets_its_own(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=500)
    rows = fill(log, [1, 50, 1])
    assert [info.first_offset for info in log.segments()] == [1, 2, 52]
    assert replayed(log) == rows


def test_directory_and_files_are_for_the_owner_only(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        log = open_log(tmp_path / "data" / "log", segment_bytes=500)
        fill(log, [3, 3, 3])
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "data" / "log").stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "data" / "log").iterdir()}
    assert len(modes) > 4
    assert set(modes.values()) == {0o600}


def test_a_second_writer_is_turned_away(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    with pytest.raises(LogInUse, match="in use by another server"):
        open_log(tmp_path)
    log.close()
    open_log(tmp_path).close()


def test_trim_deletes_whole_segments_below_an_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=1500)
    rows = fill(log, [3] * 20)
    infos = log.segments()
    second = infos[1]
    assert log.trim(second.next_offset - 1) == [infos[0].path]
    assert log.first_offset == second.first_offset
    assert log.read(1) is None
    assert row_of(read_many(log, [second.first_offset])[0]) == rows[second.first_offset - 1]
    assert log.trim(second.next_offset) == [second.path]
    assert not any(path.exists() for path in (infos[0].path, second.path, second.path.with_suffix(".idx")))
    log.close()
    log = open_log(tmp_path, segment_bytes=1500)
    assert log.first_offset == second.next_offset
    assert replayed(log) == rows[second.next_offset - 1 :]


def test_trim_keeps_the_newest_segment_so_that_offsets_are_never_given_twice(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=1500)
    fill(log, [3] * 20)
    log.roll()
    log.trim(log.next_offset)
    assert len(log.segments()) == 1
    log.close()
    assert open_log(tmp_path).next_offset == 61


def test_a_rolled_segment_is_followed_by_a_new_one(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    rows = fill(log, [2])
    log.roll()
    log.roll()
    rows += fill(log, [2])
    assert [info.first_offset for info in log.segments()] == [1, 3]
    log.trim(3)
    assert replayed(log) == rows[2:]


def test_records_are_read_while_groups_are_appended_and_segments_trimmed(tmp_path: Path) -> None:
    log = Log(tmp_path, segment_bytes=4000, segment_age_s=3600, sync=False, cache_bytes=3000)
    wrong: list[object] = []

    def write() -> None:
        for _ in range(400):
            log.append(sample_group(log.next_offset, 3), NOW_US)

    writer = threading.Thread(target=write)
    writer.start()
    seen = 0
    while writer.is_alive() or seen < 1200:
        end = log.next_offset
        if end > 200:
            log.trim(end - 200)
        first = max(log.first_offset, seen + 1)
        wrong += [
            record.offset
            for record in read_many(log, range(first, end))
            if row_of(record) != rows_of(sample_group((record.offset - 1) // 3 * 3 + 1, 3))[(record.offset - 1) % 3]
        ]
        seen = end - 1
    writer.join()
    assert wrong == []
    assert log.next_offset == 1201
    assert [row_of(record)[0] for record in read_many(log, range(1101, 1201))] == list(range(1101, 1201))

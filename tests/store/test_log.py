"""The log's writer: what it wrote is there, in order, once, after any crash and any failure of the disk."""

import errno
import logging
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.store.errors import LogCorrupt, LogInUse, NewerFormat
from embermq.store.log import Log
from embermq.store.records import Group, Kind
from embermq.store.segments import ENTRY_BYTES, SEGMENT_HEADER, SEGMENT_MAGIC, encode_segment_header
from store.log_samples import (
    NOW_US,
    block_positions,
    fill,
    flipped,
    open_log,
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
        assert [row_of(record) for record in log.read_many(range(1, 116))] == rows
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
    assert group.timestamps_us == [130]


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
    assert row_of(log.read_many([second.first_offset])[0]) == rows[second.first_offset - 1]
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


# -- crashes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index_written", [True, False])
def test_a_write_torn_at_any_byte_is_cut(tmp_path: Path, index_written: bool, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(tmp_path)
    rows = fill(log, [2, 3])
    log.close()
    (path,) = segment_files(tmp_path)
    (index,) = segment_files(tmp_path, ".idx")
    before, index_before = path.read_bytes(), index.read_bytes()
    log = open_log(tmp_path)
    fill(log, [2])
    log.close()
    whole, index_whole = path.read_bytes(), index.read_bytes()
    for length in range(len(before), len(whole)):
        path.write_bytes(whole[:length])
        index.write_bytes(index_whole if index_written else index_before)
        caplog.clear()
        log = open_log(tmp_path)
        assert log.next_offset == 6
        assert replayed(log) == rows
        added = fill(log, [1])
        log.close()
        log = open_log(tmp_path)
        assert replayed(log) == rows + added
        log.close()
        cut = [record.getMessage() for record in caplog.records]
        if length > len(before):
            (line,) = cut
            assert f"{path}: cut {length - len(before)} bytes" in line
            assert f"position {len(before)}" in line
        else:
            assert cut == []


def test_a_torn_end_of_zeros_or_noise_is_cut(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    rows = fill(log, [2, 3])
    log.close()
    (path,) = segment_files(tmp_path)
    whole = path.read_bytes()
    for tail in (bytes(4096), b"EMBK" * 100, os.urandom(500), whole[32:]):
        path.write_bytes(whole + tail)
        log = open_log(tmp_path)
        assert replayed(log) == rows
        log.close()
        assert path.read_bytes() == whole


def test_a_whole_block_without_an_index_entry_is_kept(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    rows = fill(log, [2, 3, 4])
    log.close()
    (index,) = segment_files(tmp_path, ".idx")
    entries = index.read_bytes()
    for length in range(len(entries)):
        index.write_bytes(entries[:length])
        log = open_log(tmp_path)
        assert replayed(log) == rows
        assert [row_of(record) for record in log.read_many(range(1, 10))] == rows
        log.close()
        assert index.read_bytes() == entries


@pytest.mark.parametrize("check_bytes", [64 << 20, 0])
@pytest.mark.parametrize("segment", [0, -1])
@pytest.mark.parametrize("damage", ["lost", "short", "long", "garbage", "zeros at the end", "of other positions"])
def test_a_damaged_index_is_made_anew(tmp_path: Path, damage: str, segment: int, check_bytes: int) -> None:
    log = open_log(tmp_path, segment_bytes=3000)
    rows = fill(log, [3] * 21)
    log.close()
    index = segment_files(tmp_path, ".idx")[segment]
    good = index.read_bytes()
    assert len(good) >= 3 * ENTRY_BYTES
    if damage == "lost":
        index.unlink()
    elif damage == "of other positions":
        moved = bytearray(good)
        for at in range(0, len(good), ENTRY_BYTES):
            moved[at] ^= 8
        index.write_bytes(moved)
    else:
        index.write_bytes(
            {
                "short": good[: ENTRY_BYTES + 7],
                "long": good + good[-ENTRY_BYTES:],
                "garbage": os.urandom(len(good)),
                "zeros at the end": good[:ENTRY_BYTES] + bytes(len(good) - ENTRY_BYTES),
            }[damage]
        )
    log = open_log(tmp_path, segment_bytes=3000, check_bytes=check_bytes)
    assert index.read_bytes() == good or (damage, segment, check_bytes) == ("long", 0, 0)
    assert [row_of(record) for record in log.read_many(range(1, 64))] == rows
    assert replayed(log) == rows


def test_garbage_inside_an_index_that_was_not_checked_is_found_when_it_is_used(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=3000)
    rows = fill(log, [3] * 20)
    log.close()
    index = segment_files(tmp_path, ".idx")[0]
    good = index.read_bytes()
    for at in range(ENTRY_BYTES, len(good) - ENTRY_BYTES):
        index.write_bytes(flipped(good, at))
        log = open_log(tmp_path, segment_bytes=3000, check_bytes=0)
        assert [row_of(record) for record in log.read_many(range(1, 61))] == rows
        log.close()


# -- damage -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_index", [True, False])
def test_a_flipped_bit_in_a_middle_block_refuses_the_log_and_names_the_place(tmp_path: Path, with_index: bool) -> None:
    log = open_log(tmp_path)
    fill(log, [2, 2, 2])
    log.close()
    (path,) = segment_files(tmp_path)
    (index,) = segment_files(tmp_path, ".idx")
    start, end = list(block_positions(tmp_path))[1]
    good = path.read_bytes()
    for at in range(start, end):
        path.write_bytes(flipped(good, at, at % 8))
        if not with_index:
            index.unlink(missing_ok=True)
        with pytest.raises(LogCorrupt) as caught:
            open_log(tmp_path)
        assert (caught.value.file, caught.value.position) == (str(path), start)
        assert str(path) in str(caught.value)
        assert f"position {start}" in str(caught.value)
    path.write_bytes(good)
    assert open_log(tmp_path).next_offset == 7


def test_a_flipped_bit_in_a_closed_segment_refuses_the_log(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=1500)
    fill(log, [3] * 10)
    log.close()
    path = segment_files(tmp_path)[0]
    good = path.read_bytes()
    for start, end in block_positions(tmp_path):
        for at in (start, start + 9, end - 1):
            path.write_bytes(flipped(good, at))
            with pytest.raises(LogCorrupt) as caught:
                open_log(tmp_path)
            assert (caught.value.file, caught.value.position) == (str(path), start)


def test_damage_in_an_old_segment_that_opening_does_not_read_is_found_when_it_is_read(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=1500)
    rows = fill(log, [3] * 10)
    log.close()
    path = segment_files(tmp_path)[0]
    start, end = list(block_positions(tmp_path))[1]
    path.write_bytes(flipped(path.read_bytes(), end - 1))
    log = open_log(tmp_path, segment_bytes=1500, check_bytes=0)
    assert row_of(log.read_many([30])[0]) == rows[-1]
    for read in (lambda: log.read(5), lambda: log.read(5), lambda: replayed(log)):
        with pytest.raises(LogCorrupt) as caught:
            read()
        assert (caught.value.file, caught.value.position) == (str(path), start)


def test_a_damaged_segment_header_refuses_the_log(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [3])
    log.close()
    (path,) = segment_files(tmp_path)
    good = path.read_bytes()
    for at in range(SEGMENT_HEADER.size):
        path.write_bytes(flipped(good, at))
        with pytest.raises(LogCorrupt) as caught:
            open_log(tmp_path)
        assert caught.value.position == 0


def test_a_missing_middle_segment_is_noticed(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=1500)
    fill(log, [3] * 20)
    first, second, third = log.segments()[:3]
    log.close()
    second.path.unlink()
    with pytest.raises(
        LogCorrupt, match=f"offsets {second.first_offset} to {third.first_offset - 1} are missing"
    ) as caught:
        open_log(tmp_path)
    assert caught.value.file == str(first.path)


def test_a_newer_format_is_refused_with_a_sentence(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [3])
    log.close()
    (path,) = segment_files(tmp_path)
    from zlib import crc32

    checked = (2).to_bytes(4, "little") + path.read_bytes()[16:32]
    path.write_bytes(SEGMENT_MAGIC + crc32(checked).to_bytes(4, "little") + checked + path.read_bytes()[32:])
    with pytest.raises(NewerFormat, match=r"has log format 2; this EmberMQ knows formats up to 1, use a newer one"):
        open_log(tmp_path)


def test_a_segment_under_another_name_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [3])
    log.close()
    (path,) = segment_files(tmp_path)
    path.rename(path.with_name(f"{5:020d}.log"))
    with pytest.raises(LogCorrupt, match="begins at offset 1, not where its name says"):
        open_log(tmp_path)


def test_leftovers_of_a_crash_are_swept(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    rows = fill(log, [3])
    log.close()
    (tmp_path / f"{4:020d}.log.new").write_bytes(encode_segment_header(4)[:9])
    (tmp_path / f"{9:020d}.idx").write_bytes(b"index of a segment that was trimmed")
    log = open_log(tmp_path)
    assert replayed(log) == rows
    assert sorted(path.suffix for path in tmp_path.iterdir()) == ["", ".idx", ".log"]


# -- a disk that fails --------------------------------------------------------------------------------------------


class FailingDisk:
    """Stands in for an `os` function and fails the n-th call from now, once, after doing a part of its work."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, part: float = 0) -> None:
        self._real = getattr(os, name)
        self._part = part
        self.fail_at = -1
        self.calls = 0
        self.armed = True
        monkeypatch.setattr(os, name, self)

    def __call__(self, *args: object) -> object:
        self.calls += self.armed
        if not self.armed or self.calls != self.fail_at:
            return self._real(*args)
        if self._part and len(args) == 3 and isinstance(args[0], int):
            descriptor, data, position = args
            assert isinstance(data, (bytes, memoryview))
            self._real(descriptor, data[: int(len(data) * self._part)], position)
        elif self._part:
            self._real(*args)
        raise OSError(errno.EIO, "the disk failed")


@pytest.mark.parametrize(
    ("function", "part"),
    [
        ("pwrite", 0),
        ("pwrite", 0.5),
        ("pwrite", 1),
        ("fdatasync", 1),
        ("fsync", 1),
        ("rename", 0),
        ("rename", 1),
        ("open", 0),
    ],
)
@pytest.mark.parametrize("call", [1, 2, 3, 5])
@pytest.mark.parametrize("truncating", [True, False])
def test_a_group_that_failed_is_written_once_when_it_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, call: int, part: float, truncating: bool
) -> None:
    log = Log(tmp_path, segment_bytes=1200, segment_age_s=3600, sync=True)
    rows = fill(log, [3, 3])
    if not truncating:
        monkeypatch.setattr(os, "ftruncate", lambda *_: (_ for _ in ()).throw(OSError(errno.EROFS, "read-only")))
    disk = FailingDisk(monkeypatch, function, part)
    disk.fail_at = call
    failed = 0
    while len(rows) < 36:
        group = sample_group(log.next_offset, 3)
        disk.armed = True
        try:
            log.append(group, NOW_US)
        except OSError as error:
            disk.armed = False
            assert error.errno == errno.EIO
            failed += 1
            log.abandon_segment()
            assert log.next_offset == group.first_offset
            assert replayed(log) == rows
            continue
        disk.armed = False
        rows += rows_of(group)
        assert replayed(log) == rows
    assert failed == (disk.calls >= call)
    assert [row_of(record) for record in log.read_many(range(1, 37))] == rows
    monkeypatch.undo()
    log.close()
    log = open_log(tmp_path, segment_bytes=1200)
    assert replayed(log) == rows
    assert log.next_offset == 37
    assert fill(log, [2])[0][0] == 37


def test_after_a_failed_sync_the_group_goes_to_a_new_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(tmp_path, segment_bytes=1 << 20, segment_age_s=3600, sync=True)
    rows = fill(log, [3])
    disk = FailingDisk(monkeypatch, "fdatasync")
    disk.fail_at = 1
    group = sample_group(4, 3)
    with pytest.raises(OSError, match="the disk failed"):
        log.append(group, NOW_US)
    log.append(group, NOW_US)
    assert [info.first_offset for info in log.segments()] == [1, 4]
    assert replayed(log) == rows + rows_of(group)


def test_a_crash_right_after_a_failed_sync_leaves_a_log_that_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing could be cut off: the unacknowledged block is there, whole, with or without a new segment behind it."""
    log = Log(tmp_path, segment_bytes=1 << 20, segment_age_s=3600, sync=True)
    rows = fill(log, [3])
    monkeypatch.setattr(os, "ftruncate", lambda *_: None)
    disk = FailingDisk(monkeypatch, "fdatasync")
    disk.fail_at = 1
    group = sample_group(4, 3)
    with pytest.raises(OSError, match="the disk failed"):
        log.append(group, NOW_US)
    monkeypatch.undo()
    log.close()
    syncs = FailingDisk(monkeypatch, "fsync")
    log = open_log(tmp_path)
    assert replayed(log) == rows + rows_of(group)
    assert syncs.calls >= 1  # it counts now, so it must have been synced
    log.close()


def test_a_full_disk_gives_its_error_and_the_log_goes_on_when_there_is_room(tmp_path: Path) -> None:
    """A real short write: the process may not make files larger than 4 KiB, then it may."""
    program = f"""
import resource, signal, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
from store.log_samples import NOW_US, replayed, rows_of, sample_group
from embermq.store.log import Log
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
log = Log(Path({str(tmp_path / "log")!r}), segment_bytes=1 << 20, segment_age_s=3600, sync=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
rows, failed = [], 0
while len(rows) < 300:
    group = sample_group(log.next_offset, 10 if failed < 3 else 100)
    try:
        log.append(group, NOW_US)
    except OSError as error:
        failed += 1
        if failed >= 3:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        continue
    rows += rows_of(group)
assert replayed(log) == rows
log.close()
print(failed, len(rows))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    failed, rows = map(int, done.stdout.split())
    assert failed == 3
    log = open_log(tmp_path / "log")
    assert [row[0] for row in replayed(log)] == list(range(1, rows + 1))


# -- two threads --------------------------------------------------------------------------------------------------


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
            for record in log.read_many(range(first, end))
            if row_of(record) != rows_of(sample_group((record.offset - 1) // 3 * 3 + 1, 3))[(record.offset - 1) % 3]
        ]
        seen = end - 1
    writer.join()
    assert wrong == []
    assert log.next_offset == 1201
    assert [row_of(record)[0] for record in log.read_many(range(1101, 1201))] == list(range(1101, 1201))


@settings(deadline=None, max_examples=40)
@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=25),
    offsets=st.data(),
    segment_bytes=st.integers(300, 5000),
)
def test_any_offsets_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], offsets: st.DataObject, segment_bytes: int
) -> None:
    log = Log(
        tmp_path_factory.mktemp("log"), segment_bytes=segment_bytes, segment_age_s=60, sync=False, cache_bytes=2000
    )
    rows = fill(log, sizes)
    asked = offsets.draw(st.lists(st.integers(-1, len(rows) + 2), max_size=40))
    assert [row_of(record) for record in log.read_many(asked)] == [
        rows[offset - 1] for offset in asked if 1 <= offset <= len(rows)
    ]
    log.close()


def test_a_cut_is_told_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(tmp_path)
    fill(log, [2])
    log.close()
    (path,) = segment_files(tmp_path)
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"EMBK half a block")
    with caplog.at_level(logging.INFO):
        open_log(tmp_path).close()
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: cut 17 bytes of an unfinished block at position {size}, the log goes on at offset 3"
    ]


def test_closing_lets_go_of_the_directory_even_if_the_disk_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    rows = fill(log, [2])
    disk = FailingDisk(monkeypatch, "fsync")
    disk.fail_at = 1
    with pytest.raises(OSError, match="the disk failed"):
        log.close()
    monkeypatch.undo()
    assert replayed(open_log(tmp_path)) == rows

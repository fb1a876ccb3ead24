"""Opening the log after a crash: a torn end is cut, a lost index rebuilt, damage in the middle refused."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from embermq.store.log.errors import LogCorrupt, NewerFormat
from embermq.store.log.segments import ENTRY_BYTES, SEGMENT_HEADER, SEGMENT_MAGIC, encode_segment_header
from support.log_samples import (
    TESTS,
    block_positions,
    fill,
    flipped,
    open_log,
    read_many,
    replayed,
    row_of,
    rows_of,
    sample_group,
    segment_files,
)


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
        if index_written:
            assert cut.pop(0) == f"{path}: the disk has lost offsets 6 to 7, which were written before"
        if length > len(before):
            (line,) = cut
            # Zeros at the end may be those that the server has written ahead.
            torn = whole[len(before) : length].rstrip(b"\0")
            assert f"{path}: cut {len(torn)} bytes" in line
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
        assert [row_of(record) for record in read_many(log, range(1, 10))] == rows
        log.close()
        assert index.read_bytes() == entries


@pytest.mark.parametrize("check_bytes", [64 << 20, 0])
@pytest.mark.parametrize("segment", [0, -1])
@pytest.mark.parametrize("damage", ["lost", "short", "long", "garbage", "zeros at the end", "of other positions"])
def test_a_damaged_index_is_rebuilt(tmp_path: Path, damage: str, segment: int, check_bytes: int) -> None:
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
    assert [row_of(record) for record in read_many(log, range(1, 64))] == rows
    assert replayed(log) == rows


def test_garbage_inside_an_index_that_was_not_checked_is_found_when_it_is_used(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=3000)
    rows = fill(log, [3] * 20)
    log.close()
    index = segment_files(tmp_path, ".idx")[0]
    good = index.read_bytes()
    for at in range(ENTRY_BYTES, len(good) - ENTRY_BYTES, 5):  # hits each byte of an entry, in one entry or another
        index.write_bytes(flipped(good, at))
        log = open_log(tmp_path, segment_bytes=3000, check_bytes=0)
        assert [row_of(record) for record in read_many(log, range(1, 61))] == rows
        log.close()


def test_what_a_killed_writer_had_appended_is_there(tmp_path: Path) -> None:
    program = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(TESTS)!r})
from support.log_samples import NOW_US, open_log, sample_group
log = open_log(Path({str(tmp_path / "log")!r}), segment_bytes=20_000)
while True:
    log.append(sample_group(log.next_offset, 7), NOW_US)
    print(log.next_offset, flush=True)
"""
    appended = 1
    for lines in (1, 40, 90, 7):
        writing = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        assert writing.stdout is not None
        for _ in range(lines):
            appended = int(writing.stdout.readline())
        writing.kill()
        appended = int((writing.communicate()[0].splitlines() or [str(appended)])[-1])
        log = open_log(tmp_path / "log", segment_bytes=20_000)
        assert appended <= log.next_offset <= appended + 7
        assert log.next_offset % 7 == 1
        assert replayed(log) == [
            row for first in range(1, log.next_offset, 7) for row in rows_of(sample_group(first, 7))
        ]
        log.close()


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
    assert row_of(read_many(log, [30])[0]) == rows[-1]
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
    assert sorted(path.suffix for path in tmp_path.iterdir()) == ["", ".idx", ".json", ".log"]


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

"""The zeros after the last block of an open segment: blocks take their place, and nobody reads them as anything."""

import errno
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import embermq.store.log.verify as verify_module
from embermq.store.log.entries import IndexEntry
from embermq.store.log.reader import LogReader
from embermq.store.log.segments import walk
from embermq.store.log.verify import verify
from embermq.store.log.writer import ZEROS_BLOCK_BYTES_MAX, ZEROS_BYTES, Log
from embermq.store.rows import Group, Kind
from support.log_samples import NOW_US, Row, encode_block, fill, open_log, replayed, sample_group, segment_files

SEGMENT_BYTES = 1 << 20


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return synced(tmp_path / "log")


def synced(directory: Path, segment_bytes: int = SEGMENT_BYTES) -> Log:
    return Log(directory, segment_bytes=segment_bytes, segment_age_s=3600, sync=True)


def append_payload(log: Log, payload: bytes) -> None:
    group = Group(log.next_offset)
    group.append(NOW_US, Kind.PUBLISH, 0, b"t", payload, b"")
    log.append(group, NOW_US)


def copied(log: Log, place: Path) -> Path:
    """The files as they are now: what the next server finds if this one is killed."""
    shutil.copytree(log.directory, place)
    return place


def data_bytes(log: Log) -> int:
    return log.bytes_from(log.newest_segment)


def test_small_blocks_take_the_place_of_zeros(log: Log) -> None:
    (path,) = segment_files(log.directory)
    fill(log, [2])
    size = path.stat().st_size
    assert size == data_bytes(log) + ZEROS_BYTES
    while data_bytes(log) < size - 2_000:
        fill(log, [10])
    assert path.stat().st_size == size
    fill(log, [40])
    assert path.stat().st_size == data_bytes(log) + ZEROS_BYTES


def test_a_large_block_has_no_zeros_after_it(log: Log) -> None:
    (path,) = segment_files(log.directory)
    append_payload(log, bytes(ZEROS_BLOCK_BYTES_MAX))
    assert path.stat().st_size == data_bytes(log)


def test_a_block_may_reach_beyond_the_zeros(log: Log) -> None:
    fill(log, [1])
    append_payload(log, b"x" * (ZEROS_BYTES + 7))
    rows = fill(log, [3])
    assert replayed(log)[-3:] == rows
    log.close()
    assert [row[0] for row in replayed(synced(log.directory))] == [1, 2, 3, 4, 5]


def test_a_segment_stays_within_its_size(tmp_path: Path) -> None:
    log = synced(tmp_path, ZEROS_BYTES + 5_000)
    while len(log.segments()) < 3:
        fill(log, [20])
        assert max(path.stat().st_size for path in segment_files(tmp_path)) <= ZEROS_BYTES + 5_000


@pytest.mark.parametrize("close", [Log.close, Log.roll, Log.close_segment, Log.abandon_segment])
def test_a_closed_segment_has_none(log: Log, close: Callable[[Log], None]) -> None:
    fill(log, [2, 3])
    expected = data_bytes(log)
    path = segment_files(log.directory)[0]
    assert path.stat().st_size > expected
    close(log)
    assert path.stat().st_size == expected


def test_a_log_without_syncs_has_none(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [2])
    (path,) = segment_files(tmp_path)
    assert path.stat().st_size == data_bytes(log)


def test_the_next_server_goes_on_before_the_zeros_and_says_nothing(
    log: Log, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = fill(log, [2, 3])
    place = copied(log, tmp_path / "killed")
    with caplog.at_level(logging.INFO):
        after = synced(place)
    assert caplog.records == []
    rows += fill(after, [4])
    assert replayed(after) == rows
    after.close()
    assert replayed(synced(place)) == rows


@pytest.mark.parametrize("has_entry", [True, False])
def test_a_block_torn_at_any_byte_is_cut_with_the_zeros(
    log: Log, tmp_path: Path, has_entry: bool, caplog: pytest.LogCaptureFixture
) -> None:
    rows = fill(log, [2, 3])
    before = copied(log, tmp_path / "before")
    begins = data_bytes(log)
    fill(log, [2])
    (path,) = segment_files(before)
    (index,) = segment_files(before, ".idx")
    index_before = index.read_bytes()
    index_after = segment_files(log.directory, ".idx")[0].read_bytes()
    block = segment_files(log.directory)[0].read_bytes()[begins : data_bytes(log)]
    for length in range(len(block)):
        torn = block[:length]
        if not block[length:].strip(b"\0"):  # what is missing is zeros
            continue
        path.write_bytes(path.read_bytes()[:begins] + torn + bytes(ZEROS_BYTES - length))
        index.write_bytes(index_after if has_entry else index_before)
        caplog.clear()
        after = synced(before)
        assert (after.next_offset, replayed(after)) == (6, rows)
        after.close()
        assert path.stat().st_size == begins
        cut_bytes = len(torn.rstrip(bytes(1)))
        lines = [record.getMessage() for record in caplog.records]
        expected = [f"{path}: cut {cut_bytes} bytes of an unfinished block"] if cut_bytes else []
        if has_entry:
            expected.insert(0, f"{path}: the disk has lost offsets 6 to 7, which were written before")
        assert len(lines) == len(expected)
        assert all(line.startswith(start) for line, start in zip(lines, expected, strict=True))


def test_pages_of_a_torn_block_may_be_missing_in_its_middle(log: Log, tmp_path: Path) -> None:
    rows = fill(log, [2])
    begins = data_bytes(log)
    append_payload(log, b"x" * 20_000)
    place = copied(log, tmp_path / "killed")
    (path,) = segment_files(place)
    damaged = bytearray(path.read_bytes())
    damaged[4096:8192] = bytes(4096)
    path.write_bytes(damaged)
    after = synced(place)
    assert replayed(after) == rows
    assert data_bytes(after) == begins


def test_readers_and_verify_see_only_blocks(log: Log) -> None:
    rows: list[Row] = fill(log, [2, 3])
    reader = LogReader(log.directory)
    assert reader.bounds() == (1, 6)
    assert [batch.num_rows for batch in reader.batches(1)] == [len(rows)]
    (report,) = verify(log.directory)
    assert (report.records, report.blocks, report.unfinished_bytes, report.findings) == (5, 2, 0, [])


def test_verify_finds_a_block_that_became_zeros(log: Log) -> None:
    fill(log, [2, 3])
    (path,) = segment_files(log.directory)
    begins = data_bytes(log)
    fill(log, [1])
    with path.open("r+b") as file:
        file.seek(begins)
        file.write(bytes(data_bytes(log) - begins))
    (report,) = verify(log.directory)
    assert [finding.detail for finding in report.findings] == ["the block of offset 6 does not match its checksum"]


def test_a_disk_without_room_for_zeros_takes_blocks(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite

    def nearly_full(descriptor: int, data: bytes, position: int) -> int:
        if len(data) == ZEROS_BYTES:
            raise OSError(errno.ENOSPC, "no space left on device")
        return real(descriptor, data, position)

    monkeypatch.setattr(os, "pwrite", nearly_full)
    rows = fill(log, [2, 3])
    assert (len(log.segments()), replayed(log)) == (1, rows)
    monkeypatch.undo()
    rows += fill(log, [1])
    (path,) = segment_files(log.directory)
    assert path.stat().st_size == data_bytes(log) + ZEROS_BYTES
    assert replayed(log) == rows


def test_zeros_leave_the_last_room_of_a_disk_to_the_index(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros are written as far as there is room. Without room for the index entry every block would fail then."""
    fill(log, [1])
    log.close_segment()
    path = segment_files(log.directory)[-1]
    room = data_bytes(log) + 3_000
    real = os.pwrite

    def nearly_full(descriptor: int, data: bytes, position: int) -> int:
        is_log = os.fstat(descriptor).st_ino == path.stat().st_ino
        if not is_log and path.stat().st_size >= room:
            raise OSError(errno.ENOSPC, "no space left on device")
        return real(descriptor, data[: room - position] if is_log else data, position)

    monkeypatch.setattr(os, "pwrite", nearly_full)
    rows = fill(log, [2, 3])
    monkeypatch.undo()
    assert (len(log.segments()), replayed(log, 2)) == (2, rows)
    assert path.stat().st_size == data_bytes(log)


def test_a_disk_that_tells_at_the_sync_that_it_is_full_gets_no_more_zeros(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fdatasync

    def nearly_full(descriptor: int) -> None:
        if os.fstat(descriptor).st_size > ZEROS_BYTES:
            raise OSError(errno.ENOSPC, "no space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", nearly_full)
    with pytest.raises(OSError, match="no space left"):
        fill(log, [1])
    rows = fill(log, [2, 3])
    assert replayed(log) == rows
    assert segment_files(log.directory)[-1].stat().st_size == data_bytes(log)


def test_zeros_that_cannot_be_cut_do_no_harm(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = fill(log, [2])

    def read_only(descriptor: int, size: int) -> None:
        raise OSError(errno.EROFS, "read-only file system")

    monkeypatch.setattr(os, "ftruncate", read_only)
    log.close_segment()
    rows += fill(log, [3])
    assert (len(log.segments()), replayed(log)) == (2, rows)
    log.close()
    monkeypatch.undo()
    assert replayed(synced(log.directory)) == rows
    assert [row.findings for row in verify(log.directory)] == [[], []]


def test_verify_reads_again_what_the_server_wrote_while_it_read(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(log, [2])
    hole_at = data_bytes(log)
    fill(log, [3])
    hole_end = data_bytes(log)
    fill(log, [1])
    holes: list[int] = []

    def walk_with_hole(view: memoryview, position: int, offset: int, end_offset: int | None) -> Iterator[IndexEntry]:
        if not holes:
            holes.append(position)
            data = bytearray(view)
            data[hole_at:hole_end] = bytes(hole_end - hole_at)
            view = memoryview(bytes(data))
        return walk(view, position, offset, end_offset)

    monkeypatch.setattr(verify_module, "walk", walk_with_hole)
    (report,) = verify(log.directory)
    assert (report.records, report.findings) == (6, [])
    assert holes, "the first read had a hole"


def test_a_block_inside_a_payload_is_not_taken_for_one_of_the_log(log: Log, tmp_path: Path) -> None:
    """The page with the header of the last block is lost, its payload has a whole block with a far higher offset."""
    rows = fill(log, [2])
    begins = data_bytes(log)
    inner = bytes(encode_block(sample_group(1_000_000, 1))[1])
    append_payload(log, b"x" * (8192 - begins) + inner)
    place = copied(log, tmp_path / "killed")
    (path,) = segment_files(place)
    torn = bytearray(path.read_bytes())
    torn[begins:4096] = bytes(4096 - begins)
    path.write_bytes(torn)
    assert torn.count(b"EMBK") == 2
    after = synced(place)
    assert replayed(after) == rows

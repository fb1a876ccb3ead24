"""Checkpoints: what is written is read again, and a torn or damaged one is never taken for whole."""

from pathlib import Path

import pytest

from embermq.store.log.checkpoint import (
    CHECKPOINT_HEADER_BYTES,
    Checkpoint,
    CheckpointWriter,
    checkpoint_offsets,
    checkpoint_path,
    checkpoints,
    undamaged_checkpoint,
)
from embermq.store.log.errors import LogCorrupt, NewerFormat
from embermq.store.log.verify import verify
from embermq.store.rows import LogRow
from support.log_samples import fill, flipped, open_log

OFFSET = 4_711


def write(directory: Path, records: int, offset: int = OFFSET) -> Path:
    writer = CheckpointWriter(directory, offset, 1_000)
    for number in range(records):
        writer.add(LogRow(number, 10 * number, 1, 5, b"t/%d" % number, b"p%d" % number, b"c", b"q"))
    writer.finish()
    return checkpoint_path(directory, offset)


def read(directory: Path, offset: int = OFFSET) -> list[tuple[object, ...]]:
    return [
        (row.offset, row.timestamp_us, row.topic, row.payload)
        for rows in Checkpoint(directory, offset).rows()
        for row in rows
    ]


@pytest.mark.parametrize("records", [0, 1, 499, 500, 1_234])
def test_records_are_read_as_they_were_written(records: int, tmp_path: Path) -> None:
    write(tmp_path, records)
    expected = [(number, 10 * number, b"t/%d" % number, b"p%d" % number) for number in range(records)]
    assert read(tmp_path) == expected
    checkpoint = Checkpoint(tmp_path, OFFSET)
    assert (checkpoint.offset, checkpoint.timestamp_us, checkpoint.check()) == (OFFSET, 1_000, records)


def test_a_checkpoint_cut_anywhere_is_damaged(tmp_path: Path) -> None:
    path = write(tmp_path, 3)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(LogCorrupt):
            Checkpoint(tmp_path, OFFSET).check()
    path.write_bytes(whole + b"\0")
    with pytest.raises(LogCorrupt):
        Checkpoint(tmp_path, OFFSET).check()


def test_every_changed_byte_is_found(tmp_path: Path) -> None:
    path = write(tmp_path, 3)
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(flipped(whole, at, at % 8))
        with pytest.raises((LogCorrupt, NewerFormat)):
            Checkpoint(tmp_path, OFFSET).check()


def test_a_checkpoint_without_its_last_block_is_damaged(tmp_path: Path) -> None:
    path = write(tmp_path, 600)
    first, second = Checkpoint(tmp_path, OFFSET).blocks()
    whole = path.read_bytes()
    path.write_bytes(whole[: CHECKPOINT_HEADER_BYTES + len(first._data)])
    with pytest.raises(LogCorrupt, match="the end of the checkpoint is missing"):
        Checkpoint(tmp_path, OFFSET).check()
    assert len(second) == 101


def test_one_that_was_not_finished_is_none(tmp_path: Path) -> None:
    writer = CheckpointWriter(tmp_path, OFFSET, 0)
    writer.add(LogRow(1, 1, 1, 0, b"t", b"p", b"c"))
    assert checkpoint_offsets(tmp_path) == []
    open_log(tmp_path).close()  # as a server does at its start
    assert not list(tmp_path.glob("*.new"))
    writer.abandon()


def test_the_oldest_undamaged_one_of_the_logs_offsets_is_found(tmp_path: Path) -> None:
    paths = {offset: write(tmp_path, 3, offset) for offset in (10, 20, 30, 40)}
    paths[20].write_bytes(flipped(paths[20].read_bytes(), 200))
    found = undamaged_checkpoint(tmp_path, 15, 35)
    assert found is not None and found.offset == 30
    assert undamaged_checkpoint(tmp_path, 15, 25) is None
    assert [checkpoint.offset for checkpoint in checkpoints(tmp_path)] == [10, 20, 30, 40]


def test_verify_checks_checkpoints_and_misses_the_one_of_a_trimmed_log(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=1_500)
    fill(log, [3] * 20)
    first_offset = log.segments()[1].first_offset
    path = write(tmp_path, 3, first_offset)
    log.trim(first_offset)
    log.close()
    reports = list(verify(tmp_path))
    assert [report.path for report in reports if report.is_checkpoint] == [path]
    assert [finding for report in reports for finding in report.findings] == []
    path.write_bytes(flipped(path.read_bytes(), 200))
    (damaged,) = [str(finding) for report in verify(tmp_path) for finding in report.findings]
    assert damaged.startswith(f"{path}, position {CHECKPOINT_HEADER_BYTES}: ")
    path.unlink()
    (missing,) = [str(finding) for report in verify(tmp_path) for finding in report.findings]
    assert f"the log begins at offset {first_offset}, and its checkpoint is missing" in missing

"""The checkpointer: a checkpoint when one is due, none that is half written, and not too many."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from embermq.store.engines.checkpointer import CHECKPOINTS_MAX, Checkpointer
from embermq.store.engines.retention import Retention
from embermq.store.log.checkpoint import Checkpoint, checkpoint_offsets, checkpoint_path
from embermq.store.log.writer import Log
from embermq.store.rows import Group
from embermq.store.state.state import State
from support.log_samples import NOW_US, flipped, open_log
from support.state_samples import retained

EVER = 1 << 60


class Bench:
    """A log of one group in a segment, its state, and a checkpointer."""

    def __init__(self, directory: Path, retention: Retention) -> None:
        self.directory = directory / "log"
        self.log: Log = open_log(self.directory, segment_bytes=1)
        self.state = State(directory / "state")
        self.checkpointer = Checkpointer(self.log, self.state, retention)
        self.now_us = NOW_US

    def write(self, payload_bytes: int = 10, after_s: int = 0) -> int:
        """A group, as the committer writes it; returns its offset."""
        self.now_us += after_s * 1_000_000
        group = Group(self.log.next_offset)
        offset = retained(group, b"a/%d" % (group.first_offset % 5), bytes(payload_bytes), self.now_us)
        self.log.append(group, self.now_us)
        self.checkpointer.segment_begins(self.now_us)
        self.state.apply(group)
        self.checkpointer.wait()
        return offset

    def offsets(self) -> list[int]:
        return checkpoint_offsets(self.directory)

    def close(self) -> None:
        self.checkpointer.abandon()
        self.state.close()
        self.log.close()


@pytest.fixture
def benches(tmp_path: Path) -> Iterator[list[Bench]]:
    opened: list[Bench] = []
    yield opened
    for bench in opened:
        bench.close()


def make(benches: list[Bench], tmp_path: Path, size_bytes: int = EVER, age_s: int = EVER // 1_000_000) -> Bench:
    bench = Bench(tmp_path, Retention(size_bytes, age_s))
    benches.append(bench)
    return bench


def test_a_checkpoint_is_due_after_a_part_of_the_retention(benches: list[Bench], tmp_path: Path) -> None:
    by_size = make(benches, tmp_path / "size", size_bytes=80_000)
    for _ in range(8):
        by_size.write(5_000)  # a checkpoint has up to five of these messages, and is due after four times its size
    first, *others = by_size.offsets()
    assert first == 3
    assert not others
    by_age = make(benches, tmp_path / "age", age_s=800)
    for _ in range(8):
        by_age.write(after_s=60)
    assert by_age.offsets() == [3, 5, 7]


def test_nothing_is_due_where_everything_is_kept(benches: list[Bench], tmp_path: Path) -> None:
    bench = make(benches, tmp_path)
    for _ in range(5):
        bench.write(1_000, after_s=10_000)
    assert bench.offsets() == []


def test_a_checkpoint_holds_what_was_before_its_offset(benches: list[Bench], tmp_path: Path) -> None:
    bench = make(benches, tmp_path, size_bytes=0)
    bench.write(1)
    bench.write(2)
    bench.write(3)
    assert bench.offsets()[0] == 2
    (rows,) = Checkpoint(bench.directory, 2).rows()
    assert rows[0].payload == bytes(1)
    assert Checkpoint(bench.directory, 2).check() == 1


def test_their_number_is_bounded(benches: list[Bench], tmp_path: Path) -> None:
    bench = make(benches, tmp_path, age_s=0)
    newest = 0
    for _ in range(3 * CHECKPOINTS_MAX):
        newest = bench.write()
        assert len(bench.offsets()) <= CHECKPOINTS_MAX
    assert bench.offsets()[-1] == newest


def test_superseded_ones_and_those_of_another_log_are_deleted(benches: list[Bench], tmp_path: Path) -> None:
    bench = make(benches, tmp_path, age_s=0)
    for _ in range(6):
        bench.write()
    foreign = checkpoint_path(bench.directory, bench.log.next_offset + 1)
    foreign.write_bytes(b"of a log that went on")
    bench.log.trim(4)
    bench.checkpointer.remove_superseded()
    assert bench.offsets() == [4, 5, 6]


def test_a_damaged_one_is_passed_over(benches: list[Bench], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bench = make(benches, tmp_path, age_s=0)
    for _ in range(6):
        bench.write()
    assert [found for found in bench.checkpointer.undamaged_up_to(5) if found] == [5]
    path = checkpoint_path(bench.directory, 5)
    path.write_bytes(flipped(path.read_bytes(), 100))
    with caplog.at_level(logging.ERROR):
        assert [found for found in bench.checkpointer.undamaged_up_to(5) if found] == [4]
    assert f"not trimmed to the checkpoint of offset 5: the log is damaged: {path}" in caplog.text
    assert not any(bench.checkpointer.undamaged_up_to(1))


def test_a_disk_that_takes_nothing_is_logged_and_tried_again(
    benches: list[Bench], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = make(benches, tmp_path, age_s=0)
    bench.write()
    in_the_way = checkpoint_path(bench.directory, 2).with_suffix(".ckpt.new")
    in_the_way.mkdir()
    bench.write()
    assert "the checkpoint of offset 2 could not be written" in caplog.text
    bench.write()
    assert bench.offsets() == [3]
    in_the_way.rmdir()

"""The committer: groups become durable in order, and none is given up."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from threading import Event

import pytest
from rocksdict import WriteBatch, WriteOptions

from embermq.store.engines.committer import Committer, Work
from embermq.store.engines.retention import Retention
from embermq.store.errors import DirectoryLost, StoreError
from embermq.store.log.writer import Log
from embermq.store.rows import Group, Kind
from embermq.store.state.state import State, StateSettings
from support.log_samples import NOW_US
from support.state_samples import WrappedDatabase, retained

SEGMENT_BYTES = 4_000


class Bench:
    """A committer on a log and a state, and the loop that it reports to."""

    def __init__(self, directory: Path, settings: StateSettings | None = None) -> None:
        self.calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.finished: list[tuple[int, StoreError | None]] = []
        self.trims: list[int] = []
        self.is_lost = False
        self.log = Log(directory / "log", segment_bytes=SEGMENT_BYTES, segment_age_s=3600, sync=True)
        self.state = State(directory / "state", settings=settings)
        self._next_offset = self.log.next_offset
        self._now_us = NOW_US
        self.committer = Committer(
            self.log,
            self.state,
            sync=True,
            retention=Retention(2 * SEGMENT_BYTES, 3600),
            call_soon=self.calls.put,
            want_trim=self.trims.append,
            check_directory=self.check_directory,
        )

    def check_directory(self) -> None:
        if self.is_lost:
            raise DirectoryLost("data")

    def submit(self, topic: bytes = b"a", payload: bytes = b"x", trim_before: int = 0) -> int:
        """A group of one record; returns its offset."""
        group = Group(self._next_offset)
        self._now_us += 11_000_000  # more than the time between two looks at the retention
        offset = retained(group, topic, payload, self._now_us)
        self._next_offset += 1
        self.committer.submit(Work(group, lambda error: self.finished.append((offset, error)), trim_before))
        return offset

    def run(self, calls: int = 1) -> None:
        for _ in range(calls):
            self.calls.get(timeout=60)()

    def run_until_finished(self, offset: int) -> None:
        while not self.finished or self.finished[-1] != (offset, None):
            self.run()

    def close(self) -> None:
        self.committer.close()
        self.state.close()
        self.log.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()


def test_groups_are_finished_in_order_once_they_are_in_the_log_and_in_the_state(bench: Bench) -> None:
    offsets = [bench.submit(b"a/%d" % number) for number in range(20)]
    bench.run_until_finished(offsets[-1])
    assert bench.finished == [(offset, None) for offset in offsets]
    assert bench.log.next_offset == 21
    assert bench.state.applied_offset() == 20


def test_closing_finishes_what_was_submitted(bench: Bench) -> None:
    for _ in range(5):
        bench.submit()
    bench.committer.close()
    assert bench.state.applied_offset() == 5


class NotingDatabase(WrappedDatabase):
    """Says when it was written to."""

    def __init__(self) -> None:
        super().__init__()
        self.written = Event()

    def write(self, batch: WriteBatch, options: WriteOptions) -> None:
        self.real.write(batch, options)
        self.written.set()


def test_while_no_group_comes_the_database_gets_what_the_state_has_buffered(tmp_path: Path) -> None:
    database = NotingDatabase()
    bench = Bench(tmp_path, StateSettings(open_database=database.open))
    bench.run_until_finished(bench.submit(b"a"))
    while database.real.get(b"Ra") is None:
        assert database.written.wait(60)
        database.written.clear()
    bench.close()


class FailingSync:
    """`os.fdatasync` fails as long as it is `broken`; each failure is put in `failures`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broken = True
        self.failures: SimpleQueue[None] = SimpleQueue()
        self._real = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", self)

    def __call__(self, descriptor: int) -> None:
        if self.broken:
            self.failures.put(None)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._real(descriptor)


def test_an_error_is_told_once_and_the_group_is_tried_until_it_is_durable(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FailingSync(monkeypatch)
    offset = bench.submit()
    for _ in range(3):
        disk.failures.get(timeout=60)
    bench.run()
    [(told_of, error)] = bench.finished
    assert told_of == offset
    assert str(error) == os.strerror(errno.EIO) == bench.committer.failing
    disk.broken = False
    bench.run()
    assert bench.finished[1:] == [(offset, None)]
    assert bench.committer.failing == ""


def test_closing_while_the_disk_fails_ends_without_a_word_that_the_group_is_durable(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FailingSync(monkeypatch)
    bench.submit()
    bench.run()
    bench.committer.close()
    disk.broken = False
    assert [error is None for _, error in bench.finished] == [False]
    assert bench.calls.empty()


def test_after_an_error_of_our_own_nothing_is_ever_called_durable(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.committer.submit(Work(Group(1), lambda error: bench.finished.append((1, error)), 0))  # it has no record
    bench.run()
    bench.submit()
    bench.committer.close()
    [(_, error)] = bench.finished
    assert "the committer stopped" in str(error)
    assert "the committer stopped" in bench.committer.failing
    assert bench.calls.empty()
    assert "Traceback" in caplog.text


@pytest.mark.parametrize("lost", ["segment", "directory"])
def test_without_its_directory_nothing_is_ever_called_durable_again(
    bench: Bench, lost: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench.run_until_finished(bench.submit())
    [segment] = (tmp_path / "log").glob("*.log")
    if lost == "segment":
        segment.rename(tmp_path / "aside")
    else:
        bench.is_lost = True
    told_of = bench.submit()
    bench.run()
    if lost == "segment":
        (tmp_path / "aside").rename(segment)
    bench.is_lost = False
    bench.submit()
    bench.committer.close()
    assert [offset for offset, error in bench.finished[1:] if error is not None] == [told_of]
    assert len(bench.finished) == 2
    assert "removed, renamed or replaced" in bench.committer.failing == bench.committer.refusing
    assert bench.calls.empty()
    assert "Traceback" not in caplog.text


def test_a_log_larger_than_its_retention_asks_for_a_trim_and_gets_it_with_a_later_group(bench: Bench) -> None:
    count = 0
    while not bench.trims:
        bench.run_until_finished(bench.submit(b"a/%d" % count, bytes(500)))
        while not bench.calls.empty():
            bench.run()
        count += 1
    before_offset = bench.trims[0]
    assert bench.log.first_offset == 1
    assert sum(segment.size_bytes for segment in bench.log.segments()) > 2 * SEGMENT_BYTES
    bench.run_until_finished(bench.submit(trim_before=before_offset))
    for _ in range(200):  # one piece of the trimming is done after each group, the rest while none waits
        if bench.log.first_offset == before_offset:
            break
        bench.run_until_finished(bench.submit())
    assert bench.log.first_offset == before_offset
    assert bench.state.retained.totals()[0] == count + 1


def test_what_a_reader_has_asked_for_goes_to_the_database_also_with_a_group_that_changes_nothing(bench: Bench) -> None:
    bench.run_until_finished(bench.submit(b"a/1"))
    assert bench.state.retained.piece("+/1", "", 10, 1_000, 10).found()
    group = Group(bench.log.next_offset)
    group.append(NOW_US, Kind.PUBLISH, 0, b"b", b"x", b"c")
    bench.committer.submit(Work(group, lambda error: bench.finished.append((0, error)), 0))
    bench.committer.close()
    assert not bench.state.has_buffered()

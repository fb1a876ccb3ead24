"""The threads that wait for an archive: reads that nobody wants take no place there."""

from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from threading import Event

import pytest

from embermq.store.errors import StoreError
from embermq.store.history.fetchers import THREADS, WAITING_MAX, Asked, Fetchers
from embermq.store.history.pieces import HistoryPiece, HistoryRead, LogSpan
from embermq.store.history.trimmed import Fetched, TrimmedLog, TrimmedRetained
from embermq.store.log.writer import Log


class Read(HistoryRead):
    def done(self, piece: HistoryPiece | None, error: StoreError | None) -> None:
        raise AssertionError("the reader answers")


class HeldArchive(TrimmedLog):
    def __init__(self) -> None:
        self.go_on = Event()
        self.begun: SimpleQueue[int] = SimpleQueue()
        self.errors: dict[int, Exception] = {}

    def fetch(self, offset: int, from_us: int, log_begins: int) -> Fetched:
        self.begun.put(offset)
        assert self.go_on.wait(60)
        if offset in self.errors:
            raise self.errors[offset]
        return Fetched(offset, None)

    def in_memory(self, offset: int) -> Fetched | None:
        return None

    def begins_us(self, log_begins: int) -> int:
        return 0

    def fetched_bytes(self) -> int:
        return 0

    def retained(self) -> TrimmedRetained:
        raise AssertionError("only the log is read")


class Held:
    def __init__(self, log: Log) -> None:
        self.archive = HeldArchive()
        self.done: SimpleQueue[tuple[Asked, StoreError | None]] = SimpleQueue()
        self.fetchers = Fetchers(self.archive, log, lambda asked, error: self.done.put((asked, error)))

    def add(self, offset: int) -> Asked:
        asked = Asked(Read(), LogSpan("#", offset, 0, 0, 0, 1, 1), None, True)
        self.fetchers.add(asked)
        return asked


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    log = Log(tmp_path, segment_bytes=4_000, segment_age_s=3600, sync=False)
    held = Held(log)
    yield held
    held.archive.go_on.set()
    held.fetchers.close()
    log.close()


def test_so_many_reads_wait_at_a_time_and_cancelled_ones_are_left_out(held: Held) -> None:
    reads = [held.add(offset) for offset in range(THREADS + 4)]
    begun = {held.archive.begun.get(timeout=60) for _ in range(THREADS)}
    assert begun == set(range(THREADS)) and held.archive.begun.empty()
    reads[THREADS + 1].read.is_cancelled = True
    held.archive.go_on.set()
    done = {held.done.get(timeout=60)[0] for _ in range(THREADS + 3)}
    assert done == {asked for asked in reads if not asked.read.is_cancelled}
    assert all(asked.fetched is not None for asked in done)


def test_many_cancelled_reads_take_no_memory(held: Held) -> None:
    wanted = [held.add(offset) for offset in range(THREADS + 1)]
    for _ in range(3 * WAITING_MAX):
        held.add(99).read.is_cancelled = True
    assert held.fetchers._waiting.qsize() <= WAITING_MAX + 2
    held.archive.go_on.set()
    assert {held.done.get(timeout=60)[0] for _ in wanted} == set(wanted)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (StoreError("the archive is away"), "the archive is away"),
        (OSError(5, "Input/output error"), "the history cannot be read: [Errno 5] Input/output error"),
        (KeyError("x"), "the history cannot be read: KeyError('x')"),
    ],
)
def test_a_failure_is_one_sentence_and_the_threads_go_on(held: Held, error: Exception, sentence: str) -> None:
    held.archive.go_on.set()
    held.archive.errors[7] = error
    held.add(7)
    assert str(held.done.get(timeout=60)[1]) == sentence
    for offset in range(20, 20 + 2 * THREADS):
        held.add(offset)
        assert held.done.get(timeout=60)[1] is None


def test_closing_does_not_wait_for_the_archive(held: Held) -> None:
    held.add(1)
    held.archive.begun.get(timeout=60)
    held.fetchers.close()
    assert held.done.empty()

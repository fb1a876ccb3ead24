"""The thread that answers for the past of an archive: whose read is next, and what becomes of reads that fail."""

from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Event

import pytest

from embermq.store.errors import HistoryTrimmed, NotWanted, StoreError
from embermq.store.history.fetchers import WAITING_MAX, Asked
from embermq.store.history.past_reader import PastReader
from embermq.store.history.pieces import HistoryPiece, HistoryRead, RetainedSpan
from embermq.store.history.trimmed import TrimmedRetained
from embermq.store.interface import RetainedPiece

HELD_US = 1
MADE_US = 50


class Read(HistoryRead):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.piece: HistoryPiece | None = None
        self.error: StoreError | None = None

    def done(self, piece: HistoryPiece | None, error: StoreError | None) -> None:
        self.piece, self.error = piece, error


class ScriptedPast(TrimmedRetained):
    """Knows instants from `MADE_US` on without waiting, and waits for one until it is let."""

    def __init__(self) -> None:
        self.begun: SimpleQueue[str] = SimpleQueue()
        self.go_on = Event()
        self.order: list[str] = []
        self.errors: dict[str, Exception] = {}
        self.is_closed = Event()

    def piece(
        self,
        topic_filter: str,
        instant_us: int,
        after_topic_name: str,
        limit: int,
        bytes_max: int,
        is_wanted: Callable[[], bool],
    ) -> RetainedPiece:
        self.order.append(topic_filter)
        if instant_us == HELD_US:
            self.begun.put(topic_filter)
            assert self.go_on.wait(60)
            if not is_wanted():
                raise NotWanted
        if topic_filter in self.errors:
            raise self.errors[topic_filter]
        return RetainedPiece([], f"after {after_topic_name}", True, 0, 0)

    def is_made(self, instant_us: int) -> bool:
        return instant_us >= MADE_US

    def begins_us(self) -> int:
        return 0

    def close(self) -> None:
        self.is_closed.set()


class Held:
    """A reader whose thread waits with the read named held."""

    def __init__(self, passed_max: int = 1_000) -> None:
        self.past = ScriptedPast()
        self.calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.reader = PastReader(self.past, self.calls.put, passed_max)
        self.held = self.add("held", HELD_US)
        assert self.past.begun.get(timeout=60) == "held"

    def add(self, name: str, instant_us: int) -> Read:
        read = Read(name)
        self.reader.add(Asked(read, None, RetainedSpan(name, instant_us, 0, "x", 10, 100), True))
        return read

    def answered(self, count: int) -> list[str]:
        """Let the thread go on; returns what was asked for until so many answers have come."""
        self.past.go_on.set()
        for _ in range(count):
            self.calls.get(timeout=60)()
        return self.past.order


@pytest.fixture
def held() -> Iterator[Held]:
    held = Held()
    yield held
    held.past.go_on.set()
    held.reader.close()


def test_reads_that_need_no_waiting_come_before_those_that_do(held: Held) -> None:
    reads = [held.add(name, us) for name, us in (("a", 2), ("b", 50), ("c", 3), ("d", 60))]
    assert held.answered(5) == ["held", "b", "d", "a", "c"]
    assert all(read.piece is not None and read.piece.after_topic_name == "after x" for read in reads)
    assert all(read.piece is not None and read.piece.is_archived and read.piece.is_done for read in reads)


def test_a_read_is_not_passed_over_for_ever() -> None:
    held = Held(passed_max=2)
    for name, us in (("a", 2), ("b", 50), ("c", 51), ("d", 52), ("e", 53)):
        held.add(name, us)
    assert held.answered(6) == ["held", "b", "c", "a", "d", "e"]
    held.reader.close()


def test_reads_that_nobody_wants_are_left_out(held: Held) -> None:
    unwanted, wanted = held.add("a", 2), held.add("b", 3)
    held.held.is_cancelled = unwanted.is_cancelled = True
    assert held.answered(1) == ["held", "b"]
    assert wanted.piece is not None and held.held.piece is None and unwanted.piece is None


def test_many_cancelled_reads_take_no_memory(held: Held) -> None:
    wanted = held.add("a", 2)
    for _ in range(3 * WAITING_MAX):
        held.add("b", 3).is_cancelled = True
    assert len(held.reader._waiting) <= WAITING_MAX + 2
    assert held.answered(2) == ["held", "a"]
    assert wanted.piece is not None


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (StoreError("the archive is away"), "the archive is away"),
        (HistoryTrimmed(5, 1_000_000), "the history is kept from 1970-01-01T00:00:01+00:00 on"),
        (KeyError("x"), "the history cannot be read: KeyError('x')"),
    ],
)
def test_a_failure_is_one_sentence_and_the_thread_goes_on(held: Held, error: Exception, sentence: str) -> None:
    held.past.errors["a"] = error
    failed, other = held.add("a", 2), held.add("b", 3)
    held.answered(3)
    assert str(failed.error).startswith(sentence) and failed.piece is None
    assert other.error is None and other.piece is not None


def test_closing_gives_up_what_is_under_way_and_removes_what_was_made(held: Held) -> None:
    later = held.add("a", 2)
    held.past.go_on.set()
    held.reader.close()
    assert held.past.is_closed.wait(60)
    assert later.piece is None and later.error is None


def test_closing_does_not_wait_for_the_archive(held: Held) -> None:
    held.reader.close()
    assert not held.past.is_closed.is_set()

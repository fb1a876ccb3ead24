"""The thread that reads what was, for a journal."""

from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from embermq.protocol.packets import Publish
from embermq.store.engines.disk import DiskStore
from embermq.store.engines.memory import MemoryStore
from embermq.store.engines.opening import JournalSettings
from embermq.store.errors import HistoryTrimmed
from embermq.store.history.pieces import HistoryPiece, HistoryRead, LogSpan, RetainedSpan
from embermq.store.history.reader import HistoryReader, as_store_error
from embermq.store.interface import StoreError

NOW_US = 1_700_000_000_000_000


class Read(HistoryRead):
    def __init__(self) -> None:
        super().__init__()
        self.piece: HistoryPiece | None = None
        self.error: StoreError | None = None

    def done(self, piece: HistoryPiece | None, error: StoreError | None) -> None:
        self.piece, self.error = piece, error


class Opened:
    """A journal whose calls to the broker's thread are made by the test."""

    def __init__(self, directory: Path) -> None:
        self.calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.journal = DiskStore(directory, self.calls.put, JournalSettings(durability="os"))
        self.journal.begin_turn(NOW_US)
        reads = self.journal.history.reads()
        assert isinstance(reads, HistoryReader)
        self.reads = reads

    def publish(self, topic_name: str, payload: bytes, retain: bool = True) -> None:
        self.journal.append_publish(Publish(topic_name, payload, 1, retain), "c")

    def commit(self) -> None:
        done: list[StoreError | None] = []
        self.journal.commit(done.append)
        while not done:
            self.calls.get(timeout=60)()

    def retained(self, topic_filter: str, instant_us: int, before_offset: int, limit: int = 100) -> dict[str, bytes]:
        """All of a retained set, piece by piece."""
        found: dict[str, bytes] = {}
        after = ""
        while True:
            read = Read()
            self.reads.read_retained(
                read, RetainedSpan(topic_filter, instant_us, before_offset, after, limit, 1 << 20), False
            )
            self.calls.get(timeout=60)()
            if read.error is not None:
                raise read.error
            assert read.piece is not None
            for each in read.piece.retained:
                assert each.topic_name not in found
                found[each.topic_name] = each.payload
            if read.piece.is_done:
                return found
            after = read.piece.after_topic_name


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    opened = Opened(tmp_path / "data")
    yield opened
    opened.journal.close()


def test_a_store_in_memory_has_no_such_reads() -> None:
    assert MemoryStore().history.reads() is None


def test_the_log_is_read_and_answered_on_the_brokers_thread(opened: Opened) -> None:
    opened.publish("a", b"1", False)
    opened.publish("b", b"2", False)
    opened.commit()
    reads = opened.reads
    assert (reads.now_us(), reads.log_begins_us(), reads.durable_offset()) == (NOW_US, 0, 3)
    read = Read()
    reads.read_log(read, LogSpan("+", 0, 0, 0, 0, 10, 1000), False)
    answer = opened.calls.get(timeout=60)
    assert read.piece is None
    answer()
    assert read.piece is not None
    assert [found.message.payload for found in read.piece.messages] == [b"1", b"2"]


def test_a_cancelled_read_is_not_answered(opened: Opened) -> None:
    opened.publish("a", b"1")
    opened.commit()
    reads = opened.reads
    cancelled, other = Read(), Read()
    cancelled.is_cancelled = True
    reads.read_log(cancelled, LogSpan("+", 0, 0, 0, 0, 10, 1000), False)
    reads.read_log(other, LogSpan("+", 0, 0, 0, 0, 10, 1000), False)
    opened.calls.get(timeout=60)()
    assert other.piece is not None and cancelled.piece is None and opened.calls.empty()


@pytest.mark.parametrize("limit", [1, 7, 1000])
@pytest.mark.parametrize("topic_filter", ["#", "a/+/x", "a/5/#", "a/5/x", "+/7/+"])
def test_a_retained_set_is_complete_in_any_pieces(opened: Opened, limit: int, topic_filter: str) -> None:
    for number in range(40):
        opened.publish(f"a/{number}/x", b"%d" % number)
        opened.publish(f"a/{number}/y", b"%d" % number)
    opened.publish("$own/x", b"hidden")
    opened.commit()
    before_offset = opened.journal.next_offset()
    opened.publish("a/1/x", b"later, at the same instant")
    opened.journal.begin_turn(NOW_US + 1_000_000)
    opened.publish("a/2/x", b"")
    opened.publish("a/3/x", b"later")
    opened.commit()
    numbers = {"a/5/#": [5], "a/5/x": [5], "+/7/+": [7]}.get(topic_filter, list(range(40)))
    names = [f"a/{number}/{last}" for number in numbers for last in ("x" if topic_filter.endswith("x") else "xy")]
    expected = {name: name.split("/")[1].encode() for name in names}
    assert opened.retained(topic_filter, NOW_US, before_offset, limit) == expected


def test_an_instant_that_the_history_does_not_reach_is_an_error(opened: Opened) -> None:
    opened.journal._state.history.begin(1, NOW_US)
    assert opened.reads.retained_begins_us() == NOW_US
    with pytest.raises(HistoryTrimmed):
        opened.retained("#", NOW_US - 1, 1)


def test_closing_ends_the_thread_and_leaves_reads_unanswered(tmp_path: Path) -> None:
    opened = Opened(tmp_path / "data")
    for _ in range(100):
        opened.reads.read_log(Read(), LogSpan("+", 0, 0, 0, 0, 10, 1000), False)
    opened.journal.close()
    (thread,) = opened.reads.lanes.local._threads
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (StoreError("the archive is away"), "the archive is away"),
        (HistoryTrimmed(5, 1_000_000), "the history is kept from 1970-01-01T00:00:01+00:00 on"),
        (OSError(5, "Input/output error"), "the history cannot be read: [Errno 5] Input/output error"),
        (KeyError("x"), "the history cannot be read: KeyError('x')"),
    ],
)
def test_a_failure_is_one_sentence(error: Exception, sentence: str) -> None:
    assert str(as_store_error(error)).startswith(sentence)

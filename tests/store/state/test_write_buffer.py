"""The write buffer: every way to read finds what was written, whether it is buffered or in the database."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from threading import Event, Thread

import pytest

from embermq.store.state.retained_sizes import Sizes
from embermq.store.state.rocks import Rocks
from embermq.store.state.write_buffer import Batch, StateIterator, WriteBuffer

SPACES = (b"A", b"B", b"C")
LETTERS = b"\x00\x01ab\xff"


def random_key(rng: Random) -> bytes:
    return rng.choice(SPACES) + bytes(rng.choice(LETTERS) for _ in range(rng.randint(0, 3)))


class Written:
    """A database with a buffer, and the same in a dict."""

    def __init__(self, directory: Path, rng: Random, entries_max: int) -> None:
        self.rocks = Rocks(directory, buffer_entries_max=entries_max)
        self.model: dict[bytes, bytes] = {}
        self.rng = rng
        self.count = 0

    def write(self) -> None:
        batch = Batch()
        self.fill(batch)
        self.rocks.write(batch)

    def fill(self, batch: Batch) -> None:
        rng = self.rng
        for _ in range(rng.randint(1, 6)):
            key, chance = random_key(rng), rng.random()
            self.count += 1
            if chance < 0.5:
                batch.put(key, self.model.setdefault(key, b"%d" % self.count))
                batch.put(key, b"%d" % self.count)
                self.model[key] = b"%d" % self.count
            elif chance < 0.7:
                batch.delete(key)
                self.model.pop(key, None)
            elif chance < 0.97:
                key += b"new%d" % self.count
                batch.put(key, b"new")
                self.model[key] = b"new"
            else:
                low, high = sorted((key, random_key(rng)))
                batch.delete_range(low, high)
                for found in [each for each in self.model if low <= each < high]:
                    del self.model[found]

    def in_space(self, first: bytes) -> list[tuple[bytes, bytes]]:
        return sorted((key, value) for key, value in self.model.items() if key[:1] == first)


def end_of(first: bytes) -> bytes:
    return bytes([first[0] + 1])


def read_on(iterator: StateIterator) -> Iterator[tuple[bytes, bytes]]:
    while iterator.valid():
        yield iterator.key(), iterator.value()
        iterator.next()


def check(written: Written) -> None:
    rocks, rng, model = written.rocks, written.rng, written.model
    key = rng.choice([random_key(rng), *model]) if rng.random() < 0.5 else random_key(rng)
    assert rocks.get(key) == model.get(key)
    first = key[:1]
    keys = [first + each for each in (b"", b"a", b"b", b"\x00", b"aa")]
    assert rocks.get_many(keys) == [model.get(each) for each in keys]
    if rng.random() < 0.5:
        return  # so that what was written stays in the buffer
    kept = written.in_space(first)
    low, high = key, rng.choice([end_of(first), max(key, first + b"b")])
    between = [(each, value) for each, value in kept if low <= each < high]
    limit = rng.randint(1, 5)
    assert list(rocks.items(low, high)) == between
    assert rocks.items_from(low, high, limit) == between[:limit]
    assert rocks.keys_from(low, high, limit) == [each for each, _ in between[:limit]]
    iterator = rocks.iterator(end_of(first))
    iterator.seek(key)
    assert list(read_on(iterator)) == [entry for entry in kept if entry[0] >= key]
    iterator.seek_for_prev(key)
    before = [entry for entry in kept if entry[0] <= key]
    if before:
        assert list(read_on(iterator)) == [before[-1], *(entry for entry in kept if entry[0] > key)]
    else:
        assert not iterator.valid() or iterator.key() < first


@pytest.mark.parametrize("entries_max", [0, 5, 40, 1_000])
def test_all_reads_agree_with_a_dict(tmp_path: Path, entries_max: int) -> None:
    rng = Random(entries_max)
    written = Written(tmp_path, rng, entries_max)
    for _ in range(1_500):
        written.write()
        check(written)
        if rng.random() < 0.02:
            written.rocks.write_buffered()
        if rng.random() < 0.02:
            written.rocks.flush(wait=True)
    written.rocks.close()


def test_a_reader_sees_what_was_there_when_it_began(tmp_path: Path) -> None:
    rng = Random(1)
    written = Written(tmp_path, rng, 1_000)
    readers: list[tuple[StateIterator, Iterator[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]] = []
    for _ in range(300):
        written.write()
        if rng.random() < 0.2:
            iterator = written.rocks.iterator(b"B")
            iterator.seek(b"A")
            items = written.rocks.items(b"A", b"B")
            kept = written.in_space(b"A")
            if kept:
                assert next(items) == kept[0]
                readers.append((iterator, items, kept))
    assert len(readers) > 30
    for iterator, items, kept in readers:
        assert list(read_on(iterator)) == kept
        assert list(items) == kept[1:]
    readers.clear()
    written.rocks.close()


def test_a_write_is_seen_as_a_whole_by_other_threads(tmp_path: Path) -> None:
    rocks = Rocks(tmp_path, buffer_entries_max=60)
    keys = [b"A%d" % number for number in range(20)]
    is_done = Event()
    torn: list[list[bytes]] = []
    reads: list[int] = []

    def read() -> None:
        while not is_done.is_set():
            values = [value for _, value in rocks.items(b"A", b"B")]
            if len(set(values)) > 1 or len(values) not in (0, len(keys)):
                torn.append(values)
            reads.append(len(values))

    threads = [Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(400):
        batch = Batch()
        for key in keys:
            batch.put(key, b"%d" % number)
        rocks.write(batch)
    is_done.set()
    for thread in threads:
        thread.join()
    assert reads and not torn
    rocks.close()


def buffered(*values: bytes) -> Batch:
    batch = Batch()
    for number, value in enumerate(values):
        batch.put(b"A%d" % number, value)
    return batch


def test_a_buffer_is_full_with_more_keys_or_bytes_than_it_may_have() -> None:
    for values, is_full in [
        ((b"1", b"2", b"3"), False),
        ((b"1", b"2", b"3", b"4"), True),
        ((bytes(102),), False),  # and a key of two bytes
        ((bytes(103),), True),
    ]:
        buffer = WriteBuffer(Sizes(), 3, 104)
        buffer.add(buffered(*values))
        assert buffer.is_full() == is_full
    buffer = WriteBuffer(Sizes(), 3, 104)
    buffer.add(buffered(bytes(60)))
    buffer.add(buffered(bytes(40)))
    assert not buffer.is_full()
    buffer.add(buffered(b""))
    assert buffer.is_full()


def test_long_keys_count_as_much_as_long_values() -> None:
    buffer = WriteBuffer(Sizes(), 100, 1_000)
    for number in range(9):
        batch = Batch()
        batch.put(b"R%d" % number + bytes(97), b"x")
        buffer.add(batch)
        assert not buffer.is_full()
    last = Batch()
    last.delete(b"R9" + bytes(110))
    buffer.add(last)
    assert buffer.is_full()


def test_a_reader_of_another_key_space_does_not_seal_the_buffer(tmp_path: Path) -> None:
    rocks = Rocks(tmp_path)
    rocks.write(buffered(b"1"))
    assert list(rocks.items(b"B", b"C")) == []
    assert not rocks.is_buffer_sealed()
    assert list(rocks.items(b"A", b"B")) == [(b"A0", b"1")]
    assert rocks.is_buffer_sealed()
    rocks.write(buffered(b"2"))
    assert not rocks.is_buffer_sealed()
    assert rocks.get(b"A0") == b"2"
    rocks.close()

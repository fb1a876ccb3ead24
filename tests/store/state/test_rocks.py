"""RocksDB as the state uses it: its options, writes that would wait, a disk that is full."""

from functools import partial
from pathlib import Path

import pytest

from embermq.store.errors import StoreError
from embermq.store.state.rocks import (
    BLOCK_CACHE_BYTES,
    FLUSH_BYTES,
    LIST_BYTES,
    LIST_ITEMS_MAX,
    MEMTABLES_MAX,
    Rocks,
    open_database,
)
from embermq.store.state.write_buffer import Batch, LateEntries
from support.state_samples import BreakableDatabase, StallingDatabase, WatchedDatabase


def test_a_database_that_exists_is_opened_with_the_options_of_today(tmp_path: Path) -> None:
    Rocks(tmp_path, partial(open_database, block_cache_bytes=4 * 1024 * 1024, memtables_max=5)).close()
    database = WatchedDatabase()
    rocks = Rocks(tmp_path, database.open)
    cache_bytes = database.real.property_int_value("rocksdb.block-cache-capacity")
    rocks.close()
    newest = max(tmp_path.glob("OPTIONS-*"))
    assert cache_bytes == BLOCK_CACHE_BYTES
    assert f"max_write_buffer_number={MEMTABLES_MAX}\n" in newest.read_text()


def test_a_damaged_database_is_a_sentence_that_names_the_way_out(tmp_path: Path) -> None:
    Rocks(tmp_path).close()
    (tmp_path / "CURRENT").write_bytes(b"nonsense")
    with pytest.raises(StoreError, match="ember store rebuild"):
        Rocks(tmp_path)


def test_a_write_that_would_wait_is_tried_again(tmp_path: Path) -> None:
    database = StallingDatabase(stalls=2)
    rocks = Rocks(tmp_path, database.open)
    assert rocks.write(_put) == "filled"
    assert database.stalls == 2  # it is buffered
    rocks.write_buffered()
    assert database.stalls == 0
    assert database.real.get(b"k") == b"v"
    rocks.close()


def _put(batch: Batch) -> str:
    batch.put(b"k", b"v")
    return "filled"


def test_a_write_gives_up_when_the_disk_never_keeps_up(tmp_path: Path) -> None:
    rocks = Rocks(tmp_path, StallingDatabase(stalls=1_000).open, stall_waits_max=2, buffer_entries_max=0)
    with pytest.raises(StoreError, match="does not keep up"):
        rocks.write(_put)
    assert rocks.get(b"k") is None
    rocks.close()


def test_what_could_not_be_written_stays_readable_until_it_can(tmp_path: Path) -> None:
    database = BreakableDatabase()
    rocks = Rocks(tmp_path, database.open)
    rocks.write(_put)
    database.broken = True
    with pytest.raises(StoreError, match="cannot be written"):
        rocks.write_buffered()
    with pytest.raises(StoreError, match="cannot be written"):
        rocks.write(_put)  # is not buffered any more: its writer must know
    assert (rocks.get(b"k"), list(rocks.items(b"k", b"l"))) == (b"v", [(b"k", b"v")])
    database.broken = False
    rocks.write_buffered()
    assert not rocks.has_buffered()
    assert rocks.get(b"k") == b"v"
    rocks.close()


def test_a_database_that_is_opened_again_has_nothing_that_was_only_buffered(tmp_path: Path) -> None:
    rocks = Rocks(tmp_path)
    rocks.write(_put)
    rocks.reopen()
    assert rocks.get(b"k") is None
    rocks.close()


def test_a_disk_has_space_for_a_flush_or_has_not(tmp_path: Path) -> None:
    free = [FLUSH_BYTES, FLUSH_BYTES - 1]
    rocks = Rocks(tmp_path, free_bytes=lambda directory: free.pop(0))
    assert rocks.has_space()
    assert not rocks.has_space()
    assert not (tmp_path / "probe").exists()
    rocks.close()


def test_items_are_those_of_one_key_space_as_they_are_when_the_first_is_asked_for(tmp_path: Path) -> None:
    rocks = Rocks(tmp_path)

    def put(key: bytes, value: bytes) -> None:
        rocks.write(lambda batch: batch.put(key, value))

    put(b"Aa", b"1")
    put(b"Ac", b"2")
    put(b"B", b"3")
    items = rocks.items(b"A", b"B")
    assert next(items) == (b"Aa", b"1")
    put(b"Ab", b"4")
    assert list(items) == [(b"Ac", b"2")]
    assert rocks.get_many([b"B", b"none"]) == [b"3", None]
    rocks.close()


@pytest.mark.parametrize("is_buffered", [True, False])
def test_lists_of_items_grow_within_their_bounds(tmp_path: Path, is_buffered: bool) -> None:
    rocks = Rocks(tmp_path)

    def read(space: bytes, value: bytes) -> list[int]:
        expected = [(space + b"%04d" % number, value) for number in range(300)]
        for key, _ in expected:
            rocks.write(lambda batch, key=key: batch.put(key, value))  # type: ignore[misc]
        if not is_buffered:
            rocks.write_buffered()
        lists = list(rocks.item_lists(space, space + b"~"))
        assert [item for items in lists for item in items] == expected == list(rocks.items(space, space + b"~"))
        return [len(items) for items in lists]

    small = read(b"A", b"x")
    assert small == [1, 2, 4, 8, 16, 32, *[LIST_ITEMS_MAX] * 3, 45]
    assert set(read(b"B", bytes(LIST_BYTES))) == {1}
    assert max(read(b"C", bytes(LIST_BYTES // 4))) == 4
    rocks.close()


class Late(LateEntries):
    """Late entries that are puts."""

    def __init__(self) -> None:
        super().__init__()
        self.puts: dict[bytes, bytes] = {}

    def put(self, batch: Batch, key: bytes, value: bytes) -> None:
        batch.has_late = True
        batch.put(b"z", value)
        self.puts[key] = value
        self.count = len(self.puts)

    def has(self, key: bytes) -> bool:
        return key in self.puts

    def get(self, key: bytes) -> bytes | None:
        return self.puts[key]

    def has_space(self, first_byte: int) -> bool:
        return any(key[0] == first_byte for key in self.puts)

    def fill(self, batch: Batch) -> None:
        for key, value in self.puts.items():
            batch.put(key, value)
        self.forget()

    def forget(self) -> None:
        self.puts.clear()
        self.count = 0


def test_late_entries_are_found_and_made_when_a_range_is_read(tmp_path: Path) -> None:
    database = WatchedDatabase()
    rocks = Rocks(tmp_path, database.open)
    late = rocks.late = Late()
    rocks.write(lambda batch: late.put(batch, b"Aa", b"1"))
    assert rocks.get(b"Aa") == b"1"
    assert late.count == 1
    assert rocks.get_many([b"Aa", b"Ab"]) == [b"1", None]
    rocks.write(lambda batch: late.put(batch, b"Aa", b"2"))
    assert rocks.get_many([b"Aa", b"Ab"]) == [b"2", None]
    rocks.write(lambda batch: late.put(batch, b"Ac", b"1"))
    assert list(rocks.items(b"A", b"B")) == [(b"Aa", b"2"), (b"Ac", b"1")]
    assert late.count == 0
    rocks.write(lambda batch: late.put(batch, b"Ac", b"2"))
    assert rocks.items_from(b"A", b"B", 10) == [(b"Aa", b"2"), (b"Ac", b"2")]
    rocks.write(lambda batch: late.put(batch, b"Ab", b"3"))
    assert rocks.keys_from(b"A", b"B", 10) == [b"Aa", b"Ab", b"Ac"]
    rocks.write(lambda batch: late.put(batch, b"Ad", b"3"))
    iterator = rocks.iterator(b"B")
    iterator.seek(b"Ad")
    assert iterator.value() == b"3"
    rocks.write(lambda batch: late.put(batch, b"Ae", b"4"))
    assert list(rocks.items(b"B", b"C")) == []
    assert late.count == 1  # nobody needs it there
    assert list(rocks.items(b"z", b"{")) == [(b"z", b"4")]
    assert late.count == 0  # that reader has closed the buffer
    rocks.write_buffered()
    assert database.real.get(b"Ae") == b"4"
    assert not rocks.has_buffered()
    rocks.close()


def test_late_entries_come_before_a_range_that_is_deleted_after_them(tmp_path: Path) -> None:
    rocks = Rocks(tmp_path)
    late = rocks.late = Late()
    rocks.write(lambda batch: late.put(batch, b"Aa", b"1"))
    rocks.write(lambda batch: batch.delete_range(b"A", b"B"))
    assert rocks.get(b"Aa") is None
    rocks.close()


def test_a_part_of_a_refused_write_never_reaches_the_database(tmp_path: Path) -> None:
    database = BreakableDatabase()
    rocks = Rocks(tmp_path, database.open, buffer_entries_max=2)
    late = rocks.late = Late()
    rocks.write(lambda batch: late.put(batch, b"Aa", b"1"))
    database.broken = True
    with pytest.raises(StoreError, match="cannot be written"):
        rocks.write(lambda batch: late.put(batch, b"Ab", b"2"))
    database.broken = False
    with pytest.raises(StoreError, match="opened again"):
        rocks.write_buffered()
    with pytest.raises(StoreError, match="opened again"):
        rocks.write(_put)
    rocks.reopen()
    assert list(rocks.items(b"A", b"B")) == []
    rocks.write(lambda batch: late.put(batch, b"Ab", b"2"))
    rocks.close()
    assert late.count == 1

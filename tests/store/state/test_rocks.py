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
from embermq.store.state.write_buffer import Batch, WriteBuffer
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
    rocks.write(put(b"k", b"v"))
    assert database.stalls == 2  # it is buffered
    rocks.write_buffered()
    assert database.stalls == 0
    assert database.real.get(b"k") == b"v"
    rocks.close()


def put(key: bytes, value: bytes) -> Batch:
    batch = Batch()
    batch.put(key, value)
    return batch


def test_a_write_gives_up_when_the_disk_never_keeps_up(tmp_path: Path) -> None:
    rocks = Rocks(tmp_path, StallingDatabase(stalls=1_000).open, stall_waits_max=2, buffer_entries_max=0)
    with pytest.raises(StoreError, match="does not keep up"):
        rocks.write(put(b"k", b"v"))
    assert rocks.get(b"k") == b"v"  # as the log has it, from which it is written once the database is opened again
    rocks.close()


def test_what_could_not_be_written_stays_readable_until_the_database_is_opened_again(tmp_path: Path) -> None:
    database = BreakableDatabase()
    rocks = Rocks(tmp_path, database.open)
    rocks.write(put(b"k", b"v"))
    database.broken = True
    with pytest.raises(StoreError, match="cannot be written: IO error"):
        rocks.write_buffered()
    assert (rocks.get(b"k"), list(rocks.items(b"k", b"l"))) == (b"v", [(b"k", b"v")])
    assert not rocks.is_buffer_sealed()  # as the committer asks: there is no use in writing it
    with pytest.raises(StoreError, match="opened again"):
        rocks.write(put(b"k", b"w"))  # its writer must know
    assert list(rocks.items(b"k", b"l")) == [(b"k", b"v")]
    rocks.reopen()
    assert not rocks.has_buffered()
    rocks.write(put(b"k", b"v"))
    rocks.write_buffered()
    assert database.real.get(b"k") == b"v"
    rocks.close()


def test_a_database_that_is_opened_again_has_nothing_that_was_only_buffered(tmp_path: Path) -> None:
    rocks = Rocks(tmp_path)
    rocks.write(put(b"k", b"v"))
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

    rocks.write(put(b"Aa", b"1"))
    rocks.write(put(b"Ac", b"2"))
    rocks.write(put(b"B", b"3"))
    items = rocks.items(b"A", b"B")
    assert next(items) == (b"Aa", b"1")
    rocks.write(put(b"Ab", b"4"))
    assert list(items) == [(b"Ac", b"2")]
    assert rocks.get_many([b"B", b"none"]) == [b"3", None]
    rocks.close()


@pytest.mark.parametrize("is_buffered", [True, False])
def test_lists_of_items_grow_within_their_bounds(tmp_path: Path, is_buffered: bool) -> None:
    rocks = Rocks(tmp_path)

    def read(space: bytes, value: bytes) -> list[int]:
        expected = [(space + b"%04d" % number, value) for number in range(300)]
        for key, _ in expected:
            rocks.write(put(key, value))
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


def refuse(buffer: WriteBuffer, batch: Batch) -> None:
    raise StoreError("the topics cannot be read")


def test_a_write_whose_topics_cannot_be_changed_leaves_nothing(tmp_path: Path) -> None:
    rocks = Rocks(tmp_path)
    with pytest.raises(StoreError, match="topics"):
        rocks.write(put(b"k", b"v"), refuse)
    assert rocks.get(b"k") is None
    rocks.close()


def test_what_is_buffered_comes_before_a_range_that_is_deleted_after_it(tmp_path: Path) -> None:
    rocks = Rocks(tmp_path)
    rocks.write(put(b"Aa", b"1"))
    batch = put(b"Ab", b"2")
    batch.delete_range(b"A", b"B")
    batch.put(b"Ac", b"3")
    rocks.write(batch)
    assert not rocks.has_buffered()
    assert list(rocks.items(b"A", b"B")) == [(b"Ac", b"3")]
    rocks.close()


def test_a_part_of_a_refused_write_never_reaches_the_database(tmp_path: Path) -> None:
    database = BreakableDatabase()
    rocks = Rocks(tmp_path, database.open)
    database.broken = True
    batch = put(b"Ab", b"2")
    batch.delete_range(b"S", b"T")
    with pytest.raises(StoreError, match="cannot be written"):
        rocks.write(batch, lambda buffer, batch: buffer.add(put(b"Aa", b"1")))
    database.broken = False
    with pytest.raises(StoreError, match="opened again"):
        rocks.write_buffered()
    with pytest.raises(StoreError, match="opened again"):
        rocks.write(put(b"k", b"v"))
    rocks.reopen()
    assert list(rocks.items(b"A", b"B")) == []
    rocks.close()

"""Lookup: records by offset, in any order, through a cache that is bounded."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.store.log.lookup import RUN_BYTES, STRETCH_BYTES, Lookup
from embermq.store.log.recovery import recover
from embermq.store.log.writer import Log
from support.log_samples import fill, open_log, read_many, row_of, segment_files


@settings(deadline=None, max_examples=40)
@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=25),
    offsets=st.data(),
    segment_bytes=st.integers(300, 5000),
)
def test_any_offsets_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], offsets: st.DataObject, segment_bytes: int
) -> None:
    log = Log(
        tmp_path_factory.mktemp("log"), segment_bytes=segment_bytes, segment_age_s=60, sync=False, cache_bytes=2000
    )
    rows = fill(log, sizes)
    asked = offsets.draw(st.lists(st.integers(-1, len(rows) + 2), max_size=40))
    assert [row_of(record) for record in read_many(log, asked)] == [
        rows[offset - 1] for offset in asked if 1 <= offset <= len(rows)
    ]
    log.close()


def test_what_was_read_once_is_not_read_again_while_the_cache_holds_it(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    rows = fill(log, [5] * 100)
    log.close()
    (segment,) = recover(tmp_path, 0)
    lookup = Lookup(tmp_path, 1 << 20)
    block = lookup.block(7, segment)
    assert block is not None
    assert row_of(block.record(7)) == rows[6]
    segment_files(tmp_path)[0].unlink()
    again = lookup.block(7, segment)
    assert again is not None
    assert row_of(again.record(7)) == rows[6]
    assert Lookup(tmp_path, 1 << 20).block(7, segment) is None


def test_a_damaged_index_does_not_hide_a_record(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    rows = fill(log, [5] * 100)
    log.close()
    (segment,) = recover(tmp_path, 0)
    (index,) = segment_files(tmp_path, ".idx")
    index.write_bytes(bytes(index.stat().st_size))
    block = Lookup(tmp_path, 1 << 20).block(250, segment)
    assert block is not None
    assert row_of(block.record(250)) == rows[249]


def test_a_log_that_is_read_from_end_to_end_is_whole(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    rows = fill(log, [400] * 40)  # more than a stretch, and more than a run
    assert sum(segment.size_bytes for segment in log.segments()) > RUN_BYTES + STRETCH_BYTES
    assert [row_of(record) for record in read_many(log, range(1, len(rows) + 1))] == rows
    log.close()

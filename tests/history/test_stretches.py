"""Stretches of an archive: fetched once for all who read the same, and bounded in memory."""

from pathlib import Path

import pytest

from embermq.history.archived_blocks import ArchivedBlocks
from embermq.history.rebuilt import ArchivedPast
from embermq.history.stretches import ArchivedStretches
from embermq.store.history.trimmed import Fetched
from support.archives import filled_log, upload_closed

BEGINS = 181


def stretches(tmp_path: Path, memory_bytes: int = 1 << 20, read_bytes: int = 1) -> ArchivedStretches:
    """Of the first 180 records of a log, with 20 in a block, and one block to a stretch."""
    filled_log(tmp_path / "log")
    upload_closed(str(tmp_path / "archive"), tmp_path / "log")
    blocks = ArchivedBlocks(str(tmp_path / "archive"), tmp_path / "log")
    past = ArchivedPast(str(tmp_path / "archive"), tmp_path / "cache")
    return ArchivedStretches(tmp_path / "log", blocks, past, memory_bytes, read_bytes)


def offsets(fetched: Fetched | None) -> tuple[int, int]:
    assert fetched is not None and fetched.stretch is not None
    assert fetched.stretch.block(fetched.offset).record(fetched.offset).offset == fetched.offset
    return fetched.stretch.first_offset, fetched.stretch.next_offset


def test_a_stretch_is_fetched_once(tmp_path: Path) -> None:
    archived = stretches(tmp_path)
    assert archived.in_memory(25) is None and archived.in_memory(0) is None
    assert offsets(archived.fetch(25, 0, BEGINS)) == (21, 41)
    fetched_bytes = archived.fetched_bytes()
    assert fetched_bytes > 0
    assert offsets(archived.in_memory(40)) == offsets(archived.fetch(21, 0, BEGINS)) == (21, 41)
    assert archived.in_memory(41) is None and archived.in_memory(20) is None
    assert archived.fetched_bytes() == fetched_bytes


def test_without_an_offset_it_begins_at_an_instant_or_the_beginning(tmp_path: Path) -> None:
    archived = stretches(tmp_path)
    assert archived.begins_us(BEGINS) == 0
    assert offsets(archived.fetch(0, 0, BEGINS)) == (1, 21)
    assert archived.fetch(0, 1 << 60, BEGINS).stretch is None
    assert archived.fetch(0, 1 << 60, BEGINS).offset == BEGINS
    assert archived.fetch(BEGINS, 0, BEGINS).stretch is None


@pytest.mark.parametrize("kept", [1, 3])
def test_the_memory_is_bounded_and_the_least_used_goes_first(tmp_path: Path, kept: int) -> None:
    archived = stretches(tmp_path)
    archived.fetch(1, 0, BEGINS)
    archived = ArchivedStretches(
        tmp_path / "log", archived._blocks, archived.retained(), archived.fetched_bytes() * (2 * kept + 1) // 2, 1
    )
    for offset in (1, 21, 41):
        archived.fetch(offset, 0, BEGINS)
    archived.in_memory(1)
    archived.fetch(61, 0, BEGINS)
    in_memory = [offset for offset in (1, 21, 41, 61) if archived.in_memory(offset) is not None]
    assert in_memory == ([61] if kept == 1 else [1, 41, 61])

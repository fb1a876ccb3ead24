"""Blocks of an archive by offset and instant: only what is asked for is read, and a gap is never read over."""

from pathlib import Path

import pytest

from embermq.archive.archive import open_archive
from embermq.archive.errors import ArchiveDamaged, ArchiveError, NotArchived
from embermq.archive.manifest import ArchivedSegment
from embermq.history.archived_blocks import UNREACHED_US, ArchivedBlocks
from embermq.store.errors import HistoryTrimmed
from embermq.store.log.errors import LogTrimmed
from embermq.store.log.reader import LogReader
from support.archives import filled_log, upload_closed, writer_of


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of 12 groups of 20 records, three to a segment; the last three are in the open one."""
    filled_log(tmp_path / "log")
    upload_closed(str(tmp_path / "archive"), tmp_path / "log")
    return tmp_path / "log"


@pytest.fixture
def blocks(log: Path, tmp_path: Path) -> ArchivedBlocks:
    return ArchivedBlocks(str(tmp_path / "archive"), log)


def segments(tmp_path: Path) -> list[ArchivedSegment]:
    return open_archive(tmp_path / "archive").segments()


BEGINS = 181


def test_the_runs_of_a_segment_have_its_blocks(log: Path, blocks: ArchivedBlocks) -> None:
    expected = (log / f"{1:020d}.log").read_bytes()
    found = blocks.run(25, BEGINS, 1)
    assert found is not None and found.entries.offsets() == [21, 41]
    assert found.data in expected
    whole = blocks.run(1, BEGINS)
    assert whole is not None and whole.entries.offsets() == [1, 21, 41, 61] and expected.endswith(whole.data)
    assert blocks.run(BEGINS, BEGINS) is None, "the log has it"


def test_instants_lead_to_the_first_record_that_is_not_older(log: Path, blocks: ArchivedBlocks) -> None:
    batches = LogReader(log).batches(1, BEGINS)
    times = [instant.value for batch in batches for instant in batch["timestamp"]]
    for instant_us in (0, times[0], times[30] - 1, times[30], times[30] + 1, times[60], times[100], times[-1]):
        expected = next(number for number, each in enumerate(times) if each >= instant_us) + 1
        assert blocks.offset_at(instant_us, BEGINS) == expected
    assert blocks.offset_at(times[-1] + 1, BEGINS) == BEGINS
    assert blocks.first_offset(BEGINS) == 1 and blocks.begins_us(BEGINS) == 0


def test_what_is_before_a_gap_is_not_reached(log: Path, blocks: ArchivedBlocks, tmp_path: Path) -> None:
    first, second, third = segments(tmp_path)
    writer_of(str(tmp_path / "archive"), log).delete(second)
    assert blocks.first_offset(BEGINS) == third.first_offset
    assert blocks.begins_us(BEGINS) == third.first_timestamp_us
    with pytest.raises(HistoryTrimmed):
        blocks.offset_at(third.first_timestamp_us - 1, BEGINS)
    assert blocks.offset_at(third.first_timestamp_us, BEGINS) == third.first_offset
    assert blocks.run(1, BEGINS) is not None
    with pytest.raises(LogTrimmed, match=f"offset {second.first_offset} is no .* at offset {third.first_offset}"):
        blocks.run(second.first_offset, BEGINS)
    assert blocks.first_offset(first.next_offset) == 1, (
        "as long as the log has what the archive lacks, nothing is missing"
    )


def test_an_archive_that_does_not_lead_to_the_log_reaches_nothing(blocks: ArchivedBlocks) -> None:
    assert blocks.first_offset(BEGINS + 20) == BEGINS + 20
    assert blocks.begins_us(BEGINS + 20) == UNREACHED_US
    assert blocks.begins_us(BEGINS + 40) == 0, "what was trimmed since may be archived"
    with pytest.raises(LogTrimmed):
        blocks.offset_at(1, BEGINS + 20)
    with pytest.raises(LogTrimmed, match=f"begins at offset {BEGINS + 20}"):
        blocks.run(BEGINS + 5, BEGINS + 20)


@pytest.mark.parametrize("list_age_s", [0, 3600])
def test_a_list_is_used_for_a_while_as_long_as_it_leads_to_the_log(
    log: Path, tmp_path: Path, list_age_s: float
) -> None:
    blocks = ArchivedBlocks(str(tmp_path / "archive"), log, list_age_s=list_age_s)
    assert blocks.first_offset(BEGINS) == 1
    first, second, _ = segments(tmp_path)
    writer_of(str(tmp_path / "archive"), log).delete(first)
    assert blocks.first_offset(BEGINS) == (1 if list_age_s else second.first_offset)
    (log / f"{1:020d}.log").unlink()
    filled_log(log, 3)
    upload_closed(str(tmp_path / "archive"), log)
    assert blocks.first_offset(BEGINS + 60) == second.first_offset


def test_a_damaged_block_leads_to_no_offset(blocks: ArchivedBlocks, tmp_path: Path) -> None:
    segment = segments(tmp_path)[1]
    path = tmp_path / "archive" / f"{segment.name}.log"
    whole = bytearray(path.read_bytes())
    whole[32 + 48 + 8] ^= 1  # a byte of the timestamps of its first block
    path.write_bytes(whole)
    with pytest.raises(ArchiveDamaged):
        blocks.offset_at(segment.first_timestamp_us + 1, BEGINS)


def test_segments_that_are_archived_later_are_found(log: Path, blocks: ArchivedBlocks, tmp_path: Path) -> None:
    assert blocks.first_offset(BEGINS) == 1
    filled_log(log, 3)
    upload_closed(str(tmp_path / "archive"), log)
    found = blocks.run(BEGINS, BEGINS + 60)
    assert found is not None and found.entries.first_offset(0) == BEGINS


def test_a_segment_whose_retention_is_over_is_trimmed(log: Path, blocks: ArchivedBlocks, tmp_path: Path) -> None:
    found = blocks.run(1, BEGINS)
    assert found is not None
    first, second, _ = segments(tmp_path)
    writer_of(str(tmp_path / "archive"), log).delete(first)
    with pytest.raises(LogTrimmed, match=f"offset 1 is no longer .* at offset {second.first_offset}"):
        blocks.run(1, BEGINS)
    (tmp_path / "archive" / f"{second.name}.log").unlink()
    with pytest.raises(NotArchived, match=f"cannot read {second.name}.log: there is no such object"):
        blocks.run(second.first_offset, BEGINS)


def test_an_instant_of_a_segment_whose_retention_is_over_is_trimmed(
    log: Path, blocks: ArchivedBlocks, tmp_path: Path
) -> None:
    assert blocks.first_offset(BEGINS) == 1
    first, second, _ = segments(tmp_path)
    writer_of(str(tmp_path / "archive"), log).delete(first)
    with pytest.raises(HistoryTrimmed):  # although the list of before has it
        blocks.offset_at(first.first_timestamp_us + 1, BEGINS)
    (tmp_path / "archive" / f"{second.name}.idx").unlink()
    with pytest.raises(NotArchived, match=f"cannot read {second.name}.idx: there is no such object"):
        blocks.offset_at(second.first_timestamp_us + 1, BEGINS)


@pytest.mark.parametrize("suffix", ["log", "idx"])
def test_changed_bytes_are_damage_and_not_kept(blocks: ArchivedBlocks, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "archive" / f"{segments(tmp_path)[1].name}.{suffix}"
    whole = path.read_bytes()
    path.write_bytes(whole[:50] + bytes([whole[50] ^ 1]) + whole[51:])
    with pytest.raises(ArchiveDamaged, match=rf"{suffix} of the archive .* is damaged"):
        blocks.run(61, BEGINS)
    path.write_bytes(whole)
    assert blocks.run(61, BEGINS) is not None


def test_the_indexes_in_memory_are_bounded(log: Path, tmp_path: Path) -> None:
    blocks = ArchivedBlocks(str(tmp_path / "archive"), log, index_bytes=200)
    for offset in (1, 61, 121, 1, 61):
        found = blocks.run(offset, BEGINS)
        assert found is not None and found.entries.first_offset(0) == offset
    assert len(blocks._indexes) == 1


def test_a_directory_that_is_not_mounted_any_more_is_not_taken_for_an_empty_archive(log: Path, tmp_path: Path) -> None:
    blocks = ArchivedBlocks(str(tmp_path / "archive"), log, list_age_s=0)
    assert blocks.first_offset(BEGINS) == 1
    (tmp_path / "archive").rename(tmp_path / "away")
    (tmp_path / "archive").mkdir()
    with pytest.raises(NotArchived, match="archive is not an archive"):
        blocks.first_offset(BEGINS)
    assert blocks.begins_us(BEGINS) == 0
    (tmp_path / "archive").rmdir()
    (tmp_path / "away").rename(tmp_path / "archive")
    assert blocks.first_offset(BEGINS) == 1


def test_the_archive_of_another_log_is_not_read(tmp_path: Path, log: Path) -> None:
    filled_log(tmp_path / "other")
    with pytest.raises(ArchiveError, match="is the archive of another log"):
        ArchivedBlocks(str(tmp_path / "archive"), tmp_path / "other").run(1, BEGINS)

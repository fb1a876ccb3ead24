"""Records of an archive by offset: fetched when they are asked for, also if another process removes what was."""

import shutil
from pathlib import Path

import pytest

from embermq.archive.archive import open_archive
from embermq.archive.errors import ArchiveError
from embermq.history.fetched_records import LOOKUPS_MAX, FetchedRecords
from embermq.history.segment_cache import SegmentCache
from embermq.store.log.reader import LogReader
from support.archives import filled_log, upload_closed


@pytest.fixture
def records(tmp_path: Path) -> FetchedRecords:
    """Of a log of 660 records in eleven closed segments."""
    filled_log(tmp_path / "log", groups=34)
    upload_closed(str(tmp_path / "archive"), tmp_path / "log")
    archive = open_archive(tmp_path / "archive")
    records = FetchedRecords(SegmentCache(archive, tmp_path / "cache"))
    records.use(archive.segments())
    return records


def payloads(directory: Path) -> list[bytes]:
    return [payload for batch in LogReader(directory).batches(1) for payload in batch["payload"].to_pylist()]


def test_every_record_is_the_one_of_the_log(records: FetchedRecords, tmp_path: Path) -> None:
    expected = payloads(tmp_path / "log")
    assert len(open_archive(tmp_path / "archive").segments()) > LOOKUPS_MAX
    for offset in [*range(1, 661, 7), *range(660, 0, -60)]:
        record = records.read(offset)
        assert record is not None and record.offset == offset and record.payload == expected[offset - 1]
    assert records.read(0) is None and records.read(661) is None


def test_a_removed_segment_is_fetched_again(records: FetchedRecords, tmp_path: Path) -> None:
    assert records.read(5) is not None
    shutil.rmtree(tmp_path / "cache")
    record = records.read(45)
    assert record is not None and record.offset == 45


def test_an_archive_that_is_gone_is_an_error(records: FetchedRecords, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "archive")
    with pytest.raises(ArchiveError, match="there is no such object"):
        records.read(5)

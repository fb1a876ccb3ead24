"""Messages that only the archive has, in `open_log` and in SQL: as if the log had never been trimmed."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from embermq import open_log
from embermq.archive.errors import ArchiveError
from embermq.store.log.errors import NotALog
from support.archives import engine_with, publish, publish_slowly
from support.trimmed_log import SETTINGS, STEP_US, first_offset


@pytest.fixture
def trimmed(tmp_path: Path) -> Path:
    """A data directory whose log was trimmed, with an archive that has all of it: `archive` beside it."""
    engine = engine_with(tmp_path / "data", str(tmp_path / "archive"), SETTINGS)
    publish_slowly(engine, 400, STEP_US)
    engine.store.close()
    assert first_offset(tmp_path / "data") > 440
    return tmp_path / "data"


def test_only_segments_of_the_asked_time_are_fetched(trimmed: Path, tmp_path: Path) -> None:
    log = open_log(trimmed, str(tmp_path / "archive"))
    since = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=1_000_000 + 100 * STEP_US)
    until = since + timedelta(microseconds=STEP_US)
    assert len(pa.Table.from_batches(log.batches(since=since, until=until))) == 4
    assert len(list((trimmed / "archive-cache" / "segments").iterdir())) == 1


def test_the_archive_of_another_log_is_refused(trimmed: Path, tmp_path: Path) -> None:
    engine = engine_with(tmp_path / "other", str(tmp_path / "elsewhere"), SETTINGS)
    publish(engine, 40, STEP_US)
    engine.store.close()
    with pytest.raises(NotALog, match="is the archive of another log"):
        open_log(trimmed, str(tmp_path / "elsewhere"))
    with pytest.raises(ArchiveError, match="is not an archive"):
        open_log(trimmed, str(tmp_path / "nothing"))


def test_a_directory_that_cannot_be_written_to_is_read_all_the_same(trimmed: Path, tmp_path: Path) -> None:
    (trimmed / "archive-cache").write_text("in the way")
    log = open_log(trimmed, str(tmp_path / "archive"))
    assert sum(batch.num_rows for batch in log.batches(columns=["offset"])) == 1_600
    assert os.path.isfile(trimmed / "archive-cache")

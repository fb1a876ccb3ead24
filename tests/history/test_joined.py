"""A log and its archive as one: every record once, wherever the log begins."""

from collections.abc import Callable
from pathlib import Path

import pytest

from embermq.history import joined as module
from embermq.history.archived_blocks import ArchivedBlocks
from embermq.history.joined import JoinedLog
from embermq.store.errors import HistoryTrimmed
from embermq.store.log.errors import LogTrimmed
from embermq.store.log.identity import log_identity
from embermq.store.log.message_filter import MessageFilter
from embermq.store.log.reader import LogReader
from embermq.store.rows import Group, Kind
from support.archives import filled_log, upload_closed, writer_of
from support.log_samples import open_log


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Records 1 to 240; those up to 180 are archived."""
    filled_log(tmp_path / "log")
    upload_closed(str(tmp_path / "archive"), tmp_path / "log")
    return tmp_path / "log"


def joined(log: Path) -> JoinedLog:
    return JoinedLog(log, ArchivedBlocks(str(log.parent / "archive"), log))


def trim(log: Path, before: int) -> None:
    writer = open_log(log)
    writer.trim(before)
    writer.close()


def offsets(log: JoinedLog, start: int, end: int, rows: int = 7) -> list[int]:
    found: list[int] = []
    for read in log.runs(start, end, rows, 1_000):
        assert read.end - read.start > 0 and (len(read.entries) == 1 or read.end - read.start <= rows)
        found += range(read.start, read.end)
    return found


def test_every_record_once_wherever_the_log_begins(log: Path) -> None:
    whole = list(LogReader(log).batches(1))
    for before in (0, 61, 121, 181):
        trim(log, before)
        assert joined(log).bounds() == (1, 241)
        for start, end in ((1, 241), (50, 70), (61, 61), (119, 122), (200, 241), (300, 241)):
            assert offsets(joined(log), start, end) == list(range(start, end))
    filter = MessageFilter(None)
    rows = [row for read in joined(log).runs(1, 241, 50, 1 << 20) for row in filter.messages(read)]
    assert [(row.offset, row.topic.decode(), row.payload, row.client_id.decode()) for row in rows] == [
        (row["offset"], row["topic"], row["payload"], row["client_id"])
        for batch in whole
        for row in batch.to_pylist()
        if row["kind"] == Kind.PUBLISH
    ]


def test_what_is_trimmed_while_it_is_read_comes_from_the_archive(log: Path) -> None:
    runs = joined(log).runs(1, 241, 20, 1_000)
    first = next(runs)
    found = [*range(first.start, first.end)]
    for before in (121, 181):
        trim(log, before)
        for _ in range(2):
            read = next(runs)
            found += range(read.start, read.end)
    assert found + [offset for read in runs for offset in range(read.start, read.end)] == list(range(1, 241))


def test_instants_lead_to_offsets_in_both(log: Path) -> None:
    times = [one.value for batch in LogReader(log).batches(1) for one in batch["timestamp"]]
    instants = [times[0] - 1, *times[::17], times[-1] + 1]
    expected = [LogReader(log).offset_at(instant) for instant in instants]
    trim(log, 121)
    assert [joined(log).offset_at(instant) for instant in instants] == expected


def test_an_instant_is_found_also_when_the_log_is_trimmed_meanwhile(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class TrimmedMeanwhile:
        """A reader after whose first answer the log is trimmed."""

        def __init__(self, directory: Path) -> None:
            self._reader = LogReader(directory)
            self._is_trimmed = False

        def __getattr__(self, name: str) -> Callable[..., object]:
            def answer(*arguments: object) -> object:
                found = getattr(self._reader, name)(*arguments)
                if not self._is_trimmed:
                    self._is_trimmed = True
                    trim(log, 121)
                return found

            return answer

    times = [one.value for batch in LogReader(log).batches(1) for one in batch["timestamp"]]
    expected = LogReader(log).offset_at(times[99])
    monkeypatch.setattr(module, "LogReader", TrimmedMeanwhile)
    assert joined(log).offset_at(times[99]) == expected


def test_an_instant_at_which_the_log_begins_may_begin_in_the_archive(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    for number in range(6):
        if number % 2 == 0:
            log.close_segment()
        group = Group(log.next_offset)
        group.append(1_000 if number else 500, Kind.PUBLISH, 1, b"t", b"x", b"client")
        log.append(group, 1_000)
    log.close()
    log_identity(tmp_path / "log")
    upload_closed(str(tmp_path / "archive"), tmp_path / "log")
    trim(tmp_path / "log", 5)
    assert joined(tmp_path / "log").bounds() == (1, 7) and JoinedLog(tmp_path / "log").bounds() == (5, 7)
    assert [joined(tmp_path / "log").offset_at(instant) for instant in (500, 501, 1_000, 1_001)] == [1, 2, 2, 7]
    assert JoinedLog(tmp_path / "log").offset_at(1_000) == 5


def test_what_neither_has_is_trimmed(log: Path) -> None:
    first_us = LogReader(log).segments()[0].first_timestamp_us
    trim(log, 121)
    alone = JoinedLog(log)
    assert alone.bounds() == (121, 241) and offsets(alone, 121, 241) == list(range(121, 241))
    with pytest.raises(LogTrimmed):
        alone.offset_at(first_us)
    with pytest.raises(LogTrimmed, match="offset 120 is no longer in the log"):
        offsets(alone, 120, 241)
    archive = joined(log)
    writer = writer_of(str(log.parent / "archive"), log)
    writer.delete(writer.archive.segments()[0])
    assert archive.bounds() == (61, 241)
    with pytest.raises(HistoryTrimmed):
        archive.offset_at(first_us)
    with pytest.raises(LogTrimmed, match="offset 60 is no longer in the log, which now begins at offset 61"):
        offsets(archive, 60, 241)

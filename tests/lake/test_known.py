"""Up to which instant a lake is known. No Spark session is needed."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from embermq.history.directory import DirectoryLog
from embermq.history.source import COMMIT_US_MAX, LogEnd
from embermq.lake.errors import NotKnown
from embermq.lake.known import Known, RowInstants, recorded
from embermq.lake.lake import Lake
from embermq.lake.positions import Positions
from embermq.lake.progress import JobProgress, read_progress, write_progress
from support.recorded import START_US, Recorder

Recorders = Callable[..., Recorder]
VERSIONS = {"retained": 3, "retained_closed": 3}


def nothing() -> RowInstants:
    return None, None


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path / "lake")
    made.open()
    return made


@pytest.fixture
def log(recorder: Recorders) -> DirectoryLog:
    made = recorder()
    for number in range(20):
        made.publish("a", b"%d" % number)
    made.flush()
    return DirectoryLog(made.data)


def test_a_job_in_the_middle_of_the_log_is_known_up_to_its_next_record(lake: Lake, log: DirectoryLog) -> None:
    Positions(lake, log).save({"retained": 12}, {"retained": VERSIONS})
    known = recorded(lake).known("retained", VERSIONS, 11, nothing)
    assert known == Known(START_US + 1000, START_US + 12_000 - 1, 12)
    # A table that has lost a commit is known as far as its own rows say, and not at their last instant.
    lost = recorded(lake).known(
        "retained", {"retained": 2, "retained_closed": 3}, 8, lambda: (START_US + 2000, START_US + 8000)
    )
    assert lost == Known(START_US + 2000, START_US + 7999, 9)
    assert recorded(lake).known("retained", {}, -1, nothing) is None


def test_a_job_at_the_end_of_the_log_is_known_up_to_when_that_was_the_end(lake: Lake, log: DirectoryLog) -> None:
    before_us = time.time_ns() // 1000
    Positions(lake, log).save({"retained": 21}, {"retained": VERSIONS})
    known = recorded(lake).known("retained", VERSIONS, 5, nothing)
    assert known is not None and before_us - COMMIT_US_MAX <= known.until_us < time.time_ns() // 1000
    later_us = before_us + 3_600_000_000
    job = JobProgress("retained", offset=21)
    job.know(1, 2, LogEnd(21, later_us))
    write_progress(lake, [job], LogEnd(21, later_us), "running")
    assert read_progress(lake)["jobs"]["retained"]["known_until_us"] == later_us
    known = recorded(lake).known("retained", VERSIONS, 5, nothing)
    assert known is not None and (known.until_us, known.next_offset) == (later_us, 21)
    # The log has gone on since: nothing of that is known.
    job.know(1, 2, LogEnd(22, later_us))
    write_progress(lake, [job], LogEnd(22, later_us), "running")
    assert read_progress(lake)["jobs"]["retained"]["known_until_us"] == 2
    known = recorded(lake).known("retained", VERSIONS, 5, nothing)
    assert known is not None and known.until_us < before_us + COMMIT_US_MAX


def test_without_a_pipeline_the_log_itself_says_whether_anything_has_come(
    lake: Lake, recorder: Recorders, log: DirectoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.keep_data_directory(Path(log.name).parent)
    Positions(lake, log).save({"retained": 21}, {})
    later_ns = time.time_ns() + 3_600_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: later_ns)
    known = recorded(lake).known("retained", VERSIONS, 5, nothing)
    assert known is not None and known.until_us == later_ns // 1000 - COMMIT_US_MAX
    other = recorder("other")
    other.now_us += 77
    other.publish("a", b"x")
    other.flush()
    lake.keep_data_directory(other.data)  # the log of another server says nothing
    known = recorded(lake).known("retained", VERSIONS, 5, nothing)
    assert known is not None and known.until_us < later_ns // 1000 - 3_000_000_000


def test_an_instant_outside_is_refused_in_a_sentence() -> None:
    known = Known(START_US, START_US + 10, 7)
    known.check(START_US)
    known.check(START_US + 10)
    with pytest.raises(NotKnown, match=r"up to 2023-11-14T22:13:20.000010Z \(before offset 7\); the server itself"):
        known.check(START_US + 11)
    with pytest.raises(NotKnown, match=r"the lake knows it from 2023-11-14T22:13:20.000000Z"):
        known.check(START_US - 1)

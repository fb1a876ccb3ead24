"""The retention: by size and age, and what waits for a reader up to a bound, with a warning before it is reached."""

import logging
from pathlib import Path

import pytest

from embermq.store.log.readers import register_reader
from embermq.store.log.segments import SegmentInfo
from embermq.store.retention import Retention, TrimLimit

SECOND_US = 1_000_000
SEGMENTS = [
    SegmentInfo(Path(), first, first + 10, 1, 100, first * SECOND_US, (first + 9) * SECOND_US)
    for first in range(1, 101, 10)
]
EVER_S = 1_000_000
NOW_US = 110 * SECOND_US


def limit(tmp_path: Path, size_bytes: int = 400, age_s: int = EVER_S, unread_bytes_max: int = 200) -> int:
    return TrimLimit(tmp_path, Retention(size_bytes, age_s, unread_bytes_max)).offset(SEGMENTS, NOW_US)


def test_size_and_age_limit_the_log(tmp_path: Path) -> None:
    assert limit(tmp_path) == 61
    assert limit(tmp_path, size_bytes=10_000) == 1
    assert limit(tmp_path, size_bytes=10_000, age_s=60) == 41
    assert limit(tmp_path, size_bytes=0) == 91  # the newest segment is never trimmed


@pytest.mark.parametrize(("next_offset", "expected"), [(101, 61), (61, 61), (60, 51), (45, 41), (35, 41), (1, 41)])
def test_trimming_waits_for_a_reader_up_to_the_bound(next_offset: int, expected: int, tmp_path: Path) -> None:
    register_reader(tmp_path, "lake", 101)
    register_reader(tmp_path, "slow", next_offset)
    assert limit(tmp_path) == expected


def test_it_is_said_once_before_unread_records_go_and_again_when_they_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trim_limit = TrimLimit(tmp_path, Retention(400, EVER_S, 200))
    register_reader(tmp_path, "lake", 51)
    trim_limit.offset(SEGMENTS, NOW_US)
    assert trim_limit.unread_bytes == 100
    assert caplog.text == ""
    register_reader(tmp_path, "lake", 45)
    with caplog.at_level(logging.WARNING):
        trim_limit.offset(SEGMENTS, NOW_US)
        trim_limit.offset(SEGMENTS, NOW_US)
    assert trim_limit.unread_bytes == 200
    assert caplog.text.count("the pipeline of lake is late: the log keeps 200 bytes for it") == 1
    trim_limit.trimmed(1, 41)
    assert trim_limit.lost_records == 0
    trim_limit.trimmed(41, 61)
    assert trim_limit.lost_records == 16
    assert "trimmed 16 records that the pipeline of lake has not read" in caplog.text

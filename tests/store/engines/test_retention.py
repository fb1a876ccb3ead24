"""The retention: by size and age, and what waits for a reader up to a bound, with a warning before it is reached."""

import logging
from pathlib import Path

import pytest

from embermq.store.engines.retention import DISK_PART, LOOK_BYTES, DiskReserve, Retention, TrimLimit
from embermq.store.log.readers import register_reader
from embermq.store.segment import ENTRY_BYTES, Segment

SECOND_US = 1_000_000
SEGMENTS = [
    Segment(Path(), first, first + 10, 1, 100 - ENTRY_BYTES, first * SECOND_US, (first + 9) * SECOND_US)
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


def test_the_reserve_is_full_below_it_and_no_more_when_a_quarter_more_is_free(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    free = [10_000]
    reserve = DiskReserve(tmp_path, 1_000, lambda _: (100_000, free[0]))
    seen = []
    for free[0] in (2_000, 1_999, 1_000, 999, 500, 499, 1_249, 1_250):
        reserve.look()
        seen.append((reserve.is_short(), reserve.is_full, reserve.is_used_up(), reserve.shortage_bytes()))
    assert seen == [
        (False, False, False, 0),
        (True, False, False, 1),
        (True, False, False, 1_000),
        (True, True, False, 1_001),
        (True, True, False, 1_500),
        (True, True, True, 1_501),
        (True, True, False, 751),
        (True, False, False, 750),
    ]
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    assert "store.disk_reserve_bytes" in caplog.text


def test_the_reserve_is_a_part_of_a_small_disk_and_is_looked_at_after_some_bytes(tmp_path: Path) -> None:
    reserve = DiskReserve(tmp_path, 1_000, lambda _: (DISK_PART * 10, 10_000))
    assert reserve.reserve_bytes == 10
    reserve = DiskReserve(tmp_path, 16 * LOOK_BYTES, lambda _: (1 << 40, 1 << 39))
    reserve.look()
    assert not reserve.is_due(LOOK_BYTES - 1)
    assert reserve.is_due(1)
    reserve.look()
    assert not reserve.is_due(1)


def test_a_smaller_size_trims_more_and_waits_for_readers_too(tmp_path: Path) -> None:
    trim_limit = TrimLimit(tmp_path, Retention(10_000, EVER_S, 200))
    assert [trim_limit.offset(SEGMENTS, NOW_US, size) for size in (1_000, 500, 0)] == [1, 51, 91]
    register_reader(tmp_path, "lake", 81)
    assert trim_limit.offset(SEGMENTS, NOW_US, 0) == 81

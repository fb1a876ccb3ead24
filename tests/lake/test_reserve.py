"""The reserve of the lake's disk."""

from pathlib import Path

import pytest

from embermq.lake.reserve import RESERVE_BYTES, LakeReserve
from embermq.store.engines.retention import DISK_PART


def test_the_pipeline_waits_while_too_little_is_free_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    free = [RESERVE_BYTES]
    reserve = LakeReserve(tmp_path, lambda _: (1 << 50, free[0]))
    assert not reserve.is_reached()
    free[0] -= 1
    assert reserve.is_reached() and reserve.is_reached()
    free[0] += 1
    assert not reserve.is_reached()
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


def test_the_reserve_is_a_part_of_a_small_disk_and_a_lake_at_a_url_has_none(tmp_path: Path) -> None:
    assert not LakeReserve(tmp_path, lambda _: (DISK_PART * 10, 10)).is_reached()
    assert LakeReserve(tmp_path, lambda _: (DISK_PART * 10, 9)).is_reached()
    assert not LakeReserve(None, lambda _: (0, 0)).is_reached()


def test_a_disk_that_cannot_be_asked_keeps_the_last_answer(tmp_path: Path) -> None:
    assert not LakeReserve(tmp_path / "none").is_reached()

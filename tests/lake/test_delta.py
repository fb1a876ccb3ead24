"""How far a table has applied the log, and who may write to it, without Spark."""

from pathlib import Path

import pytest

pytest.importorskip("deltalake")

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from embermq.lake import delta
from embermq.lake.delta import (
    append_rows,
    applied,
    claim_table,
    commit_transactions,
    day_bytes,
    newest_epoch,
    open_table,
    table_bytes,
    take_epoch,
)
from embermq.lake.epochs import transaction_version
from embermq.lake.errors import LakeError, LeaseLost
from embermq.lake.lake import Lake

NAME = "numbers"
DAYS = pa.table({"offset": pa.array([1, 2], pa.int64()), "day": ["2026-01-01", "2026-01-02"]})


def rows(offset: int) -> pa.Table:
    return pa.table({"offset": pa.array([offset], pa.int64())})


def new_table(place: Path, epoch: int | None = None) -> Lake:
    lake = Lake(place)
    write_deltalake(lake.table(NAME), rows(0))
    lake.epoch = epoch
    return lake


def offsets(lake: Lake) -> list[int]:
    return sorted(open_table(lake, NAME).to_pyarrow_table()["offset"].to_pylist())


def test_rows_with_a_version_that_was_applied_are_left_out(tmp_path: Path) -> None:
    lake = new_table(tmp_path)
    for through in (5, 5, 4, 8):
        append_rows(open_table(lake, NAME), rows(through), NAME, transaction_version(0, through))
    assert offsets(lake) == [0, 5, 8] and applied(lake, NAME, NAME) == (2, 0, 8)
    assert applied(lake, NAME, "other") == (2, 0, -1)


def test_an_append_is_refused_if_the_identifier_has_changed_meanwhile(tmp_path: Path) -> None:
    from deltalake.exceptions import CommitFailedError

    lake = new_table(tmp_path)
    before = open_table(lake, NAME)
    append_rows(open_table(lake, NAME), rows(7), NAME, 7)
    with pytest.raises(CommitFailedError):
        append_rows(before, rows(5), NAME, 8)
    assert offsets(lake) == [0, 7]


def test_of_two_that_take_the_same_epoch_one_wins(tmp_path: Path) -> None:
    lake = new_table(tmp_path)
    first, second = open_table(lake, NAME), open_table(lake, NAME)
    assert [commit_transactions(one, {NAME: 99}) for one in (first, second)] == [True, False]
    assert not take_epoch(lake, NAME, NAME, before=5, epoch=6)
    assert take_epoch(lake, NAME, NAME, before=0, epoch=6) and newest_epoch(lake, NAME) == 6


def test_a_claim_keeps_what_was_applied_also_by_a_commit_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = new_table(tmp_path, epoch=7)
    append_rows(open_table(lake, NAME), rows(10), NAME, transaction_version(1, 10))
    opened = open_table(lake, NAME)
    append_rows(open_table(lake, NAME), rows(15), NAME, transaction_version(1, 15))

    # The claim opens the table before the other writer's last batch, and finds that when it commits.
    def open_once(*_: object) -> DeltaTable:
        monkeypatch.undo()
        return opened

    monkeypatch.setattr(delta, "open_table", open_once)
    claim_table(lake, NAME, ["job"])
    assert applied(lake, NAME, NAME)[1:] == (7, 15) and applied(lake, NAME, "job")[1:] == (7, -1)


def test_a_deposed_writer_is_told(tmp_path: Path) -> None:
    lake = new_table(tmp_path, epoch=2)
    claim_table(lake, NAME)
    lake.epoch = 1
    for look in (lambda: applied(lake, NAME, NAME), lambda: claim_table(lake, NAME)):
        with pytest.raises(LeaseLost, match=r"\(epoch 2, this one had 1\): stopping; no row was lost or duplicated"):
            look()


def test_sizes_are_those_of_the_files_of_the_newest_version(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    for mode in ("append", "overwrite"):
        write_deltalake(lake.table(NAME), DAYS, partition_by=["day"], mode=mode)
    sizes = {file.parent.name: file.stat().st_size for file in tmp_path.rglob("*.parquet")}
    assert table_bytes(lake, NAME) == sum(sizes.values())
    assert day_bytes(lake, NAME, "2026-01-02") == sizes["day=2026-01-02"] and day_bytes(lake, NAME, "2026-01-03") == 0


def test_a_table_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match=rf"the table {NAME} in {tmp_path} cannot be read"):
        open_table(Lake(tmp_path), NAME)

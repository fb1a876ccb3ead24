"""The position of a bridge on disk: the newest whole one counts, whatever was torn."""

import os
from pathlib import Path

import pytest

from embermq.bridge.position import SLOT_BYTES, Position, PositionFile, UsedRules, forget_positions
from embermq.store.log.readers import registered_readers


def reopened(data: Path) -> Position | None:
    file = PositionFile(data, "b")
    try:
        return file.load()
    finally:
        file.close()


def test_the_newest_position_is_found_again(tmp_path: Path) -> None:
    assert reopened(tmp_path) is None
    file = PositionFile(tmp_path, "b")
    file.load()
    for number in range(5):
        file.save(Position(number, 2 * number, number, False), number % 2 == 0)
    file.close()
    assert reopened(tmp_path) == Position(4, 8, 4, False)


@pytest.mark.parametrize("bytes_written", range(0, 45, 5))
def test_a_torn_write_leaves_the_position_before(tmp_path: Path, bytes_written: int) -> None:
    file = PositionFile(tmp_path, "b")
    file.load()
    for number in (1, 2):
        file.save(Position(number), True)
    path = tmp_path / "bridges" / "b.position"
    before = path.read_bytes()
    file.save(Position(3), True)
    file.close()
    after = path.read_bytes()
    slot = next(at for at in (0, SLOT_BYTES) if after[at : at + 64] != before[at : at + 64])
    torn = before[:slot] + after[slot : slot + bytes_written] + before[slot + bytes_written :]
    path.write_bytes(torn)
    assert reopened(tmp_path) == Position(2)


def test_a_file_that_is_damaged_all_over_is_as_none(tmp_path: Path) -> None:
    (tmp_path / "bridges").mkdir()
    (tmp_path / "bridges" / "b.position").write_bytes(bytes(range(256)) * 8)
    (tmp_path / "bridges" / "b.json").write_bytes(b"{")
    assert reopened(tmp_path) is None
    assert PositionFile(tmp_path, "b").used_rules() is None


def test_the_rules_in_use_are_durable_before_the_old_ones_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[int, bytes]] = []
    sync = os.fsync

    def noted(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").resolve()
        synced.append((path.stat().st_ino, b"" if path.is_dir() else path.read_bytes()))
        sync(descriptor)

    file = PositionFile(tmp_path, "b")
    file.load()
    file.use_rules(UsedRules("old"))
    monkeypatch.setattr(os, "fsync", noted)
    file.use_rules(UsedRules("new", ["a"], True))
    file.close()
    path = tmp_path / "bridges" / "b.json"
    assert synced == [(path.stat().st_ino, path.read_bytes()), (path.parent.stat().st_ino, b"")]
    assert path.stat().st_mode & 0o777 == 0o600
    assert PositionFile(tmp_path, "b").used_rules() == UsedRules("new", ["a"], True)


def test_bridges_that_are_gone_are_forgotten_and_hold_no_log(tmp_path: Path) -> None:
    for name in ("kept", "gone"):
        file = PositionFile(tmp_path, name)
        file.load()
        file.save(Position(7), False)
        file.keep_log(7)
        file.use_rules(UsedRules("d", ["a"], True))
        file.close()
    assert forget_positions(tmp_path, {"kept"}) == ["gone"]
    assert [each.name for each in registered_readers(tmp_path)] == ["bridge kept"]
    assert sorted(path.name for path in (tmp_path / "bridges").iterdir()) == ["kept.json", "kept.position"]

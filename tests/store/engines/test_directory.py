"""The data directory: one server at a time, for its owner only."""

import os
import stat
from pathlib import Path
from threading import Thread

import pytest

from embermq.store.engines.directory import DataDirectory
from embermq.store.engines.disk import DiskStore
from embermq.store.errors import StoreBusy, StoreError
from support.store_contract import Engine


def test_a_second_server_is_told_who_has_the_directory(tmp_path: Path) -> None:
    first = DataDirectory(tmp_path / "data")
    with pytest.raises(StoreBusy, match=rf"data is in use by another server, process {os.getpid()}$"):
        DataDirectory(tmp_path / "data")
    first.close()
    DataDirectory(tmp_path / "data").close()


def test_only_the_owner_may_read_the_directory(tmp_path: Path) -> None:
    engine = Engine(lambda call_soon, _: DiskStore(tmp_path / "data", call_soon))
    engine.turn()
    engine.publish("a")
    engine.commit()
    engine.store.close()
    for path in (tmp_path / "data", *(tmp_path / "data").rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_files_of_the_state_may_go_while_they_are_made_private(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "data")
    paths = [directory.state / f"{number}.sst" for number in range(3_000)]
    for path in paths:
        path.touch(0o644)

    def delete() -> None:
        for path in paths:
            path.unlink()

    deleting = Thread(target=delete)
    deleting.start()
    while deleting.is_alive():
        directory.keep_private()
    deleting.join()
    directory.close()


def test_a_directory_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(StoreError, match="cannot be used"):
        DataDirectory(tmp_path / "file" / "data")
    with pytest.raises(StoreError, match="file is not a directory"):
        DataDirectory(tmp_path / "file")

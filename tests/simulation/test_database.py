"""The model of RocksDB in the simulation promises what the real one keeps."""

import shutil
from pathlib import Path
from random import Random

import pytest
from rocksdict import Rdict, ReadOptions, WriteBatch, WriteOptions

from embermq.store.state.rocks import open_database
from simulation import database

KEYS = [bytes((letter,)) + bytes((number,)) for letter in b"abc" for number in range(8)]


def real_write(real: Rdict, changes: list[tuple[bytes, bytes | None, bytes | None]]) -> None:
    batch, options = WriteBatch(raw_mode=True), WriteOptions()
    options.disable_wal = True  # type: ignore[method-assign,assignment]  # the stub has a method, the class an attribute
    for key, value, end in changes:
        if end is not None:
            batch.delete_range(key, end)
        elif value is None:
            batch.delete(key)
        else:
            batch.put(key, value)
    real.write(batch, options)


def some_changes(rng: Random) -> list[tuple[bytes, bytes | None, bytes | None]]:
    changes: list[tuple[bytes, bytes | None, bytes | None]] = []
    for _ in range(rng.randint(1, 6)):
        key = rng.choice(KEYS)
        how = rng.random()
        if how < 0.1:
            changes.append((key, None, key[:1] + b"\xff"))
        else:
            changes.append((key, None if how < 0.3 else rng.randbytes(4), None))
    return changes


def content(opened: Rdict) -> dict[bytes, bytes]:
    return dict(opened.items(from_key=b""))  # type: ignore[arg-type]  # bytes, in raw mode


@pytest.mark.parametrize("seed", range(5))
def test_reads_are_the_same_and_a_crash_leaves_a_state_that_the_model_allows(seed: int, tmp_path: Path) -> None:
    rng = Random(seed)
    real = open_database(tmp_path / "real")
    real.set_options({"disable_auto_compactions": "true"})  # files that are removed while they are copied
    model = database.Files().open()
    states: list[dict[bytes, bytes]] = [{}]  # after each write
    flushed = 0  # the newest state that a flush was waited for
    for number in range(1, 40):
        changes = some_changes(rng)
        real_write(real, changes)
        batch = database.WriteBatch()
        batch.changes.extend(changes)
        model.write(batch)
        assert content(real) == dict(model.items(b"", database.ReadOptions()))
        states.append(content(real))
        if rng.random() < 0.2:
            real.flush(True)
            flushed = number
    _check_cursors(real, model, rng)
    shutil.copytree(tmp_path / "real", tmp_path / "crashed")  # nothing is flushed in the background: it is too little
    (tmp_path / "crashed" / "LOCK").unlink(missing_ok=True)
    crashed = open_database(tmp_path / "crashed")
    assert content(crashed) == states[flushed]
    crashed.close()
    real.close()


def _check_cursors(real: Rdict, model: database.Database, rng: Random) -> None:
    real_bound, bound = ReadOptions(), database.ReadOptions()
    real_bound.set_iterate_upper_bound(b"c")
    bound.set_iterate_upper_bound(b"c")
    real_cursor, cursor = real.iter(real_bound), model.iter(bound)
    for _ in range(40):
        key = rng.choice([key for key in KEYS if key < b"c"])
        how = rng.choice(("seek", "seek_for_prev"))
        getattr(real_cursor, how)(key)
        getattr(cursor, how)(key)
        for _ in range(rng.randint(0, 3)):
            assert real_cursor.valid() == cursor.valid()
            if not cursor.valid():
                break
            assert (real_cursor.key(), real_cursor.value()) == (cursor.key(), cursor.value())
            real_cursor.next()
            cursor.next()

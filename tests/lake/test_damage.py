"""A damaged table is named in one sentence before Java is started, and nothing is built upon it."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from embermq.lake.damage import check_tables
from embermq.lake.errors import LakeError
from embermq.lake.lake import Lake
from support.ember_command import ember, sentence
from support.local_lake import RETAINED, instant, local_lake
from support.recorded import START_US, Recorder

LAST = f"{2:020}"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake whose table `retained` has three commits, the last with a checksum as Spark writes it."""
    made = Recorder(tmp_path / "data")
    for number in range(9):
        made.publish(f"t/{number % 3}", b"%d" % number, retain=True)
    made.close()
    lake = local_lake(tmp_path / "lake", made)
    for offset in (10, 11):
        row = {"topic": f"t/{offset}", "payload": b"1", "qos": 0, "offset": offset, "valid_from": instant(START_US)}
        write_deltalake(lake.table("retained"), pa.Table.from_pylist([row], RETAINED), mode="append")
    files = data_files(lake)
    size = sum(file.stat().st_size for file in files)
    (log(lake) / f"{LAST}.crc").write_text(json.dumps({"numFiles": len(files), "tableSizeBytes": size}))
    return lake


def log(lake: Lake) -> Path:
    return Path(lake.table("retained")) / "_delta_log"


def data_files(lake: Lake) -> list[Path]:
    return sorted(Path(lake.table("retained")).glob("*.parquet"))


def edit(change: Callable[[bytes], bytes], name: str = f"{LAST}.json") -> Callable[[Lake], object]:
    def apply(lake: Lake) -> object:
        return (log(lake) / name).write_bytes(change((log(lake) / name).read_bytes()))

    return apply


def without_added_files(content: bytes) -> bytes:
    return b"".join(line for line in content.splitlines(keepends=True) if b'"add"' not in line)


def without_schema(content: bytes) -> bytes:
    return b"".join(line for line in content.splitlines(keepends=True) if b'"metaData"' not in line)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (edit(lambda _: b""), f"_delta_log/{LAST}.json is empty: restore it, or remove {LAST}.json and {LAST}.crc"),
        (edit(lambda content: bytes(len(content))), f"{LAST}.json is empty"),
        (edit(lambda content: content[:-40]), f"{LAST}.json is not a commit: it is not JSON"),
        (edit(lambda content: b"\x80" + content), f"{LAST}.json is not a commit: it is not JSON"),
        (edit(lambda _: b"[]\n"), f"{LAST}.json is not a whole commit"),
        (edit(lambda _: b'{"txn": {"appId": "x", "version": 1}}\n'), f"{LAST}.json is not a whole commit"),
        (edit(without_added_files), f"{LAST}.json is not whole: with it the table has 2 files, its checksum says 3"),
        (
            edit(lambda _: b"", f"{1:020}.json"),
            f"{1:020}.json is empty: restore it, or delete retained and retained_cl",
        ),
        (edit(without_schema, f"{0:020}.json"), f"_delta_log/{0:020}.json has no schema: restore it, or delete"),
        (lambda lake: (log(lake) / f"{0:020}.json").unlink(), f"_delta_log/{0:020}.json is missing"),
        (lambda lake: (log(lake) / f"{1:020}.json").unlink(), f"_delta_log/{1:020}.json is missing"),
        (lambda lake: (log(lake) / f"{2:020}.json").unlink(), f"_delta_log/{2:020}.json is missing"),
        (lambda lake: data_files(lake)[1].unlink(), ".parquet is missing: restore it, or delete retained and retained"),
        (lambda lake: os.truncate(data_files(lake)[0], 7), ".parquet has 7 bytes, its commit says "),
    ],
)
def test_damage_is_one_sentence_and_nothing_is_built_upon_it(
    lake: Lake, tmp_path: Path, harm: Callable[[Lake], Any], said: str
) -> None:
    check_tables(lake)
    harm(lake)
    before = {file: file.stat().st_mtime_ns for file in lake.directory.rglob("*") if "_embermq" not in file.parts}
    at = ["--lake", lake.place]
    for command in (["run", "--once", "--data", tmp_path / "data"], ["audit"], ["compact"], ["as-of", "now"]):
        done = ember("pipeline", *command, *at)
        told = sentence(done._replace(printed=b"")) if command[0] == "run" else sentence(done)  # it says that it starts
        assert told.startswith(f"the table retained in {lake.place} is damaged: ") and said in told
    after = {file: file.stat().st_mtime_ns for file in lake.directory.rglob("*") if "_embermq" not in file.parts}
    assert after == before


def test_a_checkpoint_stands_for_the_commits_before_it(lake: Lake) -> None:
    DeltaTable(lake.table("retained")).create_checkpoint()
    for version in (0, 1):
        (log(lake) / f"{version:020}.json").unlink()
    check_tables(lake)
    data_files(lake)[0].rename(lake.directory / "elsewhere")
    with pytest.raises(LakeError, match="parquet is missing"):
        check_tables(lake)
    os.truncate(log(lake) / f"{LAST}.checkpoint.parquet", 100)
    with pytest.raises(LakeError, match="parquet cannot be read"):
        check_tables(lake)


def test_what_a_crash_may_leave_is_no_damage(lake: Lake) -> None:
    (lake.directory / "clients" / "_delta_log").mkdir(parents=True)  # before its first commit
    (Path(lake.table("retained")) / "part-never-committed.parquet").write_bytes(b"half")
    (log(lake) / f"{LAST}.crc").write_bytes(b"")
    (log(lake) / f".{3:020}.json.tmp").write_bytes(b"")
    check_tables(lake)
    (log(lake) / f"{LAST}.json").write_bytes(b"")
    with pytest.raises(LakeError):
        check_tables(lake)
    for ending in ("json", "crc"):  # as the sentence says
        (log(lake) / f"{LAST}.{ending}").unlink()
    check_tables(lake)


def test_a_commit_beside_the_check_is_no_damage(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a commit that came after the listing are not in it; the next listing has them."""
    sizes, listings = lake.files.sizes, [0]

    def outdated_once(name: str) -> dict[str, int]:
        listings[0] += 1
        found = sizes(name)
        return {path: size for path, size in found.items() if listings[0] > 1 or not path.endswith(".parquet")}

    monkeypatch.setattr(lake.files, "sizes", outdated_once)
    check_tables(lake)
    assert listings[0] > 1


def test_a_topic_name_with_characters_that_end_a_line_is_no_damage(lake: Lake) -> None:
    edit(lambda content: content.replace(b"t/11", "t/\u2028\x85\u2029".encode()))(lake)
    assert "\u2028" in (log(lake) / f"{LAST}.json").read_text(encoding="utf-8")
    check_tables(lake)

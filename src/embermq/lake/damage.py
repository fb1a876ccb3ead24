"""Damage of a table: whether the files of its Delta log, and the data files that the newest version names, are whole.

Owns: the check, and the sentence that names the file and says what to do. Delta itself takes an empty commit, which a
power cut may leave, for one without changes, and builds upon it; a missing file ends in a stack trace of Java.
Costs: one listing of each table, and reading the commits since the newest checkpoint; no file with rows is read.
Never: repairing.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

from embermq.lake.errors import LakeError
from embermq.lake.lake import STATE_DIRECTORY, Lake

ATTEMPTS: Final = 3
"""A pipeline may commit, and `compact` remove files, while a reader looks: what is damaged stays so."""

_LOG: Final = "_delta_log"
_FILE: Final = re.compile(r"(\d{20})\.(json|crc|checkpoint\.parquet|checkpoint\..+)")


class _Damage(Exception):
    """What is wrong with a table. `version` is the commit that can be removed, since it is the last one."""

    def __init__(self, problem: str, version: int | None = None) -> None:
        super().__init__(problem)
        self.version = version


def check_tables(lake: Lake) -> None:
    """LakeError if a table of a lake is damaged: nothing may be built upon it."""
    try:
        for name in lake.files.names():
            if name != STATE_DIRECTORY:
                _check_table(lake, name)
    except OSError as error:
        raise LakeError(f"the tables in {lake.place} cannot be checked: {error}") from None


def _check_table(lake: Lake, name: str) -> None:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _check_once(lake, name)
            return
        except _Damage as damage:
            if attempt == ATTEMPTS:
                advice = _advice(name, damage.version)
                raise LakeError(f"the table {name} in {lake.place} is damaged: {damage}: {advice}") from None


def _advice(name: str, last: int | None) -> str:
    if last is not None and name != "gaps":
        return f"restore it, or remove {last:020}.json and {last:020}.crc, and the pipeline applies that batch again"
    pair = {"retained": "retained_closed", "retained_closed": "retained"}.get(name)
    tables = name if pair is None else f"{name} and {pair}"
    return f"restore it, or delete {tables}, and the pipeline builds them again from the log"


def _check_once(lake: Lake, name: str) -> None:
    sizes = lake.files.sizes(name)
    found: dict[str, set[int]] = {"json": set(), "crc": set(), "checkpoint.parquet": set()}
    others: set[int] = set()
    for path in sizes:
        match = _FILE.fullmatch(path.removeprefix(f"{_LOG}/")) if path.startswith(f"{_LOG}/") else None
        if match is not None:
            found.get(match[2], others).add(int(match[1]))
    commits, base = found["json"], max(found["checkpoint.parquet"], default=-1)
    if not commits and not found["crc"] and base < 0:
        return  # no table: a crash may leave a directory without a first commit
    if others and max(others) > base:
        return  # a checkpoint of a form that the pipeline does not write: Delta itself must read it
    newest = max({*commits, *found["crc"], base})
    for version in range(base + 1, newest + 1):
        if version not in commits:
            raise _Damage(f"{_LOG}/{version:020}.json is missing")
    live = _live_files(lake, name, base, newest)
    _compare_with_checksum(lake, name, newest, live)
    for path, size in live.items():
        if "://" in path or path.startswith("/"):
            continue
        there = sizes.get(unquote(path))
        if there is None:
            raise _Damage(f"the data file {path} is missing")
        if there != size:
            raise _Damage(f"the data file {path} has {there} bytes, its commit says {size}")


def _live_files(lake: Lake, name: str, base: int, newest: int) -> dict[str, int]:
    """The data files of the newest version, each with its size: those of the checkpoint, and the commits since."""
    live = {} if base < 0 else _checkpoint_files(lake, name, base)
    kinds: set[str] = set()
    for version in range(base + 1, newest + 1):
        for action in _actions(lake, name, version, is_last=version == newest and version > 0):
            kinds.update(action)
            if isinstance(added := action.get("add"), dict):
                live[str(added.get("path"))] = int(added.get("size", -1))
            if isinstance(removed := action.get("remove"), dict):
                live.pop(str(removed.get("path")), None)
    if base < 0 and not {"metaData", "protocol"} <= kinds:
        raise _Damage(f"{_LOG}/{0:020}.json has no schema")
    return live


def _checkpoint_files(lake: Lake, name: str, version: int) -> dict[str, int]:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    file = f"{_LOG}/{version:020}.checkpoint.parquet"
    try:
        content = lake.files.read_bytes(f"{name}/{file}") or b""
        added = pq.ParquetFile(pa.BufferReader(content)).read(["add.path", "add.size"]).column("add")
        paths, sizes = (pc.struct_field(added, field).to_pylist() for field in ("path", "size"))
    except (pa.ArrowException, KeyError) as error:
        raise _Damage(f"{file} cannot be read ({str(error).splitlines()[0]})") from None
    return {path: size for path, size in zip(paths, sizes, strict=True) if path is not None}


def _actions(lake: Lake, name: str, version: int, is_last: bool) -> list[dict[str, Any]]:
    """The actions of a commit."""
    file, removable = f"{_LOG}/{version:020}.json", version if is_last else None
    content = lake.files.read_bytes(f"{name}/{file}")
    if content is None:
        raise _Damage(f"{file} is missing")
    if not content.strip(b"\0 \n"):
        raise _Damage(f"{file} is empty", removable)
    try:
        # Not by `str.splitlines`: a topic name in a commit may have other characters that end a line.
        actions = [json.loads(line) for line in content.split(b"\n") if line.strip()]
    except ValueError:  # of JSON, and of UTF-8
        raise _Damage(f"{file} is not a commit: it is not JSON", removable) from None
    if not all(isinstance(action, dict) for action in actions) or not any("commitInfo" in action for action in actions):
        raise _Damage(f"{file} is not a whole commit", removable)
    return actions


def _compare_with_checksum(lake: Lake, name: str, version: int, live: Mapping[str, int]) -> None:
    """Delta writes a checksum after each commit; after a crash it may be missing or empty, and is not compared then."""
    try:
        checksum = json.loads(lake.files.read_bytes(f"{name}/{_LOG}/{version:020}.crc") or b"")
        expected = int(checksum["numFiles"]), int(checksum["tableSizeBytes"])
    except (ValueError, KeyError, TypeError):
        return
    if expected != (len(live), sum(live.values())):
        raise _Damage(
            f"{_LOG}/{version:020}.json is not whole: with it the table has {len(live)} files, its checksum says "
            f"{expected[0]}",
            version if version > 0 else None,
        )

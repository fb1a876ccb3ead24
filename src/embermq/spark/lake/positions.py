"""How far each job of a lake has read the log.

Owns: the file `_embermq/positions.json`. It saves reading again what has no rows for a job. That no row is missing or
there twice is decided by the tables themselves (`lake.transactions`). A position counts only if the tables have at
least the versions that they had when it was written.
Importing this module imports no Spark.
"""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, final

from embermq.spark.errors import LakeError, PipelineError
from embermq.spark.lake.lake import Lake
from embermq.spark.source.logs.readable import ReadableLog
from embermq.spark.source.stream_offsets import check_same_log, stream_offset

Versions = Mapping[str, int]
"""The version of each table of a job."""


@final
class Positions:
    """The positions of all jobs, in a lake that belongs to a log."""

    __slots__ = ("_lake", "_log", "_jobs")

    def __init__(self, lake: Lake, log: ReadableLog) -> None:
        """LakeError if the lake's jobs have read another log."""
        self._lake: Final = lake
        self._log: Final = log
        self._jobs: Final[dict[str, dict[str, Any]]] = _read(lake)
        for position in self._jobs.values():
            try:
                check_same_log(log, position)
            except PipelineError:
                raise LakeError(
                    f"{lake.directory} has the tables of another log than {log.name}: name another --lake, or "
                    "delete this one to have it built again"
                ) from None

    def get(self, job: str, versions: Versions) -> int | None:
        """The next offset that a job reads, if that is known and its tables have not lost a commit since."""
        position = self._jobs.get(job)
        if position is None:
            return None
        before = position.get("versions", {})
        if any(versions.get(name, -1) < version for name, version in before.items()):
            return None
        return int(position["offset"])

    def forget(self, job: str) -> None:
        """A job begins again."""
        if self._jobs.pop(job, None) is not None:
            self._write()

    def save(self, offsets: Mapping[str, int], versions: Mapping[str, Versions]) -> None:
        """Write how far jobs are, after their tables have committed it."""
        places = {offset: stream_offset(self._log, offset) for offset in set(offsets.values())}
        for job, offset in offsets.items():
            self._jobs[job] = {**places[offset], "versions": dict(versions.get(job, {}))}
        self._write()

    def _write(self) -> None:
        path = _path(self._lake)
        new = path.with_suffix(".new")
        try:
            new.write_text(json.dumps(self._jobs))
            os.replace(new, path)
        except OSError as error:
            raise LakeError(f"{path} cannot be written: {error}") from None
        # What earlier versions kept instead is not needed any more.
        shutil.rmtree(_checkpoints(self._lake), ignore_errors=True)


def _path(lake: Lake) -> Path:
    return lake.state_directory / "positions.json"


def _checkpoints(lake: Lake) -> Path:
    return lake.state_directory / "checkpoints"


def _read(lake: Lake) -> dict[str, dict[str, Any]]:
    """The positions in the file, or in the checkpoints of an earlier version; empty if they cannot be read."""
    try:
        found = json.loads(_path(lake).read_text())
    except FileNotFoundError:
        found = {job.name: _newest_offset(job) for job in sorted(_checkpoints(lake).glob("*"))}
    except (OSError, ValueError):
        return {}  # the tables know how far they are
    if not isinstance(found, dict):
        return {}
    return {
        job: place for job, place in found.items() if isinstance(place, dict) and isinstance(place.get("offset"), int)
    }


def _newest_offset(checkpoint: Path) -> dict[str, Any]:
    """Where the newest finished batch of a stream ended; empty if there is none."""
    finished = [int(path.name) for path in (checkpoint / "commits").glob("*") if path.name.isdigit()]
    try:
        newest = json.loads((checkpoint / "offsets" / str(max(finished))).read_text().splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return {}
    return newest if isinstance(newest, dict) else {}

"""How far each job of a lake has read the log.

Owns: the file `_embermq/positions.json`, and in a lake at a URL one for each epoch: a deposed pipeline must not change
the positions of the one that writes now. It saves reading again what has no rows for a job. That no row is
missing or there twice is decided by the tables themselves (`lake.transactions`). A position counts only if the tables
have at least the versions that they had when it was written. With a position is kept between which instants the log has
records up to it: `known` says from that what a query may answer.
"""

import json
import re
from collections.abc import Mapping
from threading import Lock
from typing import Any, Final, final

from embermq.history.source import ReadableLog
from embermq.lake.errors import LakeError, PipelineError
from embermq.lake.files import json_object
from embermq.lake.lake import STATE_DIRECTORY, Lake
from embermq.lake.stream_offsets import check_same_log, stream_offset
from embermq.store.log.errors import LogLost
from embermq.store.log.segments import FIRST_OFFSET

Versions = Mapping[str, int]
"""The version of each table of a job."""

SINCE: Final = "known_since_us"
UNTIL: Final = "known_until_us"


@final
class Positions:
    """The positions of all jobs, in a lake that belongs to a log."""

    __slots__ = ("_lake", "_log", "_jobs", "_superseded", "_writing")

    def __init__(self, lake: Lake, log: ReadableLog) -> None:
        self._lake: Final = lake
        self._log: Final = log
        self._jobs: Final[dict[str, dict[str, Any]]] = read_positions(lake)
        self._superseded: Final[set[str]] = {*_found(lake), _CHECKPOINTS}
        self._writing: Final = Lock()

    def get(self, job: str, versions: Versions) -> int | None:
        """The next offset that a job reads, if that is known and its tables have not lost a commit since."""
        position = self._jobs.get(job)
        if position is None:
            return None
        return int(position["offset"]) if is_valid(position, versions) else None

    def forget(self, job: str) -> None:
        """A job begins again. Several threads may say so at once."""
        with self._writing:
            if self._jobs.pop(job, None) is not None:
                self._write()

    def save(self, offsets: Mapping[str, int], versions: Mapping[str, Versions]) -> None:
        """Write how far jobs are, after their tables have committed it."""
        places = {offset: stream_offset(self._log, offset) for offset in set(offsets.values())}
        until = {offset: self._log.known_until_us(offset) for offset in places}
        since_us = self._since_us()
        with self._writing:
            for job, offset in offsets.items():
                since = since_us if since_us is not None else self._jobs.get(job, {}).get(SINCE)
                instants = {SINCE: since, UNTIL: until[offset]}
                self._jobs[job] = {**places[offset], **instants, "versions": dict(versions.get(job, {}))}
            self._write()

    def instants_us(self, job: str) -> tuple[int | None, int | None]:
        """The first and the last instant at which a job's tables are known, as far as it has kept them."""
        position = self._jobs.get(job, {})
        return position.get(SINCE), position.get(UNTIL)

    def _since_us(self) -> int | None:
        """The timestamp of the first record ever; None if the log has none, or has it no longer."""
        if self._log.bounds()[0] > FIRST_OFFSET:
            return None
        segment = self._log.segment_of(FIRST_OFFSET)
        return None if segment is None else segment.since_us

    def _write(self) -> None:
        name = _name(self._lake)
        try:
            self._lake.files.write(f"{STATE_DIRECTORY}/{name}", json.dumps(self._jobs))
            # What earlier versions and earlier epochs have kept is not needed any more.
            for other in self._superseded:
                if other != name:
                    self._lake.files.remove(f"{STATE_DIRECTORY}/{other}")
        except OSError as error:
            raise LakeError(f"{self._lake.table(f'{STATE_DIRECTORY}/{name}')} cannot be written: {error}") from None
        self._superseded.clear()


def check_log(lake: Lake, log: ReadableLog) -> None:
    """LakeError if the jobs of a lake have read another log."""
    for position in read_positions(lake).values():
        try:
            check_same_log(log, position)
        except LogLost as error:
            raise LakeError(
                f"{lake.place} has tables of records that {log.name} does not have: {error}; name another --lake, or "
                "delete this one to have it built again"
            ) from None
        except PipelineError:
            raise LakeError(
                f"{lake.place} has the tables of another log than {log.name}: name another --lake, or delete this one "
                "to have it built again"
            ) from None


def is_valid(position: Mapping[str, Any], versions: Versions) -> bool:
    """Whether no table of a job has lost a commit since its position was written."""
    before = position.get("versions", {})
    return all(versions.get(name, -1) >= version for name, version in before.items())


_FILE: Final = re.compile(r"positions(?:-(\d+))?\.json")
_CHECKPOINTS: Final = "checkpoints"


def _name(lake: Lake) -> str:
    return "positions.json" if lake.is_local else f"positions-{lake.epoch or 0}.json"


def _found(lake: Lake) -> dict[str, int]:
    """The files of positions, each with its epoch."""
    matches = {name: _FILE.fullmatch(name) for name in lake.files.names(STATE_DIRECTORY)}
    return {name: int(match[1] or 0) for name, match in matches.items() if match is not None}


def read_positions(lake: Lake) -> dict[str, dict[str, Any]]:
    """The positions in the newest file, or in the checkpoints of an earlier version; empty if they cannot be read."""
    files = lake.files
    try:
        found = _found(lake)
        if found:
            newest = max(found, key=lambda name: found[name])
            positions = json_object(files.read(f"{STATE_DIRECTORY}/{newest}"))
        else:
            jobs = files.names(f"{STATE_DIRECTORY}/{_CHECKPOINTS}")
            positions = {job: _newest_offset(lake, f"{STATE_DIRECTORY}/{_CHECKPOINTS}/{job}") for job in jobs}
    except OSError:
        return {}  # the tables know how far they are
    return {
        job: place
        for job, place in positions.items()
        if isinstance(place, dict) and isinstance(place.get("offset"), int)
    }


def _newest_offset(lake: Lake, checkpoint: str) -> dict[str, Any]:
    """Where the newest finished batch of a stream ended; empty if there is none."""
    finished = [int(name) for name in lake.files.names(f"{checkpoint}/commits") if name.isdigit()]
    text = lake.files.read(f"{checkpoint}/offsets/{max(finished)}") if finished else None
    return json_object(text.splitlines()[-1]) if text else {}

"""Checkpoints: a job's place in the log as Spark keeps it, and whether it is of this log.

Owns: what a place says beside its offset, so that one log is told from another.
Never: how far a stream may go; the source says that.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from embermq.spark.errors import LakeError, PipelineError
from embermq.spark.lake.tables import Lake
from embermq.store.log.segments import Index, first_offsets, index_path

Offset = dict[str, Any]  # as JSON: {"offset": the next record, "segment": where the last one lies, "since": its age}


def check_checkpoints(lake: Lake, directory: Path) -> None:
    """Refuse a lake whose jobs have read another log than the one in a directory."""
    for job in sorted(Path(lake.checkpoint("")).glob("*")):
        reached = _newest(job / "offsets")
        try:
            check_same_log(directory, reached)
        except PipelineError:
            raise LakeError(
                f"{lake.directory} has the tables of another log than {directory}: name another --lake, or delete this "
                "one to have it built anew"
            ) from None


def _newest(offsets: Path) -> Mapping[str, Any]:
    """Where the newest planned batch of a job ends; nothing where Spark has not noted any, or not wholly."""
    batches = [int(path.name) for path in offsets.glob("*") if path.name.isdigit()]
    try:
        reached = json.loads((offsets / str(max(batches))).read_text().splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return {}
    return reached if isinstance(reached, dict) else {}


def position(directory: Path, offset: int) -> Offset:
    """An offset together with what tells its log from another one: the segment of the record before it."""
    holding = [first for first in first_offsets(directory) if first < offset]
    if not holding:
        return {"offset": offset}
    since_us = _segment_since_us(directory, holding[-1])
    return {"offset": offset} if since_us is None else {"offset": offset, "segment": holding[-1], "since": since_us}


def check_same_log(directory: Path, start: Mapping[str, Any]) -> None:
    """Refuse a checkpoint whose segment has the same place in this log but another beginning."""
    segment = start.get("segment")
    if segment is None:
        return
    # No time: after a loss of power the index may be empty until the server has rebuilt it.
    since_us = _segment_since_us(directory, int(segment))
    known = first_offsets(directory)
    gone = bool(known) and int(segment) >= known[0] and int(segment) not in known
    if gone or (since_us is not None and since_us != start["since"]):
        raise PipelineError(
            f"the checkpoint belongs to another log than {directory}: segment {segment} is not the one that was read"
        )


def _segment_since_us(directory: Path, first_offset: int) -> int | None:
    index = Index.open(index_path(directory, first_offset))
    return index.entry(0).first_timestamp_us if index.count else None

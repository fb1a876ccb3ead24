"""The offsets of a stream as Spark keeps them in a checkpoint, and whether they belong to this log.

Owns: what a stream offset has beside the log's offset, so that one log can be told from another.
Never: how far a stream may read; the reader decides that.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from embermq.spark.errors import PipelineError
from embermq.store.log.segments import Index, first_offsets, index_path

StreamOffset = dict[str, Any]
"""As JSON: {"offset": the next record, "segment": the segment of the record before it, "since": that segment's first
timestamp in microseconds}. The last two are missing where there is no record before it."""


def stream_offset(directory: Path, offset: int) -> StreamOffset:
    """An offset of the log in a directory, with the segment that identifies the log."""
    segments = [first for first in first_offsets(directory) if first < offset]
    if not segments:
        return {"offset": offset}
    since_us = _segment_since_us(directory, segments[-1])
    return {"offset": offset} if since_us is None else {"offset": offset, "segment": segments[-1], "since": since_us}


def check_same_log(directory: Path, start: Mapping[str, Any]) -> None:
    """Refuse a stream offset whose segment has the same first offset in this log but another first timestamp."""
    segment = start.get("segment")
    if segment is None:
        return
    # None: after a loss of power the index may be empty until the server has rebuilt it.
    since_us = _segment_since_us(directory, int(segment))
    known = first_offsets(directory)
    is_missing = bool(known) and int(segment) >= known[0] and int(segment) not in known
    if is_missing or (since_us is not None and since_us != start["since"]):
        raise PipelineError(
            f"the checkpoint belongs to another log than {directory}: segment {segment} is not the one that was read"
        )


def _segment_since_us(directory: Path, first_offset: int) -> int | None:
    index = Index.open(index_path(directory, first_offset))
    return index.entry(0).first_timestamp_us if index.count else None

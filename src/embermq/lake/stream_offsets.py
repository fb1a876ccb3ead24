"""The offsets of a stream as Spark keeps them in a checkpoint, and whether they belong to this log.

Owns: what a stream offset has beside the log's offset, so that one log can be told from another.
Never: how far a stream may read; the reader decides that.
"""

from collections.abc import Mapping
from typing import Any

from embermq.history.source import ReadableLog
from embermq.lake.errors import PipelineError
from embermq.store.log.identity import goes_on_at

StreamOffset = dict[str, Any]
"""As JSON: {"offset": the next record, "segment": the segment of the record before it, "since": that segment's first
timestamp in microseconds}. The last two are missing where there is no record before it."""


def stream_offset(log: ReadableLog, offset: int) -> StreamOffset:
    """An offset of a log, with the segment that identifies the log."""
    segment = log.segment_of(offset - 1)
    if segment is None or segment.since_us is None:
        return {"offset": offset}
    return {"offset": offset, "segment": segment.first_offset, "since": segment.since_us}


def check_same_log(log: ReadableLog, start: Mapping[str, Any]) -> None:
    """Refuse a stream offset whose segment has the same first offset in this log but another first timestamp.

    LogLost if the stream has read records that were lost with a machine since.
    """
    segment = start.get("segment")
    if segment is None:
        return
    goes_on_at(log.lost(), int(start["offset"]))
    found = log.segment_of(int(segment))
    if found is None:  # it was trimmed
        return
    is_missing = found.first_offset != int(segment)
    if is_missing or (found.since_us is not None and found.since_us != start["since"]):
        raise PipelineError(
            f"the checkpoint belongs to another log than {log.name}: segment {segment} is not the one that was read"
        )

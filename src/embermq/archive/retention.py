"""The retention of an archive: which of its segments and checkpoints have expired.

Owns: the rule that what is left can be read: it begins at a checkpoint, or at the beginning of the log.
Never: deleting.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from embermq.archive.manifest import ArchivedCheckpoint, ArchivedSegment


@dataclass(frozen=True, slots=True)
class ArchiveRetention:
    """How many bytes an archive keeps, and for how long. 0: no bound."""

    size_bytes: int = 0
    age_s: int = 0


def expired(
    retention: ArchiveRetention, segments: Sequence[ArchivedSegment], checkpoints: Sequence[ArchivedCheckpoint]
) -> tuple[list[ArchivedSegment], list[ArchivedCheckpoint]]:
    """What has outlived the retention, oldest first. The newest checkpoint, and what follows it, always stays.

    The age of a segment is counted from its last record to the newest record of the archive: no clock takes part, so
    one that is wrong deletes nothing.
    """
    if not segments or not (retention.size_bytes or retention.age_s):
        return [], []
    ordered = sorted(segments, key=lambda segment: segment.first_offset)
    size_bytes = sum(segment.size_bytes for segment in ordered)
    oldest_us = ordered[-1].last_timestamp_us - retention.age_s * 1_000_000
    limit = 0
    for segment in ordered:
        is_large = bool(retention.size_bytes) and size_bytes > retention.size_bytes
        is_old = bool(retention.age_s) and segment.last_timestamp_us < oldest_us
        if not is_large and not is_old:
            break
        size_bytes -= segment.size_bytes
        limit = segment.next_offset
    kept_from = max((checkpoint.offset for checkpoint in checkpoints if checkpoint.offset <= limit), default=0)
    return (
        [segment for segment in ordered if segment.next_offset <= kept_from],
        sorted((one for one in checkpoints if one.offset < kept_from), key=lambda one: one.offset),
    )

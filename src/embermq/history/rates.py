"""How many records an archive has before some instants, from its manifests and a few indexes.

Owns: when an index is worth reading. One for each of a thousand parts of a year would be a thousand requests: where
many segments are asked for, the records of a segment count as spread evenly over its time.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from embermq.archive.manifest import ArchivedSegment
from embermq.history.archived_blocks import ArchivedBlocks

INDEXES_MAX: Final = 16
"""So many indexes are read for one answer."""


@dataclass(frozen=True, slots=True)
class ArchivedOffsets:
    """`offsets` has for each instant the first offset of the first block that begins then or later.

    `begins_us` is the instant of the first record; 0 if the archive leads to no beginning of the log.
    """

    offsets: list[int]
    is_estimated: bool
    begins_us: int


def archived_offsets_at(blocks: ArchivedBlocks, instants_us: Sequence[int], log_begins: int) -> ArchivedOffsets:
    """The offsets of instants in what only the archive has; instants after it get the log's beginning."""
    reach = blocks.reach(log_begins)
    if not reach:
        return ArchivedOffsets([log_begins for _ in instants_us], False, 0)
    firsts_us = [segment.first_timestamp_us for segment in reach]
    numbers = [bisect_left(firsts_us, instant_us) - 1 for instant_us in instants_us]
    inside = {
        number
        for number, instant_us in zip(numbers, instants_us, strict=True)
        if number >= 0 and instant_us <= reach[number].last_timestamp_us
    }
    is_estimated = len(inside) > INDEXES_MAX
    offsets: list[int] = []
    for number, instant_us in zip(numbers, instants_us, strict=True):
        if number < 0:
            offset = reach[0].first_offset
        elif number not in inside or instant_us > reach[number].last_timestamp_us:
            offset = reach[number].next_offset
        elif is_estimated:
            offset = _estimated(reach[number], instant_us)
        else:
            offset = _exact(blocks, reach[number], instant_us)
        offsets.append(min(offset, log_begins))
    return ArchivedOffsets(offsets, is_estimated, firsts_us[0])


def _estimated(segment: ArchivedSegment, instant_us: int) -> int:
    passed_us = instant_us - segment.first_timestamp_us
    span_us = max(1, segment.last_timestamp_us - segment.first_timestamp_us)
    return segment.first_offset + (segment.next_offset - segment.first_offset) * passed_us // span_us


def _exact(blocks: ArchivedBlocks, segment: ArchivedSegment, instant_us: int) -> int:
    entries = blocks.entries(segment)
    block = entries.blocks_before(instant_us)
    return entries.first_offset(block) if block < len(entries) else segment.next_offset

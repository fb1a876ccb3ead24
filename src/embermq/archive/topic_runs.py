"""The blocks of an archive that may have messages of one topic, newest or oldest first."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from embermq.archive.blocks import READ_BYTES, UNREACHED_US, ArchivedBlocks, BlockRun
from embermq.archive.errors import NotArchived
from embermq.archive.manifest import ArchivedSegment
from embermq.store.log.segments import Entries


@dataclass(frozen=True, slots=True)
class TopicRun:
    """All records of the topic from `first_offset` on were in this run or those before. `run` is None if it has none.

    `read_bytes`: what was read of the archive for it.
    """

    first_offset: int
    read_bytes: int
    run: BlockRun | None


@dataclass(frozen=True, slots=True)
class OldTopicRun:
    """All records of the topic before `next_offset` were in this run or those before; else as `TopicRun`."""

    next_offset: int
    read_bytes: int
    run: BlockRun | None


def newest_topic_runs(
    blocks: ArchivedBlocks, topic_name: str, since_us: int, until_us: int, before_offset: int, log_begins: int
) -> Iterator[TopicRun]:
    """The runs of a topic before an offset, at most to an instant back; also blocks between that do not have it."""
    for segment in reversed(blocks.reach(log_begins)):
        if segment.first_offset >= before_offset or segment.first_timestamp_us >= until_us:
            continue
        if segment.last_timestamp_us < since_us:
            return
        try:
            yield from _newest_of(blocks, segment, topic_name, since_us, until_us, before_offset)
        except NotArchived:
            if blocks.is_over(segment, log_begins):
                return
            raise


def _newest_of(
    blocks: ArchivedBlocks, segment: ArchivedSegment, topic_name: str, since_us: int, until_us: int, before_offset: int
) -> Iterator[TopicRun]:
    chosen, read_bytes = _chosen(blocks, segment, topic_name)
    if chosen is None or len(chosen):
        entries = blocks.entries(segment)
        read_bytes += entries.nbytes
        chosen = np.arange(len(entries)) if chosen is None else chosen
        for part in _newest_parts(entries, _in_span(entries, chosen, since_us, until_us, before_offset)):
            run = blocks.read(segment, part)
            yield TopicRun(int(part["first_offset"][0]), read_bytes + len(run.data), run)
            read_bytes = 0
    yield TopicRun(segment.first_offset, read_bytes, None)


def oldest_topic_runs(
    blocks: ArchivedBlocks, topic_name: str, since_us: int, from_offset: int, log_begins: int
) -> Iterator[OldTopicRun]:
    """The runs of a topic from an offset and an instant on; also blocks between that do not have it."""
    for segment in blocks.reach(log_begins):
        if segment.next_offset <= from_offset or segment.last_timestamp_us < since_us:
            continue
        chosen, read_bytes = _chosen(blocks, segment, topic_name)
        if chosen is None or len(chosen):
            entries = blocks.entries(segment)
            read_bytes += entries.nbytes
            chosen = np.arange(len(entries)) if chosen is None else chosen
            chosen = chosen[chosen >= int(entries["first_offset"].searchsorted(from_offset, "right")) - 1]
            for part in _oldest_parts(entries, _in_span(entries, chosen, since_us, UNREACHED_US, log_begins)):
                run = blocks.read(segment, part)
                next_offset = int(part["first_offset"][-1]) + int(part["records"][-1])
                yield OldTopicRun(next_offset, read_bytes + len(run.data), run)
                read_bytes = 0
        yield OldTopicRun(segment.next_offset, read_bytes, None)


def _chosen(blocks: ArchivedBlocks, segment: ArchivedSegment, topic_name: str) -> tuple[NDArray[np.int64] | None, int]:
    """The numbers of the blocks that have the topic, None if that is not known; and how many bytes were read."""
    index, read_bytes = blocks.topic_index(segment)
    if index is None or not index.is_complete:
        return None, read_bytes
    wanted = np.asarray(pc.equal(index.topics, topic_name)).astype(np.bool_)
    return index.blocks_of(wanted).astype(np.int64), read_bytes


def _in_span(
    entries: Entries, chosen: NDArray[np.int64], since_us: int, until_us: int, before_offset: int
) -> NDArray[np.int64]:
    """Those of some blocks that may have records of a time before an offset."""
    firsts_us = entries["first_timestamp_us"]
    end = min(int(firsts_us.searchsorted(until_us)), int(entries["first_offset"].searchsorted(before_offset)))
    begin = max(0, int(firsts_us.searchsorted(since_us)) - 1)  # the one before may end later
    return chosen[(chosen >= begin) & (chosen < end)]


def _newest_parts(entries: Entries, chosen: NDArray[np.int64]) -> Iterator[Entries]:
    """Neighbouring entries that have the chosen blocks, newest first, each as many as are read at once."""
    positions = entries["position"]
    last = len(chosen) - 1
    while last >= 0:
        end = int(positions[chosen[last]]) + int(entries["total_bytes"][chosen[last]])
        first = min(last, int(positions[chosen].searchsorted(end - READ_BYTES)))
        yield entries[chosen[first] : chosen[last] + 1]
        last = first - 1


def _oldest_parts(entries: Entries, chosen: NDArray[np.int64]) -> Iterator[Entries]:
    """As `_newest_parts`, oldest first."""
    ends = (entries["position"] + entries["total_bytes"])[chosen]
    first = 0
    while first < len(chosen):
        begin = int(entries["position"][chosen[first]])
        after = max(first + 1, int(ends.searchsorted(begin + READ_BYTES, "right")))
        yield entries[chosen[first] : chosen[after - 1] + 1]
        first = after

"""The blocks of an archive that may have messages of one topic, newest or oldest first."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from embermq.archive.errors import NotArchived
from embermq.archive.manifest import ArchivedSegment
from embermq.history.archived_blocks import READ_BYTES, UNREACHED_US, ArchivedBlocks, BlockRun
from embermq.store.log.entries import Entries


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
        read_bytes += len(entries.data)
        for part in _newest_parts(entries, _in_span(entries, chosen, since_us, until_us, before_offset)):
            run = blocks.read(segment, part)
            yield TopicRun(part.first_offset(0), read_bytes + len(run.data), run)
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
            read_bytes += len(entries.data)
            first = entries.block_of(from_offset)
            found = _in_span(entries, chosen, since_us, UNREACHED_US, log_begins)
            for part in _oldest_parts(entries, [number for number in found if number >= first]):
                run = blocks.read(segment, part)
                yield OldTopicRun(part.next_offset(), read_bytes + len(run.data), run)
                read_bytes = 0
        yield OldTopicRun(segment.next_offset, read_bytes, None)


def _chosen(blocks: ArchivedBlocks, segment: ArchivedSegment, topic_name: str) -> tuple[list[int] | None, int]:
    """The numbers of the blocks that have the topic, None if that is not known; and how many bytes were read."""
    index, read_bytes = blocks.topic_index(segment)
    if index is None or not index.is_complete:
        return None, read_bytes
    number = index.number_of(topic_name.encode())
    return [] if number is None else index.blocks_of((number,)), read_bytes


def _in_span(
    entries: Entries, chosen: list[int] | None, since_us: int, until_us: int, before_offset: int
) -> Sequence[int]:
    """Those of some blocks, or of all, that may have records of a time before an offset."""
    end = min(entries.blocks_before(until_us), entries.blocks_before_offset(before_offset))
    begin = max(0, entries.blocks_before(since_us) - 1)  # the one before may end later
    return range(begin, end) if chosen is None else [number for number in chosen if begin <= number < end]


def _newest_parts(entries: Entries, chosen: Sequence[int]) -> Iterator[Entries]:
    """Neighbouring entries that have the chosen blocks, newest first, each as many as are read at once."""
    last = len(chosen) - 1
    while last >= 0:
        begin = entries.end(chosen[last]) - READ_BYTES
        first = min(last, bisect_left(chosen, begin, key=entries.position))
        yield entries.part(chosen[first], chosen[last] + 1)
        last = first - 1


def _oldest_parts(entries: Entries, chosen: Sequence[int]) -> Iterator[Entries]:
    """As `_newest_parts`, oldest first."""
    first = 0
    while first < len(chosen):
        end = entries.position(chosen[first]) + READ_BYTES
        after = max(first + 1, bisect_right(chosen, end, key=entries.end))
        yield entries.part(chosen[first], chosen[after - 1] + 1)
        first = after

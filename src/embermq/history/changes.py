"""The changes of one topic's retained message that only the archive has, oldest first."""

from collections.abc import Iterator
from typing import NamedTuple

from embermq.history.archived_blocks import ArchivedBlocks, BlockRun
from embermq.history.topic_runs import oldest_topic_runs
from embermq.protocol.message_expiry import message_expires_us
from embermq.store.interface import RetainedChange
from embermq.store.rows import RETAIN_FLAG, Kind
from embermq.store.state.retained_values import retained_of


class ChangesPart(NamedTuple):
    """Some changes: with those of the parts before, all before `next_offset`. `read_bytes` were read for them."""

    next_offset: int
    read_bytes: int
    changes: list[RetainedChange]


def archived_changes(
    blocks: ArchivedBlocks, topic_name: str, since_us: int, from_offset: int, before_offset: int
) -> Iterator[ChangesPart]:
    """The changes from an offset and an instant on, and before another offset, at which the history of the log begins.

    A part may have none.
    """
    for found in oldest_topic_runs(blocks, topic_name, since_us, from_offset, before_offset):
        changes = [] if found.run is None else _changes(found.run, topic_name, since_us, from_offset, before_offset)
        yield ChangesPart(found.next_offset, found.read_bytes, changes)


def _changes(
    run: BlockRun, topic_name: str, since_us: int, from_offset: int, before_offset: int
) -> list[RetainedChange]:
    found: list[RetainedChange] = []
    topic = topic_name.encode()
    read = run.records(from_offset, before_offset)
    for block in read.blocks():
        for offset in range(max(read.start, block.first_offset), min(read.end, block.next_offset)):
            if not block.has_topic(offset, topic):
                continue
            record = block.record(offset)
            is_message = record.kind == Kind.PUBLISH and record.flags & RETAIN_FLAG
            if (not is_message and record.kind != Kind.RETAINED_REMOVED) or record.timestamp_us < since_us:
                continue
            message = None
            if is_message and record.payload:
                message = retained_of(record, message_expires_us(record.properties, record.timestamp_us))
            found.append(RetainedChange(record.timestamp_us, offset, message))
    return found

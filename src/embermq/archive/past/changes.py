"""The changes of one topic's retained message that only the archive has, oldest first."""

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from embermq.archive.blocks import ArchivedBlocks, BlockRun
from embermq.archive.topic_runs import oldest_topic_runs
from embermq.protocol.message_expiry import message_expires_us
from embermq.store.interface import Retained, RetainedChange
from embermq.store.log.arrow import SCHEMA, gather
from embermq.store.log.records import QOS_MASK, RETAIN_FLAG, Kind


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
    batch = gather(run.data, run.entries, SCHEMA.names)
    rows = batch.filter(pc.equal(batch.column("topic"), pa.scalar(topic_name)))
    found: list[RetainedChange] = []
    topic = topic_name.encode()
    columns = rows.set_column(1, "timestamp", rows.column("timestamp").cast(pa.int64())).to_pydict()
    for offset, timestamp_us, kind, flags, payload, client_id, properties in zip(
        columns["offset"],
        columns["timestamp"],
        columns["kind"],
        columns["flags"],
        columns["payload"],
        columns["client_id"],
        columns["properties"],
        strict=True,
    ):
        is_message = kind == Kind.PUBLISH and flags & RETAIN_FLAG
        if not is_message and kind != Kind.RETAINED_REMOVED:
            continue
        if timestamp_us < since_us or not from_offset <= offset < before_offset:
            continue
        message: Retained | None = None
        if is_message and payload:
            expires_us = message_expires_us(properties, timestamp_us) if properties else 0
            message = Retained(
                topic, payload, flags & QOS_MASK, properties, offset, timestamp_us, client_id.encode(), expires_us
            )
        found.append(RetainedChange(timestamp_us, offset, message))
    return found

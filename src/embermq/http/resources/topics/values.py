"""The values of one topic: its messages in the log, newest first, also those that were not retained.

The log is read on a thread, backwards, and only those blocks of closed segments that have the topic (its topic index).
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field

from embermq.http.fields import (
    OFFSET_MAX,
    PAGE_ITEMS,
    Instant,
    Limit,
    Model,
    Nothing,
    Offset,
    Page,
    Size,
    TopicName,
    past_us,
)
from embermq.http.messages_json import InstantTexts
from embermq.http.operation import VIEWER, Answer, Call, Operation
from embermq.http.paging import json_page
from embermq.http.refusal import HttpRefusal
from embermq.http.resources.messages import PAGE_BYTES_MAX, LogMessage, lines_of
from embermq.http.streaming import Slices

if TYPE_CHECKING:
    import pyarrow as pa

PAYLOAD_BYTES: Final = 200
BATCH_RECORDS: Final = 5_000
BATCH_BYTES: Final = 1024 * 1024
READ_BYTES_MAX: Final = 32 * 1024 * 1024
"""After so many bytes of the log a page ends, whether or not it is full; `next` leads on."""


class ValuesQuery(Model):
    topic: TopicName
    since: Annotated[Instant | None, Field(description="From this instant on.")] = None
    until: Annotated[Instant | None, Field(description="Before this instant.")] = None
    payload_bytes: Annotated[Size, Field(description="At most so many bytes of each payload.")] = PAYLOAD_BYTES
    cursor: Annotated[Offset | None, Field(description="The `next` of the page before.")] = None
    limit: Limit = PAGE_ITEMS


async def list_values(call: Call[ValuesQuery, Nothing]) -> Answer:
    query = call.query
    directory = call.service.log_directory
    if directory is None:
        raise HttpRefusal(409, "a store in memory keeps no log")
    since_us, until_us = past_us("since", query.since) or 0, past_us("until", query.until)
    before = OFFSET_MAX if query.cursor is None else query.cursor
    batches = _newest(directory, query.topic, since_us, OFFSET_MAX if until_us is None else until_us, before)
    slices = Slices()
    texts = InstantTexts()
    lines: list[str] = []
    size_bytes = 0
    while (found := await call.service.on_thread(partial(next, batches, None))) is not None:
        following, read_bytes, batch = found
        for offset, line in lines_of(batch, query.payload_bytes, texts):
            if len(lines) == query.limit or size_bytes >= PAGE_BYTES_MAX:
                return json_page(lines, str(offset + 1))
            lines.append(line)
            size_bytes += len(line)
            await slices.rest()
        if read_bytes >= READ_BYTES_MAX:
            return json_page(lines, str(following))
    return json_page(lines, None)


def _newest(
    directory: Path, topic: str, since_us: int, until_us: int, before_offset: int
) -> "Iterator[tuple[int, int, pa.RecordBatch]]":
    """The messages of a topic, newest first, in batches, each with its lowest offset and the bytes read so far."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from embermq.http.resources.topics.one_topic import OneTopic
    from embermq.store.log.arrow import SCHEMA
    from embermq.store.log.by_topic.chosen_blocks import ChosenBlocks
    from embermq.store.log.records import Kind

    blocks = ChosenBlocks(directory, OneTopic(topic, since_us, until_us))
    for batch in blocks.newest_batches(SCHEMA.names, before_offset, BATCH_RECORDS, BATCH_BYTES):
        begins = batch.column("offset")[0].as_py()
        wanted = pc.and_(
            pc.equal(batch.column("kind"), pa.scalar(int(Kind.PUBLISH), pa.int8())),
            pc.equal(batch.column("topic"), pa.scalar(topic)),
        )
        chosen = batch.filter(wanted)
        chosen = chosen.set_column(1, "timestamp", chosen.column("timestamp").cast(pa.int64()))
        in_time = pc.and_(
            pc.and_(
                pc.greater_equal(chosen.column("timestamp"), since_us), pc.less(chosen.column("timestamp"), until_us)
            ),
            pc.less(chosen.column("offset"), before_offset),
        )
        chosen = chosen.filter(in_time)
        newest_first = chosen.take(pa.array(range(chosen.num_rows - 1, -1, -1), pa.int64()))
        yield begins, blocks.count.read_bytes, newest_first


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/v1/topic/values",
        role=VIEWER,
        summary="The messages of one topic in the log, newest first.",
        handle=list_values,
        query=ValuesQuery,
        body=Nothing,
        answer=Page[LogMessage],
        statuses=(409, 422),
    ),
)

"""Messages of the log: by filter, from an offset or an instant on.

The log is read on a thread, where Arrow chooses records; only what is chosen becomes Python objects, in slices.
"""

from collections.abc import Iterator
from functools import partial
from json.encoder import encode_basestring_ascii as quoted
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from aiohttp import web
from pydantic import Field

from embermq.http.fields import (
    PAGE_ITEMS,
    Instant,
    Limit,
    Model,
    Nothing,
    Offset,
    Page,
    Size,
    Timestamp,
    TopicFilter,
    past_us,
)
from embermq.http.messages_json import InstantTexts, beginning, payload_json, properties_json
from embermq.http.operation import VIEWER, Answer, Call, Operation
from embermq.http.paging import json_page, wants_lines
from embermq.http.refusal import HttpRefusal
from embermq.http.resources.listing import stall_s
from embermq.http.resources.message_models import MessageProperties
from embermq.http.streaming import Slices, Stream
from embermq.protocol.topics import matches
from embermq.store.interface import StoreError
from embermq.store.log.errors import LogTrimmed

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_RECORDS: Final = 2_000
BATCH_BYTES: Final = 1024 * 1024
SCANNED_MAX: Final = 200_000
"""After this many records a page ends, whether or not it is full; `next` leads on."""
PAGE_BYTES_MAX: Final = 4 * 1024 * 1024


class MessagesQuery(Model):
    filter: TopicFilter | None = None
    from_offset: Annotated[Offset | None, Field(description="From this offset on.")] = None
    since: Annotated[Instant | None, Field(description="From this instant on.")] = None
    until: Annotated[Instant | None, Field(description="Before this instant.")] = None
    payload_bytes: Annotated[Size | None, Field(description="At most so many bytes of each payload.")] = None
    cursor: Annotated[Offset | None, Field(description="The `next` of the page before.")] = None
    limit: Limit = PAGE_ITEMS


class LogMessage(Model):
    """A message as the log has it. Its payload is `payload` if it is UTF-8, else `payload_base64`."""

    offset: int
    timestamp: Timestamp
    topic: str
    payload: str | None = None
    payload_base64: str | None = None
    payload_bytes: int
    qos: int
    retain: bool
    client_id: str
    properties: MessageProperties | None = None
    properties_base64: str | None = None


async def list_messages(call: Call[MessagesQuery, Nothing]) -> Answer:
    query = call.query
    directory = call.service.log_directory
    if directory is None:
        raise HttpRefusal(409, "a store in memory keeps no log")
    if query.since is not None and query.from_offset is not None:
        raise HttpRefusal(422, "from_offset and since: expected one of them")
    try:
        start, end = await call.service.on_thread(partial(_bounds, directory, query))
        if wants_lines(call.request):
            return await _stream(call, directory, start, end)
        return await _page(call, directory, start, end)
    except LogTrimmed as error:
        raise HttpRefusal(410, str(error)) from None


def _bounds(directory: Path, query: MessagesQuery) -> tuple[int, int]:
    """The first offset to read, and the one after the last."""
    from embermq.store.log.reader import LogReader

    reader = LogReader(directory)
    first, end = reader.bounds()
    start = first
    since_us, until_us = past_us("since", query.since), past_us("until", query.until)
    if since_us is not None:
        start = reader.offset_at(max(0, since_us))
        if start == first > 1 and since_us < reader.segments()[0].first_timestamp_us:
            raise LogTrimmed(first - 1, first)
    if until_us is not None:
        end = min(end, reader.offset_at(max(0, until_us)))
    if query.from_offset is not None:
        start = query.from_offset
    if query.cursor is not None:
        start = max(start, query.cursor)
    if 1 <= start < first:
        raise LogTrimmed(start, first)
    return max(first, start), end


def _chosen(batches: "Iterator[pa.RecordBatch]", topic_filter: str | None) -> "tuple[int, pa.RecordBatch] | None":
    """The next batch: the offset after it, and the messages of it that a filter matches; None at the end."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from embermq.store.log.records import Kind

    batch = next(batches, None)
    if batch is None:
        return None
    following = batch.column("offset")[-1].as_py() + 1
    batch = batch.filter(pc.equal(batch.column("kind"), pa.scalar(int(Kind.PUBLISH), pa.int8())))
    if topic_filter is not None:
        topics = pc.unique(batch.column("topic")).to_pylist()
        matching = [topic for topic in topics if matches(topic_filter, topic)]
        batch = batch.filter(pc.is_in(batch.column("topic"), pa.array(matching, pa.string())))
    return following, batch.set_column(1, "timestamp", batch.column("timestamp").cast(pa.int64()))


def _batches(directory: Path, start: int, end: int) -> "Iterator[pa.RecordBatch]":
    from embermq.store.log.reader import LogReader

    if start < end:
        yield from LogReader(directory).batches(start, end, rows=BATCH_RECORDS, bytes=BATCH_BYTES)


def lines_of(batch: "pa.RecordBatch", payload_bytes_max: int | None, texts: InstantTexts) -> Iterator[tuple[int, str]]:
    """The offset and the JSON of each message."""
    columns: dict[str, list[Any]] = batch.to_pydict()
    for offset, timestamp_us, flags, topic, payload, client_id, properties in zip(
        columns["offset"],
        columns["timestamp"],
        columns["flags"],
        columns["topic"],
        columns["payload"],
        columns["client_id"],
        columns["properties"],
        strict=True,
    ):
        shown = beginning(payload, payload_bytes_max)
        line = (
            f'{{"offset":{offset},"timestamp":"{texts.text(timestamp_us)}","topic":{quoted(topic)},{payload_json(shown)}'
            f',"payload_bytes":{len(payload)},"qos":{flags & 3},"retain":{"true" if flags & 4 else "false"}'
            f',"client_id":{quoted(client_id)}'
        )
        yield offset, f"{line},{properties_json(properties)}}}" if properties else f"{line}}}"


async def _page(call: Call[MessagesQuery, Nothing], directory: Path, start: int, end: int) -> web.Response:
    query = call.query
    slices = Slices()
    texts = InstantTexts()
    batches = _batches(directory, start, end)
    lines: list[str] = []
    size_bytes = 0
    following = start
    while following < end and following - start < SCANNED_MAX:
        found = await call.service.on_thread(partial(_chosen, batches, query.filter))
        if found is None:
            break
        following, batch = found
        for offset, line in lines_of(batch, query.payload_bytes, texts):
            if len(lines) == query.limit or size_bytes >= PAGE_BYTES_MAX:
                return json_page(lines, str(offset))
            lines.append(line)
            size_bytes += len(line)
            await slices.rest()
    return json_page(lines, str(following) if following < end else None)


async def _stream(call: Call[MessagesQuery, Nothing], directory: Path, start: int, end: int) -> web.StreamResponse:
    slices = Slices()
    texts = InstantTexts()
    batches = _batches(directory, start, end)
    async with Stream(call.request, call.service.places, stall_s(call.request)) as stream:
        try:
            while (found := await call.service.on_thread(partial(_chosen, batches, call.query.filter))) is not None:
                for _, line in lines_of(found[1], call.query.payload_bytes, texts):
                    await stream.line(line)
                    await slices.rest()
                stream.check_reader()
        except StoreError as error:
            return await stream.fail(str(error))
        return await stream.complete()


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/v1/messages",
        role=VIEWER,
        summary="Messages of the log, by filter, from an offset or an instant on.",
        handle=list_messages,
        query=MessagesQuery,
        body=Nothing,
        answer=Page[LogMessage],
        lines=LogMessage,
        statuses=(409, 410, 422),
    ),
)

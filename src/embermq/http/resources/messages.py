"""Messages of the log, and of its archive: by filter, from an offset or an instant on.

They are read on a thread, which chooses records; only what is chosen becomes JSON, in slices.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from json.encoder import encode_basestring_ascii as quoted
from typing import TYPE_CHECKING, Annotated, Final

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
from embermq.http.log_reading import LogReading
from embermq.http.messages_json import InstantTexts, beginning, payload_json, properties_json
from embermq.http.operation import VIEWER, Answer, Call, Operation
from embermq.http.paging import json_page, wants_lines
from embermq.http.refusal import HttpRefusal
from embermq.http.resources.listing import stall_s
from embermq.http.resources.message_models import MessageProperties
from embermq.http.streaming import Slices, Stream
from embermq.store.errors import HistoryTrimmed
from embermq.store.interface import StoreError
from embermq.store.log.errors import LogTrimmed

if TYPE_CHECKING:
    from embermq.history.joined import JoinedLog
    from embermq.store.rows import LogRow

SCANNED_MAX: Final = 200_000
SCANNED_BYTES_MAX: Final = 64 * 1024 * 1024
"""After this many records, or bytes of them, a page ends, whether or not it is full; `next` leads on."""
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
    reading = call.view.log_reading(query.filter)
    if query.since is not None and query.from_offset is not None:
        raise HttpRefusal(422, "from_offset and since: expected one of them")
    since_us, until_us = past_us("since", query.since), past_us("until", query.until)
    await reading.begin(partial(_bounds, query, since_us, until_us, reading.has_archive))
    if wants_lines(call.request):
        return await _stream(call, reading)
    return await _page(call, reading)


def _bounds(
    query: MessagesQuery, since_us: int | None, until_us: int | None, is_archived: bool, log: "JoinedLog"
) -> tuple[int, int]:
    """The first offset to read, and the one after the last; LogTrimmed if the archive is to be asked for them."""
    first, end = log.bounds()
    is_part = is_archived and not log.has_archive and first > 1
    if query.cursor:
        start = query.cursor
    elif since_us is not None:
        start = log.offset_at(max(0, since_us))
    else:
        start = query.from_offset or (1 if is_part else first)
    # At its first instant too: what was trimmed may have records of the same one.
    if start < first or (start == first and is_part and since_us is not None and not query.cursor):
        raise LogTrimmed(start, first)
    if until_us is not None:
        try:
            end = min(end, log.offset_at(max(0, until_us)))
        except (LogTrimmed, HistoryTrimmed):
            if is_part:
                raise
            end = first
    return start, end


def lines_of(
    records: "Iterable[LogRow]", payload_bytes_max: int | None, texts: InstantTexts
) -> Iterator[tuple[int, str]]:
    """The offset and the JSON of each message."""
    for record in records:
        payload, flags, properties = record.payload, record.flags, record.properties
        shown = beginning(payload, payload_bytes_max)
        line = (
            f'{{"offset":{record.offset},"timestamp":"{texts.text(record.timestamp_us)}"'
            f',"topic":{quoted(record.topic.decode())},{payload_json(shown)}'
            f',"payload_bytes":{len(payload)},"qos":{flags & 3},"retain":{"true" if flags & 4 else "false"}'
            f',"client_id":{quoted(record.client_id.decode())}'
        )
        yield record.offset, f"{line},{properties_json(properties)}}}" if properties else f"{line}}}"


async def _page(call: Call[MessagesQuery, Nothing], reading: LogReading) -> web.Response:
    query = call.query
    slices = Slices()
    texts = InstantTexts()
    lines: list[str] = []
    size_bytes = 0
    start = reading.following
    while reading.following - start < SCANNED_MAX and reading.read_bytes < SCANNED_BYTES_MAX:
        piece = await reading.next()
        if piece is None:
            return json_page(lines, None)
        for offset, line in lines_of(piece, query.payload_bytes, texts):
            if len(lines) == query.limit or size_bytes >= PAGE_BYTES_MAX:
                return json_page(lines, str(offset))
            lines.append(line)
            size_bytes += len(line)
            await slices.rest()
    return json_page(lines, None if reading.is_at_end else str(reading.following))


async def _stream(call: Call[MessagesQuery, Nothing], reading: LogReading) -> web.StreamResponse:
    slices = Slices()
    texts = InstantTexts()
    piece = await reading.next()  # an error must come before the status does
    async with Stream(call.request, call.view.places, stall_s(call.request)) as stream:
        try:
            while piece is not None:
                for _, line in lines_of(piece, call.query.payload_bytes, texts):
                    await stream.line(line)
                    await slices.rest()
                stream.check_reader()
                piece = await reading.next()
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
        is_narrowed=True,
    ),
)

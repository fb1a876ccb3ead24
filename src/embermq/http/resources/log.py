"""The log: what it has, where an instant lies in it, and who reads it from other machines."""

from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from embermq.http.fields import (
    OFFSET_MAX,
    PAGE_ITEMS,
    Instant,
    Limit,
    Model,
    Nothing,
    Offset,
    Page,
    Timestamp,
    shown_instant,
    whole_number,
)
from embermq.http.operation import READER, VIEWER, Answer, Call, Operation
from embermq.http.refusal import HttpRefusal
from embermq.instants import instant_us
from embermq.store.log.readers import register_reader, registered_readers

READERS_MAX: Final = 64
"""Trimming asks each of them, and each may keep the log from being trimmed for a while (store.unread_bytes_max)."""


class CheckpointFacts(Model):
    """A checkpoint. `timestamp` is that of the last record before its offset."""

    offset: int
    timestamp: Timestamp | None = None
    bytes: int


class ReaderFacts(Model):
    """A registered reader. `next_offset` is the first record that it has not read for good."""

    name: str
    next_offset: int


class LogAnswer(Model):
    """The durable log: its first offset and the one after its last record, its checkpoints and registered readers."""

    log_id: Annotated[str | None, Field(description="Which log it is, the same in its archive.")] = None
    first_offset: int
    next_offset: int
    checkpoints: list[CheckpointFacts]
    readers: list[ReaderFacts]


class SegmentFacts(Model):
    """A segment. One without records has equal offsets and no timestamps."""

    first_offset: int
    next_offset: int
    blocks: int
    bytes: int
    first_timestamp: Timestamp | None = None
    last_timestamp: Timestamp | None = None


class SegmentsQuery(Model):
    from_offset: Annotated[Offset | None, Field(description="From the segment on that this offset lies in.")] = None
    cursor: Annotated[Offset | None, Field(description="The `next` of the page before.")] = None
    limit: Limit = PAGE_ITEMS


class OffsetQuery(Model):
    at: Instant


class OffsetAnswer(Model):
    """The first record that is not older than the instant; the end of the log if there is none."""

    offset: int


class ReaderBody(Model):
    name: Annotated[str, Field(min_length=1, max_length=1024, description="What the reader fills, such as a lake.")]
    next_offset: Annotated[
        int,
        BeforeValidator(whole_number),
        Field(
            ge=0,
            le=OFFSET_MAX,
            description="The first record that it has not read for good.",
            json_schema_extra={"minimum": 0, "maximum": OFFSET_MAX},
        ),
    ]


def directory_of(call: Call[Any, Any]) -> Path:
    """The directory of the log; refused by a server that keeps none."""
    directory = call.service.log_directory
    if directory is None:
        raise HttpRefusal(409, "a store in memory keeps no log")
    return directory


async def log(call: Call[Nothing, Nothing]) -> Answer:
    return await call.service.on_thread(partial(_log, directory_of(call)))


def _log(directory: Path) -> LogAnswer:
    from embermq.store.log.checkpoint import checkpoints
    from embermq.store.log.identity import read_identity
    from embermq.store.log.reader import LogReader

    first_offset, next_offset = LogReader(directory).bounds()
    identity = read_identity(directory)
    return LogAnswer(
        log_id=None if identity is None else identity.log_id,
        first_offset=first_offset,
        next_offset=next_offset,
        checkpoints=[
            CheckpointFacts(offset=each.offset, timestamp=shown_instant(each.timestamp_us), bytes=each.size_bytes)
            for each in checkpoints(directory)
        ],
        readers=[
            ReaderFacts(name=each.name, next_offset=each.next_offset) for each in registered_readers(directory.parent)
        ],
    )


async def segments(call: Call[SegmentsQuery, Nothing]) -> Answer:
    return await call.service.on_thread(partial(_segments, directory_of(call), call.query))


def _segments(directory: Path, query: SegmentsQuery) -> Page[SegmentFacts]:
    from embermq.store.log.reader import LogReader

    start = max(query.from_offset or 0, query.cursor or 0)
    found = list(islice(LogReader(directory).segments_from(start), query.limit + 1))
    items = [
        SegmentFacts(
            first_offset=each.first_offset,
            next_offset=each.next_offset,
            blocks=each.blocks,
            bytes=each.size_bytes,
            first_timestamp=shown_instant(each.first_timestamp_us),
            last_timestamp=shown_instant(each.last_timestamp_us),
        )
        for each in found[: query.limit]
    ]
    return Page[SegmentFacts](items=items, next=str(found[-1].first_offset) if len(found) > query.limit else None)


async def offset(call: Call[OffsetQuery, Nothing]) -> Answer:
    directory = directory_of(call)
    try:
        at_us = instant_us(call.query.at)
    except ValueError:
        raise HttpRefusal(422, "at: expected an instant of the calendar") from None
    return await call.service.on_thread(partial(_offset, directory, at_us))


def _offset(directory: Path, at_us: int) -> OffsetAnswer:
    from embermq.store.log.reader import LogReader

    return OffsetAnswer(offset=LogReader(directory).offset_at(at_us))


async def register(call: Call[Nothing, ReaderBody]) -> Answer:
    data = directory_of(call).parent
    if await call.service.on_thread(partial(_register, data, call.body)):
        call.audit("registers the reader", call.body.name, f"next offset {call.body.next_offset}")
    return ReaderFacts(name=call.body.name, next_offset=call.body.next_offset)


def _register(data: Path, body: ReaderBody) -> bool:
    """Whether the reader is a new one."""
    names = {each.name for each in registered_readers(data)}
    if body.name not in names and len(names) >= READERS_MAX:
        raise HttpRefusal(422, f"{READERS_MAX} readers are registered already (GET /api/v1/log)")
    register_reader(data, body.name, body.next_offset)
    return body.name not in names


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/v1/log",
        role=VIEWER,
        summary="What the log has: offsets, checkpoints, registered readers.",
        handle=log,
        query=Nothing,
        body=Nothing,
        answer=LogAnswer,
        statuses=(409,),
    ),
    Operation(
        method="GET",
        path="/api/v1/log/segments",
        role=VIEWER,
        summary="The segments of the log, oldest first.",
        handle=segments,
        query=SegmentsQuery,
        body=Nothing,
        answer=Page[SegmentFacts],
        statuses=(409,),
    ),
    Operation(
        method="GET",
        path="/api/v1/log/offset",
        role=VIEWER,
        summary="The offset of an instant.",
        handle=offset,
        query=OffsetQuery,
        body=Nothing,
        answer=OffsetAnswer,
        statuses=(409, 422),
    ),
    Operation(
        method="POST",
        path="/api/v1/log/readers",
        role=READER,
        summary="Register how far a reader of the log is: trimming waits for it, up to store.unread_bytes_max.",
        handle=register,
        query=Nothing,
        body=ReaderBody,
        answer=ReaderFacts,
        statuses=(409, 422),
    ),
)

"""Retained messages, now or as of an instant."""

from typing import Annotated, Final

from aiohttp import web
from pydantic import Field

from embermq.http.fields import (
    PAGE_ITEMS,
    Cursor,
    Instant,
    Limit,
    Model,
    Nothing,
    Page,
    Size,
    TopicFilter,
    TopicName,
    past_us,
)
from embermq.http.messages_json import retained_json
from embermq.http.operation import VIEWER, Answer, Call, Operation
from embermq.http.paging import json_page, json_response, wants_lines
from embermq.http.refusal import HttpRefusal
from embermq.http.resources.listing import stall_s
from embermq.http.resources.message_models import RetainedMessage
from embermq.http.streaming import Slices, Stream
from embermq.http.view import View
from embermq.store.interface import Retained, StoreError

PAGE_BYTES_MAX: Final = 4 * 1024 * 1024
"""From this many bytes of payload on, a page has no more messages."""


class RetainedQuery(Model):
    filter: TopicFilter = "#"
    as_of: Instant | None = None
    payload_bytes: Annotated[Size | None, Field(description="Truncate each payload to this many bytes.")] = None
    cursor: Cursor = ""
    limit: Limit = PAGE_ITEMS


class OneQuery(Model):
    topic: TopicName
    as_of: Instant | None = None


def as_of_us(view: View, text: str | None, name: str = "as_of") -> int | None:
    """The instant that is asked for; refused if nothing can be known of it."""
    asked_us = past_us(name, text)
    if asked_us is not None and not view.has_log:
        raise HttpRefusal(409, "a store in memory keeps no history")
    return asked_us


async def list_retained(call: Call[RetainedQuery, Nothing]) -> Answer:
    instant_us = as_of_us(call.view, call.query.as_of)
    if wants_lines(call.request):
        return await _stream(call, instant_us)
    return await _page(call, instant_us)


async def _stream(call: Call[RetainedQuery, Nothing], instant_us: int | None) -> web.StreamResponse:
    query = call.query
    pieces = call.view.pieces(query.filter, instant_us, query.cursor)
    first: list[Retained] = await anext(pieces, [])  # an error must come before the status does
    slices = Slices()
    async with Stream(call.request, call.view.places, stall_s(call.request)) as stream:
        try:
            await stream.lines([retained_json(retained, query.payload_bytes) for retained in first])
            async for piece in pieces:
                await stream.lines([retained_json(retained, query.payload_bytes) for retained in piece])
                await slices.rest()
        except StoreError as error:
            return await stream.fail(str(error))
        return await stream.complete()


async def _page(call: Call[RetainedQuery, Nothing], instant_us: int | None) -> web.Response:
    query = call.query
    slices = Slices()
    found: list[Retained] = []
    size_bytes = 0
    is_more = False
    async for piece in call.view.pieces(query.filter, instant_us, query.cursor):
        for retained in piece:
            if len(found) == query.limit or size_bytes >= PAGE_BYTES_MAX:
                is_more = True
                break
            found.append(retained)
            size_bytes += len(retained.payload)
        if is_more:
            break
        await slices.rest()
    return json_page(
        (retained_json(retained, query.payload_bytes) for retained in found), found[-1].topic_name if is_more else None
    )


async def get_message(call: Call[OneQuery, Nothing]) -> Answer:
    instant_us = as_of_us(call.view, call.query.as_of)
    call.view.service_for(call.query.topic)
    retained = await call.view.message(call.query.topic, instant_us)
    if retained is None:
        raise HttpRefusal(404, "nothing is retained on this topic")
    return json_response(retained_json(retained))


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/v1/retained",
        role=VIEWER,
        summary="Retained messages that a filter matches, now or as of an instant.",
        handle=list_retained,
        query=RetainedQuery,
        body=Nothing,
        answer=Page[RetainedMessage],
        lines=RetainedMessage,
        statuses=(409, 410, 422),
        is_narrowed=True,
    ),
    Operation(
        method="GET",
        path="/api/v1/retained/message",
        role=VIEWER,
        summary="The retained message of one topic, now or as of an instant.",
        handle=get_message,
        query=OneQuery,
        body=Nothing,
        answer=RetainedMessage,
        statuses=(404, 409, 410, 422),
        is_narrowed=True,
    ),
)

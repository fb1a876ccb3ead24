"""Retained messages: list them now or as of an instant, set and clear them."""

from base64 import b64decode
from collections.abc import AsyncIterator
from typing import Annotated, Final

from aiohttp import web
from pydantic import Field, model_validator

from embermq.broker.operator import cleared, retained_message, retained_pieces
from embermq.http.fields import (
    PAGE_ITEMS,
    Base64,
    Cursor,
    Instant,
    Limit,
    Model,
    Nothing,
    Page,
    Size,
    TopicFilter,
    TopicName,
    json_text,
    now_us,
    past_us,
)
from embermq.http.messages_json import RetainedMessage, retained_json
from embermq.http.operation import OPERATOR, VIEWER, Answer, Call, Operation
from embermq.http.paging import json_page, json_response, wants_lines
from embermq.http.refusal import HttpRefusal
from embermq.http.resources.listing import stall_s
from embermq.http.service import Pending, Service
from embermq.http.streaming import Slices, Stream
from embermq.protocol.packets import Publish
from embermq.store.errors import HistoryTrimmed
from embermq.store.interface import Retained, StoreError

MESSAGES_MAX: Final = 10_000
"""How many messages one request may set; the size of a body bounds them as well."""
PAGE_BYTES_MAX: Final = 4 * 1024 * 1024
"""From this many bytes of payload on, a page has no more messages."""


class RetainedQuery(Model):
    filter: TopicFilter = "#"
    as_of: Instant | None = None
    payload_bytes: Annotated[Size | None, Field(description="At most so many bytes of each payload.")] = None
    cursor: Cursor = ""
    limit: Limit = PAGE_ITEMS


class OneQuery(Model):
    topic: TopicName
    as_of: Instant | None = None


class NewMessage(Model):
    """A message to retain, with its payload as text or as base64."""

    topic: TopicName
    payload: str | None = None
    payload_base64: Base64 | None = None
    qos: Annotated[int, Field(ge=0, le=2)] = 0
    properties_base64: Base64 | None = None

    @model_validator(mode="after")
    def _has_a_payload(self) -> "NewMessage":
        if (self.payload is None) == (self.payload_base64 is None):
            raise ValueError("expected payload or payload_base64, one of them")
        if not self.payload_bytes():
            raise ValueError("expected a payload that is not empty: an empty one clears")
        return self

    def payload_bytes(self) -> bytes:
        """The payload; a text with a lone surrogate has none."""
        if self.payload is None:
            return b64decode(self.payload_base64 or "")
        return self.payload.encode("utf-8", "replace")


class SetBody(Model):
    messages: Annotated[list[NewMessage], Field(max_length=MESSAGES_MAX)]


class RefusedMessage(Model):
    place: Annotated[int, Field(description="The place in the request, from 0 on.")]
    error: str


class SetAnswer(Model):
    """What was retained is durable."""

    retained: int
    refused: list[RefusedMessage]


class ClearBody(Model):
    filter: TopicFilter
    dry_run: Annotated[bool, Field(description="Only count.")] = False


class ClearAnswer(Model):
    """As a line: how many are durably cleared so far; the last line has `is_done`."""

    cleared: int
    is_done: bool


# -- questions -------------------------------------------------------------------------------------------------------


def as_of_us(service: Service, text: str | None) -> int | None:
    """The instant that is asked for; refused if nothing can be known of it."""
    asked_us = past_us(text)
    if asked_us is None:
        return None
    if not 0 <= asked_us <= now_us():
        raise HttpRefusal(422, "as_of: expected an instant that is not in the future, and not before 1970")
    if service.log_directory is None:
        raise HttpRefusal(409, "a store in memory keeps no history")
    return asked_us


async def list_retained(call: Call[RetainedQuery, Nothing]) -> Answer:
    instant_us = as_of_us(call.service, call.query.as_of)
    try:
        if wants_lines(call.request):
            return await _stream(call, instant_us)
        return await _page(call, instant_us)
    except HistoryTrimmed as error:
        raise HttpRefusal(410, str(error)) from None


async def _stream(call: Call[RetainedQuery, Nothing], instant_us: int | None) -> web.StreamResponse:
    query = call.query
    pieces = retained_pieces(call.service.server.store, query.filter, instant_us, query.cursor)
    first = next(pieces, [])  # an error must come before the status does
    slices = Slices()
    async with Stream(call.request, call.service.places, stall_s(call.request)) as stream:
        try:
            for retained in first:
                await stream.line(retained_json(retained, query.payload_bytes))
            for piece in pieces:
                for retained in piece:
                    await stream.line(retained_json(retained, query.payload_bytes))
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
    for piece in retained_pieces(call.service.server.store, query.filter, instant_us, query.cursor):
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
    instant_us = as_of_us(call.service, call.query.as_of)
    try:
        retained = retained_message(call.service.server.store, call.query.topic, instant_us)
    except HistoryTrimmed as error:
        raise HttpRefusal(410, str(error)) from None
    if retained is None:
        raise HttpRefusal(404, "nothing is retained on this topic")
    return json_response(retained_json(retained))


# -- changes ---------------------------------------------------------------------------------------------------------


async def set_messages(call: Call[Nothing, SetBody]) -> Answer:
    service = call.service
    pending = Pending()
    slices = Slices()
    refused: list[RefusedMessage] = []
    messages = call.body.messages
    more = f" and {len(messages) - 1} more" if len(messages) > 1 else ""
    outcome = "failed"
    try:
        for place, given in enumerate(messages):
            properties = b64decode(given.properties_base64 or "")
            message = Publish(given.topic, given.payload_bytes(), given.qos, True, False, 0, properties)
            refusal = service.publish_retained(message, pending)
            if refusal:
                refused.append(RefusedMessage(place=place, error=refusal))
            await slices.rest()
        await pending.durable(service)
        retained = len(messages) - len(refused)
        outcome = f"{retained} retained, {len(refused)} refused"
    finally:
        call.audit("retain", (messages[0].topic if messages else "") + more, outcome)
    return SetAnswer(retained=retained, refused=refused)


async def clear_messages(call: Call[Nothing, ClearBody]) -> Answer:
    if call.body.dry_run:
        return ClearAnswer(cleared=await _count(call), is_done=False)
    if not wants_lines(call.request):
        counts = [count async for count in _clear(call)]
        return ClearAnswer(cleared=counts[-1], is_done=True)
    count = 0
    async with Stream(call.request, call.service.places, stall_s(call.request)) as stream:
        try:
            async for count in _clear(call):
                await stream.line(json_text({"cleared": count, "is_done": False}))
                await stream.flush()
        except (StoreError, HttpRefusal) as error:
            return await stream.fail(str(error))
        await stream.line(json_text({"cleared": count, "is_done": True}))
        return await stream.complete()


async def _count(call: Call[Nothing, ClearBody]) -> int:
    slices = Slices()
    count = 0
    for piece in retained_pieces(call.service.server.store, call.body.filter):
        count += len(piece)
        await slices.rest()
    return count


async def _clear(call: Call[Nothing, ClearBody]) -> AsyncIterator[int]:
    """Clear piece by piece; yields how many are durably cleared so far."""
    service = call.service
    slices = Slices()
    count = 0
    try:
        for piece in retained_pieces(service.server.store, call.body.filter):
            pending = Pending()
            for retained in piece:
                refusal = service.publish_retained(cleared(retained), pending)
                if refusal:
                    raise StoreError(f"cleared {count} messages, then not {retained.topic_name!a}: {refusal}")
            await pending.durable(service)
            count += len(piece)
            yield count
            await slices.rest()
    finally:
        call.audit("clear retained", call.body.filter, f"{count} cleared")


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
    ),
    Operation(
        method="POST",
        path="/api/v1/retained/set",
        role=OPERATOR,
        summary="Retain messages, as if a client had published them; answered when they are durable.",
        handle=set_messages,
        query=Nothing,
        body=SetBody,
        answer=SetAnswer,
    ),
    Operation(
        method="POST",
        path="/api/v1/retained/clear",
        role=OPERATOR,
        summary="Clear the retained messages that a filter matches; answered when that is durable.",
        handle=clear_messages,
        query=Nothing,
        body=ClearBody,
        answer=ClearAnswer,
        lines=ClearAnswer,
    ),
)

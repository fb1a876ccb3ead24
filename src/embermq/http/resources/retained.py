"""Retained messages: list them now or as of an instant, set and clear them."""

from base64 import b64decode
from collections.abc import AsyncIterator
from typing import Annotated, Final

from aiohttp import web
from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from embermq.archive.errors import ArchiveError
from embermq.broker.operator import cleared
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
    whole_number,
)
from embermq.http.messages_json import retained_json
from embermq.http.operation import OPERATOR, VIEWER, Answer, Call, Operation
from embermq.http.paging import json_page, json_response, wants_lines
from embermq.http.refusal import HttpRefusal
from embermq.http.resources.listing import stall_s
from embermq.http.resources.message_models import RetainedMessage
from embermq.http.service import Pending
from embermq.http.streaming import Slices, Stream
from embermq.http.view import View
from embermq.protocol.errors import PeerError
from embermq.protocol.message_expiry import message_expires_us
from embermq.protocol.mqtt.fields import Fields, variable_byte_integer
from embermq.protocol.mqtt.properties import CLIENT, read_message_section
from embermq.protocol.packets import PUBLISH, Publish
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
    """A message to retain, with its payload as text or as base64, one of them. An empty payload would clear."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["payload"]}, {"required": ["payload_base64"]}]},
    )

    topic: TopicName
    payload: Annotated[str, Field(json_schema_extra={"minLength": 1})] = ""
    payload_base64: Annotated[Base64, Field(json_schema_extra={"minLength": 4})] = ""
    qos: Annotated[
        int, BeforeValidator(whole_number), Field(ge=0, le=2, json_schema_extra={"minimum": 0, "maximum": 2})
    ] = 0
    properties_base64: Annotated[Base64, Field(description="The properties of MQTT 5, as in a PUBLISH.")] = ""

    @model_validator(mode="after")
    def _has_a_payload(self) -> "NewMessage":
        if len(self.model_fields_set & {"payload", "payload_base64"}) != 1:
            raise ValueError("expected payload or payload_base64, one of them")
        if not self.payload and not self.payload_base64:
            raise ValueError("expected a payload that is not empty: an empty one clears")
        return self

    def publish(self) -> Publish:
        """The message; a `PeerError` says what is wrong with its properties."""
        payload = self.payload.encode() if self.payload else b64decode(self.payload_base64)
        given = b64decode(self.properties_base64)
        section = variable_byte_integer(len(given)) + given
        properties = read_message_section(Fields(section, 0, len(section)), PUBLISH, CLIENT).canonical
        expires_us = message_expires_us(properties, now_us())
        return Publish(self.topic, payload, self.qos, True, False, 0, properties, expires_us)


class SetBody(Model):
    messages: list[NewMessage]


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


def as_of_us(view: View, text: str | None, name: str = "as_of") -> int | None:
    """The instant that is asked for; refused if nothing can be known of it."""
    asked_us = past_us(name, text)
    if asked_us is not None and not view.has_log:
        raise HttpRefusal(409, "a store in memory keeps no history")
    return asked_us


async def list_retained(call: Call[RetainedQuery, Nothing]) -> Answer:
    instant_us = as_of_us(call.view, call.query.as_of)
    try:
        if wants_lines(call.request):
            return await _stream(call, instant_us)
        return await _page(call, instant_us)
    except HistoryTrimmed as error:
        raise HttpRefusal(410, str(error)) from None
    except ArchiveError as error:
        raise HttpRefusal(503, str(error)) from None


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
    try:
        retained = await call.view.message(call.query.topic, instant_us)
    except HistoryTrimmed as error:
        raise HttpRefusal(410, str(error)) from None
    except ArchiveError as error:
        raise HttpRefusal(503, str(error)) from None
    if retained is None:
        raise HttpRefusal(404, "nothing is retained on this topic")
    return json_response(retained_json(retained))


# -- changes ---------------------------------------------------------------------------------------------------------


async def set_messages(call: Call[Nothing, SetBody]) -> Answer:
    view = call.view
    if len(call.body.messages) > MESSAGES_MAX:
        raise HttpRefusal(422, f"messages: expected at most {MESSAGES_MAX}")
    pending = Pending()
    slices = Slices()
    refused: list[RefusedMessage] = []
    messages = call.body.messages
    more = f" and {len(messages) - 1} more" if len(messages) > 1 else ""
    outcome = "failed"
    try:
        for place, given in enumerate(messages):
            try:
                refusal = view.publish_retained(given.publish(), pending)
            except PeerError as error:
                refusal = f"properties_base64: {error}"
            if refusal:
                refused.append(RefusedMessage(place=place, error=refusal))
            await slices.rest()
        await view.durable(pending)
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
    async with Stream(call.request, call.view.places, stall_s(call.request)) as stream:
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
    async for piece in call.view.clearable_pieces(call.body.filter):
        count += len(piece)
        await slices.rest()
    return count


async def _clear(call: Call[Nothing, ClearBody]) -> AsyncIterator[int]:
    """Clear piece by piece; yields how many are durably cleared so far."""
    view = call.view
    slices = Slices()
    count = 0
    try:
        async for piece in view.clearable_pieces(call.body.filter):
            pending = Pending()
            for retained in piece:
                refusal = view.publish_retained(cleared(retained), pending)
                if refusal:
                    raise StoreError(f"cleared {count} messages, then not {retained.topic_name!a}: {refusal}")
            await view.durable(pending)
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
    Operation(
        method="POST",
        path="/api/v1/retained/set",
        role=OPERATOR,
        summary="Retain messages, as if a client had published them; answered when they are durable.",
        handle=set_messages,
        query=Nothing,
        body=SetBody,
        answer=SetAnswer,
        statuses=(422,),
        is_narrowed=True,
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
        is_narrowed=True,
    ),
)

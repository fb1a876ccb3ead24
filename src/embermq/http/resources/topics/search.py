"""A search in the topic tree: retained messages by filter, or by a word in their topic names."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from embermq.broker.operator import retained_message
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
)
from embermq.http.messages_json import retained_json
from embermq.http.operation import VIEWER, Answer, Call, Operation
from embermq.http.paging import json_page
from embermq.http.refusal import HttpRefusal
from embermq.http.resources.message_models import RetainedMessage
from embermq.http.resources.retained import PAGE_BYTES_MAX, as_of_us
from embermq.http.resources.topics.tree import PAYLOAD_BYTES
from embermq.http.service import Service
from embermq.http.store_reads import on_store_thread
from embermq.http.streaming import Slices
from embermq.store.interface import Retained, Store
from embermq.store.topic_tree import Moments

STEPS_MAX: Final = 200
"""After so many steps, of a thousand topics each, a page ends, whether or not it is full; `next` leads on."""
NAMES_TOGETHER: Final = 100
"""The messages of so many topics are read at once."""
WORD_CHARACTERS_MAX: Final = 1_000


def _word(text: str) -> str:
    if "\0" in text:
        raise ValueError("expected a text without U+0000")
    return text


Word = Annotated[
    str,
    AfterValidator(_word),
    Field(
        min_length=1,
        max_length=WORD_CHARACTERS_MAX,
        description="A text that the topic name has in it, in upper or lower case; it may have a / in it.",
        json_schema_extra={
            "minLength": 1,
            "maxLength": WORD_CHARACTERS_MAX,
            "pattern": "^[^\\u0000]+$",
            "examples": ["temperature"],
        },
    ),
]


class SearchQuery(Model):
    filter: TopicFilter | None = None
    word: Word | None = None
    as_of: Instant | None = None
    payload_bytes: Annotated[Size, Field(description="Truncate each payload to this many bytes.")] = PAYLOAD_BYTES
    cursor: Cursor = ""
    limit: Limit = PAGE_ITEMS


Found = tuple[Retained | None, str]
"""A message that was found, if any, and the cursor to go on after it."""


async def search(call: Call[SearchQuery, Nothing]) -> Answer:
    query = call.query
    if (query.filter is None) == (query.word is None):
        raise HttpRefusal(422, "filter and word: expected one of them")
    instant_us = as_of_us(call.view, query.as_of)
    lines: list[str] = []
    size_bytes = 0
    steps = 0
    following = query.cursor
    by = _by_filter(call, instant_us)
    is_whole = call.view.sees_all
    if query.word is not None:
        by = _by_word(call, instant_us) if is_whole else _by_word_narrowed(call, query.word.lower(), instant_us)
    if is_whole and query.word is not None and instant_us is not None and _is_archived(call.service, instant_us):
        return await _archived_by_word(call, query.word, instant_us)
    async for message, after in by:
        if len(lines) == query.limit or size_bytes >= PAGE_BYTES_MAX or steps >= STEPS_MAX:
            return json_page(lines, following)
        following = after
        if message is None:
            steps += 1
        else:
            lines.append(retained_json(message, query.payload_bytes))
            size_bytes += len(message.payload)
    return json_page(lines, None)


def _is_archived(service: Service, instant_us: int) -> bool:
    """Whether only the archive has an instant."""
    return service.archived is not None and instant_us < service.server.store.history.begins_us()


async def _archived_by_word(call: Call[SearchQuery, Nothing], word: str, instant_us: int) -> Answer:
    query = call.query
    service = call.service
    local = service.server.store.history.reads()
    assert service.archived is not None and local is not None
    from embermq.history.tree import past_names

    found, following = await service.archived.of_past(
        lambda past, is_wanted: past_names(
            past, local, word, query.cursor, max(1, instant_us), query.limit, STEPS_MAX, is_wanted
        ),
        instant_us,
    )
    return json_page([retained_json(message, query.payload_bytes) for message in found], following)


async def _by_filter(call: Call[SearchQuery, Nothing], instant_us: int | None) -> AsyncIterator[Found]:
    query = call.query
    assert query.filter is not None
    slices = Slices()
    async for piece in call.view.pieces(query.filter, instant_us, query.cursor):
        for message in piece:
            yield message, message.topic_name
        await slices.rest()


async def _by_word_narrowed(
    call: Call[SearchQuery, Nothing], word: str, instant_us: int | None
) -> AsyncIterator[Found]:
    """Among the topics that the user may read; cursors are names of such topics."""
    slices = Slices()
    async for piece in call.view.pieces(None, instant_us, call.query.cursor):
        for message in piece:
            if word in message.topic_name.lower():
                yield message, message.topic_name
            await slices.rest()
        if piece:
            yield None, piece[-1].topic_name


async def _by_word(call: Call[SearchQuery, Nothing], instant_us: int | None) -> AsyncIterator[Found]:
    query = call.query
    assert query.word is not None
    store = call.service.server.store
    slices = Slices()
    found = store.retained.with_word(
        query.word, query.cursor, Moments(max(1, instant_us) if instant_us is not None else 0)
    )
    while not found.is_done():
        names = await on_store_thread(store, found.step)
        while names:
            messages = await on_store_thread(store, partial(_messages, store, names[:NAMES_TOGETHER], instant_us))
            for topic_name, message in zip(names, messages, strict=False):
                if message is not None:
                    yield message, topic_name + "/"  # the first position after this topic
                await slices.rest()
            names = names[len(messages) :]
        yield None, found.position()
        await slices.rest()


def _messages(store: Store, topic_names: list[str], instant_us: int | None) -> list[Retained | None]:
    """What is or was retained on the first of some topics, at least on one: those whose payloads make a page."""
    found: list[Retained | None] = []
    size_bytes = 0
    for topic_name in topic_names:
        message = retained_message(store, topic_name, instant_us)
        found.append(message)
        size_bytes += 0 if message is None else len(message.payload)
        if size_bytes >= PAGE_BYTES_MAX:
            break
    return found


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/v1/tree/search",
        role=VIEWER,
        summary="Retained messages by filter, or by a word in their topic names, now or as of an instant.",
        handle=search,
        query=SearchQuery,
        body=Nothing,
        answer=Page[RetainedMessage],
        statuses=(409, 410, 422),
        is_narrowed=True,
    ),
)

"""The topic tree of the retained messages: one level of it, now or as of an instant, and compared with another."""

from collections.abc import Awaitable, Callable
from functools import partial
from json.encoder import encode_basestring_ascii as quoted
from typing import Annotated, Final, Literal

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
    Timestamp,
    TopicPrefix,
    json_text,
    now_us,
)
from embermq.http.messages_json import retained_json
from embermq.http.operation import VIEWER, Answer, Call, Operation
from embermq.http.paging import json_response
from embermq.http.resources.message_models import RetainedMessage
from embermq.http.resources.retained import PAGE_BYTES_MAX, as_of_us
from embermq.http.resources.topics.level_messages import LevelMessages
from embermq.http.resources.topics.levels import UNBOUNDED, Levels, found_levels
from embermq.http.streaming import Slices
from embermq.http.view import View
from embermq.instants import utc_text
from embermq.store.topic_tree import (
    APPEARED,
    UNKNOWN_COUNT,
    VANISHED,
    WORK_MAX,
    Moments,
    TreeLevel,
    position_after,
)

PAYLOAD_BYTES: Final = 200
SIGNS: Final = ("", "+", "~", "-")  # by the numbers of `store.topic_tree`
APPLIED_US: Final = 10_000_000
"""The records of an instant are applied so long after it, unless the disk fails."""


class MomentsQuery(Model):
    below: Annotated[TopicPrefix | None, Field(description="Below these levels; without it, the first levels.")] = None
    as_of: Instant | None = None
    compare_with: Annotated[Instant | None, Field(description="What has changed since this instant.")] = None


class TreeQuery(MomentsQuery):
    payload_bytes: Annotated[Size, Field(description="Truncate each payload to this many bytes.")] = PAYLOAD_BYTES
    cursor: Cursor = ""
    limit: Limit = PAGE_ITEMS


class TreeChange(Model):
    """How many topics of a branch have a message only now (`appeared`), only then (`vanished`), or another one: also
    where the payload is the same, and was published again."""

    appeared: int
    changed: int
    vanished: int


class TreeItem(Model):
    """One level. `topics` are the topics with a message in its branch, its own included; null where counting would have
    taken too long (ask `/api/v1/tree/count`).

    With `compare_with`: `sign` is what became of its own message ("+", "~", "-"), `other` that message then.
    """

    level: str
    topic: str
    has_children: bool
    topics: int | None
    message: RetainedMessage | None
    change: TreeChange | None
    sign: Literal["", "+", "~", "-"] | None = None
    other: RetainedMessage | None = None


class TreePage(Page[TreeItem]):
    """A part of a level. `begins` is how far back the history reaches; without it there is none."""

    begins: Timestamp | None = None


class TreeCount(Model):
    topics: int
    change: TreeChange | None = None


def moments_of(view: View, query: MomentsQuery) -> Moments:
    """The instants that are asked for; refused if nothing can be known of them."""
    after_us = as_of_us(view, query.as_of)
    before_us = as_of_us(view, query.compare_with, "compare_with")
    return Moments(0 if after_us is None else max(1, after_us), 0 if before_us is None else max(1, before_us))


async def list_level(call: Call[TreeQuery, Nothing]) -> Answer:
    query = call.query
    moments = moments_of(call.view, query)
    levels, following = await _levels(call, moments)
    lines, following = await _lines(call, moments, levels, following)
    text = f'{{"items":[{",".join(lines)}]'
    if following is not None:
        text += f',"next":{json_text(following)}'
    known_us = call.view.known_since_us()
    if known_us:
        text += f',"begins":"{utc_text(known_us)}"'
    return json_response(text + "}")


async def _levels(call: Call[TreeQuery, Nothing], moments: Moments) -> Levels:
    query = call.query
    whole = call.view.service_below(query.below)
    if whole is not None and 0 < moments.as_of_us < now_us() - APPLIED_US:
        key = query.below, query.cursor, query.limit, moments.as_of_us, moments.compare_us
        return await whole.levels.get(key, partial(_page, query, moments, partial(found_levels, whole)))
    # Not kept: a page asks because something has changed, or the levels are those of one user.
    return await _page(query, moments, call.view.levels)


async def _page(query: TreeQuery, moments: Moments, find: Callable[..., Awaitable[Levels]]) -> Levels:
    found, following = await find(query.below, query.cursor, moments, query.limit, WORK_MAX)
    if len(found) > query.limit:
        return found[: query.limit], position_after(found[query.limit - 1].level)
    return found, following


async def _lines(
    call: Call[TreeQuery, Nothing], moments: Moments, levels: list[TreeLevel], following: str | None
) -> tuple[list[str], str | None]:
    """The levels with their messages as JSON, and where to go on: payloads may fill the page before all are there."""
    query = call.query
    now = await _messages(call, [each for each in levels if each.sign != VANISHED], moments.as_of_us)
    then: LevelMessages | None = None
    if moments.compare_us:
        then = await _messages(call, [each for each in levels if each.sign != APPEARED], moments.compare_us)
    slices = Slices()
    lines: list[str] = []
    size_bytes = 0
    for number, each in enumerate(levels):
        found = [now] if then is None else [now, then]
        if number and not all(messages.has(each.topic_name) for messages in found):
            return lines, position_after(levels[number - 1].level)
        texts: list[str] = []
        for messages in found:
            message = messages.found.get(each.topic_name)
            texts.append("null" if message is None else retained_json(call.view.shown(message), query.payload_bytes))
            size_bytes += 0 if message is None else len(message.payload)
        lines.append(_line(each, texts))
        await slices.rest()
        if size_bytes >= PAGE_BYTES_MAX and number + 1 < len(levels):
            return lines, position_after(each.level)
    return lines, following


async def _messages(call: Call[TreeQuery, Nothing], levels: list[TreeLevel], instant_us: int) -> LevelMessages:
    """What is retained at an instant on the topics of some levels, which may have a message then."""
    names = [each.topic_name for each in levels if each.is_retained]
    return await call.view.level_messages(call.query.below, call.query.cursor, names, instant_us, PAGE_BYTES_MAX)


def _line(level: TreeLevel, messages: list[str]) -> str:
    is_counted = level.topics != UNKNOWN_COUNT
    line = (
        f'{{"level":{quoted(level.level)},"topic":{quoted(level.topic_name)}'
        f',"has_children":{"true" if level.has_children else "false"}'
        f',"topics":{level.topics if is_counted else "null"},"message":{messages[0]}'
    )
    if len(messages) == 1:
        return line + ',"change":null}'
    change = change_of(level).model_dump_json() if is_counted else "null"
    return f'{line},"change":{change},"sign":"{SIGNS[level.sign]}","other":{messages[1]}}}'


def change_of(level: TreeLevel) -> TreeChange:
    return TreeChange(appeared=level.appeared, changed=level.changed, vanished=level.vanished)


async def count_branch(call: Call[MomentsQuery, Nothing]) -> Answer:
    below = call.query.below
    moments = moments_of(call.view, call.query)
    parent, separator, level = ("", "", "") if below is None else below.rpartition("/")
    limit = UNBOUNDED if below is None else 0  # one level is enough
    counted, _ = await call.view.levels(
        parent if separator else None,
        level,
        moments,
        limit,
        UNBOUNDED,
    )
    if below is not None:
        counted = [each for each in counted[:1] if each.level == level]
    change = TreeChange(
        appeared=sum(each.appeared for each in counted),
        changed=sum(each.changed for each in counted),
        vanished=sum(each.vanished for each in counted),
    )
    return TreeCount(topics=sum(each.topics for each in counted), change=change if moments.compare_us else None)


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/v1/tree",
        role=VIEWER,
        summary="One level of the topic tree of retained messages, now or as of an instant, compared with another.",
        handle=list_level,
        query=TreeQuery,
        body=Nothing,
        answer=TreePage,
        statuses=(409, 410, 422),
        is_narrowed=True,
    ),
    Operation(
        method="GET",
        path="/api/v1/tree/count",
        role=VIEWER,
        summary="How many topics a branch of the tree has, and how many have changed.",
        handle=count_branch,
        query=MomentsQuery,
        body=Nothing,
        answer=TreeCount,
        statuses=(409, 410, 422),
        is_narrowed=True,
    ),
)

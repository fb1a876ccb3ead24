"""The topic tree of the retained messages: one level of it, now or as of an instant, and compared with another."""

from collections.abc import Callable
from json.encoder import encode_basestring_ascii as quoted
from typing import Annotated, Final, Literal

from pydantic import Field

from embermq.archive.errors import ArchiveError
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
from embermq.http.refusal import HttpRefusal
from embermq.http.resources.message_models import RetainedMessage
from embermq.http.resources.retained import PAGE_BYTES_MAX, as_of_us, message_of
from embermq.http.service import Service
from embermq.http.streaming import Slices
from embermq.instants import utc_text
from embermq.store.errors import HistoryTrimmed, NotWanted
from embermq.store.topic_tree import UNKNOWN_COUNT, WORK_MAX, Moments, TreeLevel, position_after

PAYLOAD_BYTES: Final = 200
SIGNS: Final = ("", "+", "~", "-")  # by the numbers of `store.topic_tree`
APPLIED_US: Final = 10_000_000
"""The records of an instant are applied so long after it, unless the disk fails."""
UNBOUNDED_WORK: Final = 1 << 60


def always() -> bool:
    """Others may wait for the same levels."""
    return True


class MomentsQuery(Model):
    below: Annotated[TopicPrefix | None, Field(description="Below these levels; without it, the first levels.")] = None
    as_of: Instant | None = None
    compare_with: Annotated[Instant | None, Field(description="What has changed since this instant.")] = None


class TreeQuery(MomentsQuery):
    payload_bytes: Annotated[Size, Field(description="At most so many bytes of each payload.")] = PAYLOAD_BYTES
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


def moments_of(service: Service, query: MomentsQuery) -> Moments:
    """The instants that are asked for; refused if nothing can be known of them."""
    after_us = as_of_us(service, query.as_of)
    before_us = as_of_us(service, query.compare_with, "compare_with")
    return Moments(0 if after_us is None else max(1, after_us), 0 if before_us is None else max(1, before_us))


def begins_us(service: Service) -> int:
    """From which instant on the retained set is known; 0 without a history.

    How far back the archive reaches is known once it was asked.
    """
    store = service.server.store
    first_us = min((each.first_timestamp_us for each in store.log_segments() if each.first_timestamp_us), default=0)
    known_us = max(first_us, store.history_begins_us())
    archived_us = 0 if service.past is None else service.past.first_us()
    return min(known_us, archived_us) if archived_us else known_us


async def list_level(call: Call[TreeQuery, Nothing]) -> Answer:
    query = call.query
    moments = moments_of(call.service, query)
    try:
        if 0 < moments.as_of_us < now_us() - APPLIED_US:
            key = query.below, query.cursor, query.limit, moments.as_of_us, moments.compare_us
            levels, following = await call.service.levels.get(key, lambda: _levels(call, moments))
        else:  # not kept: a page asks because something has changed
            levels, following = await _levels(call, moments)
        lines, following = await _lines(call, moments, levels, following)
    except HistoryTrimmed as error:
        raise HttpRefusal(410, str(error)) from None
    except ArchiveError as error:
        raise HttpRefusal(503, str(error)) from None
    text = f'{{"items":[{",".join(lines)}]'
    if following is not None:
        text += f',"next":{json_text(following)}'
    known_us = begins_us(call.service)
    if known_us:
        text += f',"begins":"{utc_text(known_us)}"'
    return json_response(text + "}")


async def _levels(call: Call[TreeQuery, Nothing], moments: Moments) -> tuple[list[TreeLevel], str | None]:
    query = call.query
    found, following = await _found(call.service, query.below, query.cursor, moments, query.limit, WORK_MAX, always)
    if len(found) > query.limit:
        return found[: query.limit], position_after(found[query.limit - 1].level)
    return found, following


async def _found(
    service: Service,
    below: str | None,
    position: str,
    moments: Moments,
    limit: int,
    work_max: int,
    is_wanted: Callable[[], bool],
) -> tuple[list[TreeLevel], str | None]:
    """Levels until there are more than `limit`, or enough was read, and the position to go on at."""
    store = service.server.store
    slices = Slices()
    try:
        walk = store.retained_levels(below, position, moments, work_max)
    except HistoryTrimmed:
        local = store.history()
        if service.past is None or local is None:
            raise
        return await service.past.levels(local, below, position, moments, limit, work_max, is_wanted)
    found: list[TreeLevel] = []
    while not walk.is_done() and not walk.is_exhausted() and len(found) <= limit:
        found += walk.step()
        await slices.rest()
        if not is_wanted():
            raise NotWanted
    return found, None if walk.is_done() else walk.position()


async def _lines(
    call: Call[TreeQuery, Nothing], moments: Moments, levels: list[TreeLevel], following: str | None
) -> tuple[list[str], str | None]:
    """The levels with their messages as JSON, and where to go on: payloads may fill the page before all are there."""
    payload_bytes = call.query.payload_bytes
    slices = Slices()
    lines: list[str] = []
    size_bytes = 0
    for number, each in enumerate(levels):
        messages: list[str] = []
        for instant_us in (moments.as_of_us, moments.compare_us)[: 2 if moments.compare_us else 1]:
            message = await message_of(call.service, each.topic_name, instant_us or None) if each.is_retained else None
            messages.append("null" if message is None else retained_json(message, payload_bytes))
            size_bytes += 0 if message is None else len(message.payload)
            await slices.rest()
        lines.append(_line(each, messages))
        if size_bytes >= PAGE_BYTES_MAX and number + 1 < len(levels):
            return lines, position_after(each.level)
    return lines, following


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
    moments = moments_of(call.service, call.query)
    parent, separator, level = ("", "", "") if below is None else below.rpartition("/")
    limit = UNBOUNDED_WORK if below is None else 0  # one level is enough
    try:
        counted, _ = await _found(
            call.service,
            parent if separator else None,
            level,
            moments,
            limit,
            UNBOUNDED_WORK,
            lambda: call.request.transport is not None,
        )
    except HistoryTrimmed as error:
        raise HttpRefusal(410, str(error)) from None
    except ArchiveError as error:
        raise HttpRefusal(503, str(error)) from None
    except NotWanted:
        raise ConnectionResetError("nobody waits for the count") from None
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
    ),
)

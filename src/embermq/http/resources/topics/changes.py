"""The changes of one topic's retained message, oldest first: those that only the archive has, and those of the history.

A page has what the archive has until that is read; it ends after some reads, also without an item.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, final

from pydantic import Field

from embermq.http.archived import ArchivedHistory
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
    TopicName,
    json_text,
    past_us,
)
from embermq.http.messages_json import retained_json
from embermq.http.operation import VIEWER, Answer, Call, Operation
from embermq.http.paging import json_response
from embermq.http.refusal import HttpRefusal
from embermq.http.resources.message_models import RetainedMessage
from embermq.http.resources.retained import PAGE_BYTES_MAX
from embermq.http.service import Service
from embermq.http.store_reads import on_store_thread
from embermq.http.streaming import Slices
from embermq.http.view import View
from embermq.instants import utc_text
from embermq.store.interface import RetainedChange as Change

if TYPE_CHECKING:
    from embermq.history.changes import ChangesPart

PIECE: Final = 64
READ_BYTES_MAX: Final = 32 * 1024 * 1024
LOOKS_MAX: Final = 100
"""After so many bytes, or so many reads of the archive, a page ends, whether or not it is full; `next` leads on."""


class HistoryQuery(Model):
    topic: TopicName
    since: Annotated[Instant | None, Field(description="From this instant on; without it, all that is known.")] = None
    cursor: Annotated[Offset | None, Field(description="The `next` of the page before.")] = None
    limit: Limit = PAGE_ITEMS


class RetainedChange(Model):
    """A change of a topic's retained message. Without `message` it was cleared, or expired."""

    timestamp: Timestamp
    offset: int
    message: RetainedMessage | None = None


class HistoryPage(Page[RetainedChange]):
    """Some changes. `begins`, on the first page, is the instant from which on none is missing; of what was before there
    may be the one that made what was retained then. Without it none is missing at all."""

    begins: Timestamp | None = None


@final
class ChangesPage:
    """A page while it is filled. `after`: all changes up to this offset are in it, or in those before."""

    def __init__(self, view: View, limit: int, since_us: int, after: int) -> None:
        self._view: Final = view
        self._limit: Final = limit
        self._since_us: Final = since_us
        self._lines: list[str] = []
        self._size_bytes = 0
        self._is_first: Final = after < 0
        self.after = after
        self.begins_us = 0

    @property
    def is_full(self) -> bool:
        return len(self._lines) >= self._limit or self._size_bytes >= PAGE_BYTES_MAX

    @property
    def room(self) -> int:
        return self._limit - len(self._lines)

    def add(self, change: Change) -> None:
        self.after = change.offset
        if change.timestamp_us >= self._since_us:
            message = "" if change.message is None else f',"message":{retained_json(self._view.shown(change.message))}'
            line = f'{{"timestamp":"{utc_text(change.timestamp_us)}","offset":{change.offset}{message}}}'
            self._lines.append(line)
            self._size_bytes += len(line)

    def answer(self, is_more: bool) -> Answer:
        text = f'{{"items":[{",".join(self._lines)}]'
        if is_more:
            text += f',"next":{json_text(str(self.after))}'
        if self.begins_us and self._is_first:
            text += f',"begins":"{utc_text(self.begins_us)}"'
        return json_response(text + "}")


async def list_history(call: Call[HistoryQuery, Nothing]) -> Answer:
    query = call.query
    service = call.view.service_for(query.topic)
    if service.log_directory is None:
        raise HttpRefusal(409, "a store in memory keeps no history")
    since_us = past_us("since", query.since) or 0
    store = service.server.store
    page = ChangesPage(call.view, query.limit, since_us, query.cursor if query.cursor is not None else -1)
    while True:
        known_us = store.history.begins_us()
        page.begins_us = known_us
        is_before = known_us and since_us <= known_us
        archived = service.archived if is_before else None
        if archived is not None and await _archived(service, archived, query.topic, since_us, known_us, page):
            return page.answer(True)
        if await _local(service, query.topic, page, OFFSET_MAX, known_us):
            return page.answer(page.is_full and bool(await _changes(service, query.topic, page.after, 1)))


async def _archived(
    service: Service, archived: ArchivedHistory, topic_name: str, since_us: int, known_us: int, page: ChangesPage
) -> bool:
    """Add what only the archive has; True: the page ends with it."""
    assert service.log_directory is not None
    before = await service.on_thread(partial(_offset_after, service.log_directory, known_us))
    if page.after >= before - 1:
        return False
    first, page.begins_us = await archived.on_thread(lambda: archived.log.archive_begins(before))
    if first == before:
        page.begins_us = known_us
    # The history has a copy of what was retained when the log was trimmed: that may be older than the archive.
    await _local(service, topic_name, page, first, 0)
    if page.is_full:
        return True
    slices = Slices()
    parts = archived.log.archived_changes(topic_name, since_us, max(first, page.after + 1), before)
    read_bytes = looks = 0
    while (part := await archived.on_thread(partial(_next, parts))) is not None:
        for change in part.changes:
            if page.is_full:
                return True
            page.add(change)
            await slices.rest()
        page.after = max(page.after, min(part.next_offset, before) - 1)
        read_bytes += part.read_bytes
        looks += 1
        if page.is_full or read_bytes >= READ_BYTES_MAX or looks >= LOOKS_MAX:
            return True
    page.after = max(page.after, before - 1)
    return False


def _next(parts: "Iterator[ChangesPart]") -> "ChangesPart | None":
    return next(parts, None)


def _offset_after(directory: Path, instant_us: int) -> int:
    """The offset of the first record after an instant."""
    from embermq.store.log.reader import LogReader

    return LogReader(directory).offset_at(instant_us + 1)


async def _local(service: Service, topic_name: str, page: ChangesPage, before: int, known_us: int) -> bool:
    """Add what the history has before an offset. False: it was trimmed meanwhile, and the archive has what is next."""
    store = service.server.store
    slices = Slices()
    while not page.is_full:
        changes = await _changes(service, topic_name, page.after, min(PIECE, page.room))
        if known_us and service.archived is not None and store.history.begins_us() != known_us:
            return False
        for change in changes:
            if change.offset >= before:
                return True
            page.add(change)
        if not changes:
            return True
        await slices.rest()
    return True


async def _changes(service: Service, topic_name: str, after: int, limit: int) -> list[Change]:
    store = service.server.store
    return await on_store_thread(store, partial(store.history.changes, topic_name, after, limit))


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/v1/retained/history",
        role=VIEWER,
        summary="When and how the retained message of one topic changed, oldest first, in the log and its archive.",
        handle=list_history,
        query=HistoryQuery,
        body=Nothing,
        answer=HistoryPage,
        statuses=(409, 422),
        is_narrowed=True,
    ),
)

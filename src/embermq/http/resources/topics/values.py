"""The values of one topic: its messages in the log, newest first, also those that were not retained.

The log is read on a thread, backwards, and only those blocks of closed segments that have the topic (its topic index).
A page has messages of the log, or of the archive: the next page is where the log begins.
"""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple, final

from pydantic import Field

from embermq.http.fields import (
    OFFSET_MAX,
    PAGE_ITEMS,
    Instant,
    Limit,
    Model,
    Nothing,
    Offset,
    Page,
    Size,
    TopicName,
    past_us,
)
from embermq.http.messages_json import InstantTexts
from embermq.http.operation import VIEWER, Answer, Call, Operation
from embermq.http.paging import json_page
from embermq.http.refusal import HttpRefusal
from embermq.http.resources.messages import PAGE_BYTES_MAX, LogMessage, lines_of
from embermq.http.streaming import Slices
from embermq.http.view import View

if TYPE_CHECKING:
    from embermq.history.joined import JoinedLog
    from embermq.store.log.message_filter import MessageFilter
    from embermq.store.log.reader import ReadBlocks
    from embermq.store.rows import LogRow

PAYLOAD_BYTES: Final = 200
PART_RECORDS: Final = 5_000
PART_BYTES: Final = 1024 * 1024
READ_BYTES_MAX: Final = 32 * 1024 * 1024
LOOKS_MAX: Final = 100
"""After so many bytes of the log, or so many reads of the archive, a page ends, whether or not it is full; `next` leads
on."""


class ValuesQuery(Model):
    topic: TopicName
    since: Annotated[Instant | None, Field(description="From this instant on.")] = None
    until: Annotated[Instant | None, Field(description="Before this instant.")] = None
    payload_bytes: Annotated[Size, Field(description="At most so many bytes of each payload.")] = PAYLOAD_BYTES
    cursor: Annotated[Offset | None, Field(description="The `next` of the page before.")] = None
    limit: Limit = PAGE_ITEMS


async def list_values(call: Call[ValuesQuery, Nothing]) -> Answer:
    query = call.query
    service = call.view.service_for(query.topic)
    directory = service.log_directory
    if directory is None:
        raise HttpRefusal(409, "a store in memory keeps no log")
    since_us, until_us = past_us("since", query.since) or 0, past_us("until", query.until)
    wanted = Wanted(query.topic, since_us, OFFSET_MAX if until_us is None else until_us)
    before = OFFSET_MAX if query.cursor is None else query.cursor
    page = ValuesPage(query.limit, query.payload_bytes, call.view)
    await page.fill(service.on_thread, _newest(directory, wanted, before))
    if page.following or service.archived is None:
        return page.answer()
    begins = await service.on_thread(partial(_log_begins, directory, since_us))
    if not begins:
        return page.answer()
    before = min(before, begins, page.lowest)
    if page.lines:  # the archive may take long, or not answer
        return page.answer(before)
    await page.fill(service.archived.on_thread, _newest_archived(service.archived.log, wanted, before), LOOKS_MAX)
    return page.answer()


class Wanted(NamedTuple):
    """Messages of a topic, from an instant on and before another."""

    topic: str
    since_us: int
    until_us: int


Found = tuple[int, int, "list[LogRow]"]
"""Some messages, newest first: the lowest offset that was looked at, the bytes that were read, and the messages."""


@final
class ValuesPage:
    """A page while it is filled. `following`: the page is full, or enough was read; the next one is before it."""

    def __init__(self, limit: int, payload_bytes: int, view: View) -> None:
        self._view: Final = view
        self._limit: Final = limit
        self._payload_bytes: Final = payload_bytes
        self.lines: Final[list[str]] = []
        self.following = 0
        self.lowest = OFFSET_MAX

    async def fill(
        self,
        on_thread: "Callable[[Callable[[], Found | None]], Awaitable[Found | None]]",
        parts: "Iterator[Found]",
        looks_max: int = OFFSET_MAX,
    ) -> None:
        slices = Slices()
        texts = InstantTexts()
        size_bytes = read_bytes = looks = 0
        while (found := await on_thread(partial(next, parts, None))) is not None:
            self.lowest, part_bytes, records = found
            read_bytes += part_bytes
            looks += 1
            for offset, line in lines_of(self._view.readable(records), self._payload_bytes, texts):
                if len(self.lines) == self._limit or size_bytes >= PAGE_BYTES_MAX:
                    self.following = offset + 1
                    return
                self.lines.append(line)
                size_bytes += len(line)
                await slices.rest()
            if read_bytes >= READ_BYTES_MAX or looks >= looks_max:
                self.following = self.lowest
                return

    def answer(self, following: int = 0) -> Answer:
        """The page; without `following`, the next one is where this one ended."""
        following = following or self.following
        return json_page(self.lines, str(following) if following else None)


def _log_begins(directory: Path, since_us: int) -> int:
    """Where the log begins; 0 if what was trimmed is older than an instant, or nothing was."""
    from embermq.store.log.reader import LogReader

    reader = LogReader(directory)
    first = reader.bounds()[0]
    oldest = next(reader.segments_from(first), None)
    if first == 1 or (oldest is not None and oldest.blocks and since_us > oldest.first_timestamp_us):
        return 0
    return first


def _newest(directory: Path, wanted: Wanted, before_offset: int) -> Iterator[Found]:
    """The messages of a topic that the log has, newest first, in parts."""
    from embermq.http.resources.topics.one_topic import OneTopic
    from embermq.store.log.by_topic.chosen_blocks import ChosenBlocks
    from embermq.store.log.message_filter import MessageFilter

    blocks = ChosenBlocks(directory, OneTopic(*wanted))
    filter = MessageFilter(wanted.topic)
    read_bytes = 0
    for read in blocks.newest(before_offset, PART_RECORDS, PART_BYTES):
        part_bytes = blocks.count.read_bytes - read_bytes
        read_bytes += part_bytes
        yield read.start, part_bytes, _chosen(filter, wanted, before_offset, read)


def _newest_archived(log: "JoinedLog", wanted: Wanted, before_offset: int) -> Iterator[Found]:
    """As `_newest`, of what only the archive has."""
    from embermq.store.log.message_filter import MessageFilter

    filter = MessageFilter(wanted.topic)
    for lowest, read_bytes, read in log.archived_topic(*wanted, before_offset):
        yield lowest, read_bytes, [] if read is None else _chosen(filter, wanted, before_offset, read)


def _chosen(filter: "MessageFilter", wanted: Wanted, before_offset: int, read: "ReadBlocks") -> "list[LogRow]":
    """The wanted messages, newest first."""
    return [
        record
        for record in reversed(filter.messages(read))
        if wanted.since_us <= record.timestamp_us < wanted.until_us and record.offset < before_offset
    ]


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/v1/topic/values",
        role=VIEWER,
        summary="The messages of one topic in the log, newest first.",
        handle=list_values,
        query=ValuesQuery,
        body=Nothing,
        answer=Page[LogMessage],
        statuses=(409, 422),
        is_narrowed=True,
    ),
)

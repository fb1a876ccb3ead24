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
from embermq.http.past.messages import ArchivedMessages
from embermq.http.refusal import HttpRefusal
from embermq.http.resources.messages import PAGE_BYTES_MAX, LogMessage, lines_of
from embermq.http.streaming import Slices
from embermq.http.view import View

if TYPE_CHECKING:
    import pyarrow as pa

PAYLOAD_BYTES: Final = 200
BATCH_RECORDS: Final = 5_000
BATCH_BYTES: Final = 1024 * 1024
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
    await page.fill(service.archived.on_thread, _newest_archived(service.archived, wanted, before), LOOKS_MAX)
    return page.answer()


class Wanted(NamedTuple):
    """Messages of a topic, from an instant on and before another."""

    topic: str
    since_us: int
    until_us: int


Found = tuple[int, int, "pa.RecordBatch | None"]
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
        batches: "Iterator[Found]",
        looks_max: int = OFFSET_MAX,
    ) -> None:
        slices = Slices()
        texts = InstantTexts()
        size_bytes = read_bytes = looks = 0
        while (found := await on_thread(partial(next, batches, None))) is not None:
            self.lowest, part_bytes, batch = found
            read_bytes += part_bytes
            looks += 1
            for offset, line in (
                lines_of(self._view.readable(batch), self._payload_bytes, texts) if batch is not None else ()
            ):
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
    """The messages of a topic that the log has, newest first, in batches."""
    from embermq.http.resources.topics.one_topic import OneTopic
    from embermq.store.log.arrow import SCHEMA
    from embermq.store.log.by_topic.chosen_blocks import ChosenBlocks

    blocks = ChosenBlocks(directory, OneTopic(*wanted))
    read_bytes = 0
    for batch in blocks.newest_batches(SCHEMA.names, before_offset, BATCH_RECORDS, BATCH_BYTES):
        part_bytes = blocks.count.read_bytes - read_bytes
        read_bytes += part_bytes
        yield batch.column("offset")[0].as_py(), part_bytes, _chosen(wanted, before_offset, batch)


def _newest_archived(archived: ArchivedMessages, wanted: Wanted, before_offset: int) -> Iterator[Found]:
    """As `_newest`, of what only the archive has."""
    for lowest, read_bytes, batch in archived.log().archived_topic(*wanted, before_offset):
        yield lowest, read_bytes, None if batch is None else _chosen(wanted, before_offset, batch)


def _chosen(wanted: Wanted, before_offset: int, batch: "pa.RecordBatch") -> "pa.RecordBatch":
    """The wanted messages of a batch, newest first."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from embermq.store.log.records import Kind

    is_wanted = pc.and_(
        pc.equal(batch.column("kind"), pa.scalar(int(Kind.PUBLISH), pa.int8())),
        pc.equal(batch.column("topic"), pa.scalar(wanted.topic)),
    )
    chosen = batch.filter(is_wanted)
    chosen = chosen.set_column(1, "timestamp", chosen.column("timestamp").cast(pa.int64()))
    in_time = pc.and_(
        pc.and_(
            pc.greater_equal(chosen.column("timestamp"), wanted.since_us),
            pc.less(chosen.column("timestamp"), wanted.until_us),
        ),
        pc.less(chosen.column("offset"), before_offset),
    )
    chosen = chosen.filter(in_time)
    return chosen.take(pa.array(range(chosen.num_rows - 1, -1, -1), pa.int64()))


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

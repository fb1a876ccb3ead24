"""The newest messages: at every interval one event with the newest message of each topic that had any.

For pages, of which many may be open: those that ask for the same filter and interval share one subscription and one
text. However many messages come, an event has a bounded number of topics, each with the beginning of its payload.
"""

import asyncio
from contextlib import suppress
from json.encoder import encode_basestring_ascii as quoted
from typing import Annotated, Final, final

from pydantic import BeforeValidator

from embermq.broker.clientless import ReadingLink
from embermq.http.fields import Model, Nothing, TopicFilter, between, digits, now_us
from embermq.http.messages_json import beginning, payload_json
from embermq.http.operation import VIEWER, Answer, Call, Operation
from embermq.http.refusal import HttpRefusal
from embermq.http.resources.listing import stall_s
from embermq.http.resources.live.events import EVENTS
from embermq.http.resources.live.tail import QUIET_S
from embermq.http.streaming import Slices, Stream
from embermq.http.view import View
from embermq.instants import utc_text
from embermq.protocol.packets import Publish

TOPICS_MAX: Final = 1_000
"""How many topics an event has; messages of others are counted."""
PAYLOAD_BYTES: Final = 1_024
"""How much of each payload."""
EVENT_BYTES_MAX: Final = 2 * 1024 * 1024
"""How much an event has of topic names and payloads; messages of further topics are counted."""
EVERY_MS: Final = 1_000
EVERY_MS_MIN: Final = 100
EVERY_MS_MAX: Final = 60_000

Interval = Annotated[
    int, BeforeValidator(digits), between(EVERY_MS_MIN, EVERY_MS_MAX, "Milliseconds between events.", 1000)
]


class LatestQuery(Model):
    filter: TopicFilter = "#"
    every_ms: Interval = EVERY_MS


@final
class Newest:
    """The newest message of one topic, and how many came."""

    __slots__ = ("count", "payload", "payload_bytes", "qos", "retain")

    def __init__(self) -> None:
        self.count = 0
        self.payload = b""
        self.payload_bytes = 0
        self.qos = 0
        self.retain = False


@final
class LatestLink(ReadingLink):
    """Gathers the newest message of each topic."""

    def __init__(self) -> None:
        super().__init__()
        self.newest: dict[str, Newest] = {}
        self.kept_bytes = 0
        self.total = 0
        self.left_out = 0

    def gather(self, message: Publish) -> None:
        self.total += 1
        newest = self.newest.get(message.topic_name)
        if newest is None:
            if len(self.newest) >= TOPICS_MAX or self.kept_bytes >= EVENT_BYTES_MAX:
                self.left_out += 1
                return
            self.kept_bytes += len(message.topic_name) + PAYLOAD_BYTES
            newest = self.newest[message.topic_name] = Newest()
        newest.count += 1
        newest.payload = beginning(message.payload, PAYLOAD_BYTES)  # not the whole: it would stay in memory
        newest.payload_bytes = len(message.payload)
        newest.qos = message.qos
        newest.retain = message.retain

    def take(self) -> tuple[dict[str, Newest], int, int]:
        """What came since the last time: the topics, the number of messages, and of those left out."""
        taken = self.newest, self.total, self.left_out
        self.newest = {}
        self.kept_bytes = self.total = self.left_out = 0
        return taken


@final
class LatestView:
    """The events of one filter at one interval, for all who read them. `sequence` counts them; `text` is the newest."""

    def __init__(self, view: View, topic_filter: str, every_ms: int) -> None:
        self.sequence = 0
        self.text = ""
        self.readers = 0
        self._every_s: Final = every_ms / 1000
        self._link: Final = LatestLink()
        self._subscription: Final = view.subscription(topic_filter, self._link)
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._subscription.begin()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def end(self) -> None:
        self._subscription.end()
        if self._task is not None:
            self._task.cancel()

    async def after(self, sequence: int) -> None:
        """Wait for an event after the one with this number."""
        while self.sequence == sequence:
            await self._news.wait()

    async def _run(self) -> None:
        since_us = now_us()
        while True:
            await asyncio.sleep(self._every_s)
            newest, total, left_out = self._link.take()
            until_us = now_us()
            if total:
                self.text = await _event(newest, total, left_out, since_us, until_us)
                self.sequence += 1
                news, self._news = self._news, asyncio.Event()
                news.set()
            since_us = until_us


async def _event(newest: dict[str, Newest], total: int, left_out: int, since_us: int, until_us: int) -> str:
    slices = Slices()
    items: list[str] = []
    for topic_name, each in newest.items():
        items.append(
            f'{{"topic":{quoted(topic_name)},"count":{each.count},{payload_json(each.payload)}'
            f',"payload_bytes":{each.payload_bytes},"qos":{each.qos},"retain":{"true" if each.retain else "false"}}}'
        )
        await slices.rest()
    return (
        f'event: latest\ndata: {{"since":"{utc_text(since_us)}","until":"{utc_text(until_us)}","total":{total}'
        f',"left_out":{left_out},"items":[{",".join(items)}]}}\n'
    )


async def latest(call: Call[LatestQuery, Nothing]) -> Answer:
    query = call.query
    if query.filter.startswith("$share/"):
        raise HttpRefusal(422, "filter: a page cannot be a member of a share group")
    async with Stream(call.request, call.view.page_places, stall_s(call.request), EVENTS) as stream:
        latest_view = _open(call.view, query.filter, query.every_ms)
        try:
            await _send_all(call.view, stream, latest_view)
        finally:
            _close(call.view, latest_view, query.filter, query.every_ms)
        return await stream.complete()


async def _send_all(view: View, stream: Stream, latest_view: LatestView) -> None:
    seen = latest_view.sequence
    await stream.line(": the newest messages follow\n")
    await stream.flush()
    while not view.is_stopping:
        with suppress(TimeoutError):
            async with asyncio.timeout(QUIET_S):
                await latest_view.after(seen)
        missed = latest_view.sequence - seen - 1
        if missed > 0:  # this reader was slow
            await stream.line(f'event: left-out\ndata: {{"events":{missed}}}\n')
        await stream.line(latest_view.text if missed >= 0 else ": quiet\n")
        seen = latest_view.sequence
        await stream.flush()
        stream.check_reader()


def _open(view: View, topic_filter: str, every_ms: int) -> LatestView:
    """What those with the same rights share."""
    key = view.user_name, topic_filter, every_ms
    latest_view = view.latest_views.get(key)
    if latest_view is None:
        latest_view = view.latest_views[key] = LatestView(view, topic_filter, every_ms)
        latest_view.begin()
    latest_view.readers += 1
    return latest_view


def _close(view: View, latest_view: LatestView, topic_filter: str, every_ms: int) -> None:
    latest_view.readers -= 1
    if not latest_view.readers:
        latest_view.end()
        del view.latest_views[view.user_name, topic_filter, every_ms]


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/v1/messages/latest",
        role=VIEWER,
        summary="At every interval the newest message of each topic that had any, as server-sent events: `latest`, and"
        " `left-out` for a slow reader.",
        handle=latest,
        query=LatestQuery,
        body=Nothing,
        media=EVENTS,
        statuses=(422,),
        is_narrowed=True,
    ),
)

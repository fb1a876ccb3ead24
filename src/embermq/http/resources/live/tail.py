"""The live tail: messages as they are published, as server-sent events or over a WebSocket.

A tail is a subscription at QoS 0 without a client. What its reader does not take in time is left out and counted.
"""

import asyncio
from collections import deque
from contextlib import suppress
from json.encoder import encode_basestring_ascii as quoted
from typing import Annotated, Final, final

from pydantic import Field

from embermq.broker.clientless import ReadingLink
from embermq.http.fields import OFFSET_MAX, Model, Nothing, Offset, TopicFilter
from embermq.http.messages_json import InstantTexts, payload_json, properties_json
from embermq.http.operation import VIEWER, Answer, Call, Operation
from embermq.http.refusal import HttpRefusal
from embermq.http.resources.live.events import EVENTS, events_for
from embermq.http.resources.messages import lines_of
from embermq.http.streaming import Slices
from embermq.http.unread import UnreadAnswer
from embermq.http.view import View
from embermq.protocol.packets import Publish
from embermq.store.log.errors import LogTrimmed

WAITING_MESSAGES_MAX: Final = 1_000
WAITING_BYTES_MAX: Final = 4 * 1024 * 1024
"""How much waits for the reader of a tail, or one message; what comes beyond is left out."""
FOLLOW_S: Final = 0.1
"""How often a tail that follows the log looks for what is new."""
PAUSE_S: Final = 0.05
"""How long messages gather before they are sent."""
QUIET_S: Final = 15.0
"""After so long without a message a comment is sent, so that both sides notice a connection that is gone."""


class TailQuery(Model):
    filter: TopicFilter = "#"
    from_offset: Annotated[
        Offset | None, Field(description="From this offset of the log on; then each event has its offset as `id`.")
    ] = None


@final
class TailLink(ReadingLink):
    """Gathers messages for one reader. `unread` counts them until they are sent."""

    def __init__(self, unread: UnreadAnswer) -> None:
        super().__init__()
        self._unread: Final = unread
        self.waiting_messages: deque[Publish] = deque()
        self.waiting_bytes = 0
        self.left_out = 0
        self.news = asyncio.Event()

    def gather(self, message: Publish) -> None:
        size_bytes = size_of(message)
        is_full = self.waiting_bytes and self.waiting_bytes + size_bytes > WAITING_BYTES_MAX
        if is_full or len(self.waiting_messages) >= WAITING_MESSAGES_MAX or not self._unread.keep(size_bytes):
            self.left_out += 1
        else:
            self.waiting_messages.append(message)
            self.waiting_bytes += size_bytes
        self.news.set()

    def take(self) -> tuple[list[Publish], int]:
        """What waits, and how many messages were left out since the last time. Call `sent` with each message."""
        taken = list(self.waiting_messages), self.left_out
        self.waiting_messages.clear()
        self.left_out = 0
        self.news.clear()
        return taken

    def sent(self, message: Publish) -> None:
        """A message waits no more."""
        size_bytes = size_of(message)
        self.waiting_bytes -= size_bytes
        self._unread.release(size_bytes)


@final
class Tail:
    """A tail's subscription, inside a context."""

    def __init__(self, view: View, topic_filter: str, unread: UnreadAnswer) -> None:
        self.link: Final = TailLink(unread)
        self._subscription: Final = view.subscription(topic_filter, self.link)

    def __enter__(self) -> TailLink:
        self._subscription.begin()
        return self.link

    def __exit__(self, *ended: object) -> None:
        self._subscription.end()


def size_of(message: Publish) -> int:
    """What a message takes in memory while it waits, about."""
    return len(message.topic_name) + len(message.payload)


def data_of(message: Publish) -> str:
    """A message as the data of an event."""
    line = (
        f'{{"topic":{quoted(message.topic_name)},{payload_json(message.payload)}'
        f',"payload_bytes":{len(message.payload)},"qos":{message.qos}'
        f',"retain":{"true" if message.retain else "false"}'
    )
    return f"{line},{properties_json(message.properties)}}}" if message.properties else f"{line}}}"


def _next_data(link: TailLink, messages: list[Publish]) -> str:
    """The data of the last message. Nothing else refers to either, so a reader who is behind keeps only the text."""
    message = messages.pop()
    link.sent(message)
    return data_of(message)


async def tail(call: Call[TailQuery, Nothing]) -> Answer:
    view = call.view
    if call.query.filter.startswith("$share/"):
        raise HttpRefusal(422, "filter: a tail cannot be a member of a share group")
    following = _following(call)
    if following is not None:
        return await follow(call, following)
    slices = Slices()
    async with events_for(call.request, view.places) as events:
        with Tail(view, call.query.filter, events.unread) as link:
            await events.begin()
            while not view.is_stopping:
                with suppress(TimeoutError):
                    async with asyncio.timeout(QUIET_S):
                        await link.news.wait()
                if view.is_stopping:
                    break
                messages, left_out = link.take()
                is_quiet = not messages
                messages.reverse()
                while messages:
                    await events.event("message", _next_data(link, messages))
                    await slices.rest()
                if left_out:
                    await events.event("left-out", f'{{"messages":{left_out}}}')
                elif is_quiet:
                    await events.quiet()
                await events.flush()
                events.check_reader()
                await asyncio.sleep(PAUSE_S)
        return await events.complete()


def _following(call: Call[TailQuery, Nothing]) -> int | None:
    """The offset of the log to go on from: behind the event that a reader has seen last, or where it asks for."""
    seen = call.request.headers.get("Last-Event-ID", "")
    if not seen:
        return call.query.from_offset
    if not (seen.isascii() and seen.isdigit() and int(seen) < OFFSET_MAX):
        raise HttpRefusal(400, "Last-Event-ID: expected the id of an event, which is an offset of the log")
    return int(seen) + 1


async def follow(call: Call[TailQuery, Nothing], following: int) -> Answer:
    """The messages of the log from an offset on, and then each when it is durable: none is left out."""
    view = call.view
    reading = view.log_reading(call.query.filter)
    await reading.begin(lambda log: _checked(log.bounds(), following))
    texts = InstantTexts()
    slices = Slices()
    quiet_s = 0.0
    async with events_for(call.request, view.places) as events:
        await events.begin()
        while not view.is_stopping:
            found = False
            while (batch := await reading.next()) is not None:
                for offset, line in lines_of(batch, None, texts):
                    found = True
                    await events.event("message", line, offset)
                    await slices.rest()
            quiet_s = 0.0 if found else quiet_s + FOLLOW_S
            if quiet_s >= QUIET_S:
                quiet_s = 0.0
                await events.quiet()
            await events.flush()
            events.check_reader()
            await asyncio.sleep(FOLLOW_S)
            following = reading.following
            reading = view.log_reading(call.query.filter)
            await reading.begin(lambda log, first=following: (first, max(first, log.bounds()[1])))  # type: ignore[misc]  # its type is that of `following`
        return await events.complete()


def _checked(bounds: tuple[int, int], following: int) -> tuple[int, int]:
    first, end = bounds
    if following < first:
        raise LogTrimmed(following, first)
    if following > end:
        raise HttpRefusal(422, f"from_offset: the log ends before {end}")
    return following, end


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/v1/messages/tail",
        role=VIEWER,
        summary="Messages as they are published, as server-sent events: `message`, and `left-out` for a slow reader."
        " A request with `Upgrade: websocket` gets them over a WebSocket.",
        handle=tail,
        query=TailQuery,
        body=Nothing,
        media=EVENTS,
        statuses=(409, 410, 422),
        is_narrowed=True,
    ),
)

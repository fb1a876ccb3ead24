"""Branches of retained messages: clear them, or set them back to an instant.

Owns: what a restore changes. The retained messages of now and of then are read side by side, in the order of the
store; what differs is published again or cleared, in slices between which clients are served.
"""

from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

from aiohttp import web
from pydantic import Field

from embermq.broker.operator import cleared
from embermq.http.fields import Instant, Model, Nothing, Timestamp, TopicFilter, json_text
from embermq.http.messages_json import retained_json
from embermq.http.operation import OPERATOR, Answer, Call, Operation
from embermq.http.paging import wants_lines
from embermq.http.refusal import HttpRefusal
from embermq.http.resources.listing import stall_s
from embermq.http.resources.message_models import RetainedMessage
from embermq.http.resources.retained import as_of_us
from embermq.http.resources.topics.level_messages import store_order
from embermq.http.service import Pending
from embermq.http.streaming import Slices, Stream
from embermq.http.view import NO_RETAINING
from embermq.protocol.packets import Publish
from embermq.store.interface import Retained, StoreError

TOGETHER_MAX: Final = 1_000
"""After so many changes a restore waits until they are durable, and says how far it is."""
SHOWN_MAX: Final = 100
"""How many changes and refusals a restore names; it counts all."""
SHOWN_BYTES: Final = 200
"""How much of a payload is shown for a change."""

Difference = tuple[Retained | None, Retained | None]
"""The messages of one topic, now and then."""


class ClearBody(Model):
    filter: TopicFilter
    dry_run: Annotated[bool, Field(description="Only count.")] = False


class ClearAnswer(Model):
    """As a line: how many are durably cleared so far; the last line has `is_done`.

    A restore as of `undo_as_of` takes it back.
    """

    cleared: int
    is_done: bool
    undo_as_of: Timestamp | None = None


class RestoreBody(Model):
    filter: TopicFilter
    as_of: Instant
    dry_run: Annotated[bool, Field(description="Only count, and name the first changes.")] = False


class Change(Model):
    """What a restore does to one topic: `+` sets it, `~` changes its message, `-` clears it."""

    topic: str
    sign: str
    now: RetainedMessage | None = None
    then: RetainedMessage | None = None


class RefusedTopic(Model):
    topic: str
    error: str


class RestoreAnswer(Model):
    """As a line: what is durable so far; the last line has `is_done`.

    `unchanged` topics have the same payload, QoS and properties as then. `refusals` are the first of the `refused`,
    `changes` those that a dry run has found. A restore as of `undo_as_of` takes this one back.
    """

    set: int
    cleared: int
    unchanged: int
    refused: int
    is_done: bool
    refusals: list[RefusedTopic]
    changes: list[Change] | None = None
    undo_as_of: Timestamp | None = None


async def _told(
    call: Call[Nothing, Any], steps: AsyncIterator[Model], first: Model | None = None
) -> web.StreamResponse:
    """Send each step of a change as a line. The change goes on also when its reader is gone."""
    async with Stream(call.request, call.view.places, stall_s(call.request)) as stream:
        is_read = True
        try:
            if first is not None:
                await stream.line(json_text(first.model_dump(exclude_none=True)))
            async for step in steps:
                if is_read:
                    await stream.line(json_text(step.model_dump(exclude_none=True)))
                    is_read = await _is_flushed(stream)
        except (StoreError, HttpRefusal) as error:
            return await stream.fail(str(error))
        return await stream.complete()


async def _is_flushed(stream: Stream) -> bool:
    try:
        await stream.flush()
    except ConnectionError:
        return False
    return True


# -- clear -----------------------------------------------------------------------------------------------------------


async def clear_messages(call: Call[Nothing, ClearBody]) -> Answer:
    if call.body.dry_run:
        return ClearAnswer(cleared=await _count(call), is_done=False)
    undo_as_of = call.view.before_changes() if call.view.has_log else None
    if not wants_lines(call.request):
        counts = [count async for count in _clear(call)]
        return ClearAnswer(cleared=counts[-1], is_done=True, undo_as_of=undo_as_of)
    return await _told(call, _cleared_so_far(call, undo_as_of))


async def _cleared_so_far(call: Call[Nothing, ClearBody], undo_as_of: str | None) -> AsyncIterator[ClearAnswer]:
    count = 0
    async for count in _clear(call):
        yield ClearAnswer(cleared=count, is_done=False)
    yield ClearAnswer(cleared=count, is_done=True, undo_as_of=undo_as_of)


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
                refusal = view.publish(cleared(retained), pending, call.actor.login_name)
                if refusal:
                    raise StoreError(f"cleared {count} messages, then not {retained.topic_name!a}: {refusal}")
            await view.durable(pending)
            count += len(piece)
            yield count
            await slices.rest()
    finally:
        call.audit("clear retained", call.body.filter, f"{count} cleared")


# -- restore ---------------------------------------------------------------------------------------------------------


async def restore_messages(call: Call[Nothing, RestoreBody]) -> Answer:
    instant_us = as_of_us(call.view, call.body.as_of)
    assert instant_us is not None
    if call.body.dry_run:
        return await _preview(call, instant_us)
    if not wants_lines(call.request):
        answers = [answer async for answer in _restore(call, instant_us)]
        return answers[-1]
    restored = _restore(call, instant_us)
    return await _told(call, restored, await anext(restored))  # an error must come before the status does


async def _preview(call: Call[Nothing, RestoreBody], instant_us: int) -> RestoreAnswer:
    tally = _Tally()
    changes: list[Change] = []
    async for now, then in _differences(call, instant_us, tally):
        topic = _topic_of(now, then)
        if not call.view.may_publish(topic):
            tally.refuse(topic, NO_RETAINING)
            continue
        tally.take(then)
        if len(changes) < SHOWN_MAX:
            sign = "~" if now is not None and then is not None else "+" if now is None else "-"
            changes.append(Change(topic=topic, sign=sign, now=_shown(now), then=_shown(then)))
    return tally.answer(False, None, changes)


def _shown(retained: Retained | None) -> RetainedMessage | None:
    if retained is None:
        return None
    return RetainedMessage.model_validate_json(retained_json(retained, SHOWN_BYTES))


async def _restore(call: Call[Nothing, RestoreBody], instant_us: int) -> AsyncIterator[RestoreAnswer]:
    """Change what differs; yields how far that is durable."""
    view = call.view
    tally = _Tally()
    pending = Pending()
    undo_as_of = view.before_changes()
    try:
        async for now, then in _differences(call, instant_us, tally):
            refusal = view.publish(_restored(now, then), pending, call.actor.login_name)
            if refusal:
                tally.refuse(_topic_of(now, then), refusal)
                continue
            tally.take(then)
            if (tally.set + tally.cleared) % TOGETHER_MAX == 0:
                await view.durable(pending)
                yield tally.answer(False, undo_as_of)
        await view.durable(pending)
        yield tally.answer(True, undo_as_of)
    finally:
        outcome = f"{tally.set} set, {tally.cleared} cleared, {tally.refused} refused"
        call.audit("restore retained", f"{call.body.filter} as of {call.body.as_of}", outcome)


def _restored(now: Retained | None, then: Retained | None) -> Publish:
    """The message that makes a topic as it was. An expiry begins again."""
    if then is not None:
        return Publish(then.topic_name, then.payload, then.qos, True, False, 0, then.properties)
    assert now is not None
    return cleared(now)


class _Tally:
    """What a restore has done so far."""

    __slots__ = ("cleared", "refusals", "refused", "set", "unchanged")

    def __init__(self) -> None:
        self.set = self.cleared = self.unchanged = self.refused = 0
        self.refusals: Final[list[RefusedTopic]] = []

    def take(self, then: Retained | None) -> None:
        """A topic was changed."""
        if then is None:
            self.cleared += 1
        else:
            self.set += 1

    def leave(self) -> None:
        """A topic is as it was."""
        self.unchanged += 1

    def refuse(self, topic_name: str, sentence: str) -> None:
        """A topic could not be changed."""
        self.refused += 1
        if len(self.refusals) < SHOWN_MAX:
            self.refusals.append(RefusedTopic(topic=topic_name, error=sentence))

    def answer(self, is_done: bool, undo_as_of: str | None, changes: list[Change] | None = None) -> RestoreAnswer:
        is_changed = self.set + self.cleared > 0
        return RestoreAnswer(
            set=self.set,
            cleared=self.cleared,
            unchanged=self.unchanged,
            refused=self.refused,
            is_done=is_done,
            refusals=list(self.refusals),
            changes=changes,
            undo_as_of=undo_as_of if is_changed else None,
        )


async def _differences(call: Call[Nothing, RestoreBody], instant_us: int, tally: _Tally) -> AsyncIterator[Difference]:
    """The topics whose message is another than at the instant, in the order of the store."""
    slices = Slices()
    before = _each(call.view.pieces(call.body.filter, instant_us))
    current = _each(call.view.pieces(call.body.filter))
    then, now = await anext(before, None), await anext(current, None)
    while then is not None or now is not None:
        order = _order(then, now)
        found = (now if order >= 0 else None, then if order <= 0 else None)
        if order <= 0:
            then = await anext(before, None)
        if order >= 0:
            now = await anext(current, None)
        if found[0] is not None and found[1] is not None and _is_same(found[0], found[1]):
            tally.leave()
        else:
            yield found
        await slices.rest()


async def _each(pieces: AsyncIterator[list[Retained]]) -> AsyncIterator[Retained]:
    async for piece in pieces:
        for retained in piece:
            yield retained


def _order(then: Retained | None, now: Retained | None) -> int:
    """Which topic is first: -1 that of then, 1 that of now, 0 both are the same."""
    if then is None or now is None:
        return 1 if then is None else -1
    first, second = store_order(then.topic_name), store_order(now.topic_name)
    return (first > second) - (first < second)


def _is_same(now: Retained, then: Retained) -> bool:
    return now.offset == then.offset or (now.payload, now.qos, now.properties) == (
        then.payload,
        then.qos,
        then.properties,
    )


def _topic_of(now: Retained | None, then: Retained | None) -> str:
    found = now if now is not None else then
    assert found is not None
    return found.topic_name


OPERATIONS: Final = (
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
    Operation(
        method="POST",
        path="/api/v1/retained/restore",
        role=OPERATOR,
        summary="Set the retained messages that a filter matches back to an instant; answered when that is durable.",
        handle=restore_messages,
        query=Nothing,
        body=RestoreBody,
        answer=RestoreAnswer,
        lines=RestoreAnswer,
        statuses=(409, 410, 422),
        is_narrowed=True,
    ),
)

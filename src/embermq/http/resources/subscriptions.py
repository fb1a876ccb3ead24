"""Subscriptions of all sessions, and share groups."""

from collections.abc import Iterator
from typing import Annotated, Final

from pydantic import Field

from embermq.broker.history.history_filter import is_history, plain_filter
from embermq.broker.session import Subscription
from embermq.broker.shared import ShareGroup
from embermq.http.fields import PAGE_ITEMS, ClientId, Cursor, Limit, Model, Nothing, Page, TopicFilter, TopicName
from embermq.http.log_holds import LogHolds
from embermq.http.operation import VIEWER, Answer, Call, Operation
from embermq.http.paging import page_of, wants_lines
from embermq.http.resources.listing import stream_models
from embermq.protocol.topics import covers, filter_of_share, is_shared, matches


class SubscriptionsQuery(Model):
    filter: Annotated[TopicFilter | None, Field(description="Only filters that this one covers.")] = None
    topic: Annotated[TopicName | None, Field(description="Only filters that match this topic name.")] = None
    client_id: Annotated[ClientId | None, Field(description="Only those of this client.")] = None
    cursor: Cursor = ""
    limit: Limit = PAGE_ITEMS


class SubscriptionFacts(Model):
    client_id: str
    filter: str
    qos: int
    no_local: bool
    retain_as_published: bool
    identifiers: list[int]
    is_shared: bool
    is_connected: bool


class GroupsQuery(Model):
    cursor: Cursor = ""
    limit: Limit = PAGE_ITEMS


class ShareGroupFacts(Model):
    """A share group. `owed` are messages that no member has acknowledged; for the rest see the sessions."""

    filter: str
    members: list[str]
    connected: int
    owed: int
    oldest_owed_offset: int | None = None
    log_bytes: int


def name_of(subscription: Subscription) -> str:
    """Sorts by client, then by filter: no client identifier has a U+0000."""
    return f"{subscription.session.client_id}\0{subscription.topic_filter}"


def _is_chosen(query: SubscriptionsQuery, subscription: Subscription) -> bool:
    topic_filter = subscription.topic_filter
    if is_shared(topic_filter):
        topic_filter = filter_of_share(topic_filter)
    elif is_history(topic_filter):
        topic_filter = plain_filter(topic_filter)
    if query.filter is not None and not covers(query.filter, topic_filter):
        return False
    return query.topic is None or matches(topic_filter, query.topic)


def _found(call: Call[SubscriptionsQuery, Nothing]) -> Iterator[Subscription | None]:
    """Those that are asked for; None for each of the others, so that a long search can be interrupted."""
    core = call.service.server.core
    client_id = call.query.client_id
    session = core.session(client_id) if client_id is not None else None
    sessions = core.sessions() if client_id is None else [] if session is None else [session]
    for each in sessions:
        for subscription in core.subscriptions_of(each):
            yield subscription if _is_chosen(call.query, subscription) else None


def facts_of(subscription: Subscription) -> SubscriptionFacts:
    return SubscriptionFacts(
        client_id=subscription.session.client_id,
        filter=subscription.topic_filter,
        qos=subscription.qos,
        no_local=subscription.no_local,
        retain_as_published=subscription.retain_as_published,
        identifiers=list(subscription.ids),
        is_shared=is_shared(subscription.topic_filter),
        is_connected=subscription.session.connection() is not None,
    )


async def list_subscriptions(call: Call[SubscriptionsQuery, Nothing]) -> Answer:
    if wants_lines(call.request):
        return await stream_models(call, _found(call), lambda each: None if each is None else facts_of(each))
    chosen, following = await page_of(_found(call), name_of, call.query.cursor, call.query.limit)
    return Page[SubscriptionFacts](items=[facts_of(each) for each in chosen], next=following)


def group_facts(group: ShareGroup, holds: LogHolds) -> ShareGroupFacts:
    oldest = group.oldest_owed_offset()
    return ShareGroupFacts(
        filter=group.share_filter,
        members=[session.client_id for session in group.members],
        connected=sum(1 for session in group.members if session.connection() is not None),
        owed=group.owed(),
        oldest_owed_offset=oldest or None,
        log_bytes=holds.held(oldest)[0],
    )


async def list_groups(call: Call[GroupsQuery, Nothing]) -> Answer:
    server = call.service.server
    groups = server.core.share_groups()
    holds = LogHolds(server.store.history.log_segments())
    if wants_lines(call.request):
        return await stream_models(call, groups, lambda group: None if group.has_ended else group_facts(group, holds))
    chosen, following = await page_of(groups, lambda group: group.share_filter, call.query.cursor, call.query.limit)
    return Page[ShareGroupFacts](items=[group_facts(group, holds) for group in chosen], next=following)


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/v1/subscriptions",
        role=VIEWER,
        summary="Subscriptions, by filter, topic or client.",
        handle=list_subscriptions,
        query=SubscriptionsQuery,
        body=Nothing,
        answer=Page[SubscriptionFacts],
        lines=SubscriptionFacts,
    ),
    Operation(
        method="GET",
        path="/api/v1/share-groups",
        role=VIEWER,
        summary="Share groups, their members, and what no member has acknowledged.",
        handle=list_groups,
        query=GroupsQuery,
        body=Nothing,
        answer=Page[ShareGroupFacts],
        lines=ShareGroupFacts,
    ),
)

"""Sessions: what each is owed, how much of the log it holds, and ending them."""

from typing import Annotated, Final

from pydantic import Field

from embermq.broker.session import Session
from embermq.http.fields import PAGE_ITEMS, ClientId, Cursor, Limit, Model, Nothing, Page, Timestamp, now_us
from embermq.http.log_holds import LogHolds
from embermq.http.operation import OPERATOR, VIEWER, Answer, Call, Operation
from embermq.http.paging import page_of, wants_lines
from embermq.http.resources.clients import ClientIds, client_id_of
from embermq.http.resources.listing import stream_models
from embermq.http.service import Pending, Service
from embermq.http.streaming import Slices
from embermq.instants import utc_text
from embermq.protocol.packets import SESSION_NEVER_EXPIRES


class SessionsQuery(Model):
    client_id: Annotated[ClientId | None, Field(description="Only the session of this client.")] = None
    cursor: Cursor = ""
    limit: Limit = PAGE_ITEMS


class SessionFacts(Model):
    """A session. `owed` are the messages that its client is still to get.

    The retained messages of one subscription count as one of them.
    `dropped` are messages that it did not get because its client was too slow or away for too long, or because they
    expired, since the session or the server began.
    `oldest_owed_offset` is the oldest record of the log that it needs, `oldest_owed_since` when the segment with it
    begins, and `log_bytes` the size of the log from that segment on: the log is not trimmed beyond.
    `expires_s` counts from the end of the connection; without it the session never expires.
    `last_end` is why its last connection ended, since the server started.
    """

    client_id: str
    user_name: str
    is_connected: bool
    is_persistent: bool
    expires_s: int | None = None
    expires: Timestamp | None = None
    disconnected_since: Timestamp | None = None
    last_end: str | None = None
    subscriptions: int
    owed: int
    dropped: int
    oldest_owed_offset: int | None = None
    oldest_owed_since: Timestamp | None = None
    log_bytes: int


class Ended(Model):
    """`unknown` have no session."""

    ended: int
    unknown: list[str]


def facts_of(service: Service, session: Session, holds: LogHolds) -> SessionFacts | None:
    if session.has_ended:
        return None
    queue = session.outbound.queue
    oldest = queue.oldest_owed_offset() if queue is not None else 0
    log_bytes, since_us = holds.held(oldest)
    due_ms = session.expiry_due_ms()
    now_ms = service.server.now_ms()
    is_connected = session.connection() is not None
    never = session.session_expiry_s == SESSION_NEVER_EXPIRES
    return SessionFacts(
        client_id=session.client_id,
        user_name=session.identity.user_name,
        is_connected=is_connected,
        is_persistent=session.session_id != 0,
        expires_s=None if never else session.session_expiry_s,
        expires=utc_text(now_us() + (due_ms - now_ms) * 1000) if due_ms else None,
        disconnected_since=None if is_connected else utc_text(now_us() + (session.lost_ms - now_ms) * 1000),
        last_end=session.lost_reason or None,
        subscriptions=len(session.subscriptions),
        owed=session.owed(),
        dropped=session.outbound.dropped,
        oldest_owed_offset=oldest or None,
        oldest_owed_since=utc_text(since_us) if since_us else None,
        log_bytes=log_bytes,
    )


async def list_sessions(call: Call[SessionsQuery, Nothing]) -> Answer:
    service = call.service
    query = call.query
    holds = LogHolds(service.server.store.history.log_segments())
    if query.client_id is not None:
        session = service.server.core.session(query.client_id)
        found = [] if session is None else [session]
    else:
        found = service.server.core.sessions()
    if wants_lines(call.request):
        return await stream_models(call, found, lambda session: facts_of(service, session, holds))
    chosen, following = await page_of(found, client_id_of, query.cursor, query.limit)
    slices = Slices()
    items: list[SessionFacts] = []
    for session in chosen:
        facts = facts_of(service, session, holds)
        if facts is not None:
            items.append(facts)
        await slices.rest()
    return Page[SessionFacts](items=items, next=following)


async def end_sessions(call: Call[Nothing, ClientIds]) -> Answer:
    call.body.check()
    service = call.service
    pending = Pending()
    slices = Slices()
    unknown: list[str] = []
    for client_id in call.body.client_ids:
        session = service.server.core.session(client_id)
        if session is None:
            unknown.append(client_id)
            call.audit("end session", client_id, "there is no such session")
        else:
            service.server.begin_turn()
            service.server.core.end_session(session)
            call.audit("end session", client_id, "ended")
        await slices.rest()
    service.when_durable(pending)
    await pending.durable(service)
    return Ended(ended=len(call.body.client_ids) - len(unknown), unknown=unknown)


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/v1/sessions",
        role=VIEWER,
        summary="The sessions, and how much of the log each holds.",
        handle=list_sessions,
        query=SessionsQuery,
        body=Nothing,
        answer=Page[SessionFacts],
        lines=SessionFacts,
    ),
    Operation(
        method="POST",
        path="/api/v1/sessions/end",
        role=OPERATOR,
        summary="End sessions: their queues, subscriptions and connections. Answered when that is durable.",
        handle=end_sessions,
        query=Nothing,
        body=ClientIds,
        answer=Ended,
        statuses=(422,),
    ),
)

"""Clients: who is connected, how each is served, and ending connections."""

from typing import Annotated, Final

from pydantic import Field

from embermq.broker.session import Session
from embermq.http.fields import (
    PAGE_ITEMS,
    ClientId,
    Cursor,
    Limit,
    Model,
    Nothing,
    Page,
    Timestamp,
    now_us,
)
from embermq.http.operation import OPERATOR, VIEWER, Answer, Call, Operation
from embermq.http.paging import page_of, wants_lines
from embermq.http.refusal import HttpRefusal
from embermq.http.resources.listing import stream_models
from embermq.http.service import Service
from embermq.http.streaming import Slices
from embermq.instants import utc_text

CLIENTS_MAX: Final = 10_000
"""How many clients or sessions one request may end."""


class ClientsQuery(Model):
    client_id: Annotated[ClientId | None, Field(description="Only this client.")] = None
    cursor: Cursor = ""
    limit: Limit = PAGE_ITEMS


class Client(Model):
    """A connected client.

    `listener` is the name of the listener that it has connected to. `queued` are messages that wait for it beside those
    in flight; `queued_bytes` what of them is in memory; `unread_bytes` what was sent to it and not read. `slowed_by`
    says why it is served more slowly than it could be.
    `window`: how many messages may be in flight to it now. `received` are PUBLISH packets that it has sent; `sent`
    messages that were sent to it or are owed to it; both since its session or the server began.
    """

    client_id: str
    user_name: str
    address: str
    listener: str
    protocol: str
    since: Timestamp
    is_persistent: bool
    keep_alive_s: int
    subscriptions: int
    received: int
    sent: int
    in_flight: int
    window: int
    queued: int
    queued_bytes: int
    unread_bytes: int
    slowed_by: list[str]


class ClientIds(Model):
    client_ids: Annotated[list[ClientId], Field(min_length=1)]

    def check(self) -> None:
        """Refuses more than a request may name."""
        if len(self.client_ids) > CLIENTS_MAX:
            raise HttpRefusal(422, f"client_ids: expected at most {CLIENTS_MAX}")


class Disconnected(Model):
    """`unknown` were not connected."""

    disconnected: int
    unknown: list[str]


def client_of(service: Service, session: Session) -> Client | None:
    """A session's client as the operator sees it; None if it is not connected by now."""
    link = session.connection()
    if link is None:
        return None
    outbound = session.outbound
    in_flight = len(outbound.inflight) + len(outbound.shared)
    connected_us = now_us() - (service.server.now_ms() - session.connected_ms) * 1000
    return Client(
        client_id=session.client_id,
        user_name=session.identity.user_name,
        address=session.address,
        listener=link.listener_name(),
        protocol=session.protocol,
        since=utc_text(connected_us),
        is_persistent=session.session_id != 0,
        keep_alive_s=session.keep_alive_ms // 1000,
        subscriptions=len(session.subscriptions) + session.history_subscriptions,
        received=session.received,
        sent=session.sent,
        in_flight=in_flight,
        window=outbound.window,
        queued=max(0, outbound.owed() - in_flight),
        queued_bytes=outbound.memory_bytes,
        unread_bytes=link.unread_bytes(),
        slowed_by=link.slowed_by(),
    )


def client_id_of(session: Session) -> str:
    return session.client_id


async def list_clients(call: Call[ClientsQuery, Nothing]) -> Answer:
    service = call.service
    query = call.query
    if query.client_id is not None:
        session = service.server.core.session(query.client_id)
        found = [] if session is None else [session]
    else:
        found = [session for session in service.server.core.sessions() if session.connection() is not None]
    if wants_lines(call.request):
        return await stream_models(call, found, lambda session: client_of(service, session))
    chosen, following = await page_of(found, client_id_of, query.cursor, query.limit)
    clients = [client for session in chosen if (client := client_of(service, session)) is not None]
    return Page[Client](items=clients, next=following)


async def disconnect(call: Call[Nothing, ClientIds]) -> Answer:
    call.body.check()
    service = call.service
    slices = Slices()
    unknown: list[str] = []
    for client_id in call.body.client_ids:
        session = service.server.core.session(client_id)
        if session is None or session.connection() is None:
            unknown.append(client_id)
        else:
            service.server.begin_turn()
            service.server.core.disconnect(session)
        call.audit("disconnect", client_id, "not connected" if client_id in unknown[-1:] else "disconnected")
        await slices.rest()
    return Disconnected(disconnected=len(call.body.client_ids) - len(unknown), unknown=unknown)


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/v1/clients",
        role=VIEWER,
        summary="The connected clients.",
        handle=list_clients,
        query=ClientsQuery,
        body=Nothing,
        answer=Page[Client],
        lines=Client,
    ),
    Operation(
        method="POST",
        path="/api/v1/clients/disconnect",
        role=OPERATOR,
        summary="End the connections of clients. Their wills are published; persistent sessions stay.",
        handle=disconnect,
        query=Nothing,
        body=ClientIds,
        answer=Disconnected,
        statuses=(422,),
    ),
)

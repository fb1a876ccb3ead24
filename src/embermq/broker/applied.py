"""Records that another core has written: this core and its store follow them.

Owns: what the memory of a core must know of them, which is what a route needs: sessions, subscriptions, share groups.
Never: a client of its own. What else a session has (its queue, packet identifiers, positions, its will) is in the
store only; a start loads it from there. A core cannot yet load a single session when its client comes here.
The records come in their order, all of them, and this core appends nothing of its own meanwhile: the offsets in queues
are those of the other core's log.
"""

from typing import Final, final

from embermq.broker.connections import Connections
from embermq.broker.session import Session
from embermq.broker.shared import Shares
from embermq.broker.subscriptions import Subscriptions
from embermq.store.interface import Journal
from embermq.store.records import (
    Record,
    SessionEnded,
    SessionOpened,
    SharedQueueEnded,
    SharedQueueOpened,
    Subscribed,
    Unsubscribed,
)


@final
class AppliedRecords:
    """Applies the records of another core to this one."""

    def __init__(
        self, journal: Journal, connections: Connections, subscriptions: Subscriptions, shares: Shares
    ) -> None:
        self._journal: Final = journal
        self._connections: Final = connections
        self._subscriptions: Final = subscriptions
        self._shares: Final = shares

    def apply(self, record: Record) -> None:
        """Append a record and follow it."""
        if isinstance(record, SessionEnded):
            ended = self._session(record.client_id, record.session_id)
            if ended is not None:
                self._connections.end_session(ended)  # which appends the record
                return
        self._journal.append(record)
        if isinstance(record, SessionOpened):
            self._connections.add_session(record)
        elif isinstance(record, SharedQueueOpened):
            self._shares.add_queue(record.queue_id, record.share_filter)
        elif isinstance(record, SharedQueueEnded):
            self._shares.queue_ended(record.share_filter)
        elif isinstance(record, Subscribed):
            session = self._session(record.client_id, record.session_id)
            if session is not None:
                self._subscriptions.add(session, record.request)
        elif isinstance(record, Unsubscribed):
            session = self._session(record.client_id, record.session_id)
            if session is not None:
                self._subscriptions.remove(session, record.topic_filter)

    def _session(self, client_id: str, session_id: int) -> Session | None:
        """The persistent session with this id, if it is the one of its client."""
        session = self._connections.sessions.get(client_id)
        return session if session is not None and 0 < session.session_id == session_id else None

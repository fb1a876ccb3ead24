"""Connections: how clients come and go, and how sessions begin and end (3.1.1 sections 3.1, 3.14 and 4.1).

Owns: the sessions by client identifier, the client identifiers that the server assigns, and the keep alive and expiry
of sessions.

A connection is opening from CONNECT until CONNACK is sent, which for a persistent session waits for a commit
(`Session.opening`), then open (`Session.link`) until it ends. A session ends with its connection, or when it expires,
or when its client starts a clean one.
"""

from abc import ABC, abstractmethod
from functools import partial
from typing import Final, final

from mypy_extensions import mypyc_attr

from embermq.broker.access import BRIDGE_CLIENT_PREFIX, Grant, Identity
from embermq.broker.context import Context
from embermq.broker.deadlines import Deadlines
from embermq.broker.delivery import MessageDelivery
from embermq.broker.effects import CallEffect, Effect, Effects
from embermq.broker.link import Link
from embermq.broker.outbound import Outbound
from embermq.broker.owed import OwedBytes
from embermq.broker.rates import ClientBuckets
from embermq.broker.session import ClientLink, Session
from embermq.broker.subscriptions import Subscriptions
from embermq.broker.wills import Wills
from embermq.protocol.errors import ProtocolError
from embermq.protocol.packets import Connack, Connect, Disconnect, Will
from embermq.protocol.reasons import ReasonCode
from embermq.store.interface import Queue
from embermq.store.records import (
    Connected,
    Disconnected,
    SessionEnded,
    SessionExpiryChanged,
    SessionOpened,
    SessionResumed,
)

EXPIRED_A_TICK: Final = 500
"""How many clients and sessions one tick ends: thousands may have the same deadline."""


@mypyc_attr(allow_interpreted_subclasses=True)
class ClientWatch(ABC):
    """Is told of each client that comes and goes. It returns at once and does not raise."""

    @abstractmethod
    def came(self, session: Session) -> None:
        """CONNACK was sent."""

    @abstractmethod
    def went(self, session: Session, reason: str) -> None:
        """A connection that `came` was told of has ended."""


@final
class ConnackEffect(Effect):
    """The connection opens: CONNACK, then redelivery, then what the client has sent in the meantime."""

    __slots__ = ("_connections", "_of", "_to", "_connack")

    def __init__(self, connections: "Connections", session: Session, to: Link, connack: Connack) -> None:
        super().__init__()
        self._connections: Final = connections
        self._of: Final = session
        self._to: Final = to
        self._connack: Final = connack

    def release(self) -> None:
        self._connections.open(self._of, self._to, self._connack)


@final
class Connections:
    """All connections and sessions."""

    def __init__(
        self,
        context: Context,
        effects: Effects,
        delivery: MessageDelivery,
        subscriptions: Subscriptions,
        token: str,
        response_information: Grant | None = None,
    ) -> None:
        """`token` makes assigned client identifiers unique across restarts."""
        self.owed: Final = OwedBytes(context)
        self.sessions: Final[dict[str, Session]] = {}
        self.wills: Final = Wills(context, delivery)
        self._store: Final = context.store
        self._access: Final = context.access
        self._limits: Final = context.limits
        self._counters: Final = context.counters
        self._clock: Final = context.clock
        self._effects: Final = effects
        self._delivery: Final = delivery
        self._subscriptions: Final = subscriptions
        self._wake: Final = context.wake
        self._token: Final = token
        self._response_information: Final = response_information
        self._watch: ClientWatch | None = None
        self._assigned = 0
        # Client identifiers whose session has ended, not durably yet, with its id. No CONNACK denies it before.
        self._ending: Final[dict[str, int]] = {}
        self._connect_rates: Final = ClientBuckets(context.limits.client_connect_rate_max)
        self._keep_alives: Final = Deadlines(Session.keep_alive_due_ms)
        self._logins: Final = Deadlines(Session.login_end_ms)
        self._expiries: Final = Deadlines(Session.expiry_due_ms)

    # -- begin -----------------------------------------------------------------------------------------------------

    def watch(self, watch: ClientWatch) -> None:
        """Tell of clients from now on."""
        self._watch = watch

    def restore(self) -> None:
        """At start: the persistent sessions as the store remembers them, none of them connected."""
        now_ms, wall_us = self._clock.now_ms, self._clock.now_us()
        for saved in self._store.sessions.load():
            outbound = self._new_outbound(saved.queue, self._limits.inflight_max)
            session = Session(saved.client_id, saved.session_id, Identity(saved.user_name, saved.client_id), outbound)
            for packet_id in saved.received_ids:
                session.remember_received(packet_id, 1, 0)
            outbound.restore(saved.sent)
            for request, _ in saved.subscriptions:
                self._subscriptions.add(session, request)
            for position in saved.positions:
                session.streams.restore(position)
            if saved.ended_us == 0:
                record = Disconnected(saved.client_id, saved.session_id, "server stopped", saved.sent)
                self._store.append(record)
            away_ms = (wall_us - saved.ended_us) // 1000 if saved.ended_us else 0
            # Below 0 if the connection ended before the clock began to count, which is when the machine was started.
            session.restore(saved.session_expiry_s, (now_ms - away_ms) or -1)
            self.sessions[saved.client_id] = session
            self._expiries.watch(session)
        self.wills.restore(self._limits.will_grace_s * 1000)

    def add_session(self, opened: SessionOpened) -> None:
        """A session that began at another core; its client has a connection there."""
        outbound = self._new_outbound(self._store.sessions.queue(opened.session_id), self._limits.inflight_max)
        identity = Identity(opened.user_name, opened.client_id)
        self.sessions[opened.client_id] = Session(opened.client_id, opened.session_id, identity, outbound)

    def connect(self, link: ClientLink, connect: Connect, identity: Identity, protocol: str, address: str) -> None:
        """An authenticated client asks for its session (3.1.4)."""
        if not self._store.is_active():
            self._refuse(link, ReasonCode.SERVER_UNAVAILABLE, "this server is a standby", self._store.active_at())
            return
        if self._store.failing() and not self._can_go_on(connect):
            reason = ReasonCode.QUOTA_EXCEEDED if self._store.is_full() else ReasonCode.SERVER_UNAVAILABLE
            self._refuse(link, reason, "the store cannot keep a session or a will now")
            return
        client_id = connect.client_id
        if not client_id:
            if not connect.clean_start and not link.has_properties():
                # 3.1.1 with Clean Session 0 (MQTT-3.1.3-8): the client could never name its session.
                self._refuse(link, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "empty client id without clean session")
                return
            client_id = self._assign_client_id()
        if client_id.startswith(BRIDGE_CLIENT_PREFIX) and not link.is_of_server():
            self._refuse(link, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "the client id is for a bridge of this server")
            return
        older = self.sessions.get(client_id)
        if older is not None and not self._access.may_take_over(identity, older.identity.user_name):
            self._refuse(link, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "the client id belongs to another user")
            return
        if not self._connect_rates.take(client_id, self._clock.now_ms):
            self._refuse(link, ReasonCode.CONNECTION_RATE_EXCEEDED, "limits.client_connect_rate_max is exceeded")
            return
        if older is None and connect.session_expiry_s > 0 and len(self.sessions) >= self._limits.sessions_max:
            self._refuse(link, ReasonCode.QUOTA_EXCEEDED, "limits.sessions_max is reached")
            return
        if older is not None:
            self.end(
                older, ReasonCode.SESSION_TAKEN_OVER, "session taken over", "another connection with this client id"
            )
            older = self.sessions.get(client_id)
            if older is not None and connect.clean_start:
                self.end_session(older)
                older = None
        expiry_s = self._limits.session_expiry_s(connect.session_expiry_s)
        self._store.append(Connected(client_id, identity.user_name, expiry_s > 0, protocol, address))
        session = self._session_for(client_id, older, connect, identity, expiry_s)
        session.connect(link, identity, protocol, address, self._clock.now_ms)
        keep_alive_s = self._limits.keep_alive_s(connect.keep_alive_s)
        login_due_ms = self._login_due_ms(identity)
        session.agree(connect, expiry_s, 0 if link.supervises_keep_alive else keep_alive_s * 1000, login_due_ms)
        self._attach(session, link, connect)
        connack = Connack(
            older is not None,
            ReasonCode.SUCCESS,
            "" if connect.client_id else client_id,
            -1 if expiry_s == connect.session_expiry_s else expiry_s,
            -1 if keep_alive_s == connect.keep_alive_s else keep_alive_s,
            self._response_information_for(identity, client_id) if connect.request_response_information else "",
        )
        if client_id in self._ending or older is not None or session.session_id or connect.will is not None:
            self._effects.add(ConnackEffect(self, session, link, connack))
        else:
            self.open(session, link, connack)

    def _login_due_ms(self, identity: Identity) -> int:
        if not identity.expires_us:
            return 0
        return max(1, self._clock.now_ms + (identity.expires_us - self._clock.now_us()) // 1000)

    def _can_go_on(self, connect: Connect) -> bool:
        """Whether a client needs nothing new of a store that fails. Where only the disk has reached its reserve, a
        session is resumed: its client may take what the log is kept for.
        """
        if self._store.is_full() and not connect.clean_start and connect.client_id in self.sessions:
            return True
        return connect.session_expiry_s == 0 and connect.will is None

    def _response_information_for(self, identity: Identity, client_id: str) -> str:
        """Where responses to a client may go (5.0, 4.10.1); empty if it could not subscribe there."""
        grant = self._response_information
        prefix = grant.topic_filter(identity.user_name, client_id) if grant is not None else None
        if prefix is None:
            return ""
        access = self._access
        return prefix if access.unrestricted or access.may_subscribe(identity, f"{prefix}/#") else ""

    def _assign_client_id(self) -> str:
        """An identifier that no session has (5.0, MQTT-3.2.2-16)."""
        while True:
            self._assigned += 1
            client_id = f"auto-{self._token}-{self._assigned}"
            if client_id not in self.sessions:
                return client_id

    def _session_for(
        self, client_id: str, older: Session | None, connect: Connect, identity: Identity, expiry_s: int
    ) -> Session:
        """The session that a client resumes, or a new one."""
        window = min(self._limits.inflight_max, connect.receive_maximum)
        if older is not None:
            older.outbound.set_window(window)
            self._store.append(SessionResumed(older.session_id, client_id, expiry_s))
            return older
        if expiry_s > 0:
            session_id = self._store.sessions.new_id()
            self._store.append(SessionOpened(session_id, client_id, identity.user_name, expiry_s))
            queue = self._store.sessions.queue(session_id)
            return Session(client_id, session_id, identity, self._new_outbound(queue, window))
        return Session(client_id, 0, identity, self._new_outbound(None, window))

    def _attach(self, session: Session, link: ClientLink, connect: Connect) -> None:
        """Give a session its connection."""
        self.sessions[session.client_id] = session
        self.replace_will(session, connect.will)
        link.attach(session, connect.maximum_packet_size)
        self._keep_alives.watch(session)
        self._logins.watch(session)
        counters = self._counters
        counters.clients_connected += 1
        counters.clients_maximum = max(counters.clients_maximum, counters.clients_connected)

    def replace_will(self, session: Session, will: Will | None) -> None:
        """A client has set its will or none: with CONNECT, or later (MQTT-SN)."""
        self.wills.set(session.client_id, session.session_id, session.identity.user_name, session.will, will)
        session.set_will(will)

    def _new_outbound(self, queue: Queue | None, window: int) -> Outbound:
        return Outbound(queue, window, self._limits, self._counters, self._clock)

    def _refuse(self, link: Link, reason: ReasonCode, detail: str, server_reference: str = "") -> None:
        """CONNACK with a reason, then the end; nothing after the CONNECT is processed (MQTT-3.1.4-5)."""
        self._counters.refuse_connection(reason)
        link.send(Connack(False, reason, server_reference=server_reference))
        link.close(reason, detail)

    def open(self, session: Session, link: Link, connack: Connack) -> None:
        """CONNACK may be sent: the session has its connection, and the client gets what it is owed."""
        if session.opening is not link:
            return  # taken over or lost while CONNACK was pending
        session.open(link)
        self._subscriptions.connection_changed(session)
        link.send(connack)
        session.outbound.resume(link)
        self._delivery.dirty[session] = None
        self._wake()
        link.opened()
        if self._watch is not None:
            self._watch.came(session)

    # -- end -------------------------------------------------------------------------------------------------------

    def end(self, session: Session, reason: ReasonCode, recorded: str, detail: str) -> None:
        """The server ends a session's connection, if it has one, as if the network had failed."""
        link = session.connection()
        if link is not None:
            self.lost(session, recorded)
            link.close(reason, detail)

    def disconnect(self, session: Session, link: Link, packet: Disconnect) -> None:
        """DISCONNECT: no will, unless its reason says that something is wrong (5.0, 3.14.4; MQTT-SN)."""
        if packet.session_expiry_s > 0 and session.asked_expiry_s == 0:
            raise ProtocolError("DISCONNECT gives an expiry to a session that CONNECT gave none", "MQTT-4.13.1-1")
        if packet.session_expiry_s >= 0:
            self._change_expiry(session, self._limits.session_expiry_s(packet.session_expiry_s))
        if packet.reason == ReasonCode.SUCCESS and session.take_will() is not None:
            self.wills.delete(session.client_id)
        self.lost(session, "disconnected")
        link.close(ReasonCode.SUCCESS, "disconnected")

    def _change_expiry(self, session: Session, expiry_s: int) -> None:
        if session.session_id and expiry_s not in (0, session.session_expiry_s):
            self._store.append(SessionExpiryChanged(session.session_id, session.client_id, expiry_s))
        session.change_expiry(expiry_s)

    def lost(self, session: Session, reason: str) -> None:
        """A session's connection has ended: its will is published, and the session ends or waits for its client."""
        if self._watch is not None and session.link is not None:
            self._watch.went(session, reason)
        self._delivery.flow.lost(session)
        session.disconnect(self._clock.now_ms, reason)
        self._subscriptions.connection_changed(session)
        self._counters.clients_connected -= 1
        will = session.take_will()
        if will is not None:
            self.wills.schedule(session.client_id, will, session.identity)
        session.outbound.return_shared()
        session.outbound.drop_read_ahead()
        self.owed.forget(session)
        session.outbound.record_acknowledged()
        sent = session.outbound.newest_sent_ever()
        self._store.append(Disconnected(session.client_id, session.session_id, reason, sent))
        if session.session_expiry_s == 0:
            self.end_session(session)
        else:
            # QoS 0 is not part of the session's state; what is owed at QoS 1 and 2 continues when the client is back.
            session.streams.drop_qos_0()
            self._expiries.watch(session)

    def end_session(self, session: Session) -> None:
        """Forget a session and what it was owed."""
        session.end()
        self._keep_alives.forget(session)
        self._logins.forget(session)
        self._expiries.forget(session)
        del self.sessions[session.client_id]
        self._subscriptions.remove_all(session)
        if session.session_id:
            self._store.append(SessionEnded(session.session_id, session.client_id))
            self._ending[session.client_id] = session.session_id
            self._effects.add(CallEffect(partial(self._has_ended, session.client_id, session.session_id)))
        self.wills.session_ended(session.client_id)

    def _has_ended(self, client_id: str, session_id: int) -> None:
        """It is durable that a session has ended."""
        if self._ending.get(client_id) == session_id:
            del self._ending[client_id]

    # -- time ------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """End the connections of silent clients, then sessions that have expired, then publish wills that are due."""
        now_ms = self._clock.now_ms
        for session in self._keep_alives.expired(now_ms, EXPIRED_A_TICK):
            self.end(session, ReasonCode.KEEP_ALIVE_TIMEOUT, "keep-alive time-out", "keep-alive time-out")
        for session in self._logins.expired(now_ms, EXPIRED_A_TICK):
            self.end(session, ReasonCode.NOT_AUTHORIZED, "log-in expired", "its log-in has expired")
        for session in self._expiries.expired(now_ms, EXPIRED_A_TICK):
            self._counters.clients_expired += 1
            self.end_session(session)
        self.wills.publish_due()

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do at the latest; None while there is no deadline."""
        moments = (
            self._keep_alives.next_ms(),
            self._logins.next_ms(),
            self._expiries.next_ms(),
            self.wills.next_deadline_ms(),
        )
        return min((moment for moment in moments if moment is not None), default=None)

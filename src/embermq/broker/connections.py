"""Connections: how clients come and go, and how sessions begin and end (3.1.1 sections 3.1, 3.14 and 4.1).

Owns: the sessions by client identifier, the client identifiers that the server assigns, and the keep alive and expiry
of sessions.
Never: a clock. `now_ms` is the instant of the turn, set by the core.

A connection is opening from CONNECT until CONNACK is sent, which for a persistent session waits for a commit
(`Session.opening`), then open (`Session.link`) until it ends. A session ends with its connection, or when it expires,
or when its client starts a clean one.
"""

from collections.abc import Callable
from typing import Final, final

from embermq.broker.access import Access, Grant, Identity
from embermq.broker.counters import Counters
from embermq.broker.delivery import MessageDelivery
from embermq.broker.effects import ConnackEffect, Effects
from embermq.broker.limits import Limits
from embermq.broker.link import Link
from embermq.broker.queues.outbound import Outbound
from embermq.broker.queues.owed import ALL_QUEUE_BYTES_MAX, OwedBytes
from embermq.broker.rates.bucket import ClientBuckets
from embermq.broker.session import Deadlines, Session
from embermq.broker.subscriptions import Subscriptions
from embermq.broker.wills import Wills
from embermq.protocol.errors import ProtocolError
from embermq.protocol.packets import Connack, Connect, Disconnect, Will
from embermq.protocol.reasons import ReasonCode
from embermq.store.interface import Queue, Store

TOLD_CLIENT_ID_LEVEL: Final = 5
"""From this protocol level on, CONNACK names the client identifier that the server has assigned."""


@final
class Connections:
    """All connections and sessions."""

    __slots__ = (
        "now_ms",
        "owed",
        "sessions",
        "wills",
        "_store",
        "_access",
        "_limits",
        "_counters",
        "_effects",
        "_delivery",
        "_subscriptions",
        "_wake",
        "_token",
        "_response_information",
        "_assigned",
        "_connect_rates",
        "_keep_alives",
        "_expiries",
    )

    def __init__(
        self,
        store: Store,
        access: Access,
        limits: Limits,
        counters: Counters,
        effects: Effects,
        delivery: MessageDelivery,
        subscriptions: Subscriptions,
        wake: Callable[[], None],
        token: str,
        response_information: Grant | None = None,
    ) -> None:
        """`token` makes assigned client identifiers unique across restarts."""
        self.now_ms = 0
        self.owed: Final = OwedBytes(limits.all_queue_bytes_max or ALL_QUEUE_BYTES_MAX, counters)
        self.sessions: Final[dict[str, Session]] = {}
        self.wills: Final = Wills(store, delivery, counters, delivery.clock)
        self._store: Final = store
        self._access: Final = access
        self._limits: Final = limits
        self._counters: Final = counters
        self._effects: Final = effects
        self._delivery: Final = delivery
        self._subscriptions: Final = subscriptions
        self._wake: Final = wake
        self._token: Final = token
        self._response_information: Final = response_information
        self._assigned = 0
        self._connect_rates: Final = ClientBuckets(limits.client_connect_rate_max)
        self._keep_alives: Final = Deadlines(Session.keep_alive_due_ms)
        self._expiries: Final = Deadlines(Session.expiry_due_ms)

    # -- begin -----------------------------------------------------------------------------------------------------

    def restore(self, wall_us: int) -> None:
        """At start: the persistent sessions as the store remembers them, none of them connected."""
        now_ms = self.now_ms
        for saved in self._store.sessions():
            outbound = self._new_outbound(saved.queue, self._limits.inflight_max)
            session = Session(saved.client_id, saved.session_id, Identity(saved.user_name, saved.client_id), outbound)
            session.session_expiry_s = saved.session_expiry_s
            for packet_id in saved.received_ids:
                session.remember_received(packet_id, 0)
            outbound.sent_before = saved.sent
            for request, _ in saved.subscriptions:
                self._subscriptions.add(session, request)
            for position in saved.positions:
                session.streams.restore(position)
            if saved.ended_us == 0:
                self._store.append_disconnected(saved.client_id, saved.session_id, "server stopped", saved.sent)
            away_ms = (wall_us - saved.ended_us) // 1000 if saved.ended_us else 0
            # Below 0 if the connection ended before the clock began to count, which is when the machine was started.
            session.lost_ms = (now_ms - away_ms) or -1
            self.sessions[saved.client_id] = session
            self._expiries.watch(session)
        self.wills.restore(now_ms, wall_us, self._limits.will_grace_s * 1000)

    def connect(self, link: Link, connect: Connect, identity: Identity, protocol: str, address: str) -> None:
        """An authenticated client asks for its session (3.1.4)."""
        if self._store.failing() and not self._can_go_on(connect):
            reason = ReasonCode.QUOTA_EXCEEDED if self._store.is_full() else ReasonCode.SERVER_UNAVAILABLE
            self._refuse(link, reason, "the store cannot keep a session or a will now")
            return
        client_id = connect.client_id
        if not client_id:
            if not connect.clean_start and connect.protocol_level < TOLD_CLIENT_ID_LEVEL:
                # 3.1.1 with Clean Session 0 (MQTT-3.1.3-8): the client could never name its session.
                self._refuse(link, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "empty client id without clean session")
                return
            client_id = self._assign_client_id()
        older = self.sessions.get(client_id)
        if older is not None and not self._access.may_take_over(identity, older.identity.user_name):
            self._refuse(link, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "the client id belongs to another user")
            return
        if not self._connect_rates.take(client_id, self.now_ms):
            self._refuse(link, ReasonCode.CONNECTION_RATE_EXCEEDED, "limits.client_connect_rate_max is exceeded")
            return
        if older is None and connect.session_expiry_s > 0 and len(self.sessions) >= self._limits.sessions_max:
            self._refuse(link, ReasonCode.QUOTA_EXCEEDED, "limits.sessions_max is reached")
            return
        must_be_durable = False
        if older is not None:
            self.end(
                older, ReasonCode.SESSION_TAKEN_OVER, "session taken over", "another connection with this client id"
            )
            older = self.sessions.get(client_id)
            if older is not None and connect.clean_start:
                must_be_durable = older.session_id != 0
                self.end_session(older)
                older = None
        expiry_s = self._limits.session_expiry_s(connect.session_expiry_s)
        self._store.append_connected(client_id, identity.user_name, expiry_s > 0, protocol, address)
        session = self._session_for(client_id, older, connect, identity, expiry_s)
        session.protocol = protocol
        session.address = address
        session.connected_ms = self.now_ms
        keep_alive_s = self._attach(session, link, connect)
        connack = Connack(
            older is not None,
            ReasonCode.SUCCESS,
            "" if connect.client_id else client_id,
            -1 if expiry_s == connect.session_expiry_s else expiry_s,
            -1 if keep_alive_s == connect.keep_alive_s else keep_alive_s,
            self._response_information_for(identity, client_id) if connect.request_response_information else "",
        )
        if must_be_durable or older is not None or session.session_id or connect.will is not None:
            self._effects.add(ConnackEffect(session, link, connack))
        else:
            self.open(session, link, connack)

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
            session = older
            session.identity = identity
            session.outbound.set_window(window)
            self._store.append_session_resumed(session.session_id, client_id, expiry_s)
        elif expiry_s > 0:
            saved = self._store.open_session(client_id, identity.user_name, expiry_s)
            session = Session(client_id, saved.session_id, identity, self._new_outbound(saved.queue, window))
        else:
            session = Session(client_id, 0, identity, self._new_outbound(None, window))
        session.session_expiry_s = expiry_s
        return session

    def _attach(self, session: Session, link: Link, connect: Connect) -> int:
        """Give a session its connection; returns the keep alive that it gets."""
        self.sessions[session.client_id] = session
        self.replace_will(session, connect.will)
        session.asked_expiry_s = connect.session_expiry_s
        session.lost_ms = 0
        session.heard_ms = self.now_ms
        keep_alive_s = self._limits.keep_alive_s(connect.keep_alive_s)
        session.keep_alive_ms = 0 if link.supervises_keep_alive else keep_alive_s * 1000
        session.opening = link
        link.session = session
        link.maximum_packet_size = connect.maximum_packet_size
        self._keep_alives.watch(session)
        counters = self._counters
        counters.clients_connected += 1
        counters.clients_maximum = max(counters.clients_maximum, counters.clients_connected)
        return keep_alive_s

    def replace_will(self, session: Session, will: Will | None) -> None:
        """A client has set its will or none: with CONNECT, or later (MQTT-SN)."""
        self.wills.set(session.client_id, session.session_id, session.identity.user_name, session.will, will)
        session.will = will

    def _new_outbound(self, queue: Queue | None, window: int) -> Outbound:
        limits = self._limits
        return Outbound(
            queue,
            window,
            limits.queue_messages_max,
            self._counters,
            limits.queue_bytes_max,
            self._delivery.clock,
            limits.queue_log_bytes_max,
        )

    def _refuse(self, link: Link, reason: ReasonCode, detail: str) -> None:
        """CONNACK with a reason, then the end; nothing after the CONNECT is processed (MQTT-3.1.4-5)."""
        self._counters.refuse_connection(reason)
        link.send(Connack(False, reason))
        link.close(reason, detail)

    def open(self, session: Session, link: Link, connack: Connack) -> None:
        """CONNACK may be sent: the session has its connection, and the client gets what it is owed."""
        if session.opening is not link:
            return  # taken over or lost while CONNACK was pending
        session.opening = None
        session.link = link
        session.connection_changed()
        link.send(connack)
        session.outbound.resume(link)
        self._delivery.dirty[session] = None
        self._wake()
        link.opened()

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
        if packet.reason == ReasonCode.SUCCESS and session.will is not None:
            self.wills.delete(session.client_id)
            session.will = None
        self.lost(session, "disconnected")
        link.close(ReasonCode.SUCCESS, "disconnected")

    def _change_expiry(self, session: Session, expiry_s: int) -> None:
        if session.session_id and expiry_s not in (0, session.session_expiry_s):
            self._store.append_session_expiry(session.session_id, session.client_id, expiry_s)
        session.session_expiry_s = expiry_s

    def lost(self, session: Session, reason: str) -> None:
        """A session's connection has ended: its will is published, and the session ends or waits for its client."""
        link = session.connection()
        assert link is not None
        self._delivery.flow.lost(session)
        link.session = None
        session.link = None
        session.connection_changed()
        session.opening = None
        session.lost_ms = max(1, self.now_ms)
        session.keep_alive_ms = 0
        self._counters.clients_connected -= 1
        will = session.will
        session.will = None
        if will is not None:
            self.wills.schedule(session.client_id, will, session.identity, self.now_ms)
        self._subscriptions.connection_lost(session)
        session.outbound.return_shared()
        session.outbound.drop_read_ahead()
        self.owed.forget(session)
        session.outbound.record_acknowledged()
        sent = session.outbound.newest_sent_ever()
        self._store.append_disconnected(session.client_id, session.session_id, reason, sent)
        if session.session_expiry_s == 0:
            self.end_session(session)
        else:
            # QoS 0 is not part of the session's state; what is owed at QoS 1 and 2 continues when the client is back.
            session.streams.drop_qos_0()
            self._expiries.watch(session)

    def end_session(self, session: Session) -> None:
        """Forget a session and what it was owed."""
        session.has_ended = True
        self._keep_alives.forget(session)
        self._expiries.forget(session)
        del self.sessions[session.client_id]
        self._subscriptions.remove_all(session)
        if session.session_id:
            self._store.end_session(session.session_id, session.client_id)
        self.wills.session_ended(session.client_id)

    # -- time ------------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """End the connections of silent clients, then sessions that have expired, then publish wills that are due."""
        for session in self._keep_alives.expired(now_ms):
            self.end(session, ReasonCode.KEEP_ALIVE_TIMEOUT, "keep-alive time-out", "keep-alive time-out")
        for session in self._expiries.expired(now_ms):
            self._counters.clients_expired += 1
            self.end_session(session)
        self.wills.publish_due(now_ms)

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do at the latest; None while there is no deadline."""
        moments = (self._keep_alives.next_ms(), self._expiries.next_ms(), self.wills.next_deadline_ms())
        return min((moment for moment in moments if moment is not None), default=None)

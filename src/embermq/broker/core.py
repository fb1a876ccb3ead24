"""The core: given packets and instants it decides what is stored, what is sent, who is disconnected.

Owns: the sessions and the doors `connect`, `receive`, `acknowledged`, `lost`, `writable`, `tick`, `end_turn`.
Never: a socket, a thread, a clock, randomness. Bytes go out through links, records through the store.
The unit of work is a turn: the shell hands in all that one pass of its loop has read, then calls `end_turn` once.
"""

from collections.abc import Callable
from typing import Final, final

from embermq.broker.access import Access, Identity
from embermq.broker.counters import Counters
from embermq.broker.deadlines import Deadlines
from embermq.broker.delivery import Outbound
from embermq.broker.effects import Held, HeldAcknowledgement, HeldAnswer, HeldConnack, HeldPacket
from embermq.broker.limits import Limits
from embermq.broker.link import Link
from embermq.broker.publishing import Publishing
from embermq.broker.retained_delivery import RetainedStreams
from embermq.broker.session import Session
from embermq.broker.session_streams import RetainedStream
from embermq.broker.subscribing import Subscribing
from embermq.broker.subscriptions import Subscriptions
from embermq.broker.sys_topics import sys_values
from embermq.protocol.errors import PeerError, ProtocolError
from embermq.protocol.packets import (
    PUBCOMP,
    PUBREL,
    SESSION_NEVER_EXPIRES,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Unsubscribe,
    Will,
)
from embermq.protocol.reasons import ReasonCode
from embermq.store.interface import Queue, Store, StoreError

LAZY_GROUP_BYTES: Final = 256 * 1024
LAZY_GROUP_AGE_MS: Final = 500
"""A group that no effect waits for is committed when it holds this much, or at the first tick after this time."""
SWEEP_MAX: Final = 1_000
"""How many expired retained messages one tick may remove."""


@final
class Core:
    """The broker without its sockets."""

    __slots__ = (
        "counters",
        "_store",
        "_access",
        "_limits",
        "_wake",
        "_bug",
        "_version",
        "_token",
        "_assigned",
        "_sessions",
        "_subscriptions",
        "_held",
        "_committing",
        "_touched",
        "_streams",
        "_publishing",
        "_subscribing",
        "_background_due_ms",
        "_keep_alives",
        "_expiries",
        "_sys",
        "_started_ms",
        "_now_ms",
    )

    def __init__(
        self,
        store: Store,
        access: Access,
        limits: Limits,
        wake: Callable[[], None],
        bug: Callable[[Exception], None],
        version: str,
        token: str,
    ) -> None:
        """`wake` asks the shell for an `end_turn`; `bug` hears of errors that are our own.

        `token` makes assigned client ids unique across restarts.
        """
        self.counters: Final = Counters()
        self._store: Final = store
        self._access: Final = access
        self._limits: Final = limits
        self._wake: Final = wake
        self._bug: Final = bug
        self._version: Final = version
        self._token: Final = token
        self._assigned = 0
        self._sessions: dict[str, Session] = {}
        self._subscriptions: Final = Subscriptions()
        self._held: Final[list[Held]] = []
        self._committing: list[Held] | None = None
        self._touched: dict[Session, None] = {}  # their windows have changed in this turn
        self._streams: Final = RetainedStreams(store, self._held)
        self._publishing: Final = Publishing(
            store, access, limits, self.counters, self._subscriptions, self._streams, self._held
        )
        self._sys: Final[dict[str, Publish]] = {}
        self._subscribing: Final = Subscribing(
            store, access, limits, self.counters, self._subscriptions, self._streams, self._held, self._sys
        )
        self._keep_alives: Final = Deadlines(Session.keep_alive_due_ms)
        self._expiries: Final = Deadlines(_expiry_due_ms)
        self._background_due_ms = 0  # when a group that no effect waits for is old
        self._started_ms = 0
        self._now_ms = 0

    # -- doors -------------------------------------------------------------------------------------------------

    def restore(self, now_ms: int, wall_us: int) -> None:
        """At start: the persistent sessions as the store remembers them, none of them connected."""
        self._started_ms = now_ms
        self._now_ms = now_ms
        for saved in self._store.sessions():
            outbound = self._new_outbound(saved.queue, self._limits.inflight_max)
            session = Session(saved.client_id, saved.session_id, Identity(saved.user_name, saved.client_id), outbound)
            session.session_expiry_s = saved.session_expiry_s
            session.received_ids.update(saved.received_ids)
            outbound.sent_before = saved.sent
            for request, _ in saved.subscriptions:
                self._subscribing.add(session, request)
            for position in saved.positions:
                session.streams.restore(RetainedStream(position))
            if saved.ended_us == 0:
                self._store.append_disconnected(saved.client_id, saved.session_id, "server stopped", saved.sent)
            away_ms = (wall_us - saved.ended_us) // 1000 if saved.ended_us else 0
            session.lost_ms = (now_ms - away_ms) or -1  # before the clock began to count, if the machine is up again
            self._sessions[saved.client_id] = session
            self._expiries.watch(session)

    def connect(self, link: Link, connect: Connect, identity: Identity, protocol: str, address: str) -> None:
        """A client that has proved who it is asks for its session (3.1.4)."""
        if self._store.failing() and connect.session_expiry_s > 0:
            self._refuse(link, ReasonCode.SERVER_UNAVAILABLE, "the store cannot keep a session now")
            return
        client_id = connect.client_id
        if not client_id:
            if not connect.clean_start:
                self._refuse(link, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "empty client id without clean session")
                return
            self._assigned += 1
            client_id = f"auto-{self._token}-{self._assigned}"
        expiry_s = self._limits.session_expiry_s(connect.session_expiry_s)
        older = self._sessions.get(client_id)
        if older is not None and not self._access.may_take_over(identity, older.identity.user_name):
            self._refuse(link, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "the client id belongs to another user")
            return
        durable = False
        if older is not None:
            self._take_over(older)
            older = self._sessions.get(client_id)
            if older is not None and connect.clean_start:
                durable = older.session_id != 0
                self._end_session(older)
                older = None
        window = min(self._limits.inflight_max, connect.receive_maximum)
        self._store.append_connected(client_id, identity.user_name, expiry_s > 0, protocol, address)
        if older is not None:
            session = older
            session.identity = identity
            session.outbound.window = window
            durable = True
            self._store.append_session_resumed(session.session_id, client_id, expiry_s)
        elif expiry_s > 0:
            saved = self._store.open_session(client_id, identity.user_name, expiry_s)
            session = Session(client_id, saved.session_id, identity, self._new_outbound(saved.queue, window))
            durable = True
        else:
            session = Session(client_id, 0, identity, self._new_outbound(None, window))
        self._sessions[client_id] = session
        session.session_expiry_s = expiry_s
        session.will = connect.will
        session.lost_ms = 0
        session.heard_ms = self._now_ms
        keep_alive_s = 0 if link.supervises_keep_alive else self._limits.keep_alive_s(connect.keep_alive_s)
        session.keep_alive_ms = keep_alive_s * 1000
        session.opening = link
        link.session = session
        self._keep_alives.watch(session)
        counters = self.counters
        counters.clients_connected += 1
        counters.clients_maximum = max(counters.clients_maximum, counters.clients_connected)
        connack = Connack(older is not None, ReasonCode.SUCCESS)
        if durable:
            self._held.append(HeldConnack(session, link, connack))
        else:
            self.open(session, link, connack)

    def receive(self, link: Link, packets: list[Packet], now_ms: int) -> None:
        """What one read of a connected client brought."""
        session = link.session
        if session is None:
            return
        self._now_ms = now_ms
        session.heard_ms = now_ms
        self.counters.messages_received += len(packets)
        publishing = self._publishing
        try:
            for packet in packets:
                if isinstance(packet, Publish):
                    publishing.receive(session, link, packet)
                elif isinstance(packet, Puback):
                    self._settled(session, session.outbound.puback(packet.packet_id))
                elif isinstance(packet, Pubrec):
                    self._receive_pubrec(session, link, packet)
                elif isinstance(packet, Pubrel):
                    self._receive_pubrel(session, link, packet)
                elif isinstance(packet, Pubcomp):
                    self._settled(session, session.outbound.pubcomp(packet.packet_id))
                elif isinstance(packet, Subscribe):
                    self._subscribing.subscribe(session, link, packet, self._committing or [])
                elif isinstance(packet, Unsubscribe):
                    self._subscribing.unsubscribe(session, link, packet)
                elif isinstance(packet, Pingreq):
                    if session.held:
                        self._held.append(HeldPacket(link, Pingresp(), session))
                    else:
                        link.send(Pingresp())
                elif isinstance(packet, Disconnect):
                    self._disconnect(session, link, packet)
                    return
                elif isinstance(packet, Connect):
                    raise ProtocolError("a second CONNECT", "MQTT-3.1.0-2")
                else:
                    raise ProtocolError(f"{type(packet).__name__} is not for a server")
        except PeerError as error:
            self.failed(link, error)
        except StoreError as error:
            self._store_failed(session, link, error)

    def acknowledged(self, link: Link, packet_id: int, now_ms: int) -> bool:
        """A PUBACK alone, as a subscriber sends them: done, if nothing follows from it, and then it needs no turn.

        False: nothing was done, it is to be received like any other packet.
        """
        session = link.session
        if session is None:
            return False
        outbound = session.outbound
        if outbound.waits() or session.streams.flow() or not outbound.puback(packet_id):
            return False
        session.heard_ms = now_ms
        self.counters.messages_received += 1
        return True

    def _store_failed(self, session: Session, link: Link, error: StoreError) -> None:
        """The store cannot take or give something: no answer, so that the client keeps what is its own, and the end."""
        self.counters.store_refusals += 1
        self._end_connection(session, True, str(error))
        link.close(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, str(error))

    def failed(self, link: Link, error: PeerError) -> None:
        """A client broke a rule: it is disconnected, its will is published, nobody else is harmed."""
        self.counters.protocol_errors += 1
        if link.session is not None:
            self._end_connection(link.session, True, str(error))
        link.close(error.reason, str(error))

    def lost(self, link: Link, reason: str, now_ms: int) -> None:
        """A connection has ended without DISCONNECT."""
        self._now_ms = now_ms
        if link.session is not None:
            self._end_connection(link.session, True, reason)

    def writable(self, link: Link) -> None:
        """A client that read too slowly has caught up."""
        session = link.session
        if session is not None and session.link is link:
            self._touched[session] = None

    def stream_retained(self, session: Session) -> None:
        """SUBACK has left: the retained messages follow."""
        self._subscribing.stream_retained(session)

    def publish_unconnected(self, message: Publish, identity: Identity) -> int | None:
        """A message of a client without a session (MQTT-SN's QoS -1), or of the operator.

        Returns the reason if it was not taken, else None.
        """
        return self._publishing.take_unconnected(message, identity)

    def when_durable(self, answer: Callable[[], None]) -> None:
        """Have `answer` called once all that was published so far is durable."""
        self._held.append(HeldAnswer(answer))

    def tick(self, now_ms: int, now_us: int) -> None:
        """Time has passed: keep-alives, expiries, what nobody waited for."""
        self._now_ms = now_ms
        for session in self._keep_alives.expired(now_ms):
            link = session.link if session.link is not None else session.opening
            if link is not None:
                self._end_connection(session, True, "keep-alive time-out")
                link.close(ReasonCode.KEEP_ALIVE_TIMEOUT, "keep-alive time-out")
        for session in self._expiries.expired(now_ms):
            self.counters.clients_expired += 1
            self._end_session(session)
        if not self._store.failing():
            for topic_name in self._store.retained_expired(now_us, SWEEP_MAX):
                self._store.append_retained_removed(topic_name, "expired")
        if self._held or self._store.group_bytes() > 0:
            self._commit()
        if now_ms >= self._background_due_ms:
            self._background_due_ms = now_ms + LAZY_GROUP_AGE_MS
            self._store.commit_in_background()

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do at the latest, as far as timers are concerned."""
        deadlines = [due for due in (self._keep_alives.next_ms(), self._expiries.next_ms()) if due is not None]
        return min(deadlines, default=None)

    def end_turn(self) -> bool:
        """All packets of this turn are in: commit, send what windows allow. True: another turn has work already."""
        if self._held:
            self._commit()
        if self._store.group_bytes() > LAZY_GROUP_BYTES:
            self._commit()
            self._store.commit_in_background()
        touched = self._touched
        if touched:
            self._touched = {}
            for session in touched:
                session.outbound.settle()
                if session.link is not None:
                    self._pump(session, session.link)
        if self._streams.send_pieces():
            return True
        return bool(self._held) and self._committing is None

    def _pump(self, session: Session, link: Link) -> None:
        """Send one client what it is owed. What the store cannot give costs this client its connection, nobody else."""
        try:
            session.outbound.pump(link)
        except StoreError as error:
            self._store_failed(session, link, error)
        else:
            self._streams.ready(session)

    def report(self) -> None:
        """Publish `$SYS`: what has changed goes to its subscribers, all of it is there for new ones."""
        values = sys_values(
            self.counters,
            version=self._version,
            uptime_s=(self._now_ms - self._started_ms) // 1000,
            sessions=len(self._sessions),
            subscriptions=self._subscriptions.count,
            retained=self._store.retained_totals(),
            store_state=self._store.failing() or "ok",
        )
        for topic_name, value in values.items():
            payload = value.encode()
            before = self._sys.get(topic_name)
            if before is None or before.payload != payload:
                message = Publish(topic_name, payload, 0, True)
                self._sys[topic_name] = message
                self._publishing.fan_out(message, self._subscriptions.matching(topic_name), None)

    def sessions(self) -> list[Session]:
        """Every session, for those who look from outside."""
        return list(self._sessions.values())

    def stop(self, reason: str) -> None:
        """The server is shutting down: end every connection as if the network had failed."""
        for session in list(self._sessions.values()):
            link = session.link if session.link is not None else session.opening
            if link is not None:
                self._end_connection(session, True, reason)
                link.close(ReasonCode.SERVER_SHUTTING_DOWN, reason)

    # -- commit ------------------------------------------------------------------------------------------------

    def _commit(self) -> None:
        while self._committing is None:
            held = self._held[:]
            self._held.clear()
            if not self._store.commit(self._durable):
                self._committing = held
                return
            self._release(held)
            if not self._held:
                return

    def _durable(self, error: StoreError | None) -> None:
        """The store's answer to `commit`. After an error it goes on trying: the effects stay held."""
        if error is not None:
            return
        held = self._committing
        self._committing = None
        if held:
            self._release(held)
        self._wake()

    def _release(self, held: list[Held]) -> None:
        for effect in held:
            try:
                effect.release(self, self._publishing)
            except Exception as error:  # a bug of ours in one effect must not swallow the promises behind it
                self._bug(error)

    # -- connections and sessions --------------------------------------------------------------------------------

    def _new_outbound(self, queue: Queue | None, window: int) -> Outbound:
        limits = self._limits
        return Outbound(queue, window, limits.queue_messages_max, self.counters, limits.queue_bytes_max)

    def _refuse(self, link: Link, reason: ReasonCode, detail: str) -> None:
        """CONNACK with a reason, then the end; nothing after the CONNECT is looked at (MQTT-3.1.4-5)."""
        self.counters.connections_refused += 1
        link.send(Connack(False, reason))
        link.close(reason, detail)

    def open(self, session: Session, link: Link, connack: Connack) -> None:
        """CONNACK may leave: the session has its connection, and what it is owed begins to flow."""
        if session.opening is not link:
            return  # taken over or lost while it waited
        session.opening = None
        session.link = link
        link.send(connack)
        session.outbound.resume(link)
        self._touched[session] = None
        self._wake()
        link.opened()

    def _take_over(self, session: Session) -> None:
        """MQTT-3.1.4-2: a client id has one connection; the older one ends as if the network had failed."""
        link = session.link if session.link is not None else session.opening
        if link is not None:
            self._end_connection(session, True, "session taken over")
            link.close(ReasonCode.SESSION_TAKEN_OVER, "another connection with this client id")

    def _disconnect(self, session: Session, link: Link, packet: Disconnect) -> None:
        if packet.session_expiry_s >= 0:
            session.session_expiry_s = self._limits.session_expiry_s(packet.session_expiry_s)
        self._end_connection(session, packet.reason == ReasonCode.DISCONNECT_WITH_WILL, "disconnected")
        link.close(ReasonCode.SUCCESS, "disconnected")

    def _end_connection(self, session: Session, publish_will: bool, reason: str) -> None:
        link = session.link if session.link is not None else session.opening
        assert link is not None
        link.session = None
        session.link = None
        session.opening = None
        session.lost_ms = max(1, self._now_ms)
        session.keep_alive_ms = 0
        self.counters.clients_connected -= 1
        will = session.will
        session.will = None
        if will is not None and publish_will:
            self._publish_will(will, session.identity)
        session.outbound.settle()
        sent = session.outbound.newest_sent_ever()
        self._store.append_disconnected(session.client_id, session.session_id, reason, sent)
        if session.session_expiry_s == 0:
            self._end_session(session)
        else:
            # QoS 0 is not part of the session's state; what is owed at QoS 1 and 2 goes on when the client is back.
            session.streams.drop_unacknowledged()
            self._expiries.watch(session)

    def _publish_will(self, will: Will, identity: Identity) -> None:
        message = Publish(will.topic_name, will.payload, will.qos, will.retain, False, 0, will.properties)
        try:
            self.publish_unconnected(message, identity)
        except StoreError:
            # Nobody is left to hold it for us; a will that must last cannot be kept on a failing disk.
            self.counters.store_refusals += 1

    def _end_session(self, session: Session) -> None:
        session.ended = True
        self._keep_alives.forget(session)
        self._expiries.forget(session)
        del self._sessions[session.client_id]
        for topic_filter in session.subscriptions:
            self._subscriptions.remove(session, topic_filter)
        session.subscriptions.clear()
        if session.session_id:
            self._store.end_session(session.session_id, session.client_id)

    # -- QoS 1 and 2, acknowledgements -----------------------------------------------------------------------------

    def _settled(self, session: Session, known: bool) -> None:
        if known:
            if session.outbound.waits() or session.streams.flow():
                self._touched[session] = None
        else:
            self.counters.acks_unknown += 1

    def _receive_pubrec(self, session: Session, link: Link, packet: Pubrec) -> None:
        if packet.reason >= ReasonCode.UNSPECIFIED_ERROR:
            # The receiver refused it (MQTT 5, SN): the exchange is over, the id is free.
            session.outbound.pubrec(packet.packet_id)
            self._settled(session, session.outbound.pubcomp(packet.packet_id))
        elif session.outbound.pubrec(packet.packet_id):
            self._held.append(HeldAcknowledgement(link, PUBREL, packet.packet_id))
        else:
            self.counters.acks_unknown += 1

    def _receive_pubrel(self, session: Session, link: Link, packet: Pubrel) -> None:
        """An id that is not known is confirmed all the same: the sender wants to be rid of it."""
        if packet.packet_id in session.received_ids:
            session.received_ids.discard(packet.packet_id)
            if session.session_id:
                self._store.append_pubrel(session.session_id, session.client_id, packet.packet_id)
        self._held.append(HeldAcknowledgement(link, PUBCOMP, packet.packet_id))


def _expiry_due_ms(session: Session) -> int:
    """When a session without a connection ends; 0 for never, or while it is connected."""
    if session.ended or session.lost_ms == 0 or session.session_expiry_s == SESSION_NEVER_EXPIRES:
        return 0
    return max(1, session.lost_ms + session.session_expiry_s * 1000)

"""The core: given packets and instants it decides what is stored, what is sent, and which connections end.

Owns: the methods that shells call, and the turn.
Never: a socket, a thread, a clock, randomness. Bytes go out through links, records through the store.

The unit of work is a turn: the shell hands in all that one pass of its loop has read (`connect`, `receive`, `lost`,
`writable`, ...), then calls `end_turn` once. What the packets mean is decided by the parts: `connections`,
`subscriptions`, `delivery`, `retained_delivery`, `admission`; what waits for a commit is in `effects`.
"""

from collections.abc import Callable, Collection
from typing import Final, final

from embermq.broker.access import OPERATOR, Access, Grant, Identity
from embermq.broker.admission import Admission, Refusal, ignore_refusal
from embermq.broker.applied import AppliedRecords
from embermq.broker.connections import ClientWatch, Connections
from embermq.broker.context import Context
from embermq.broker.counters import SysTopics, sys_values
from embermq.broker.delivery import RUN_MESSAGES_MAX, MessageDelivery
from embermq.broker.effects import CallEffect, Effects, PacketEffect
from embermq.broker.flow import ignore_long_queue
from embermq.broker.history.delivery import HistoryDelivery
from embermq.broker.limits import Limits
from embermq.broker.link import Link
from embermq.broker.outbound import DROPS_AT_ONCE, Outbound
from embermq.broker.retained_delivery import COMPARISONS_MAX, RetainedDelivery
from embermq.broker.routes import Route
from embermq.broker.session import ClientLink, Session, Subscription
from embermq.broker.shared import ShareGroup, Shares
from embermq.broker.subscriptions import Subscriptions
from embermq.protocol.errors import PeerError, ProtocolError
from embermq.protocol.packets import (
    Acknowledgement,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    RefusedPublish,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
    Will,
)
from embermq.protocol.reasons import ReasonCode
from embermq.store.interface import Store, StoreError
from embermq.store.records import Record, RetainedRemoved

LAZY_GROUP_BYTES: Final = 256 * 1024
LAZY_GROUP_AGE_MS: Final = 500
"""A group that no effect waits for is committed when it holds this much, or at the first tick after this time."""
DROPS_A_TURN: Final = 4_096
"""How many queued messages one turn drops for all clients together; further ones in the next turns."""
EXPIRED_MAX: Final = 1_000
"""How many expired retained messages one tick may remove."""


def count_of(packets: list[Packet]) -> int:
    """How many control packets these are on the wire."""
    count = len(packets)
    for packet in packets:
        if isinstance(packet, Acknowledgement):
            count += packet.count - 1
    return count


@final
class Core:
    """The broker without its sockets."""

    def __init__(
        self,
        store: Store,
        access: Access,
        limits: Limits,
        wake: Callable[[], None],
        bug: Callable[[Exception], None],
        version: str,
        token: str,
        *,
        report_refusal: Callable[[Refusal], None] = ignore_refusal,
        report_long_queue: Callable[[str], None] = ignore_long_queue,
        wake_in_us: Callable[[int, Callable[[], None]], None] | None = None,
        run_max: int = RUN_MESSAGES_MAX,
        comparisons_max: int = COMPARISONS_MAX,
        response_information: Grant | None = None,
    ) -> None:
        """`wake` asks the shell for an `end_turn`; `wake_in_us` calls a function after a time; `bug` is called with
        errors that no peer can cause; `report_refusal` with refused packets; `report_long_queue` with the client id
        of a session that keeps almost as much of the log as it may. `token` makes assigned client identifiers unique
        across restarts. `run_max`: how many messages of a client are taken together. `response_information`: what a
        client that asks for Response Information is told (MQTT 5).
        """
        context = Context(store, access, limits, wake)
        self.counters: Final = context.counters
        self._store: Final = store
        self._limits: Final = limits
        self._wake: Final = wake
        self._clock: Final = context.clock
        self._routes: Final = context.routes
        self._version: Final = version
        self._run_max: Final = run_max
        self._started_ms = 0
        self._background_due_ms = 0  # when a group that no effect waits for is old
        self._sys_topics: Final = SysTopics()
        effects = Effects(context, bug, wake_in_us)
        self.effects: Final = effects
        self._shares: Final = Shares(context, effects)
        admission = Admission(context, report_refusal)
        self.admission: Final = admission
        self.retained: Final = RetainedDelivery(context, effects, comparisons_max)
        delivery = MessageDelivery(context, admission, effects, self.retained, report_long_queue)
        self.delivery: Final = delivery
        self.history: Final = HistoryDelivery(context, admission, effects, self.end_connection)
        self.subscriptions: Final = Subscriptions(
            context, admission, self._shares, delivery, self.history, effects, self._sys_topics
        )
        self.connections: Final = Connections(
            context, effects, delivery, self.subscriptions, token, response_information
        )
        self._applied: Final = AppliedRecords(store, self.connections, self.subscriptions, self._shares)

    # -- a client ----------------------------------------------------------------------------------------------------

    def connect(self, link: ClientLink, connect: Connect, identity: Identity, protocol: str, address: str) -> None:
        """A client that was authenticated asks for its session."""
        self.connections.connect(link, connect, identity, protocol, address)

    def receive(self, link: ClientLink, packets: list[Packet], now_ms: int) -> None:
        """What one read of a connected client brought."""
        session = link.session
        if session is None:
            return
        self._clock.move(now_ms)
        session.heard(now_ms)
        self.counters.messages_received += count_of(packets)
        flow = self.delivery.flow
        if flow.held and session in flow.held:
            packets = flow.add(session, packets)
        self._process(session, link, packets, link.can_be_held_back)

    def _process(self, session: Session, link: ClientLink, packets: list[Packet], may_wait: bool) -> None:
        """`may_wait`: a PUBLISH to a client whose queue is full waits until it has drained."""
        delivery = self.delivery
        flow = delivery.flow
        congested = flow.congested
        try:
            position, count = 0, len(packets)
            while position < count:
                packet = packets[position]
                position += 1
                if isinstance(packet, Publish):
                    run_max = self._run_max
                    if packet.qos:
                        is_filling = session.outbound.is_filling()
                        if congested and may_wait and self._hold_back(session, link, packets, packet, position):
                            return
                        if is_filling:
                            flow.count_own(session, packet, self._route(packet))
                        if congested or is_filling:
                            run_max = 1  # each message is counted
                    position += delivery.receive(session, link, packet, packets, position, run_max) - 1
                elif isinstance(packet, Acknowledgement):
                    delivery.acknowledge(session, link, packet)
                elif isinstance(packet, Subscribe):
                    self.subscriptions.subscribe(session, link, packet)
                elif isinstance(packet, Unsubscribe):
                    self.subscriptions.unsubscribe(session, link, packet)
                elif isinstance(packet, Pingreq):
                    self._answer_ping(session, link)
                elif isinstance(packet, Disconnect):
                    self.connections.disconnect(session, link, packet)
                    return
                elif isinstance(packet, RefusedPublish):
                    delivery.refuse(session, link, packet)
                elif isinstance(packet, Connect):
                    raise ProtocolError("a second CONNECT", "MQTT-3.1.0-2")
                else:
                    raise ProtocolError(f"{type(packet).__name__} is not for a server")
        except PeerError as error:
            self.failed(link, error)
        except StoreError as trouble:  # not `error`: a name in compiled code has one type
            self._store_failed(session, trouble)

    def _hold_back(
        self, session: Session, link: ClientLink, packets: list[Packet], message: Publish, position: int
    ) -> bool:
        """Let a publisher wait, from the message on that is before `position`, if a receiver of it is congested."""
        flow = self.delivery.flow
        congestion = flow.blocking(session, message, self._route(message))
        if congestion is None:
            return False
        at_once = flow.defer(session, congestion, link, packets[position - 1 :])
        self._process(session, link, at_once, False)
        return True

    def _route(self, message: Publish) -> Route:
        """Who gets a message, which may not be admitted yet."""
        route = self.admission.admitted.get(message.topic_name)
        return self._routes.route(message.topic_name) if route is None else route

    def _process_deferred(self) -> None:
        """The publishers that no longer wait for a receiver go on."""
        flow = self.delivery.flow
        for deferred in flow.take_ready():
            packets = flow.take(deferred)
            if packets and deferred.publisher.link is deferred.link:
                self._process(deferred.publisher, deferred.link, packets, deferred.may_wait)

    def _process_last(self, link: ClientLink) -> None:
        """A connection has ended: process what its client had sent before, and what waits."""
        session = link.session
        if session is not None:
            packets = self.delivery.flow.lost(session)
            if packets and session.link is link:
                self._process(session, link, packets, False)

    def acknowledged(self, link: ClientLink, packet_id: int, now_ms: int) -> bool:
        """A PUBACK that came alone. True: it is done, and no turn is needed; False: hand it to `receive`."""
        session = link.session
        if session is None or not self.delivery.puback_alone(session, packet_id):
            return False
        self.counters.messages_received += 1
        self._clock.move(now_ms)
        session.heard(now_ms)
        return True

    def failed(self, link: ClientLink, error: PeerError) -> None:
        """A client broke a rule of the protocol: its connection ends, no other client is affected."""
        self.counters.protocol_errors += 1
        self._process_last(link)
        if link.session is not None:
            self.connections.lost(link.session, str(error))
        link.close(error.reason, str(error))

    def lost(self, link: ClientLink, reason: str, now_ms: int) -> None:
        """A connection has ended without DISCONNECT."""
        self._clock.move(now_ms)
        self._process_last(link)
        if link.session is not None:
            self.connections.lost(link.session, reason)

    def writable(self, link: ClientLink) -> None:
        """A client that read too slowly has caught up."""
        session = link.session
        if session is not None and session.link is link:
            self.delivery.dirty[session] = None

    # -- a client that may sleep (MQTT-SN) ---------------------------------------------------------------------------

    def owed(self, link: ClientLink) -> int:
        """How many messages the client of a link is still to get."""
        return 0 if link.session is None else link.session.owed()

    def replace_will(self, link: ClientLink, will: Will | None) -> None:
        """A connected client has changed its will."""
        if link.session is not None:
            self.connections.replace_will(link.session, will)

    # -- messages without a session ----------------------------------------------------------------------------------

    def publish_sessionless(self, message: Publish, identity: Identity, client_id: str = "") -> int | None:
        """A message of PUBWOS or QoS -1 of MQTT-SN, or of the operator. Returns why it was refused, else None.

        `client_id`: what the log has as its sender, if not that of the identity.
        """
        return self.delivery.take_sessionless(message, identity, client_id=client_id)

    def publish_own(self, message: Publish, client_id: str) -> None:
        """A message of the server's own to a topic below `$SYS`, which others cannot publish to. It is recorded."""
        self.delivery.take_own(message, self._routes.route(message.topic_name), client_id)

    def when_durable(self, call: Callable[[], None]) -> None:
        """Have `call` called once everything that was published so far is durable."""
        self.effects.add(CallEffect(call))

    # -- the server --------------------------------------------------------------------------------------------------

    def start(self, now_ms: int, wall_us: int) -> None:
        """Count time from now on."""
        self._started_ms = now_ms
        self._clock.set(now_ms, wall_us)

    def restore(self, now_ms: int, wall_us: int) -> None:
        """Before the first client: the persistent sessions as the store remembers them."""
        self._clock.set(now_ms, wall_us)
        self._shares.restore()
        self.connections.restore()
        self._shares.restored()

    def add_counts(self, counts: Callable[[], dict[str, int]]) -> None:
        """Publish more numbers below `$SYS/broker/`, by name."""
        self.counters.others.append(counts)

    def watch_clients(self, watch: ClientWatch) -> None:
        """At start: tell of clients that come and go."""
        self.connections.watch(watch)

    def bound_queues(self, bytes_max: int) -> None:
        """At start: how much all clients together may be owed in memory."""
        self.connections.owed.bound_by(bytes_max)

    def is_owed_due(self) -> bool:
        """Whether enough was sent for that bound to be reached: call `relieve_queues`. Asked in every turn."""
        return self.connections.owed.is_due()

    def has_throttled(self) -> bool:
        """Whether a client is throttled because of it: call `relieve_queues` in every tick."""
        return self.connections.owed.has_throttled()

    def relieve_queues(self, unsent_bytes: int, now_ms: int) -> None:
        """If all clients together are owed too much: those that hold most get no more, then their connections end.

        `unsent_bytes`: the output that clients share, each part counted once.
        """
        reason = "limits.all_queue_bytes_max is reached, and this client holds most"
        for session in self.connections.owed.look(self.sessions(), unsent_bytes, now_ms):
            self.end_connection(session, ReasonCode.QUOTA_EXCEEDED, reason)

    def access_changed(self, revoked: Collection[str]) -> None:
        """The access rules answer otherwise from now on: it is for the subscriptions that there are, too.

        The connections of `revoked` end: users that are gone or have another password.
        """
        self.admission.forget_routes()
        reason = "the user is gone or has another password"
        for session in self.sessions() if revoked else ():
            if session.identity.user_name in revoked:
                self.connections.end(session, ReasonCode.NOT_AUTHORIZED, reason, reason)

    def refuse_subscriptions(self, is_memory_full: bool) -> None:
        """Refuse new subscriptions since the memory is full, or accept them again."""
        self.admission.refuse_subscriptions(is_memory_full)

    def end_connection(self, session: Session, reason: ReasonCode, detail: str) -> None:
        """A bound of the server is reached: end a client's connection."""
        self.connections.end(session, reason, detail, detail)

    def heard(self, link: ClientLink, now_ms: int) -> None:
        """The client of a link has sent something that is not read yet."""
        if link.session is not None:
            link.session.heard(now_ms)

    def gather_for(self, gather_us: int) -> None:
        """From now on a small group waits for more records, for this long; 0: it does not."""
        self.effects.gather_for(gather_us)

    def may_rest(self) -> bool:
        """Whether packets that come now may wait a little: a group gathers, which most of them will be a part of."""
        return self.effects.may_rest()

    def apply(self, record: Record) -> None:
        """A record that another core has written: this core and its store follow it (`broker.applied`)."""
        self._applied.apply(record)

    # -- the operator ------------------------------------------------------------------------------------------------

    def add_reader(self, link: Link, topic_filter: str) -> Session:
        """Subscribe a link without a client, at QoS 0 and with the rights of the operator, until `remove_reader`."""
        session = Session("$tail", 0, OPERATOR, Outbound(None, 1, self._limits, self.counters, self._clock))
        session.open(link)
        self.subscriptions.add(session, SubscriptionRequest(topic_filter, 0))
        return session

    def remove_reader(self, session: Session) -> None:
        """Such a link gets no more messages."""
        self.subscriptions.remove_all(session)
        session.end()

    def disconnect(self, session: Session) -> None:
        """The operator ends a client's connection; its will is published, and a persistent session stays."""
        reason = "disconnected by the operator"
        self.connections.end(session, ReasonCode.ADMINISTRATIVE_ACTION, reason, reason)

    def end_session(self, session: Session) -> None:
        """The operator ends a session, and the connection of its client."""
        self.disconnect(session)
        if not session.has_ended:
            self.connections.end_session(session)

    def subscription_count(self) -> int:
        """How many subscriptions there are; each member of a share group has one."""
        return self._routes.count

    def subscriptions_of(self, session: Session) -> list[Subscription]:
        """The subscriptions of a session, also those to history, as a new list."""
        history = [stream.subscription for stream in self.history.streams_of(session)]
        return [*session.subscriptions.values(), *history]

    def share_groups(self) -> list[ShareGroup]:
        """All share groups, as a new list."""
        return self._shares.groups()

    def uptime_ms(self, now_ms: int) -> int:
        """How long ago the server was started."""
        return now_ms - self._started_ms

    def session(self, client_id: str) -> Session | None:
        """The session of a client, connected or not."""
        return self.connections.sessions.get(client_id)

    def session_count(self) -> int:
        """How many sessions there are, of connected clients and of others."""
        return len(self.connections.sessions)

    def sessions(self) -> list[Session]:
        """All sessions, as a new list."""
        return list(self.connections.sessions.values())

    def report(self) -> None:
        """Publish `$SYS`: subscribers get what has changed, new ones get all of it."""
        for message in self._sys_topics.update(self._sys_values()):
            route = self._routes.route(message.topic_name)
            self.delivery.fan_out([message], route.receivers, "")
            for group in route.groups:
                group.offer(message, 0)

    def _sys_values(self) -> dict[str, str]:
        return sys_values(
            self.counters,
            version=self._version,
            uptime_s=(self._clock.now_ms - self._started_ms) // 1000,
            sessions=len(self.connections.sessions),
            subscriptions=self._routes.count,
            share_groups=len(self._shares.groups()),
            wills_pending=self.connections.wills.pending_count(),
            retained=self._store.retained.totals(),
            store_state=self._store.failing() or "ok",
            store_counts=self._store.counts(),
        )

    def counter_values(self) -> dict[str, int]:
        """The numbers among the `$SYS` topics, by their name below `$SYS/broker/`."""
        return {
            name.removeprefix("$SYS/broker/"): int(value)
            for name, value in self._sys_values().items()
            if value.isdigit()
        }

    def stop(self, reason: str) -> None:
        """The server is shutting down: end every connection as if the network had failed."""
        for session in self.sessions():
            self.connections.end(session, ReasonCode.SERVER_SHUTTING_DOWN, reason, reason)

    # -- the turn ----------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int, now_us: int) -> None:
        """Time has passed: deadlines, expired retained messages, and the group that no effect waits for."""
        self._clock.set(now_ms, now_us)
        self.delivery.flow.tick()
        self.retained.tick(now_ms)
        self.connections.tick()
        if not self._store.failing():
            for topic_name in self._store.retained.expired(now_us, EXPIRED_MAX):
                self._store.append(RetainedRemoved(topic_name, "expired"))
        if self.effects.pending or self._store.group_bytes() > 0:
            self.effects.commit()
        if now_ms >= self._background_due_ms:
            self._background_due_ms = now_ms + LAZY_GROUP_AGE_MS
            self._store.commit_in_background(self._wake)

    def next_deadline_ms(self) -> int | None:
        """The next deadline of a client, a session or a will; None while there is none."""
        return self.connections.next_deadline_ms()

    def end_turn(self) -> bool:
        """All packets of this turn are in: commit, send what windows allow. True: the next turn has work already."""
        if self.effects.must_release():
            self.effects.release_more()
        if self.effects.pending:
            self.effects.commit_or_gather()
        if self._store.group_bytes() > LAZY_GROUP_BYTES:
            self.effects.commit()
            self._store.commit_in_background(self._wake)
        is_pumping = self._pump_dirty() if self.delivery.dirty else False
        if self._shares.dirty:
            is_pumping = self._shares.pump() or is_pumping
        flow = self.delivery.flow
        if flow.rising:
            flow.end_turn()
        is_ending = self.subscriptions.remove_more()
        is_ending = self._shares.discarded.free_more() or is_ending
        has_more = self.history.send_pieces()
        has_more = self.retained.send_pieces() or has_more
        if flow.ready:  # as if they came now, for the next turn
            self._process_deferred()
            return True
        return has_more or is_ending or is_pumping or self.effects.may_proceed()

    def is_behind(self) -> bool:
        """Whether so much waits to be released that clients which bring much should wait."""
        return self.effects.are_many()

    def _pump_dirty(self) -> bool:
        """Send to the clients whose window or link has changed. True: the next turn sends more to some of them."""
        delivery = self.delivery
        dirty = delivery.take_dirty()
        drops_left = DROPS_A_TURN
        unfinished: list[Session] = []  # behind those that were not reached
        for session in dirty:
            outbound = session.outbound
            outbound.record_acknowledged()
            if session.link is not None:
                if drops_left <= 0:
                    delivery.dirty[session] = None
                    continue
                drops = self._pump(session, session.link)
                drops_left -= drops
                if drops >= DROPS_AT_ONCE:
                    unfinished.append(session)
                self._shares.session_changed(session)
            if outbound.is_watched() and outbound.is_below_low_water():
                delivery.flow.drained(session)
        for session in unfinished:
            delivery.dirty[session] = None
        return drops_left <= 0 or bool(unfinished)

    def _pump(self, session: Session, link: Link) -> int:
        """Send one client what it is owed. If the store cannot read it, only this client's connection ends.

        Returns how many messages were dropped instead.
        """
        drops = 0
        try:
            drops = session.outbound.pump(link)
        except StoreError as error:
            self._store_failed(session, error)
        else:
            self.retained.resume(session)
            self.history.resume(session)
        return drops

    def _answer_ping(self, session: Session, link: Link) -> None:
        if session.pending:
            self.effects.add(PacketEffect(session, link, Pingresp()))
        else:
            link.send(Pingresp())

    def _store_failed(self, session: Session, error: StoreError) -> None:
        """The store cannot write or read: end the connection without an answer, so the client keeps its message."""
        self.counters.store_refusals += 1
        self.connections.end(session, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, str(error), str(error))

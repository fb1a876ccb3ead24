"""The core: given packets and instants it decides what is stored, what is sent, and which connections end.

Owns: the methods that shells call, and the turn.
Never: a socket, a thread, a clock, randomness. Bytes go out through links, records through the store.

The unit of work is a turn: the shell hands in all that one pass of its loop has read (`connect`, `receive`, `lost`,
`writable`, ...), then calls `end_turn` once. What the packets mean is decided by the parts: `connections`,
`subscriptions`, `delivery`, `retained_delivery`, `admission`; what waits for a commit is in `effects`.
"""

from collections.abc import Callable
from typing import Final, final

from embermq.broker.access import Access, Grant, Identity
from embermq.broker.admission import Admission, Refusal, ignore_refusal
from embermq.broker.connections import Connections
from embermq.broker.counters import Counters, SysTopics, sys_values
from embermq.broker.delivery import MessageDelivery
from embermq.broker.effects import CallEffect, Effects, PacketEffect
from embermq.broker.history.delivery import HistoryDelivery
from embermq.broker.limits import Limits
from embermq.broker.link import Link
from embermq.broker.queues.clock import Clock
from embermq.broker.queues.flow import ignore_long_queue
from embermq.broker.queues.outbound import DROPS_AT_ONCE
from embermq.broker.queues.shared import ShareGroup, Shares
from embermq.broker.retained_delivery import COMPARISONS_MAX, RetainedDelivery
from embermq.broker.routes import Route, Routes
from embermq.broker.session import Session
from embermq.broker.shortcuts import Shortcuts
from embermq.broker.subscriptions import Subscriptions
from embermq.protocol.acknowledgements import Acknowledgements
from embermq.protocol.errors import PeerError, ProtocolError
from embermq.protocol.packets import (
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
from embermq.protocol.refused_publish import RefusedPublish
from embermq.store.interface import Store, StoreError

LAZY_GROUP_BYTES: Final = 256 * 1024
LAZY_GROUP_AGE_MS: Final = 500
"""A group that no effect waits for is committed when it holds this much, or at the first tick after this time."""
DROPS_A_TURN: Final = 4_096
"""How many queued messages one turn drops for all clients together; further ones in the next turns."""
EXPIRED_MAX: Final = 1_000
"""How many expired retained messages one tick may remove."""


@final
class Core:
    """The broker without its sockets."""

    __slots__ = (
        "admission",
        "counters",
        "connections",
        "delivery",
        "effects",
        "history",
        "retained",
        "subscriptions",
        "_store",
        "_version",
        "_started_ms",
        "_routes",
        "_clock",
        "_ahead_us",
        "_shares",
        "_shortcuts",
        "_sys_topics",
        "_background_due_ms",
        "_wake",
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
        *,
        report_refusal: Callable[[Refusal], None] = ignore_refusal,
        report_long_queue: Callable[[str], None] = ignore_long_queue,
        wake_in_us: Callable[[int, Callable[[], None]], None] | None = None,
        shortcuts: bool = True,
        comparisons_max: int = COMPARISONS_MAX,
        response_information: Grant | None = None,
    ) -> None:
        """`wake` asks the shell for an `end_turn`; `wake_in_us` calls a function after a time; `bug` is called with
        errors that no peer can cause; `report_refusal` with refused packets; `report_long_queue` with the client id
        of a session that keeps almost as much of the log as it may. `token` makes assigned client identifiers unique
        across restarts. `response_information`: what a client that asks for Response Information is told (MQTT 5).
        """
        counters = Counters()
        self.counters: Final = counters
        self._store: Final = store
        self._version: Final = version
        self._wake: Final = wake
        self._started_ms = 0
        self._background_due_ms = 0  # when a group that no effect waits for is old
        self._sys_topics: Final = SysTopics()
        self._routes: Final = Routes()
        self._clock: Final = Clock()
        self._ahead_us = 0
        effects = Effects(self, store, wake, bug, wake_in_us)
        self.effects: Final = effects
        self._shares: Final = Shares(store, effects, counters, self._routes, self._clock, limits)
        admission = Admission(store, access, limits, counters, self._routes, report_refusal)
        self.admission: Final = admission
        self.retained: Final = RetainedDelivery(store, effects, shortcuts, comparisons_max)
        delivery = MessageDelivery(
            store, access, admission, counters, effects, self.retained, self._clock, shortcuts, report_long_queue
        )
        self.delivery: Final = delivery
        self.history: Final = HistoryDelivery(
            store, access, admission, limits, counters, effects, self._routes, wake, shortcuts
        )
        self.subscriptions: Final = Subscriptions(
            store, admission, self._routes, self._shares, self.retained, self.history, effects, self._sys_topics, limits
        )
        self.connections: Final = Connections(
            store, access, limits, counters, effects, delivery, self.subscriptions, wake, token, response_information
        )
        self.history.connections = self.connections
        self._shortcuts: Final = Shortcuts(store, access, admission, effects, delivery, counters) if shortcuts else None

    # -- a client ----------------------------------------------------------------------------------------------------

    def connect(self, link: Link, connect: Connect, identity: Identity, protocol: str, address: str) -> None:
        """A client that was authenticated asks for its session."""
        self.connections.connect(link, connect, identity, protocol, address)

    def receive(self, link: Link, packets: list[Packet], now_ms: int) -> None:
        """What one read of a connected client brought."""
        session = link.session
        if session is None:
            return
        self.connections.now_ms = session.heard_ms = now_ms
        self.counters.messages_received += len(packets)
        flow = self.delivery.flow
        if flow.held and session in flow.held:
            packets = flow.add(session, packets)
        self._process(session, link, packets, link.can_be_held_back, self._shortcuts)

    def _process(
        self, session: Session, link: Link, packets: list[Packet], may_wait: bool, shortcuts: Shortcuts | None
    ) -> None:
        """`may_wait`: a PUBLISH to a client whose queue is full waits until it has drained."""
        delivery = self.delivery
        flow = delivery.flow
        congested = flow.congested
        try:
            after, count = 0, len(packets)
            while after < count:
                packet = packets[after]
                after += 1
                if isinstance(packet, Publish):
                    is_counted = False  # then the next ones have to be counted too, so that it is not part of a run
                    if packet.qos:
                        if congested and may_wait:
                            if self._hold_back(session, link, packets, packet, after):
                                return
                            is_counted = flow.is_passing
                        if session.outbound.is_filling():
                            flow.count_own(session, packet, self._route(packet))
                    taken = 0
                    if shortcuts is not None and not is_counted:
                        taken = shortcuts.publish(session, link, packet, packets, after)
                    if taken:
                        after += taken - 1
                    else:
                        delivery.receive(session, link, packet)
                elif isinstance(packet, Puback):
                    delivery.acknowledged(session, session.outbound.puback(packet.packet_id))
                elif isinstance(packet, Acknowledgements):
                    delivery.runs.receive(session, link, packet)
                elif isinstance(packet, Pubrec):
                    delivery.pubrec(session, link, packet)
                elif isinstance(packet, Pubrel):
                    delivery.pubrel(session, link, packet.packet_id)
                elif isinstance(packet, Pubcomp):
                    delivery.acknowledged(session, session.outbound.pubcomp(packet.packet_id))
                elif isinstance(packet, Subscribe):
                    self.subscriptions.subscribe(session, link, packet, self.connections.now_ms)
                elif isinstance(packet, Unsubscribe):
                    self.subscriptions.unsubscribe(session, link, packet)
                elif isinstance(packet, Pingreq):
                    self._answer_ping(session, link)
                elif isinstance(packet, Disconnect):
                    self._set_clock()
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

    def _hold_back(self, session: Session, link: Link, packets: list[Packet], message: Publish, after: int) -> bool:
        """Let a publisher wait, from the message on that is before `after`, if a receiver of it is congested."""
        flow = self.delivery.flow
        congestion = flow.blocking(session, message, self._route(message))
        if congestion is None:
            return False
        at_once = flow.defer(session, congestion, link, packets[after - 1 :])
        self._process(session, link, at_once, False, None)
        return True

    def _route(self, message: Publish) -> Route:
        """Who gets a message, which may not be admitted yet."""
        route = self.admission.admitted.get(message.topic_name)
        return self._routes.route(message.topic_name) if route is None else route

    def _process_deferred(self) -> None:
        """The publishers that no longer wait for a receiver go on."""
        flow = self.delivery.flow
        ready, flow.ready = flow.ready, []
        for deferred in ready:
            packets = flow.take(deferred)
            if packets and deferred.publisher.link is deferred.link:
                self._process(deferred.publisher, deferred.link, packets, deferred.may_wait, self._shortcuts)

    def _process_last(self, link: Link) -> None:
        """A connection has ended: process what its client had sent before, and what waits."""
        session = link.session
        if session is not None:
            packets = self.delivery.flow.lost(session)
            if packets and session.link is link:
                self._process(session, link, packets, False, None)  # no shortcut: the link has ended in this turn

    def acknowledged(self, link: Link, packet_id: int, now_ms: int) -> bool:
        """A PUBACK that came alone. True: it is done, and no turn is needed; False: hand it to `receive`."""
        session = link.session
        shortcuts = self._shortcuts
        if session is None or shortcuts is None or not shortcuts.puback(session, packet_id):
            return False
        self.connections.now_ms = session.heard_ms = now_ms
        return True

    def failed(self, link: Link, error: PeerError) -> None:
        """A client broke a rule of the protocol: its connection ends, no other client is affected."""
        self.counters.protocol_errors += 1
        self._set_clock()
        self._process_last(link)
        if link.session is not None:
            self.connections.lost(link.session, str(error))
        link.close(error.reason, str(error))

    def lost(self, link: Link, reason: str, now_ms: int) -> None:
        """A connection has ended without DISCONNECT."""
        self.connections.now_ms = now_ms
        self._set_clock()
        self._process_last(link)
        if link.session is not None:
            self.connections.lost(link.session, reason)

    def writable(self, link: Link) -> None:
        """A client that read too slowly has caught up."""
        session = link.session
        if session is not None and session.link is link:
            self.delivery.dirty[session] = None

    # -- a client that may sleep (MQTT-SN) ---------------------------------------------------------------------------

    def owed(self, link: Link) -> int:
        """How many messages the client of a link is still to get."""
        return 0 if link.session is None else link.session.owed()

    def replace_will(self, link: Link, will: Will | None) -> None:
        """A connected client has changed its will."""
        if link.session is not None:
            self.connections.replace_will(link.session, will)

    # -- messages without a session ----------------------------------------------------------------------------------

    def publish_sessionless(self, message: Publish, identity: Identity) -> int | None:
        """A message of PUBWOS or QoS -1 of MQTT-SN, or of the operator. Returns why it was refused, else None."""
        return self.delivery.take_sessionless(message, identity)

    def when_durable(self, call: Callable[[], None]) -> None:
        """Have `call` called once everything that was published so far is durable."""
        self.effects.add(CallEffect(call))

    # -- the server --------------------------------------------------------------------------------------------------

    def restore(self, now_ms: int, wall_us: int) -> None:
        """At start: the persistent sessions as the store remembers them."""
        self._started_ms = self.connections.now_ms = self.delivery.flow.now_ms = now_ms
        self._ahead_us = wall_us - now_ms * 1000
        self._clock.now_us = wall_us
        self._shares.restore()
        self.connections.restore(wall_us)
        self._shares.restored()

    # -- the operator ------------------------------------------------------------------------------------------------

    def disconnect(self, session: Session) -> None:
        """The operator ends a client's connection; its will is published, and a persistent session stays."""
        self._set_clock()
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

    def share_groups(self) -> list[ShareGroup]:
        """All share groups, as a new list."""
        return self._shares.groups()

    def uptime_ms(self, now_ms: int) -> int:
        """How long ago the server was started."""
        return now_ms - self._started_ms

    def sessions(self) -> list[Session]:
        """All sessions, as a new list."""
        return list(self.connections.sessions.values())

    def report(self) -> None:
        """Publish `$SYS`: subscribers get what has changed, new ones get all of it."""
        for message in self._sys_topics.update(self._sys_values()):
            route = self._routes.route(message.topic_name)
            self.delivery.fan_out(message, route.receivers, "")
            for group in route.groups:
                group.offer(message, 0)

    def _sys_values(self) -> dict[str, str]:
        return sys_values(
            self.counters,
            version=self._version,
            uptime_s=(self.connections.now_ms - self._started_ms) // 1000,
            sessions=len(self.connections.sessions),
            subscriptions=self._routes.count,
            share_groups=len(self._shares.groups()),
            wills_pending=self.connections.wills.pending_count(),
            retained=self._store.retained_totals(),
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
        self.connections.now_ms = now_ms
        self._ahead_us = now_us - now_ms * 1000
        self._clock.now_us = now_us
        self.delivery.flow.tick(now_ms)
        self.connections.tick(now_ms)
        if not self._store.failing():
            for topic_name in self._store.retained_expired(now_us, EXPIRED_MAX):
                self._store.append_retained_removed(topic_name, "expired")
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
        self._set_clock()
        self.delivery.flow.now_ms = self.connections.now_ms
        if self.effects.must_release():
            self.effects.release_more()
        if self.effects.pending:
            self.effects.commit_or_gather(self.connections.now_ms)
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

    def _set_clock(self) -> None:
        """Before something can expire, or a will is published; not for every packet."""
        self._clock.now_us = self.connections.now_ms * 1000 + self._ahead_us

    def _pump_dirty(self) -> bool:
        """Send to the clients whose window or link has changed. True: the next turn goes on with some of them."""
        delivery = self.delivery
        dirty = delivery.dirty
        delivery.dirty = {}
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
            drops = session.outbound.pump(link, self._shortcuts is not None)
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

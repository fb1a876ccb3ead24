"""Subscriptions: what SUBSCRIBE and UNSUBSCRIBE change (3.1.1 and 5.0, sections 3.8 and 3.10).

Owns: the subscriptions of all sessions, their records, and the answers to clients.
"""

from collections import deque
from typing import TYPE_CHECKING, Final, final

from embermq.broker.counters import SysTopics
from embermq.broker.effects import Effects, PacketEffect
from embermq.broker.history.delivery import HistoryDelivery, StartEffect
from embermq.broker.history.history_filter import is_history
from embermq.broker.history.stream import HistoryStream
from embermq.broker.limits import Limits
from embermq.broker.link import Link
from embermq.broker.queues.shared import Shares, is_shared
from embermq.broker.routes import Routes, Subscription, subscription_bytes
from embermq.protocol.errors import ProtocolError
from embermq.protocol.packets import Delivery, Suback, Subscribe, SubscriptionRequest, Unsuback, Unsubscribe
from embermq.protocol.reasons import ReasonCode
from embermq.protocol.topics import matches
from embermq.store.interface import RetainedPosition, Store, StoreError

if TYPE_CHECKING:
    from embermq.broker.admission import Admission
    from embermq.broker.retained_delivery import RetainedDelivery
    from embermq.broker.session import Session

REMOVED_AT_ONCE: Final = 256
"""A session that ends with more subscriptions loses them in the next turns."""
REMOVED_LEVELS: Final = 8_192
"""How many levels of their topic filters one turn removes."""
DETAILS_MAX: Final = 4
"""How many refusals the Reason String of one SUBACK explains."""


@final
class Subscriptions:
    """SUBSCRIBE and UNSUBSCRIBE. The subscriptions of all sessions are changed here, and nowhere else."""

    __slots__ = (
        "_store",
        "_admission",
        "_routes",
        "_shares",
        "_retained",
        "_history",
        "_effects",
        "_sys_topics",
        "_streams_max",
        "_ending",
    )

    def __init__(
        self,
        store: Store,
        admission: "Admission",
        routes: Routes,
        shares: Shares,
        retained: "RetainedDelivery",
        history: HistoryDelivery,
        effects: Effects,
        sys_topics: SysTopics,
        limits: Limits,
    ) -> None:
        self._store: Final = store
        self._admission: Final = admission
        self._routes: Final = routes
        self._shares: Final = shares
        self._retained: Final = retained
        self._history: Final = history
        self._effects: Final = effects
        self._sys_topics: Final = sys_topics
        # From this number of unfinished streams of retained messages on, a repeated filter replaces the stream it had.
        self._streams_max: Final = limits.subscriptions_max
        self._ending: Final[deque[Session]] = deque()  # sessions that have ended and still have subscriptions

    def add(self, session: "Session", request: SubscriptionRequest) -> Subscription:
        """Give a session a subscription, in place of an older one with the same topic filter."""
        subscription = Subscription(
            session,
            request.topic_filter,
            request.qos,
            request.no_local,
            request.retain_as_published,
            (request.subscription_id,) if request.subscription_id else (),
        )
        if request.topic_filter not in session.subscriptions:
            size_bytes = subscription_bytes(request.topic_filter)
            session.subscription_bytes += size_bytes
            self._routes.size_bytes += size_bytes
        session.add_subscription(subscription, request.topic_filter)
        if is_shared(request.topic_filter):
            self._shares.add(subscription)
        else:
            self._routes.add(subscription)
        return subscription

    def _remove(self, session: "Session", topic_filter: str) -> None:
        size_bytes = subscription_bytes(topic_filter)
        session.subscription_bytes -= size_bytes
        self._routes.size_bytes -= size_bytes
        session.remove_shape(topic_filter)
        if is_shared(topic_filter):
            self._shares.remove(session, topic_filter)
        else:
            self._routes.remove(session, topic_filter)

    def connection_lost(self, session: "Session") -> None:
        """A connection has ended, and with it the subscriptions that last no longer."""
        self._history.connection_lost(session)

    def remove_all(self, session: "Session") -> None:
        """A session has ended: it is in no route from now on. If it has many subscriptions, they are removed in the
        next turns. No record depends on that: `SESSION_ENDED` says it all, and a share group without a member ends at
        the next start.
        """
        self._shares.discarded.add(session.outbound.take_backlog())
        if len(session.subscriptions) <= REMOVED_AT_ONCE:
            for topic_filter in session.subscriptions:
                self._remove(session, topic_filter)
            session.subscriptions.clear()
        else:
            self._ending.append(session)
            self._routes.has_ended_sessions = True
            self._admission.forget_routes()

    def remove_more(self) -> bool:
        """Remove the next subscriptions of sessions that have ended, as many as one turn may. False: there are none."""
        if not self._ending:
            return False
        levels_left = REMOVED_LEVELS
        while self._ending and levels_left > 0:
            session = self._ending[0]
            if session.subscriptions:
                topic_filter, _ = session.subscriptions.popitem()
                self._remove(session, topic_filter)
                levels_left -= 1 + topic_filter.count("/")
            else:
                self._ending.popleft()
        self._routes.has_ended_sessions = bool(self._ending)
        return True

    def subscribe(self, session: "Session", link: Link, packet: Subscribe, now_ms: int) -> None:
        """Answer a SUBSCRIBE."""
        failing = self._store.failing()
        if failing and session.session_id and not self._store.is_full():
            raise StoreError(f"the store cannot keep subscriptions now: {failing}")
        is_at_once = self._need_not_wait(session)
        self._retained.subscribe_pending(session)
        reasons: list[int] = []
        details: list[str] = []
        streams: list[HistoryStream] = []
        for request in packet.requests:
            if is_history(request.topic_filter):
                reason, detail = self._subscribe_history(session, request, now_ms, streams)
            else:
                reason, detail = self._subscribe_one(session, request, is_at_once, now_ms)
            reasons.append(reason)
            if detail and len(details) < DETAILS_MAX and detail not in details:
                details.append(detail)
        suback = Suback(packet.packet_id, reasons, "; ".join(details))
        if is_at_once:
            link.send(suback)
            self.send_retained(session)
            self._history.start(streams)
        else:
            self._effects.add(PacketEffect(session, link, suback))
            if streams:
                self._effects.add(StartEffect(streams))

    def _subscribe_history(
        self, session: "Session", request: SubscriptionRequest, now_ms: int, streams: list[HistoryStream]
    ) -> tuple[int, str]:
        reason, detail = self._history.subscribe(session, request, now_ms, streams)
        if not detail:
            # Not part of the session's state: the record is for readers of the log.
            self._store.append_subscribed(session.client_id, 0, request, request.qos, False)
        return reason, detail

    def _need_not_wait(self, session: "Session") -> bool:
        """While the disk fails, a client whose session is not stored goes on: it may be the one that reads `$SYS`."""
        return session.session_id == 0 and session.pending == 0 and bool(self._store.failing())

    def _subscribe_one(
        self, session: "Session", request: SubscriptionRequest, is_at_once: bool, now_ms: int
    ) -> tuple[int, str]:
        """The reason code, and why it is refused; empty if it is not."""
        topic_filter = request.topic_filter
        if is_shared(topic_filter) and request.no_local:
            raise ProtocolError("No Local on a shared subscription", "MQTT-3.8.3-4")
        existed = topic_filter in session.subscriptions
        refusal = self._admission.subscription_refusal(session, topic_filter, existed, now_ms)
        if refusal is not None:
            return refusal.reason, refusal.detail
        subscription = self.add(session, request)
        wants_retained = request.retain_handling == 0 or (request.retain_handling == 1 and not existed)
        wants_retained = wants_retained and not is_shared(topic_filter)  # 5.0, 4.8.2: none for shared subscriptions
        is_owed = wants_retained and request.qos > 0 and session.session_id != 0
        before_offset = self._retained.live_from(subscription, is_at_once)
        self._store.append_subscribed(session.client_id, session.session_id, request, request.qos, is_owed)
        if len(session.streams) >= self._streams_max:
            # The client asks faster than it reads: the same filter again replaces what is left of the last time.
            session.streams.drop(topic_filter)
        if wants_retained:
            session.streams.add(RetainedPosition(topic_filter, request.qos, before_offset))
        return request.qos, ""

    def send_retained(self, session: "Session") -> None:
        """SUBACK has been sent: the retained messages follow; `$SYS`, which no store holds, at once."""
        started = self._retained.start(session)
        link = session.link
        if link is None:
            return
        for stream in started:
            topic_filter = stream.position.topic_filter
            if topic_filter.startswith("$"):
                ids = session.subscription_ids(topic_filter)
                for message in self._sys_topics.messages.values():
                    if matches(topic_filter, message.topic_name):
                        link.deliver(Delivery(message, 0, True, False, 0, ids))
        self._retained.send_first(session, link, len(started))

    def unsubscribe(self, session: "Session", link: Link, packet: Unsubscribe) -> None:
        """Answer an UNSUBSCRIBE, also where there was no subscription (MQTT-3.10.4-5)."""
        reasons: list[int] = []
        for topic_filter in packet.topic_filters:
            if session.history is not None and self._history.unsubscribe(session, topic_filter):
                self._store.append_unsubscribed(session.client_id, 0, topic_filter)
                reasons.append(ReasonCode.SUCCESS)
                continue
            if session.subscriptions.pop(topic_filter, None) is None:
                reasons.append(ReasonCode.NO_SUBSCRIPTION_EXISTED)
                continue
            self._remove(session, topic_filter)
            self._store.append_unsubscribed(session.client_id, session.session_id, topic_filter)
            session.streams.drop(topic_filter)
            reasons.append(ReasonCode.SUCCESS)
        unsuback = Unsuback(packet.packet_id, reasons)
        if self._need_not_wait(session):
            link.send(unsuback)
        else:
            self._effects.add(PacketEffect(session, link, unsuback))

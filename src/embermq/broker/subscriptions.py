"""Subscriptions: what SUBSCRIBE and UNSUBSCRIBE change (3.1.1 and 5.0, sections 3.8 and 3.10).

Owns: the subscriptions of all sessions, their records, and the answers to clients.
"""

from collections import deque
from typing import Final, final

from embermq.broker.admission import Admission
from embermq.broker.context import Context
from embermq.broker.counters import SysTopics
from embermq.broker.delivery import MessageDelivery
from embermq.broker.effects import Effect, Effects, PacketEffect
from embermq.broker.history.delivery import HistoryDelivery, StartEffect
from embermq.broker.history.history_filter import is_history
from embermq.broker.history.stream import HistoryStream
from embermq.broker.link import Link
from embermq.broker.session import Session, Subscription, subscription_of
from embermq.broker.shared import Shares
from embermq.protocol.errors import ProtocolError
from embermq.protocol.packets import Delivery, Suback, Subscribe, SubscriptionRequest, Unsuback, Unsubscribe
from embermq.protocol.reasons import ReasonCode
from embermq.protocol.topics import is_shared, matches
from embermq.store.interface import StoreError
from embermq.store.records import RetainedPosition, Subscribed, Unsubscribed

REMOVED_AT_ONCE: Final = 256
"""A session that ends with more subscriptions loses them in the next turns."""
REMOVED_LEVELS: Final = 8_192
"""How many levels of their topic filters one turn removes."""
SUBACK_WEIGHT: Final = 8
"""Looking for the retained messages of one subscription is about as much work as this many deliveries."""
DETAILS_MAX: Final = 4
"""How many refusals the Reason String of one SUBACK explains."""


@final
class SubackEffect(Effect):
    """SUBACK; the retained messages follow it."""

    __slots__ = ("_subscriptions", "_from", "_to", "_suback")

    def __init__(self, subscriptions: "Subscriptions", session: Session, to: Link, suback: Suback) -> None:
        granted = [reason for reason in suback.reasons if reason < ReasonCode.UNSPECIFIED_ERROR]
        super().__init__(session, to, 1, 1 + SUBACK_WEIGHT * len(granted))
        self._subscriptions: Final = subscriptions
        self._from: Final = session
        self._to: Final = to
        self._suback: Final = suback

    def release(self) -> None:
        self._to.send(self._suback)
        self._subscriptions.send_retained(self._from)


@final
class Subscriptions:
    """SUBSCRIBE and UNSUBSCRIBE. The subscriptions of all sessions are changed here, and nowhere else."""

    def __init__(
        self,
        context: Context,
        admission: Admission,
        shares: Shares,
        delivery: MessageDelivery,
        history: HistoryDelivery,
        effects: Effects,
        sys_topics: SysTopics,
    ) -> None:
        self._store: Final = context.store
        self._admission: Final = admission
        self._routes: Final = context.routes
        self._shares: Final = shares
        self._delivery: Final = delivery
        self._retained: Final = delivery.retained
        self._history: Final = history
        self._effects: Final = effects
        self._sys_topics: Final = sys_topics
        # From this number of unfinished streams of retained messages on, a repeated filter replaces the stream it had.
        self._streams_max: Final = context.limits.subscriptions_max
        self._ending: Final[deque[Session]] = deque()  # sessions that have ended and still have subscriptions

    def add(self, session: Session, request: SubscriptionRequest) -> Subscription:
        """Give a session a subscription, in place of an older one with the same topic filter."""
        subscription = subscription_of(session, request)
        self._routes.change_size(session.add_subscription(subscription, request.topic_filter))
        if is_shared(request.topic_filter):
            self._shares.add(subscription)
        else:
            self._routes.add(subscription)
        return subscription

    def _remove(self, session: Session, topic_filter: str) -> None:
        self._routes.change_size(-session.subscription_removed(topic_filter))
        if is_shared(topic_filter):
            self._shares.remove(session, topic_filter)
        else:
            self._routes.remove(session, topic_filter)

    def connection_changed(self, session: Session) -> None:
        """A session has a connection, or has none any more, and with it no history subscriptions."""
        self._shares.connection_changed(session)
        if session.connection() is None:
            self._history.connection_lost(session)

    def remove_all(self, session: Session) -> None:
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
            self._routes.leave_out_ended(True)
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
        self._routes.leave_out_ended(bool(self._ending))
        return True

    def subscribe(self, session: Session, link: Link, packet: Subscribe) -> None:
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
                reason, detail = self._subscribe_history(session, request, streams)
            else:
                reason, detail = self._subscribe_one(session, request, is_at_once)
            reasons.append(reason)
            if detail and len(details) < DETAILS_MAX and detail not in details:
                details.append(detail)
        suback = Suback(packet.packet_id, reasons, "; ".join(details))
        if is_at_once:
            link.send(suback)
            self.send_retained(session)
            self._history.start(streams)
        else:
            self._effects.add(SubackEffect(self, session, link, suback))
            if streams:
                self._effects.add(StartEffect(self._history, streams))

    def _subscribe_history(
        self, session: Session, request: SubscriptionRequest, streams: list[HistoryStream]
    ) -> tuple[int, str]:
        reason, detail = self._history.subscribe(session, request, streams)
        if not detail:
            # Not part of the session's state: the record is for readers of the log.
            self._store.append(Subscribed(session.client_id, 0, request, False))
        return reason, detail

    def _need_not_wait(self, session: Session) -> bool:
        """While the disk fails, a client whose session is not stored goes on: it may be the one that reads `$SYS`."""
        return session.session_id == 0 and session.pending == 0 and bool(self._store.failing())

    def _subscribe_one(self, session: Session, request: SubscriptionRequest, is_at_once: bool) -> tuple[int, str]:
        """The reason code, and why it is refused; empty if it is not."""
        topic_filter = request.topic_filter
        if is_shared(topic_filter) and request.no_local:
            raise ProtocolError("No Local on a shared subscription", "MQTT-3.8.3-4")
        existed = topic_filter in session.subscriptions
        refusal = self._admission.subscription_refusal(session, topic_filter, existed)
        if refusal is not None:
            return refusal.reason, refusal.detail
        subscription = self.add(session, request)
        wants_retained = request.retain_handling == 0 or (request.retain_handling == 1 and not existed)
        wants_retained = wants_retained and not is_shared(topic_filter)  # 5.0, 4.8.2: none for shared subscriptions
        is_owed = wants_retained and request.qos > 0 and session.session_id != 0
        before_offset = self._delivery.live_from(subscription, is_at_once)
        self._store.append(Subscribed(session.client_id, session.session_id, request, is_owed))
        if len(session.streams) >= self._streams_max:
            # The client asks faster than it reads: the same filter again replaces what is left of the last time.
            session.streams.drop(topic_filter)
        if wants_retained:
            session.streams.add(RetainedPosition(topic_filter, request.qos, before_offset))
        return request.qos, ""

    def send_retained(self, session: Session) -> None:
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
                    if matches(topic_filter, message.topic_name) and self._delivery.may_send(session, message):
                        link.deliver(Delivery([message], 0, True, False, 0, ids))
        self._retained.send_first(session, link, len(started))

    def remove(self, session: Session, topic_filter: str) -> bool:
        """Take a subscription from a session; False if it has none with this topic filter."""
        if session.subscriptions.pop(topic_filter, None) is None:
            return False
        self._remove(session, topic_filter)
        return True

    def unsubscribe(self, session: Session, link: Link, packet: Unsubscribe) -> None:
        """Answer an UNSUBSCRIBE, also where there was no subscription (MQTT-3.10.4-5)."""
        reasons: list[int] = []
        for topic_filter in packet.topic_filters:
            if self._history.unsubscribe(session, topic_filter):
                self._store.append(Unsubscribed(session.client_id, 0, topic_filter))
                reasons.append(ReasonCode.SUCCESS)
                continue
            if not self.remove(session, topic_filter):
                reasons.append(ReasonCode.NO_SUBSCRIPTION_EXISTED)
                continue
            self._store.append(Unsubscribed(session.client_id, session.session_id, topic_filter))
            session.streams.drop(topic_filter)
            reasons.append(ReasonCode.SUCCESS)
        unsuback = Unsuback(packet.packet_id, reasons)
        if self._need_not_wait(session):
            link.send(unsuback)
        else:
            self._effects.add(PacketEffect(session, link, unsuback))

"""Subscribing: what SUBSCRIBE and UNSUBSCRIBE change, and what they are answered (3.1.1 sections 3.8 and 3.10).

Owns: whether a filter is granted, its record, and when its retained messages begin to flow.
"""

from typing import Final, final

from embermq.broker.access import Access
from embermq.broker.counters import Counters
from embermq.broker.effects import Held, HeldPacket, HeldPublish
from embermq.broker.limits import Limits
from embermq.broker.link import Link
from embermq.broker.retained_delivery import RetainedStreams
from embermq.broker.session import Session
from embermq.broker.subscriptions import Subscription, Subscriptions
from embermq.protocol.packets import Delivery, Publish, Suback, Subscribe, SubscriptionRequest, Unsuback, Unsubscribe
from embermq.protocol.reasons import ReasonCode
from embermq.protocol.topics import matches
from embermq.store.interface import RetainedPosition, Store, StoreError


@final
class Subscribing:
    """The subscriptions of all sessions change here and nowhere else, but for the end of a session."""

    __slots__ = (
        "_store",
        "_access",
        "_limits",
        "_counters",
        "_subscriptions",
        "_streams",
        "_held",
        "_sys_messages",
    )

    def __init__(
        self,
        store: Store,
        access: Access,
        limits: Limits,
        counters: Counters,
        subscriptions: Subscriptions,
        streams: RetainedStreams,
        held: list[Held],
        sys_messages: dict[str, Publish],
    ) -> None:
        self._store: Final = store
        self._access: Final = access
        self._limits: Final = limits
        self._counters: Final = counters
        self._subscriptions: Final = subscriptions
        self._streams: Final = streams
        self._held: Final = held
        self._sys_messages: Final = sys_messages

    def subscribe(self, session: Session, link: Link, packet: Subscribe, committing: list[Held]) -> None:
        """Answer a SUBSCRIBE. `committing` are the effects of the group that is being made durable."""
        failing = self._store.failing()
        if failing and session.session_id:
            raise StoreError(f"the store cannot keep subscriptions now: {failing}")
        at_once = self._need_not_wait(session)
        self._streams.expect(session)
        waiting = [*committing, *self._held] if at_once else []
        reasons = [self._subscribe_one(session, request, at_once, waiting) for request in packet.requests]
        suback = Suback(packet.packet_id, reasons)
        if at_once:
            link.send(suback)
            self.stream_retained(session)
        else:
            self._held.append(HeldPacket(link, suback, session))

    def _need_not_wait(self, session: Session) -> bool:
        """While the disk fails, a client without a record goes on: it may be the one who asks `$SYS` what is wrong."""
        return session.session_id == 0 and session.held == 0 and bool(self._store.failing())

    def _live_from(self, subscription: Subscription, waiting: list[Held]) -> int:
        """From which offset on retained messages are live for a subscription that does not wait for the disk."""
        offset = self._store.next_offset()
        for effect in waiting:
            if isinstance(effect, HeldPublish):
                offset = min(offset, effect.offset)
                effect.include(subscription)
        return offset

    def _subscribe_one(self, session: Session, request: SubscriptionRequest, at_once: bool, waiting: list[Held]) -> int:
        topic_filter = request.topic_filter
        existed = topic_filter in session.subscriptions
        reason = self._subscription_refusal(session, topic_filter, existed)
        if reason is not None:
            self._counters.subscriptions_refused += 1
            return reason
        subscription = self.add(session, request)
        wanted = request.retain_handling == 0 or (request.retain_handling == 1 and not existed)
        owed = wanted and request.qos > 0 and session.session_id != 0
        before_offset = self._live_from(subscription, waiting) if at_once else self._store.next_offset()
        self._store.append_subscribed(session.client_id, session.session_id, request, request.qos, owed)
        if len(session.streams) >= self._limits.subscriptions_max:
            # A client that asks faster than it reads: the same filter again replaces what is left of the last time.
            session.streams.drop(topic_filter)
        if wanted:
            self._streams.subscribed(session, RetainedPosition(topic_filter, request.qos, before_offset))
        return request.qos

    def _subscription_refusal(self, session: Session, topic_filter: str, existed: bool) -> int | None:
        if not existed and len(session.subscriptions) >= self._limits.subscriptions_max:
            return ReasonCode.QUOTA_EXCEEDED
        if topic_filter.count("/") >= self._limits.topic_levels_max:
            return ReasonCode.TOPIC_FILTER_INVALID
        if not self._access.unrestricted and not self._access.may_subscribe(session.identity, topic_filter):
            return ReasonCode.NOT_AUTHORIZED
        return None

    def add(self, session: Session, request: SubscriptionRequest) -> Subscription:
        """Give a session a subscription, in place of an older one of the same filter."""
        subscription = Subscription(
            session, request.topic_filter, request.qos, request.no_local, request.retain_as_published
        )
        session.subscriptions[request.topic_filter] = subscription
        self._subscriptions.add(subscription)
        return subscription

    def stream_retained(self, session: Session) -> None:
        """SUBACK has left: the retained messages follow; the server's own topics, which no store holds, at once."""
        begun = self._streams.begin(session)
        link = session.link
        if link is None:
            return
        for stream in begun:
            topic_filter = stream.position.topic_filter
            if topic_filter.startswith("$"):
                for message in self._sys_messages.values():
                    if matches(topic_filter, message.topic_name):
                        link.deliver(Delivery(message, 0, True))
        self._streams.send_first(session, link, len(begun))

    def unsubscribe(self, session: Session, link: Link, packet: Unsubscribe) -> None:
        """Answer an UNSUBSCRIBE: what is not there needs no removal, and is answered all the same (MQTT-3.10.4-5)."""
        reasons: list[int] = []
        for topic_filter in packet.topic_filters:
            if session.subscriptions.pop(topic_filter, None) is None:
                reasons.append(ReasonCode.NO_SUBSCRIPTION_EXISTED)
                continue
            self._subscriptions.remove(session, topic_filter)
            self._store.append_unsubscribed(session.client_id, session.session_id, topic_filter)
            session.streams.drop(topic_filter)
            reasons.append(ReasonCode.SUCCESS)
        unsuback = Unsuback(packet.packet_id, reasons)
        if self._need_not_wait(session):
            link.send(unsuback)
        else:
            self._held.append(HeldPacket(link, unsuback, session))

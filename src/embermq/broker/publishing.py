"""Publishing: a message's way from being taken to being fanned out (3.1.1 sections 3.3 and 4.3).

Owns: whether a message is taken, its record, the lasting queues it enters, and the moment at which it is delivered.
"""

from typing import Final, final

from embermq.broker.access import OPERATOR, Access, Identity
from embermq.broker.counters import Counters
from embermq.broker.effects import Held, HeldAcknowledgement, HeldPublish
from embermq.broker.limits import Limits
from embermq.broker.link import Link
from embermq.broker.retained_delivery import RetainedStreams
from embermq.broker.session import Session
from embermq.broker.subscriptions import Route, Subscription, Subscriptions
from embermq.broker.sys_topics import SYS_PREFIX
from embermq.protocol.packets import PUBACK, PUBREC, Delivery, Publish
from embermq.protocol.reasons import ReasonCode
from embermq.store.interface import Store, StoreError


@final
class Publishing:
    """Every message goes through here, whoever sent it."""

    __slots__ = (
        "_store",
        "_at_once",
        "_access",
        "_limits",
        "_counters",
        "_subscriptions",
        "_remembered",
        "streams",
        "_held",
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
    ) -> None:
        self._store: Final = store
        self._at_once: Final = store.at_once()
        self._access: Final = access
        self._limits: Final = limits
        self._counters: Final = counters
        self._subscriptions: Final = subscriptions
        self._remembered: Final = subscriptions.remembered
        self.streams: Final = streams
        self._held: Final = held

    def receive(self, session: Session, link: Link, message: Publish) -> None:
        """A PUBLISH of a connected client."""
        counters = self._counters
        counters.publish_received += 1
        counters.publish_bytes_received += len(message.payload)
        qos = message.qos
        route = self._remembered.get(message.topic_name)
        if (
            route is not None
            and not message.retain
            and session.held == 0
            and self._access.unrestricted
            and (qos == 0 or (qos == 1 and self._at_once and not self._held and not route.lasting))
        ):
            # Most messages are like this: nothing waits that it could overtake, and it has nothing to wait for.
            # What follows would come to the same, after questions that need no answer.
            self._store.append_publish(message, session.client_id)
            if route.subscriptions:
                self.fan_out(message, route.subscriptions, session)
            if qos:
                link.acknowledge(PUBACK, message.packet_id, 0)
            return
        if qos == 2 and message.packet_id in session.received_ids:
            # MQTT-4.3.3-2: the same message again; the first one may not be durable yet, so this waits as well.
            self._held.append(HeldAcknowledgement(link, PUBREC, message.packet_id))
            return
        if route is None or message.retain or not self._access.unrestricted:
            refusal = self._refusal(session.identity, message)
            if refusal is not None:
                if qos:
                    packet_type = PUBACK if qos == 1 else PUBREC
                    self._held.append(HeldAcknowledgement(link, packet_type, message.packet_id, refusal))
                return
            if route is None:
                route = self._subscriptions.learn(message.topic_name)
        self._take(message, route, session.client_id, session, link, session.session_id if qos == 2 else 0)
        if qos == 2:
            session.received_ids.add(message.packet_id)

    def take_unconnected(self, message: Publish, identity: Identity) -> int | None:
        """Take a message of somebody without a session: a will, QoS -1 of MQTT-SN, the operator's.

        Returns why it was not taken, None if it was.
        """
        self._counters.publish_received += 1
        self._counters.publish_bytes_received += len(message.payload)
        refusal = self._refusal(identity, message)
        if refusal is None:
            self._take(message, self._subscriptions.route(message.topic_name), identity.client_id, None, None, 0)
        return refusal

    def _refusal(self, identity: Identity, message: Publish) -> int | None:
        """Why a message is not taken, counted; None if it is."""
        topic_name = message.topic_name
        if (
            not self._access.unrestricted
            and identity is not OPERATOR
            and not self._access.may_publish(identity, topic_name, message.retain)
        ):
            self._counters.dropped_not_authorized += 1
            return ReasonCode.NOT_AUTHORIZED
        if topic_name.count("/") >= self._limits.topic_levels_max or topic_name.startswith(SYS_PREFIX):
            self._counters.dropped_topic_refused += 1
            return ReasonCode.TOPIC_NAME_INVALID
        if message.retain and message.payload:
            reason = self._store.retained_admits(topic_name, len(message.payload))
            if reason:
                self._counters.dropped_retained_budget += 1
                return ReasonCode.QUOTA_EXCEEDED
        return None

    def _take(
        self,
        message: Publish,
        route: Route,
        client_id: str,
        publisher: Session | None,
        link: Link | None,
        qos2_session_id: int,
    ) -> None:
        """The server owns the message from here on: record it, and deliver it when that is allowed."""
        lasting = message.qos > 0 or message.retain
        if lasting and self._store.failing():
            raise StoreError(f"the store cannot take messages that must last: {self._store.failing()}")
        if message.retain:
            self.streams.unsettled(message)
        offset = self._store.append_publish(message, client_id, qos2_session_id)
        if not lasting and (publisher is None or publisher.held == 0):
            # QoS 0 goes at once, unless it would overtake something of the same publisher that waits.
            if route.subscriptions:
                self.fan_out(message, route.subscriptions, publisher)
            return
        subscriptions = route.subscriptions
        if message.qos and route.lasting:
            subscriptions = self._accept(message, offset, route, publisher)
        if publisher is not None:
            publisher.held += 1
        self._held.append(HeldPublish(message, offset, subscriptions, publisher, link))

    def _accept(self, message: Publish, offset: int, route: Route, publisher: Session | None) -> list[Subscription]:
        """Add the message to the lasting queues it belongs to; returns the route without those that are full."""
        full: list[Subscription] = []
        for subscription in route.lasting:
            if subscription.no_local and subscription.session is publisher:
                continue
            retain = message.retain and subscription.retain_as_published
            qos = min(message.qos, subscription.qos)
            if not subscription.session.outbound.accept(message, offset, qos, retain):
                full.append(subscription)
        if not full:
            return route.subscriptions
        return [subscription for subscription in route.subscriptions if subscription not in full]

    def fan_out(self, message: Publish, subscriptions: list[Subscription], publisher: Session | None) -> None:
        """Deliver a message to every session of a route, each at the QoS it was granted."""
        qos = message.qos
        sent = 0
        for subscription in subscriptions:
            session = subscription.session
            if subscription.no_local and session is publisher:
                continue
            retain = message.retain and subscription.retain_as_published
            if qos == 0 or subscription.qos == 0:
                link = session.link
                if link is not None:
                    if link.deliver(Delivery(message, 0, True)) if retain else link.forward(message):
                        sent += 1
                    else:
                        self._counters.dropped_output_full += 1
            elif not session.ended:
                granted = subscription.qos if subscription.qos < qos else qos
                session.outbound.offer(session.link, message, granted, retain)
                sent += 1
        counters = self._counters
        counters.publish_sent += sent
        counters.publish_bytes_sent += sent * len(message.payload)

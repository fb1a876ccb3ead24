"""Subscriptions: which sessions a topic name reaches, and what SUBSCRIBE and UNSUBSCRIBE change (3.1.1 3.8, 4.7).

Owns: the trie of topic filters, the routes that it gives, the records of subscriptions and the answers to clients.
Every walk through the trie is a loop, so a topic of 65,535 slashes is only long.
A session with overlapping subscriptions is in a route once, at the highest QoS (MQTT-3.3.5-1).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from embermq.broker.counters import SysTopics
from embermq.broker.effects import Effects, PacketEffect
from embermq.broker.link import Link
from embermq.protocol.packets import Delivery, Publish, Suback, Subscribe, SubscriptionRequest, Unsuback, Unsubscribe
from embermq.protocol.reasons import ReasonCode
from embermq.protocol.topics import matches
from embermq.store.interface import RetainedPosition, Store, StoreError

if TYPE_CHECKING:
    from embermq.broker.admission import Admission
    from embermq.broker.retained_delivery import RetainedDelivery
    from embermq.broker.session import Session


@final
class Subscription:
    """What one session asked for with one topic filter."""

    __slots__ = ("session", "topic_filter", "qos", "no_local", "retain_as_published")

    def __init__(
        self, session: "Session", topic_filter: str, qos: int, no_local: bool = False, retain_as_published: bool = False
    ) -> None:
        self.session: Final = session
        self.topic_filter: Final = topic_filter
        self.qos: Final = qos
        self.no_local: Final = no_local
        self.retain_as_published: Final = retain_as_published


@final
class Route:
    """The sessions that a topic name reaches, each once.

    `receivers` get every message. (A shared subscription would be a group beside them, of which each message goes to
    one member.)
    `persistent` are the receivers whose queue takes a QoS 1 or 2 message in the open commit group.
    `is_plain`: no receiver has an option that makes its copy of a QoS 0 message differ from the others'.
    """

    __slots__ = ("receivers", "persistent", "is_plain")

    def __init__(self, receivers: list[Subscription]) -> None:
        self.receivers: Final = receivers
        self.persistent: Final = [
            receiver for receiver in receivers if receiver.qos > 0 and receiver.session.outbound.queue is not None
        ]
        self.is_plain: Final = not any(receiver.no_local or receiver.retain_as_published for receiver in receivers)

    def enqueue(self, message: Publish, offset: int, publisher: "Session | None") -> list[Subscription]:
        """Add a QoS 1 or 2 message to the persistent queues; returns the receivers without those that are full."""
        full: list[Subscription] = []
        for receiver in self.persistent:
            if receiver.no_local and receiver.session is publisher:
                continue
            retain = message.retain and receiver.retain_as_published
            qos = min(message.qos, receiver.qos)
            if not receiver.session.outbound.accept(message, offset, qos, retain):
                full.append(receiver)
        if not full:
            return self.receivers
        return [receiver for receiver in self.receivers if receiver not in full]


_NO_RECEIVERS: Final = Route([])  # one for all names without a subscription: a large set of topics has many of them


@final
class _Node:
    __slots__ = ("children", "here", "below")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.here: dict[Session, Subscription] = {}  # topic filters that end at this level
        self.below: dict[Session, Subscription] = {}  # topic filters that end in '#' after this level


@final
class Routes:
    """The trie of all topic filters of all sessions."""

    __slots__ = ("_root", "_watchers", "count")

    def __init__(self) -> None:
        self._root: Final = _Node()
        self._watchers: Final[list[Callable[[str], None]]] = []
        self.count = 0  # subscriptions

    def watch(self, changed: Callable[[str], None]) -> None:
        """Have `changed` called with the topic filter of every subscription that is added or removed."""
        self._watchers.append(changed)

    def add(self, subscription: Subscription) -> None:
        """Add a subscription, replacing the session's one of an identical filter (MQTT-3.8.4-3)."""
        levels = subscription.topic_filter.split("/")
        multi = levels[-1] == "#"
        if multi:
            levels.pop()
        node = self._root
        for level in levels:
            child = node.children.get(level)
            if child is None:
                child = _Node()
                node.children[level] = child
            node = child
        place = node.below if multi else node.here
        if subscription.session not in place:
            self.count += 1
        place[subscription.session] = subscription
        self._changed(subscription.topic_filter)

    def remove(self, session: "Session", topic_filter: str) -> None:
        """Remove a session's subscription, with the nodes that are empty then."""
        levels = topic_filter.split("/")
        multi = levels[-1] == "#"
        if multi:
            levels.pop()
        path = [self._root]
        for level in levels:
            child = path[-1].children.get(level)
            if child is None:
                return
            path.append(child)
        place = path[-1].below if multi else path[-1].here
        if place.pop(session, None) is None:
            return
        self.count -= 1
        for depth in range(len(levels), 0, -1):
            node = path[depth]
            if node.children or node.here or node.below:
                break
            del path[depth - 1].children[levels[depth - 1]]
        self._changed(topic_filter)

    def _changed(self, topic_filter: str) -> None:
        for changed in self._watchers:
            changed(topic_filter)

    def route(self, topic_name: str) -> Route:
        """The sessions that a topic name reaches at this moment."""
        receivers = self._receivers(topic_name)
        return Route(receivers) if receivers else _NO_RECEIVERS

    def _receivers(self, topic_name: str) -> list[Subscription]:
        first = self._root.children
        if not self._root.below and "+" not in first and topic_name.partition("/")[0] not in first:
            return []  # as for most names of a large retained set: the walk below would find nothing either
        found: dict[Session, Subscription] = {}
        levels = topic_name.split("/")
        nodes = [self._root]
        # MQTT-4.7.2-1: a wildcard in the first level does not match a name that begins with '$'.
        wild = not topic_name.startswith("$")
        if wild:
            _collect(self._root.below, found)
        for level in levels:
            reached: list[_Node] = []
            for node in nodes:
                child = node.children.get(level)
                if child is not None:
                    reached.append(child)
                if wild:
                    child = node.children.get("+")
                    if child is not None:
                        reached.append(child)
            if not reached:
                return list(found.values())
            wild = True
            for node in reached:
                if node.below:
                    _collect(node.below, found)
            nodes = reached
        for node in nodes:
            if node.here:
                _collect(node.here, found)
        return list(found.values())


def _collect(place: "dict[Session, Subscription]", found: "dict[Session, Subscription]") -> None:
    for session, subscription in place.items():
        other = found.get(session)
        found[session] = subscription if other is None else _merge(other, subscription)


def _merge(one: Subscription, other: Subscription) -> Subscription:
    """Overlapping subscriptions of one session deliver once, at the highest granted QoS (MQTT-3.3.5-1)."""
    if one.qos >= other.qos and one.no_local <= other.no_local and one.retain_as_published >= other.retain_as_published:
        return one
    return Subscription(
        one.session,
        one.topic_filter,
        max(one.qos, other.qos),
        one.no_local and other.no_local,
        one.retain_as_published or other.retain_as_published,
    )


@final
class Subscriptions:
    """SUBSCRIBE and UNSUBSCRIBE. The subscriptions of all sessions are changed here, and nowhere else."""

    __slots__ = ("_store", "_admission", "_routes", "_retained", "_effects", "_sys_topics", "_streams_max")

    def __init__(
        self,
        store: Store,
        admission: "Admission",
        routes: Routes,
        retained: "RetainedDelivery",
        effects: Effects,
        sys_topics: SysTopics,
        streams_max: int,
    ) -> None:
        """`streams_max`: from this number of unfinished streams of retained messages on, a repeated filter replaces
        the stream it had."""
        self._store: Final = store
        self._admission: Final = admission
        self._routes: Final = routes
        self._retained: Final = retained
        self._effects: Final = effects
        self._sys_topics: Final = sys_topics
        self._streams_max: Final = streams_max

    def add(self, session: "Session", request: SubscriptionRequest) -> Subscription:
        """Give a session a subscription, in place of an older one with the same topic filter."""
        subscription = Subscription(
            session, request.topic_filter, request.qos, request.no_local, request.retain_as_published
        )
        session.subscriptions[request.topic_filter] = subscription
        self._routes.add(subscription)
        return subscription

    def remove_all(self, session: "Session") -> None:
        """A session has ended."""
        for topic_filter in session.subscriptions:
            self._routes.remove(session, topic_filter)
        session.subscriptions.clear()

    def subscribe(self, session: "Session", link: Link, packet: Subscribe) -> None:
        """Answer a SUBSCRIBE."""
        failing = self._store.failing()
        if failing and session.session_id:
            raise StoreError(f"the store cannot keep subscriptions now: {failing}")
        is_at_once = self._need_not_wait(session)
        self._retained.subscribe_pending(session)
        reasons = [self._subscribe_one(session, request, is_at_once) for request in packet.requests]
        suback = Suback(packet.packet_id, reasons)
        if is_at_once:
            link.send(suback)
            self.send_retained(session)
        else:
            self._effects.add(PacketEffect(session, link, suback))

    def _need_not_wait(self, session: "Session") -> bool:
        """While the disk fails, a client whose session is not stored goes on: it may be the one that reads `$SYS`."""
        return session.session_id == 0 and session.pending == 0 and bool(self._store.failing())

    def _subscribe_one(self, session: "Session", request: SubscriptionRequest, is_at_once: bool) -> int:
        topic_filter = request.topic_filter
        existed = topic_filter in session.subscriptions
        reason = self._admission.subscription_refusal(session, topic_filter, existed)
        if reason is not None:
            return reason
        subscription = self.add(session, request)
        wants_retained = request.retain_handling == 0 or (request.retain_handling == 1 and not existed)
        is_owed = wants_retained and request.qos > 0 and session.session_id != 0
        before_offset = self._retained.live_from(subscription, is_at_once)
        self._store.append_subscribed(session.client_id, session.session_id, request, request.qos, is_owed)
        if len(session.streams) >= self._streams_max:
            # The client asks faster than it reads: the same filter again replaces what is left of the last time.
            session.streams.drop(topic_filter)
        if wants_retained:
            session.streams.add(RetainedPosition(topic_filter, request.qos, before_offset))
        return request.qos

    def send_retained(self, session: "Session") -> None:
        """SUBACK has been sent: the retained messages follow; `$SYS`, which no store holds, at once."""
        started = self._retained.start(session)
        link = session.link
        if link is None:
            return
        for stream in started:
            topic_filter = stream.position.topic_filter
            if topic_filter.startswith("$"):
                for message in self._sys_topics.messages.values():
                    if matches(topic_filter, message.topic_name):
                        link.deliver(Delivery(message, 0, True))
        self._retained.send_first(session, link, len(started))

    def unsubscribe(self, session: "Session", link: Link, packet: Unsubscribe) -> None:
        """Answer an UNSUBSCRIBE, also where there was no subscription (MQTT-3.10.4-5)."""
        reasons: list[int] = []
        for topic_filter in packet.topic_filters:
            if session.subscriptions.pop(topic_filter, None) is None:
                reasons.append(ReasonCode.NO_SUBSCRIPTION_EXISTED)
                continue
            self._routes.remove(session, topic_filter)
            self._store.append_unsubscribed(session.client_id, session.session_id, topic_filter)
            session.streams.drop(topic_filter)
            reasons.append(ReasonCode.SUCCESS)
        unsuback = Unsuback(packet.packet_id, reasons)
        if self._need_not_wait(session):
            link.send(unsuback)
        else:
            self._effects.add(PacketEffect(session, link, unsuback))

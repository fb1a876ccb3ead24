"""Subscriptions: which sessions a topic name reaches (3.1.1 section 4.7).

Owns: the trie of filters and the cache of routes. Every walk is a loop, so a topic of 65,535 slashes is only long.
A session with overlapping subscriptions appears once in a route, at the highest QoS (MQTT-3.3.5-1).
"""

from typing import TYPE_CHECKING, Final, final

from embermq.protocol.topics import has_wildcard

if TYPE_CHECKING:
    from embermq.broker.session import Session

ROUTE_CACHE_MAX: Final = 65_536
"""Topic names whose route is remembered; beyond it the cache starts anew."""
ROUTE_CACHE_RECEIVERS_MAX: Final = 500_000
"""Receivers in all remembered routes together: a few thousand clients on `#` would be in every one of them."""
ROUTE_CACHE_TOPIC_MAX: Final = 256
"""Characters of a topic name whose route is remembered: long and rare must not fill the memory."""


@final
class Subscription:
    """What one session wants of one filter."""

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
    """Whom a topic name reaches: each session once. `lasting` are those whose queue must know before the commit."""

    __slots__ = ("subscriptions", "lasting")

    def __init__(self, subscriptions: list[Subscription]) -> None:
        self.subscriptions: Final = subscriptions
        self.lasting: Final = [
            subscription
            for subscription in subscriptions
            if subscription.qos > 0 and subscription.session.outbound.queue is not None
        ]


_NOBODY: Final = Route([])  # one for all names that nobody wants: a large set of topics has many of them


@final
class _Node:
    __slots__ = ("children", "here", "below")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.here: dict[Session, Subscription] = {}  # filters that end at this level
        self.below: dict[Session, Subscription] = {}  # filters that end in '#' after this level


@final
class Subscriptions:
    """The trie of all filters of all sessions."""

    __slots__ = ("_root", "remembered", "_receivers", "count")

    def __init__(self) -> None:
        self._root: Final = _Node()
        self.remembered: Final[dict[str, Route]] = {}  # routes by topic name: the quick question of every publish
        self._receivers = 0  # at least as many as the routes have
        self.count = 0

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
        self._forget(subscription.topic_filter)

    def remove(self, session: "Session", topic_filter: str) -> None:
        """Take a session's filter out, with the nodes that nobody needs any more."""
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
        self._forget(topic_filter)

    def _forget(self, topic_filter: str) -> None:
        if has_wildcard(topic_filter):
            self._forget_all()
        else:
            self.remembered.pop(topic_filter, None)

    def route(self, topic_name: str) -> Route:
        """Whom a topic name reaches."""
        route = self.remembered.get(topic_name)
        return self.learn(topic_name) if route is None else route

    def learn(self, topic_name: str) -> Route:
        """Whom a topic name reaches, if it is not remembered: as a rule it is from now on."""
        subscriptions = self.matching(topic_name)
        route = Route(subscriptions) if subscriptions else _NOBODY
        # What is remembered is not examined again when a client publishes to it, and some names with '$' are refused.
        if len(topic_name) <= ROUTE_CACHE_TOPIC_MAX and topic_name[0] != "$":
            receivers = len(subscriptions)
            if len(self.remembered) >= ROUTE_CACHE_MAX or self._receivers + receivers > ROUTE_CACHE_RECEIVERS_MAX:
                self._forget_all()
            self.remembered[topic_name] = route
            self._receivers += receivers
        return route

    def _forget_all(self) -> None:
        self.remembered.clear()
        self._receivers = 0

    def matching(self, topic_name: str) -> list[Subscription]:
        """Whom a topic name reaches, worked out anew and not remembered."""
        first = self._root.children
        if not self._root.below and "+" not in first and topic_name.partition("/")[0] not in first:
            return []  # as for most names of a large retained set: the walk below would find as much
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

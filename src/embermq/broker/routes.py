"""Routes: which sessions a topic name reaches (3.1.1 section 4.7; 5.0 section 3.3.4).

Owns: the trie of topic filters, and the routes that it gives.
Every walk through the trie is a loop, so a topic of 65,535 slashes is only long.
A session with overlapping subscriptions is in a route once: at the highest QoS (MQTT-3.3.5-1), with the identifiers of
all of them (5.0, MQTT-3.3.4-4).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from embermq.broker.queues.route_group import GROUPS_OF_MESSAGE_MAX, RouteGroup, groups_of_message
from embermq.protocol.packets import Publish

if TYPE_CHECKING:
    from embermq.broker.session import Session


SUBSCRIPTION_BYTES: Final = 700
LEVEL_BYTES: Final = 400
"""About what a subscription takes in memory besides the text of its filter: by itself, and for each level."""


def subscription_bytes(topic_filter: str) -> int:
    """About how much memory a subscription takes, if it shares no level with another."""
    return SUBSCRIPTION_BYTES + 2 * len(topic_filter) + LEVEL_BYTES * (1 + topic_filter.count("/"))


@final
class Subscription:
    """What one session asked for with one topic filter, or with several that match the same topic name.

    `no_local`: messages of the session's own client are for `own`, which leaves out the subscriptions with No Local;
    None: there is no other.
    """

    __slots__ = ("session", "topic_filter", "qos", "no_local", "retain_as_published", "ids", "own")

    def __init__(
        self,
        session: "Session",
        topic_filter: str,
        qos: int,
        no_local: bool = False,
        retain_as_published: bool = False,
        ids: tuple[int, ...] = (),
        own: "Subscription | None" = None,
    ) -> None:
        self.session: Final = session
        self.topic_filter: Final = topic_filter
        self.qos: Final = qos
        self.no_local: Final = no_local
        self.retain_as_published: Final = retain_as_published
        self.ids: Final = ids  # Subscription Identifiers (5.0)
        self.own: Final = own


@final
class Route:
    """The sessions that a topic name reaches, each once.

    `receivers` get every message; `groups` decide themselves who gets it, and `groups_left_out` are too many.
    `persistent` are the receivers whose queue takes a QoS 1 or 2 message in the open commit group.
    `is_plain`: no receiver has an option that makes its copy of a QoS 0 message differ from the others'.
    """

    __slots__ = ("receivers", "groups", "groups_left_out", "persistent", "is_plain")

    def __init__(self, receivers: list[Subscription], groups: list[RouteGroup]) -> None:
        self.receivers: Final = receivers
        self.groups: Final = groups if len(groups) <= GROUPS_OF_MESSAGE_MAX else groups_of_message(groups)
        self.groups_left_out: Final = len(groups) - len(self.groups)
        self.persistent: Final = [
            receiver for receiver in receivers if receiver.qos > 0 and receiver.session.outbound.queue is not None
        ]
        self.is_plain: Final = not groups and not any(
            receiver.no_local or receiver.retain_as_published or receiver.ids for receiver in receivers
        )

    def enqueue(self, message: Publish, offset: int, client_id: str) -> list[Subscription]:
        """Add a QoS 1 or 2 message of a client to the persistent queues; returns the receivers without those that are
        full."""
        full: list[Subscription] = []
        for receiver in self.persistent:
            asked: Subscription | None = receiver
            if receiver.no_local and receiver.session.client_id == client_id:
                asked = receiver.own
            if asked is None or asked.qos == 0:
                continue
            retain = message.retain and asked.retain_as_published
            qos = min(message.qos, asked.qos)
            if not receiver.session.outbound.accept(message, offset, qos, retain, asked.ids):
                full.append(receiver)
        if not full:
            return self.receivers
        return [receiver for receiver in self.receivers if receiver not in full]


_NO_RECEIVERS: Final = Route([], [])  # one for all names without a subscription: a large set of topics has many of them


# One empty one for all nodes, never changed: most nodes have one child, and no subscription or group of their own.
_NO_CHILDREN: Final[dict[str, "_Node"]] = {}
_NO_SUBSCRIPTIONS: Final[dict["Session", Subscription]] = {}
_NO_GROUPS: Final[dict[RouteGroup, None]] = {}


@final
class _Node:
    __slots__ = ("children", "here", "below", "groups_here", "groups_below")

    def __init__(self) -> None:
        self.children = _NO_CHILDREN
        self.here = _NO_SUBSCRIPTIONS  # topic filters that end at this level
        self.below = _NO_SUBSCRIPTIONS  # topic filters that end in '#' after this level
        self.groups_here = _NO_GROUPS
        self.groups_below = _NO_GROUPS


@final
class Routes:
    """The trie of all topic filters of all sessions."""

    __slots__ = ("_root", "_watchers", "count", "size_bytes", "has_ended_sessions")

    def __init__(self) -> None:
        self._root: Final = _Node()
        self._watchers: Final[list[Callable[[str], None]]] = []
        self.count = 0  # subscriptions
        self.has_ended_sessions = False  # whose subscriptions are not removed yet
        self.size_bytes = 0  # about what all subscriptions take in memory, those of share groups included

    def watch(self, changed: Callable[[str], None]) -> None:
        """Have `changed` called with the topic filter of every subscription that is added or removed."""
        self._watchers.append(changed)

    def add(self, subscription: Subscription) -> None:
        """Add a subscription, replacing the session's one of an identical filter (MQTT-3.8.4-3)."""
        levels, is_multi = _levels(subscription.topic_filter)
        node = self._node(levels)
        place = node.below if is_multi else node.here
        if place is _NO_SUBSCRIPTIONS:
            place = {}
            if is_multi:
                node.below = place
            else:
                node.here = place
        if subscription.session not in place:
            self.count += 1
        place[subscription.session] = subscription
        self._changed(subscription.topic_filter)

    def add_group(self, group: RouteGroup) -> None:
        """Add a group, which the trie does not have."""
        levels, is_multi = _levels(group.topic_filter)
        node = self._node(levels)
        place = node.groups_below if is_multi else node.groups_here
        if place is _NO_GROUPS:
            place = {}
            if is_multi:
                node.groups_below = place
            else:
                node.groups_here = place
        place[group] = None
        self._changed(group.topic_filter)

    def remove(self, session: "Session", topic_filter: str) -> None:
        """Remove a session's subscription, with the nodes that are empty then."""
        levels, is_multi = _levels(topic_filter)
        path = self._path(levels)
        if path is None:
            return
        place = path[-1].below if is_multi else path[-1].here
        if place.pop(session, None) is None:
            return
        self.count -= 1
        _remove_empty(path, levels)
        self._changed(topic_filter)

    def remove_group(self, group: RouteGroup) -> None:
        """Remove a group, with the nodes that are empty then."""
        levels, is_multi = _levels(group.topic_filter)
        path = self._path(levels)
        if path is None:
            return
        place = path[-1].groups_below if is_multi else path[-1].groups_here
        place.pop(group, None)
        _remove_empty(path, levels)
        self._changed(group.topic_filter)

    def _node(self, levels: list[str]) -> _Node:
        node = self._root
        for level in levels:
            child = node.children.get(level)
            if child is None:
                child = _Node()
                if node.children is _NO_CHILDREN:
                    node.children = {}
                node.children[level] = child
            node = child
        return node

    def _path(self, levels: list[str]) -> list[_Node] | None:
        path = [self._root]
        for level in levels:
            child = path[-1].children.get(level)
            if child is None:
                return None
            path.append(child)
        return path

    def _changed(self, topic_filter: str) -> None:
        for changed in self._watchers:
            changed(topic_filter)

    def route(self, topic_name: str) -> Route:
        """The sessions that a topic name reaches at this moment."""
        root = self._root
        first = root.children
        is_root_empty = not root.below and not root.groups_below
        if is_root_empty and "+" not in first and topic_name.partition("/")[0] not in first:
            return _NO_RECEIVERS  # as for most names of a large retained set: the walk would find nothing either
        found = _Found()
        self._walk(topic_name, found)
        receivers = found.receivers()
        if self.has_ended_sessions:
            receivers = [receiver for receiver in receivers if not receiver.session.has_ended]
        return Route(receivers, found.groups) if receivers or found.groups else _NO_RECEIVERS

    def _walk(self, topic_name: str, found: "_Found") -> None:
        levels = topic_name.split("/")
        nodes = [self._root]
        # MQTT-4.7.2-1: a wildcard in the first level does not match a name that begins with '$'.
        wild = not topic_name.startswith("$")
        if wild:
            found.collect(self._root.below, self._root.groups_below)
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
                return
            wild = True
            for node in reached:
                if node.below or node.groups_below:
                    found.collect(node.below, node.groups_below)
            nodes = reached
        for node in nodes:
            if node.here or node.groups_here:
                found.collect(node.here, node.groups_here)


def _levels(topic_filter: str) -> tuple[list[str], bool]:
    """The levels of a topic filter, and whether a '#' follows them."""
    levels = topic_filter.split("/")
    is_multi = levels[-1] == "#"
    if is_multi:
        levels.pop()
    return levels, is_multi


def _remove_empty(path: list[_Node], levels: list[str]) -> None:
    for depth in range(len(levels), 0, -1):
        node = path[depth]
        if node.children or node.here or node.below or node.groups_here or node.groups_below:
            break
        del path[depth - 1].children[levels[depth - 1]]


@final
class _Found:
    """The subscriptions that a walk has found, one for each session."""

    __slots__ = ("groups", "_by_session", "_overlapping")

    def __init__(self) -> None:
        self.groups: list[RouteGroup] = []
        self._by_session: dict[Session, Subscription] = {}
        self._overlapping: dict[Session, list[Subscription]] = {}  # of sessions with more than one

    def collect(self, place: "dict[Session, Subscription]", groups: dict[RouteGroup, None]) -> None:
        self.groups += groups
        for session, subscription in place.items():
            other = self._by_session.setdefault(session, subscription)
            if other is not subscription:
                self._overlapping.setdefault(session, [other]).append(subscription)

    def receivers(self) -> list[Subscription]:
        for session, subscriptions in self._overlapping.items():
            self._by_session[session] = _merge(subscriptions)
        return list(self._by_session.values())


def _merge(several: list[Subscription]) -> Subscription:
    """Overlapping subscriptions of one session deliver once: at the highest QoS that was granted (MQTT-3.3.5-1), with
    all identifiers. A No Local subscription does not match the client's own messages, so it counts nothing for them.
    """
    own: Subscription | None = None
    qos = 0
    no_local = retain_as_published = False
    ids: list[int] = []
    for subscription in several:
        qos = max(qos, subscription.qos)
        no_local = no_local or subscription.no_local
        retain_as_published = retain_as_published or subscription.retain_as_published
        ids += subscription.ids
    if no_local:
        others = [subscription for subscription in several if not subscription.no_local]
        own = _merge(others) if others else None
    first = several[0]
    return Subscription(first.session, first.topic_filter, qos, no_local, retain_as_published, tuple(ids), own)

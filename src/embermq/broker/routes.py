"""Routes: which sessions a topic name reaches (3.1.1 section 4.7; 5.0 section 3.3.4).

Owns: the trie of topic filters, and the routes that it gives.
Every walk through the trie is a loop, so a topic of 65,535 slashes is only long.
A session with overlapping subscriptions is in a route once: at the highest QoS (MQTT-3.3.5-1), with the identifiers of
all of them (5.0, MQTT-3.3.4-4).
"""

from collections.abc import Callable
from typing import Final, final

from embermq.broker.access import Access
from embermq.broker.route_group import GROUPS_OF_MESSAGE_MAX, RouteGroup, groups_of_message
from embermq.broker.session import Session, Subscription
from embermq.protocol.packets import Publish


@final
class Route:
    """The sessions that a topic name reaches, each once.

    `receivers` get every message; `groups` decide themselves who gets it, and `groups_left_out` are too many.
    `persistent` are the receivers whose queue takes a QoS 1 or 2 message in the open commit group.
    """

    __slots__ = ("receivers", "groups", "groups_left_out", "persistent")

    def __init__(self, receivers: list[Subscription], groups: list[RouteGroup]) -> None:
        self.receivers: Final = receivers
        self.groups: Final = groups if len(groups) <= GROUPS_OF_MESSAGE_MAX else groups_of_message(groups)
        self.groups_left_out: Final = len(groups) - len(self.groups)
        self.persistent: Final = [
            receiver for receiver in receivers if receiver.qos > 0 and receiver.session.outbound.queue is not None
        ]

    def enqueue(self, message: Publish, offset: int, client_id: str) -> list[Session]:
        """Add a QoS 1 or 2 message of a client to the persistent queues; returns the sessions whose queue is full."""
        full: list[Session] = []
        for receiver in self.persistent:
            asked = receiver.for_client(client_id)
            if asked is None or asked.qos == 0:
                continue
            retain = message.retain and asked.retain_as_published
            qos = min(message.qos, asked.qos)
            if not receiver.session.outbound.accept(message, offset, qos, retain, asked.ids):
                full.append(receiver.session)
        return full


_NO_RECEIVERS: Final = Route([], [])  # one for all names without a subscription: a large set of topics has many of them


# One empty one for all nodes, never changed: most nodes have one child, and no subscription or group of their own.
_NO_CHILDREN: Final[dict[str, "_Node"]] = {}
_NO_SUBSCRIPTIONS: Final[dict[Session, Subscription]] = {}
_NO_GROUPS: Final[dict[RouteGroup, None]] = {}


@final
class _Node:
    """A level of topic filters; `#` is a level like any other."""

    __slots__ = ("children", "subscriptions", "groups")

    def __init__(self) -> None:
        self.children = _NO_CHILDREN
        # Of the topic filters that end at this level.
        self.subscriptions = _NO_SUBSCRIPTIONS
        self.groups = _NO_GROUPS

    def child(self, level: str) -> "_Node":
        """The node of the next level; it is made if there is none."""
        child = self.children.get(level)
        if child is None:
            child = _Node()
            if self.children is _NO_CHILDREN:
                self.children = {}
            self.children[level] = child
        return child

    def add(self, subscription: Subscription) -> bool:
        """Add or replace a session's subscription. True: it is new."""
        if self.subscriptions is _NO_SUBSCRIPTIONS:
            self.subscriptions = {}
        is_new = subscription.session not in self.subscriptions
        self.subscriptions[subscription.session] = subscription
        return is_new

    def add_group(self, group: RouteGroup) -> None:
        if self.groups is _NO_GROUPS:
            self.groups = {}
        self.groups[group] = None

    def is_empty(self) -> bool:
        return not (self.children or self.subscriptions or self.groups)


@final
class Routes:
    """The trie of all topic filters of all sessions."""

    def __init__(self, access: Access | None = None) -> None:
        """`access`: who may get what it has subscribed to; without it everybody may."""
        self._access: Final = access
        self._root: Final = _Node()
        self._watchers: Final[list[Callable[[str], None]]] = []
        self.count = 0  # subscriptions, those of share groups included
        self.size_bytes = 0  # about what they take in memory
        self._has_ended_sessions = False

    def count_member(self, count: int) -> None:
        """A share group has one member more, with 1, or less, with -1."""
        self.count += count

    def change_size(self, size_bytes: int) -> None:
        """The subscriptions take more memory; below 0: less."""
        self.size_bytes += size_bytes

    def leave_out_ended(self, has_ended_sessions: bool) -> None:
        """Whether there are sessions that have ended and whose subscriptions are not removed yet."""
        self._has_ended_sessions = has_ended_sessions

    def watch(self, changed: Callable[[str], None]) -> None:
        """Have `changed` called with the topic filter of every subscription that is added or removed."""
        self._watchers.append(changed)

    def add(self, subscription: Subscription) -> None:
        """Add a subscription, replacing the session's one of an identical filter (MQTT-3.8.4-3)."""
        if self._node(subscription.topic_filter).add(subscription):
            self.count += 1
        self._changed(subscription.topic_filter)

    def add_group(self, group: RouteGroup) -> None:
        """Add a group, which the trie does not have."""
        self._node(group.topic_filter).add_group(group)
        self._changed(group.topic_filter)

    def remove(self, session: Session, topic_filter: str) -> None:
        """Remove a session's subscription, with the nodes that are empty then."""
        path = self._path(topic_filter)
        if path is not None and path[-1].subscriptions.pop(session, None) is not None:
            self.count -= 1
            _remove_empty(path, topic_filter)
            self._changed(topic_filter)

    def remove_group(self, group: RouteGroup) -> None:
        """Remove a group, with the nodes that are empty then."""
        path = self._path(group.topic_filter)
        if path is not None:
            path[-1].groups.pop(group, None)
            _remove_empty(path, group.topic_filter)
            self._changed(group.topic_filter)

    def _node(self, topic_filter: str) -> _Node:
        node = self._root
        for level in topic_filter.split("/"):
            node = node.child(level)
        return node

    def _path(self, topic_filter: str) -> list[_Node] | None:
        path = [self._root]
        for level in topic_filter.split("/"):
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
        first = self._root.children
        if "#" not in first and "+" not in first and topic_name.partition("/")[0] not in first:
            return _NO_RECEIVERS  # as for most names of a large retained set: the walk would find nothing either
        found = _Found()
        self._walk(topic_name, found)
        receivers = found.receivers()
        if self._has_ended_sessions:
            receivers = [receiver for receiver in receivers if not receiver.session.has_ended]
        groups = found.groups
        access = self._access
        if access is not None and access.access_list is not None:
            receivers = [each for each in receivers if access.reaches(each.session.identity, topic_name)]
            groups = [group for group in groups if group.may_get(topic_name, access)]
        return Route(receivers, groups) if receivers or groups else _NO_RECEIVERS

    def _walk(self, topic_name: str, found: "_Found") -> None:
        levels = topic_name.split("/")
        nodes = [self._root]
        # MQTT-4.7.2-1: a wildcard in the first level does not match a name that begins with '$'.
        wild = not topic_name.startswith("$")
        if wild:
            _collect_below(self._root, found)
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
                _collect_below(node, found)
            nodes = reached
        for node in nodes:
            found.collect(node)


def _collect_below(node: _Node, found: "_Found") -> None:
    """A `#` behind a level matches that level too (4.7.1.2)."""
    below = node.children.get("#")
    if below is not None:
        found.collect(below)


def _remove_empty(path: list[_Node], topic_filter: str) -> None:
    levels = topic_filter.split("/")
    for depth in range(len(levels), 0, -1):
        if not path[depth].is_empty():
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

    def collect(self, node: _Node) -> None:
        self.groups += node.groups
        for session, subscription in node.subscriptions.items():
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

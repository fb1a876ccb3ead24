"""Admission: what clients may publish and subscribe to: rights, limits, budgets, and the server's own topics.

Owns: the checks, the count and the report of each refusal, and the cache of admitted topic names.

The cache maps a topic name to its route, and only names that have passed the checks on topic names are put into it, by
`route`. So one lookup answers two questions: a name that is found may be published to by any client that has the right
(which depends on the client and is not cached), and these are its receivers. A name goes out of the cache when a
subscription that may match it is added or removed.
"""

from collections.abc import Callable
from typing import Final, final

from embermq.broker.access import OPERATOR, Identity
from embermq.broker.context import Context
from embermq.broker.counters import SYS_PREFIX
from embermq.broker.history.history_filter import is_history
from embermq.broker.routes import Route
from embermq.broker.session import Session, subscription_bytes
from embermq.protocol.packets import Publish, RefusedPublish
from embermq.protocol.reasons import ReasonCode
from embermq.protocol.topics import filter_of_share, has_wildcard, is_shared

CACHE_TOPICS_MAX: Final = 65_536
"""How many topic names the cache holds; when it is full it is emptied."""
CACHE_RECEIVERS_MAX: Final = 500_000
"""Receivers in all cached routes together: a few thousand clients on `#` would be in every one of them."""
CACHE_TOPIC_LENGTH_MAX: Final = 256
"""Characters of a topic name that is cached: long names must not fill the memory."""
BRIDGE_STATE_PREFIX: Final = "$SYS/broker/connection/"


@final
class Refusal:
    """A PUBLISH or SUBSCRIBE that was refused, for the log of the shell."""

    __slots__ = ("client_id", "packet_name", "topic", "reason", "detail")

    def __init__(self, client_id: str, packet_name: str, topic: str, reason: ReasonCode, detail: str) -> None:
        self.client_id: Final = client_id
        self.packet_name: Final = packet_name
        self.topic: Final = topic  # the topic name of a PUBLISH, the topic filter of a SUBSCRIBE
        self.reason: Final = reason
        self.detail: Final = detail


def ignore_refusal(refusal: Refusal) -> None:
    """For a core whose refusals are not logged."""


@final
class Admission:
    """The checks, in one place for all clients."""

    def __init__(
        self,
        context: Context,
        report: Callable[[Refusal], None] = ignore_refusal,
        *,
        topics_max: int = CACHE_TOPICS_MAX,
        receivers_max: int = CACHE_RECEIVERS_MAX,
    ) -> None:
        self.admitted: Final[dict[str, Route]] = {}  # read by shortcuts; only `route` adds to it
        self._is_memory_full = False  # then no subscription is added
        self._store: Final = context.store
        self._access: Final = context.access
        self._limits: Final = context.limits
        self._counters: Final = context.counters
        self._clock: Final = context.clock
        self._routes: Final = context.routes
        self._report: Final = report
        self._topics_max: Final = topics_max
        self._receivers_max: Final = receivers_max
        self._receivers = 0  # at least as many as the cached routes have
        context.routes.watch(self._forget)

    def refuse_subscriptions(self, is_memory_full: bool) -> None:
        """From now on new subscriptions are refused, or accepted again."""
        self._is_memory_full = is_memory_full

    def refusal(self, client_id: str, identity: Identity, message: Publish) -> int | None:
        """Why a message is not taken, counted and reported; None if it is.

        A bridge of Mosquitto publishes its state among the server's own topics: that is acknowledged and ignored.
        """
        topic_name = message.topic_name
        if topic_name.startswith(SYS_PREFIX) and _is_bridge_state(topic_name) and identity is not OPERATOR:
            return ReasonCode.SUCCESS
        if (
            not self._access.unrestricted
            and identity is not OPERATOR
            and not self._access.may_publish(identity, topic_name, message.retain)
        ):
            self._counters.dropped_not_authorized += 1
            detail = "no right to retain" if message.retain else "no right to publish"
            return self._refuse(client_id, "PUBLISH", topic_name, ReasonCode.NOT_AUTHORIZED, detail)
        wrong = self._wrong_topic_name(topic_name)
        if wrong:
            self._counters.dropped_topic_refused += 1
            return self._refuse(client_id, "PUBLISH", topic_name, ReasonCode.TOPIC_NAME_INVALID, wrong)
        if message.retain and message.payload:
            over = self._store.retained.admits(topic_name, len(message.payload))
            if over:
                self._counters.dropped_retained_budget += 1
                return self._refuse(client_id, "PUBLISH", topic_name, ReasonCode.QUOTA_EXCEEDED, over)
        return None

    def refuse_payload(self, client_id: str, packet: RefusedPublish) -> int:
        """Count and report a message whose payload is not of the format that its properties say."""
        self._counters.dropped_payload_format += 1
        return self._refuse(client_id, "PUBLISH", packet.topic_name, packet.reason, packet.detail)

    def subscription_refusal(
        self, session: Session, topic_filter: str, existed: bool, asked: str = ""
    ) -> Refusal | None:
        """Why a subscription is not granted, counted and reported; None if it is.

        `asked`: the filter as the client sent it, if that is another.
        """
        reason: ReasonCode
        asked = asked or topic_filter
        size_bytes = subscription_bytes(topic_filter)
        is_share = is_shared(topic_filter)
        rate_max = self._limits.client_subscribe_rate_max
        if is_share:
            topic_filter = filter_of_share(topic_filter)
        if not topic_filter:
            reason, detail = ReasonCode.TOPIC_FILTER_INVALID, "not $share/name/filter"
        elif is_history(topic_filter):
            reason, detail = ReasonCode.TOPIC_FILTER_INVALID, "a history subscription cannot be shared"
        elif rate_max and not session.may_subscribe(rate_max, self._clock.now_ms):
            reason, detail = ReasonCode.QUOTA_EXCEEDED, "limits.client_subscribe_rate_max is exceeded"
        elif session.session_id and self._store.is_full():
            reason, detail = ReasonCode.QUOTA_EXCEEDED, "the disk has reached store.disk_reserve_bytes"
        elif not existed and self._is_memory_full:
            reason, detail = ReasonCode.QUOTA_EXCEEDED, "limits.memory_bytes_max is reached"
        elif not existed and len(session.subscriptions) >= self._limits.subscriptions_max:
            reason, detail = ReasonCode.QUOTA_EXCEEDED, "limits.subscriptions_max is reached"
        elif not existed and is_share and session.share_groups >= self._limits.share_groups_max:
            reason, detail = ReasonCode.QUOTA_EXCEEDED, "limits.share_groups_max is reached"
        elif not existed and session.subscription_bytes + size_bytes > self._limits.subscription_bytes_max:
            reason, detail = ReasonCode.QUOTA_EXCEEDED, "limits.subscription_bytes_max is reached"
        elif not existed and self._routes.size_bytes + size_bytes > self._limits.all_subscription_bytes_max:
            reason, detail = ReasonCode.QUOTA_EXCEEDED, "limits.all_subscription_bytes_max is reached"
        elif not existed and session.shapes is not None and not session.shapes.admits(topic_filter):
            reason, detail = ReasonCode.QUOTA_EXCEEDED, "too many wildcards at different levels"
        elif topic_filter.count("/") >= self._limits.topic_levels_max:
            reason, detail = ReasonCode.TOPIC_FILTER_INVALID, "more levels than limits.topic_levels_max"
        elif not self._access.grants(session.identity, topic_filter):
            reason, detail = ReasonCode.NOT_AUTHORIZED, "no right to read all that it can match"
        else:
            return None
        return self.refuse_subscription(session.client_id, asked, reason, detail)

    def refuse_subscription(self, client_id: str, asked: str, reason: ReasonCode, detail: str) -> Refusal:
        """Count and report a subscription that is not granted."""
        self._counters.subscriptions_refused += 1
        refusal = Refusal(client_id, "SUBSCRIBE", asked, reason, detail)
        self._report(refusal)
        return refusal

    def _refuse(self, client_id: str, packet_name: str, topic: str, reason: ReasonCode, detail: str) -> int:
        self._report(Refusal(client_id, packet_name, topic, reason, detail))
        return reason

    def _wrong_topic_name(self, topic_name: str) -> str:
        if topic_name in self.admitted:
            return ""
        if topic_name.count("/") >= self._limits.topic_levels_max:
            return "more levels than limits.topic_levels_max"
        return "$SYS topics are the server's own" if topic_name.startswith(SYS_PREFIX) else ""

    # -- the cache -----------------------------------------------------------------------------------------------

    def route(self, topic_name: str) -> Route:
        """The receivers of a topic name that was admitted; from now on it is in the cache, unless it is long."""
        route = self.admitted.get(topic_name)
        if route is not None:
            return route
        route = self._routes.route(topic_name)
        if len(topic_name) <= CACHE_TOPIC_LENGTH_MAX:
            receivers = len(route.receivers) + len(route.groups)
            if len(self.admitted) >= self._topics_max or self._receivers + receivers > self._receivers_max:
                self.forget_routes()
            self.admitted[topic_name] = route
            self._receivers += receivers
        return route

    def _forget(self, topic_filter: str) -> None:
        """A subscription was added or removed."""
        if has_wildcard(topic_filter):
            self.forget_routes()
        else:
            self.admitted.pop(topic_filter, None)

    def forget_routes(self) -> None:
        """Empty the cache."""
        self.admitted.clear()
        self._receivers = 0


def _is_bridge_state(topic_name: str) -> bool:
    """Whether it is `$SYS/broker/connection/<name>/state`; the name may have levels."""
    return topic_name.startswith(BRIDGE_STATE_PREFIX) and topic_name.endswith("/state")

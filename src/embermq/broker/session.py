"""A session: a client's state, which may outlive its connection (3.1.1 section 3.1.2.4).

Owns: the subscriptions, the QoS 2 packet identifiers received from the client, the will, what the client is owed, its
link; and the deadlines of sessions, one heap for each kind.
Never: a clock. Time comes in as `now_ms`.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, final

from embermq.broker.access import Identity
from embermq.broker.link import Link
from embermq.broker.queues.received import ReceivedIds
from embermq.broker.retained_delivery import SessionStreams
from embermq.broker.shapes import FEW_FILTERS, FilterShapes
from embermq.protocol.packets import SESSION_NEVER_EXPIRES, Will

if TYPE_CHECKING:
    from embermq.broker.history.stream import HistoryStream
    from embermq.broker.queues.outbound import Outbound
    from embermq.broker.queues.shared import ShareGroup
    from embermq.broker.rates.bucket import Bucket
    from embermq.broker.routes import Subscription

STALE_MAX: Final = 1_024
"""The heap is rebuilt when more entries than this, and more than half of it, are stale."""
EXPIRED_A_TICK: Final = 500
"""How many sessions end in one tick: thousands may have the same deadline."""

# One empty one for all sessions, never changed: many only publish.
_NO_GROUPS: Final["dict[ShareGroup, None]"] = {}
_NO_SUBSCRIPTIONS: Final["dict[str, Subscription]"] = {}
_NO_RECEIVED: Final = ReceivedIds()


@final
class Session:
    """One client identifier. `link` is None while no connection is open, and until CONNACK has been sent."""

    __slots__ = (
        "client_id",
        "session_id",
        "identity",
        "protocol",
        "address",
        "connected_ms",
        "link",
        "opening",
        "subscriptions",
        "subscription_bytes",
        "shapes",
        "subscribe_rate",
        "received_ids",
        "outbound",
        "streams",
        "history",
        "groups",
        "will",
        "session_expiry_s",
        "asked_expiry_s",
        "keep_alive_ms",
        "heard_ms",
        "lost_ms",
        "pending",
        "has_ended",
    )

    def __init__(self, client_id: str, session_id: int, identity: Identity, outbound: "Outbound") -> None:
        self.client_id: Final = client_id
        self.session_id: Final = session_id  # 0: not in the store, it ends with its connection
        self.identity = identity
        self.protocol = ""  # of its connection, or of the last one since the server started; so for the next two
        self.address = ""
        self.connected_ms = 0
        self.link: Link | None = None
        self.opening: Link | None = None  # connected, but CONNACK waits for a commit
        self.subscriptions: dict[str, Subscription] = _NO_SUBSCRIPTIONS
        self.subscription_bytes = 0  # about what they take in memory
        self.shapes: FilterShapes | None = None  # of those with wildcards; a few cannot exceed the bound
        # QoS 2 packet identifiers of the client, each with the number of the effect that sends its PUBREC.
        self.received_ids = _NO_RECEIVED
        self.subscribe_rate: Bucket | None = None  # from its first SUBSCRIBE on, if there is a bound
        self.outbound: Final = outbound
        self.streams: Final = SessionStreams()
        self.history: dict[str, HistoryStream] | None = None  # history subscriptions of its connection, by filter
        self.groups: dict[ShareGroup, None] = _NO_GROUPS
        self.will: Will | None = None
        self.session_expiry_s = 0
        self.asked_expiry_s = 0  # by CONNECT; DISCONNECT may not give an expiry to a session that had none
        self.keep_alive_ms = 0
        self.heard_ms = 0
        self.lost_ms = 0  # when the last connection ended; 0 while there is one
        self.pending = 0  # effects of this session that wait for a commit; later ones must not overtake them
        self.has_ended = False

    def add_subscription(self, subscription: "Subscription", topic_filter: str) -> None:
        """The client has subscribed, or has changed the options of a subscription."""
        if self.subscriptions is _NO_SUBSCRIPTIONS:
            self.subscriptions = {}
        is_new = topic_filter not in self.subscriptions
        self.subscriptions[topic_filter] = subscription
        if self.shapes is not None:
            if is_new:
                self.shapes.add(topic_filter)
        elif len(self.subscriptions) > FEW_FILTERS:
            self.shapes = FilterShapes(self.subscriptions)

    def remove_shape(self, topic_filter: str) -> None:
        """A topic filter of the session is gone."""
        if self.shapes is not None:
            self.shapes.remove(topic_filter)

    def remember_received(self, packet_id: int, effect: int) -> None:
        """A QoS 2 message has come, and `effect` is the number of the effect that sends its PUBREC."""
        self._own_received().parted()[packet_id] = effect

    def remember_received_run(self, first_id: int, count: int, effect: int) -> None:
        """The same for a run of messages whose packet identifiers count up by one; none of them has come before."""
        self._own_received().add_run(first_id, count, effect)

    def _own_received(self) -> ReceivedIds:
        if self.received_ids is _NO_RECEIVED:
            self.received_ids = ReceivedIds()
        return self.received_ids

    def add_group(self, group: "ShareGroup") -> None:
        """The client has become a member of a share group; it may be one of thousands."""
        if self.groups is _NO_GROUPS:
            self.groups = {}
        self.groups[group] = None

    def shared_bytes(self) -> int:
        """What waits in memory in the share groups that are charged to the client."""
        for group in self.groups:
            size_bytes = group.charged_bytes(self)
            if size_bytes:
                return size_bytes
        return 0

    def connection(self) -> Link | None:
        """The client's connection, whether CONNACK has been sent or not; None while there is none."""
        return self.opening if self.link is None else self.link

    def connection_changed(self) -> None:
        """`link` was set."""
        for group in self.groups:
            group.connection_changed()

    def is_told_reasons(self) -> bool:
        """Whether an acknowledgement can tell its client that a message was refused: not in MQTT 3.1 and 3.1.1."""
        return not self.protocol.startswith("MQTT 3")

    def subscription_ids(self, topic_filter: str) -> tuple[int, ...]:
        """The Subscription Identifier of one subscription, if it has one (5.0, 3.8.2.1.2)."""
        subscription = self.subscriptions.get(topic_filter)
        return () if subscription is None else subscription.ids

    def owed(self) -> int:
        """How many messages the client is still to get; the retained messages of one subscription count as one."""
        return self.outbound.owed() + len(self.streams)

    def keep_alive_due_ms(self) -> int:
        """When silence has lasted one and a half times the keep alive (MQTT-3.1.2-24); 0 for never."""
        if self.keep_alive_ms == 0 or self.connection() is None:
            return 0
        return self.heard_ms + self.keep_alive_ms + self.keep_alive_ms // 2

    def expiry_due_ms(self) -> int:
        """When the session ends if no client connects; 0 for never, or while it is connected."""
        if self.has_ended or self.lost_ms == 0 or self.session_expiry_s == SESSION_NEVER_EXPIRES:
            return 0
        return max(1, self.lost_ms + self.session_expiry_s * 1000)


@final
class Deadlines:
    """Sessions by the moment at which something falls due for them.

    The heap remembers when to ask a session for its deadline. One that has moved later is noticed when its entry comes
    up, so a client that sends a packet moves its keep alive at no cost.
    """

    __slots__ = ("_due", "_heap", "_watched", "_asked", "_number")

    def __init__(self, due: Callable[[Session], int]) -> None:
        """`due` tells a session's present deadline in ms, 0 for none."""
        self._due: Final = due
        self._heap: list[tuple[int, int]] = []  # when to ask, and the number of the session to ask
        self._watched: dict[int, Session] = {}  # by number; an entry whose number is not here is stale
        self._asked: dict[Session, tuple[int, int]] = {}  # the entry of each session
        self._number = 0

    def __len__(self) -> int:
        return len(self._heap)

    def watch(self, session: Session) -> None:
        """Make sure that a session is asked no later than at its present deadline."""
        due_ms = self._due(session)
        asked = self._asked.get(session)
        if due_ms and (asked is None or due_ms < asked[0]):
            self.forget(session)
            self._number += 1
            entry = due_ms, self._number
            self._asked[session] = entry
            self._watched[self._number] = session
            heappush(self._heap, entry)

    def forget(self, session: Session) -> None:
        """Stop watching a session. Its deadline may be years away, and it must not stay in memory until then."""
        asked = self._asked.pop(session, None)
        if asked is None:
            return
        del self._watched[asked[1]]
        if len(self._heap) > 2 * len(self._watched) + STALE_MAX:
            self._heap = list(self._asked.values())
            heapify(self._heap)

    def expired(self, now_ms: int, count_max: int = EXPIRED_A_TICK) -> list[Session]:
        """The sessions whose deadline has passed, in the order of deadlines; none of them is watched any longer.

        If there are more than `count_max`, `next_ms` is in the past: the others come with the next call.
        """
        found: list[Session] = []
        while self._heap and self._heap[0][0] <= now_ms and len(found) < count_max:
            _, number = heappop(self._heap)
            session = self._watched.pop(number, None)
            if session is None:
                continue
            del self._asked[session]
            due_ms = self._due(session)
            if due_ms and due_ms <= now_ms:
                found.append(session)
            else:
                self.watch(session)
        return found

    def next_ms(self) -> int | None:
        """When to call `expired` next; None while nothing is watched."""
        return self._heap[0][0] if self._heap else None

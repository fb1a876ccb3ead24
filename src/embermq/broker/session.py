"""A session: a client's state, which may outlive its connection (3.1.1 section 3.1.2.4).

Owns: the subscriptions, the QoS 2 packet identifiers received from the client, the will, what the client is owed, and
its connection.
Never: a clock. Time comes in as `now_ms`.
"""

from typing import Final, final

from mypy_extensions import mypyc_attr

from embermq.broker.access import Identity
from embermq.broker.link import Link
from embermq.broker.outbound import Outbound
from embermq.broker.rates import Bucket
from embermq.broker.retained_streams import SessionStreams
from embermq.broker.shapes import FEW_FILTERS, FilterShapes
from embermq.protocol.packets import SESSION_NEVER_EXPIRES, Connect, SubscriptionRequest, Will

SUBSCRIPTION_BYTES: Final = 700
LEVEL_BYTES: Final = 400
"""About what a subscription takes in memory besides the text of its filter: by itself, and for each level."""


def subscription_bytes(topic_filter: str) -> int:
    """About how much memory a subscription takes, if it shares no level with another."""
    return SUBSCRIPTION_BYTES + 2 * len(topic_filter) + LEVEL_BYTES * (1 + topic_filter.count("/"))


@final
class ReceivedRun:
    """QoS 2 packet identifiers that count up by one; their PUBRECs are sent by the effect with the number `effect`."""

    __slots__ = ("packet_id", "count", "effect")

    def __init__(self, packet_id: int, count: int, effect: int) -> None:
        self.packet_id: Final = packet_id
        self.count: Final = count
        self.effect: Final = effect


@final
class ReceivedIds:
    """The QoS 2 packet identifiers that one client has sent and not released yet (3.1.1 section 4.3.3).

    As runs in ascending order. A PUBREL for some identifiers of a run cuts it.
    """

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: Final[list[ReceivedRun]] = []

    def ids(self) -> list[int]:
        """All identifiers, in ascending order."""
        return [packet_id for run in self._runs for packet_id in range(run.packet_id, run.packet_id + run.count)]

    def has_any(self, packet_id: int, count: int) -> bool:
        """Whether one of these was received and not released."""
        place = self._place(packet_id + count)
        return place > 0 and self._runs[place - 1].packet_id + self._runs[place - 1].count > packet_id

    def add(self, packet_id: int, count: int, effect: int) -> None:
        """Messages have come with identifiers of which none is here."""
        self._runs.insert(self._place(packet_id), ReceivedRun(packet_id, count, effect))

    def take(self, packet_id: int, count: int) -> ReceivedRun | None:
        """PUBREL for identifiers from one on: the first ones, of one run, which is cut. None: the first is not here."""
        place = self._place(packet_id + 1) - 1
        if place < 0:
            return None
        run = self._runs[place]
        end_id = run.packet_id + run.count
        if packet_id >= end_id:
            return None
        taken = ReceivedRun(packet_id, min(count, end_id - packet_id), run.effect)
        rest: list[ReceivedRun] = []
        if run.packet_id < packet_id:
            rest.append(ReceivedRun(run.packet_id, packet_id - run.packet_id, run.effect))
        next_id = packet_id + taken.count
        if next_id < end_id:
            rest.append(ReceivedRun(next_id, end_id - next_id, run.effect))
        self._runs[place : place + 1] = rest
        return taken

    def _place(self, packet_id: int) -> int:
        """How many runs begin before an identifier."""
        low, high = 0, len(self._runs)
        while low < high:
            middle = (low + high) // 2
            if self._runs[middle].packet_id < packet_id:
                low = middle + 1
            else:
                high = middle
        return low


# One empty one for all sessions, never changed: many only publish.
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
        "_subscribe_rate",
        "received_ids",
        "outbound",
        "streams",
        "history_subscriptions",
        "share_groups",
        "shared_bytes",
        "will",
        "session_expiry_s",
        "asked_expiry_s",
        "keep_alive_ms",
        "login_due_ms",
        "heard_ms",
        "lost_ms",
        "lost_reason",
        "pending",
        "has_ended",
        "received",
        "sent",
    )

    def __init__(self, client_id: str, session_id: int, identity: Identity, outbound: Outbound) -> None:
        self.client_id: Final = client_id
        self.session_id: Final = session_id  # 0: not in the store, it ends with its connection
        self.identity = identity
        # Of its connection, or of the last one since the server started.
        self.protocol = ""
        self.address = ""
        self.connected_ms = 0
        self.link: Link | None = None
        self.opening: Link | None = None  # connected, but CONNACK waits for a commit
        self.subscriptions: dict[str, Subscription] = _NO_SUBSCRIPTIONS
        self.subscription_bytes = 0  # about what they take in memory
        self.shapes: FilterShapes | None = None  # of those with wildcards; a few cannot exceed the bound
        # QoS 2 packet identifiers of the client, each with the number of the effect that sends its PUBREC.
        self.received_ids = _NO_RECEIVED
        self._subscribe_rate: Bucket | None = None  # from its first SUBSCRIBE on, if there is a bound
        self.outbound: Final = outbound
        self.streams: Final = SessionStreams()
        self.history_subscriptions = 0  # of its connection
        self.share_groups = 0  # how many it is a member of
        self.shared_bytes = 0  # in memory, what waits in the share groups that are charged to the client
        self.will: Will | None = None
        self.session_expiry_s = 0
        self.asked_expiry_s = 0  # by CONNECT; DISCONNECT may not give an expiry to a session that had none
        self.keep_alive_ms = 0
        self.login_due_ms = 0  # when the log-in of its connection ends; 0 is never
        self.heard_ms = 0
        self.lost_ms = 0  # when the last connection ended; 0 while there is one
        self.lost_reason = ""  # why the last connection ended, since the server started
        self.pending = 0  # effects of this session that wait for a commit; later ones must not overtake them
        self.has_ended = False
        # PUBLISH packets of its client, and messages sent or owed to it, since the session or the server began.
        self.received = 0
        self.sent = 0

    # -- its connection ----------------------------------------------------------------------------------------------

    def restore(self, expiry_s: int, lost_ms: int) -> None:
        """At start: its connection ended before."""
        self.session_expiry_s = expiry_s
        self.lost_ms = lost_ms

    def connect(self, link: Link, identity: Identity, protocol: str, address: str, now_ms: int) -> None:
        """Its client has connected; CONNACK is not sent yet."""
        self.identity = identity
        self.protocol = protocol
        self.address = address
        self.connected_ms = self.heard_ms = now_ms
        self.lost_ms = 0
        self.opening = link

    def agree(self, connect: Connect, expiry_s: int, keep_alive_ms: int, login_due_ms: int) -> None:
        """What a CONNECT asked for, and what it gets; a `keep_alive_ms` or `login_due_ms` of 0 is none."""
        self.login_due_ms = login_due_ms
        self.asked_expiry_s = connect.session_expiry_s
        self.session_expiry_s = expiry_s
        self.keep_alive_ms = keep_alive_ms

    def open(self, link: Link) -> None:
        """CONNACK is sent, or the link has no client: messages go there from now on."""
        self.opening = None
        self.link = link

    def disconnect(self, now_ms: int, reason: str) -> None:
        """The connection has ended."""
        link = self.connection()
        if link is not None:
            link.detach()
        self.link = self.opening = None
        self.lost_ms = max(1, now_ms)
        self.lost_reason = reason
        self.keep_alive_ms = 0

    def end(self) -> None:
        """No message is for it any more."""
        self.has_ended = True

    def connection(self) -> Link | None:
        """The client's connection, whether CONNACK has been sent or not; None while there is none."""
        return self.opening if self.link is None else self.link

    def heard(self, now_ms: int) -> None:
        """The client has sent something, which may not have been read yet: its keep alive begins again."""
        self.heard_ms = now_ms

    def count_received(self, count: int) -> None:
        """PUBLISH packets of its client have come."""
        self.received += count

    def count_sent(self, count: int) -> None:
        """Messages were sent to it, or are owed to it."""
        self.sent += count

    def change_pending(self, count: int) -> None:
        """More effects wait for a commit; with a count below 0 they have been released."""
        self.pending += count

    def set_will(self, will: Will | None) -> None:
        """The will that is published if the connection ends without DISCONNECT."""
        self.will = will

    def take_will(self) -> Will | None:
        """The will, which is the session's no longer."""
        will, self.will = self.will, None
        return will

    def change_expiry(self, expiry_s: int) -> None:
        """DISCONNECT has changed how long the session lasts."""
        self.session_expiry_s = expiry_s

    # -- its subscriptions -------------------------------------------------------------------------------------------

    def add_subscription(self, subscription: "Subscription", topic_filter: str) -> int:
        """The client has subscribed. About how much more memory that takes; 0 if it has changed a subscription."""
        if self.subscriptions is _NO_SUBSCRIPTIONS:
            self.subscriptions = {}
        is_new = topic_filter not in self.subscriptions
        self.subscriptions[topic_filter] = subscription
        if self.shapes is not None:
            if is_new:
                self.shapes.add(topic_filter)
        elif len(self.subscriptions) > FEW_FILTERS:
            self.shapes = FilterShapes(self.subscriptions)
        size_bytes = subscription_bytes(topic_filter) if is_new else 0
        self.subscription_bytes += size_bytes
        return size_bytes

    def subscription_removed(self, topic_filter: str) -> int:
        """A subscription is gone. About how much memory it took."""
        if self.shapes is not None:
            self.shapes.remove(topic_filter)
        size_bytes = subscription_bytes(topic_filter)
        self.subscription_bytes -= size_bytes
        return size_bytes

    def may_subscribe(self, rate: int, now_ms: int) -> bool:
        """Whether one more topic filter is within a number of them in a second; if so, it counts."""
        if self._subscribe_rate is None:
            self._subscribe_rate = Bucket(rate, now_ms)
        return self._subscribe_rate.take(1, now_ms)

    def subscription_ids(self, topic_filter: str) -> tuple[int, ...]:
        """The Subscription Identifier of one subscription, if it has one (5.0, 3.8.2.1.2)."""
        subscription = self.subscriptions.get(topic_filter)
        return () if subscription is None else subscription.ids

    def count_group(self, count: int) -> None:
        """The client has become a member of a share group, with 1, or has left one, with -1."""
        self.share_groups += count

    def change_shared_bytes(self, count: int) -> None:
        """More waits in the share groups that are charged to the client; below 0: less."""
        self.shared_bytes += count

    def count_history(self, count: int) -> None:
        """A history subscription has begun, with 1, or has ended, with -1."""
        self.history_subscriptions += count

    # -- messages ----------------------------------------------------------------------------------------------------

    def remember_received(self, packet_id: int, count: int, effect: int) -> None:
        """New QoS 2 messages have come; `effect` is the number of the effect that sends their PUBRECs."""
        if self.received_ids is _NO_RECEIVED:
            self.received_ids = ReceivedIds()
        self.received_ids.add(packet_id, count, effect)

    def owed(self) -> int:
        """How many messages the client is still to get; the retained messages of one subscription count as one."""
        return self.outbound.owed() + len(self.streams)

    # -- its deadlines -----------------------------------------------------------------------------------------------

    def keep_alive_due_ms(self) -> int:
        """When silence has lasted one and a half times the keep alive (MQTT-3.1.2-24); 0 for never."""
        if self.keep_alive_ms == 0 or self.connection() is None:
            return 0
        return self.heard_ms + self.keep_alive_ms + self.keep_alive_ms // 2

    def login_end_ms(self) -> int:
        """When the log-in of its connection ends; 0 for never."""
        return self.login_due_ms if self.connection() is not None else 0

    def expiry_due_ms(self) -> int:
        """When the session ends if no client connects; 0 for never, or while it is connected."""
        if self.has_ended or self.lost_ms == 0 or self.session_expiry_s == SESSION_NEVER_EXPIRES:
            return 0
        return max(1, self.lost_ms + self.session_expiry_s * 1000)


@final
class Subscription:
    """What one session asked for with one topic filter, or with several that match the same topic name.

    `no_local`: messages of the session's own client are for `own`, which leaves out the subscriptions with No Local;
    None: all have No Local.
    """

    __slots__ = ("session", "topic_filter", "qos", "no_local", "retain_as_published", "ids", "own")

    def __init__(
        self,
        session: Session,
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

    def for_client(self, client_id: str) -> "Subscription | None":
        """What is asked for of a client's messages; None if there is none of them."""
        return self.own if self.no_local and self.session.client_id == client_id else self


def subscription_of(session: Session, request: SubscriptionRequest) -> Subscription:
    """What a session asks for in a SUBSCRIBE."""
    ids = (request.subscription_id,) if request.subscription_id else ()
    return Subscription(session, request.topic_filter, request.qos, request.no_local, request.retain_as_published, ids)


@mypyc_attr(allow_interpreted_subclasses=True)
class ClientLink(Link):
    """The connection of a client. `session` is set by the core between CONNECT and the end."""

    __slots__ = ("session",)

    def __init__(self, supervises_keep_alive: bool = False, can_be_held_back: bool = True) -> None:
        super().__init__(supervises_keep_alive, can_be_held_back)
        self.session: Session | None = None

    def attach(self, session: Session, maximum_packet_size: int) -> None:
        """The client has this session."""
        self.session = session
        self.maximum_packet_size = maximum_packet_size

    def detach(self) -> None:
        self.session = None

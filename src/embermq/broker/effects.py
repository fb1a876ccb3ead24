"""Effects: what a packet causes and what must not happen before its commit group is durable.

Owns: the effects of the open group and of the group that is being made durable, in the order in which the packets
came; the one place where they are counted (`Session.pending`, `Link.waiting`) and released.
An acknowledgement promises that something is durable, and a message that was delivered cannot be taken back; so both
wait for the commit. A store that has nothing to wait for releases them at the end of the turn, with the same code.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from embermq.broker.link import Link
from embermq.broker.runs.publishes import release_run
from embermq.protocol.packets import PUBACK, PUBREC, Connack, Packet, Publish, Suback
from embermq.protocol.reasons import ReasonCode
from embermq.protocol.topics import matches
from embermq.store.interface import Store, StoreError

if TYPE_CHECKING:
    from embermq.broker.core import Core
    from embermq.broker.queues.route_group import RouteGroup
    from embermq.broker.routes import Subscription
    from embermq.broker.session import Session


GATHER_ENOUGH: Final = 40
"""A group with this many effects does not wait, nor does the one after it."""
GATHER_QUIET_MS: Final = 10
"""A group does not wait if the last commit was longer ago than this."""
REST_AFTER_MS: Final = 100
"""The server does not rest while a group gathers (`may_rest`) if a message at QoS 0 has come within this time."""
COMMITS_AT_ONCE_MAX: Final = 64
"""How many groups do not wait after waiting has gained nothing several times: 1, 2, 4 and so on up to this."""
DELIVERIES_A_TURN: Final = 4_096
"""How many deliveries of durable messages begin before other clients come first."""
WEIGHT_MAX: Final = 4 * DELIVERIES_A_TURN
"""When more waits than this, no more is read from clients that bring much: all effects wait in one line."""
SUBACK_WEIGHT: Final = 8
"""Looking for the retained messages of one subscription is about as much work as so many deliveries."""


_NO_MORE: Final[list[Publish]] = []  # one empty one for all effects, never changed
_NONE_INCLUDED: Final[list["Subscription"]] = []  # the same


class Effect(ABC):
    """One effect that waits for a commit.

    `session`: later packets of this session must not overtake the effect; None if they may.
    `link`: the effect is an answer to this link, which counts against what the shell reads from it; None if it is none.
    `weight`: how much work its release is, in deliveries of a message to one client.
    """

    __slots__ = ("session", "link", "weight")

    session: "Session | None"
    link: Link | None
    weight: int

    @abstractmethod
    def release(self, core: "Core") -> None:
        """The group is durable: let the effect happen."""


@final
class Effects:
    """All effects that wait for a commit."""

    __slots__ = (
        "pending",
        "added",
        "_core",
        "_store",
        "_is_at_once",
        "_wake",
        "_wake_in_us",
        "_bug",
        "_joined",
        "_committing",
        "_released",
        "_is_committing",
        "_is_durable",
        "_weight",
        "_gather_us",
        "_is_gathering",
        "_gathered_from",
        "_commits_at_once",
        "_next_commits_at_once",
        "_last_count",
        "_last_ms",
        "_at_once",
        "_at_once_ms",
    )

    def __init__(
        self,
        core: "Core",
        store: Store,
        wake: Callable[[], None],
        bug: Callable[[Exception], None],
        wake_in_us: Callable[[int, Callable[[], None]], None] | None,
    ) -> None:
        """`wake_in_us` calls a function after a time; without it no group waits for more records."""
        self.pending: list[Effect] = []  # of the open group
        self.added = 0  # how many there have been; also the number of the newest
        self._core: Final = core
        self._store: Final = store
        self._is_at_once: Final = store.at_once()
        self._wake: Final = wake
        self._bug: Final = bug
        self._joined = 0  # messages of the open group that are part of the effect of another
        self._committing: list[Effect] = []  # of the group that is being made durable, or released
        self._released = 0  # how many of them are released
        self._is_committing = False  # until all of them are
        self._is_durable = False  # the group is durable, and the rest of them is released in the next turns
        self._weight = 0  # of all effects that are not released
        self._wake_in_us: Final = wake_in_us
        self._gather_us = 0
        self._is_gathering = False  # the commit of the open group waits for more records
        self._gathered_from = 0  # how many effects there were when it began to wait
        self._commits_at_once = 0  # how many commits do not wait, because waiting gained nothing
        self._next_commits_at_once = 1  # the same, when waiting gains nothing once more
        self._last_count = 0  # the effects of the last commit
        self._last_ms = 0  # when it began
        self._at_once = 0  # how many messages at QoS 0 have come
        self._at_once_ms = -REST_AFTER_MS  # when it was noticed that there was one more

    def add(self, effect: Effect) -> None:
        """Let an effect wait for the commit of the open group."""
        self.pending.append(effect)
        self.added += 1
        self._weight += effect.weight
        session = effect.session
        if session is not None:
            session.pending += 1
        link = effect.link
        if link is not None:
            link.waiting += 1

    def add_run(self, effect: "PublishEffect", more: list[Publish]) -> None:
        """Let a run of messages of one client wait: one effect, which `more` messages are part of."""
        session, link = effect.session, effect.link
        assert session is not None and link is not None
        count = len(more)
        effect.more = more
        effect.weight += count * effect.weight
        self.add(effect)
        self._joined += count
        session.pending += count
        link.waiting += count

    def newest_publish(self) -> "PublishEffect | None":
        """The newest effect of the open group, if it is that of a message."""
        newest = self.pending[-1] if self.pending else None
        return newest if isinstance(newest, PublishEffect) else None

    def joined(self, effect: "PublishEffect", weight: int) -> None:
        """A message has become part of the newest effect instead of an effect of its own."""
        effect.weight += weight
        self._weight += weight
        self._joined += 1

    def commit(self) -> None:
        """Ask the store to make the open group durable, unless it is still busy with the group before."""
        self._is_gathering = False
        while not self._is_committing:
            self._committing = self.pending
            self.pending = []
            self._joined = 0
            self._is_committing = True
            if not self._store.commit(self._committed):
                return
            self._is_durable = True
            self.release_more()
            if not self.pending:
                return

    def gather_for(self, gather_us: int) -> None:
        """From now on a small group waits for more records, for this long; 0: it does not."""
        self._gather_us = gather_us

    def commit_or_gather(self, now_ms: int) -> None:
        """Commit the open group; but when small groups follow each other closely, it may gather first.

        A sync for every message or two costs more CPU than all the rest of a message, so the shell asks for a wait
        (`gather_for`) when the processor is busy. Under heavy load groups are large without waiting. A client that
        waits for each acknowledgement would only lose time: if a group has not doubled while it waited, the next group
        does not wait, and twice as many each time that this happens again.
        """
        count = len(self.pending) + self._joined
        if self._is_committing or (self._is_gathering and count < GATHER_ENOUGH):
            return
        is_quiet = now_ms - self._last_ms > GATHER_QUIET_MS
        is_large = count >= GATHER_ENOUGH or self._last_count >= GATHER_ENOUGH or self._has_sender_of_many()
        may_wait = self._gather_us > 0 and self._wake_in_us is not None and self._store.must_commit()
        if not may_wait or is_quiet or is_large:
            self._commit_at(now_ms)
        elif self._commits_at_once > 0:
            self._commits_at_once -= 1
            self._commit_at(now_ms)
        elif self._wake_in_us is not None:
            self._is_gathering = True
            self._gathered_from = count
            self._wake_in_us(self._gather_us, self._gathered)

    def _has_sender_of_many(self) -> bool:
        """Whether a client has sent several packets without waiting for answers: the next ones come anyway."""
        for effect in self.pending:
            link = effect.link
            if link is not None and link.waiting > 1:
                return True
        return False

    def _commit_at(self, now_ms: int) -> None:
        self._last_count = len(self.pending) + self._joined
        self._last_ms = now_ms
        self.commit()

    def _gathered(self) -> None:
        """The time to gather is over."""
        if self._is_gathering:
            self._is_gathering = False
            count = len(self.pending) + self._joined
            if count < 2 * self._gathered_from:
                self._commits_at_once = self._next_commits_at_once
                self._next_commits_at_once = min(2 * self._commits_at_once, COMMITS_AT_ONCE_MAX)
            else:
                self._next_commits_at_once = 1
            self._last_count = count
            self._last_ms = self._core.connections.now_ms
            self.commit()
            self._wake()

    def may_rest(self) -> bool:
        """Whether packets that come now may wait a little: a group gathers, which most of them will be a part of.

        To wake for each message would cost more than the message. Messages at QoS 0 do not wait for a group, so there
        is no rest while some come.
        """
        if not self._is_gathering:
            return False
        counters, now_ms = self._core.counters, self._core.connections.now_ms
        at_once = counters.publish_received - counters.publish_received_1 - counters.publish_received_2
        if at_once != self._at_once:
            self._at_once, self._at_once_ms = at_once, now_ms
        return now_ms - self._at_once_ms >= REST_AFTER_MS

    def may_proceed(self) -> bool:
        """Whether effects can be released, or wait while the store is free to commit their group."""
        return self._is_durable or (bool(self.pending) and not self._is_committing and not self._is_gathering)

    def are_soon(self) -> bool:
        """Whether there are effects that wait only for the end of the turn: then an answer keeps its place behind."""
        return self._is_at_once and bool(self.pending)

    def released(self) -> int:
        """The number of the newest effect that is released; all before it are released too."""
        return self.added - len(self.pending) - len(self._committing) + self._released

    def pending_publishes(self) -> "list[PublishEffect]":
        """The messages that are not durable yet, oldest first."""
        waiting = [*self._committing[self._released :], *self.pending]
        return [effect for effect in waiting if isinstance(effect, PublishEffect)]

    def _committed(self, error: StoreError | None) -> None:
        """The store's answer to `commit`. After an error the store tries again: the effects stay pending."""
        if error is not None:
            return
        self._is_durable = True
        self.release_more()
        self._wake()

    def are_many(self) -> bool:
        """Whether so much work waits that clients which cause much of it should wait too."""
        return self._weight > WEIGHT_MAX

    def must_release(self) -> bool:
        """Whether the group is durable and some of its effects are not released yet."""
        return self._is_durable

    def release_more(self) -> None:
        """Release the effects of the durable group, in order: all, or as many deliveries as one turn may have.

        The rest follows in the next turns: a group may have thousands of messages with thousands of receivers each.
        """
        core = self._core
        effects = self._committing
        count = len(effects)
        position = self._released
        deliveries_left = DELIVERIES_A_TURN
        while position < count and deliveries_left > 0:
            effect = effects[position]
            position += 1
            self._released = position
            session = effect.session
            if session is not None:
                session.pending -= 1
            link = effect.link
            if link is not None:
                link.waiting -= 1
            weight = effect.weight
            deliveries_left -= weight
            self._weight -= weight
            try:
                effect.release(core)
            except Exception as error:  # a bug of ours in one effect must not stop the effects behind it
                self._bug(error)
        if position == count:
            self._committing = []
            self._released = 0
            self._is_committing = False
            self._is_durable = False


@final
class PublishEffect(Effect):
    """The deliveries of a message, and its acknowledgement to the publisher; the same for those that joined it."""

    __slots__ = ("client_id", "included", "message", "more", "offset", "receivers", "shares", "_has_subscribers")

    def __init__(
        self,
        message: Publish,
        offset: int,
        receivers: "list[Subscription]",
        shares: "list[tuple[RouteGroup, int]]",
        has_subscribers: bool,
        client_id: str,
        publisher: "Session | None",
        link: Link | None,
    ) -> None:
        self.session = publisher
        self.link = link
        self.weight = 1 + len(receivers) + len(shares)
        self.offset: Final = offset
        self.message: Final = message
        self.more = _NO_MORE  # what has joined (`runs.publishes`)
        self.receivers = receivers
        self.included = _NONE_INCLUDED  # subscriptions made while a run of retained messages is pending
        self.shares: Final = shares  # groups, each with what `RouteGroup.enqueue` returned
        self._has_subscribers: Final = has_subscribers
        self.client_id: Final = client_id

    def include(self, subscription: "Subscription") -> None:
        """A subscription made while a retained message is pending gets it live: the store cannot show it yet."""
        message = self.message
        if self.more:
            if message.retain:
                self.included = [*self.included, subscription]
                self.receivers = []  # another list: no other message joins
            return
        is_wanted = message.retain and message.payload and matches(subscription.topic_filter, message.topic_name)
        # A subscription that replaces another one of the same session is in the route already.
        if is_wanted and all(receiver.session is not subscription.session for receiver in self.receivers):
            self.receivers = [*self.receivers, subscription]

    def release(self, core: "Core") -> None:
        if self.more:
            release_run(core, self)
            return
        message = self.message
        if self.receivers:
            core.delivery.fan_out(message, self.receivers, self.client_id)
        for group, sequence in self.shares:
            group.offer(message, sequence)
        if message.retain:
            core.retained.publish_durable(message)
        link = self.link
        if link is not None and message.qos:
            link.acknowledge(PUBACK if message.qos == 1 else PUBREC, message.packet_id, self.reason())

    def reason(self) -> int:
        """5.0, 3.4.2.1: the publisher may know that nobody has subscribed to its topic name."""
        return 0 if self._has_subscribers else ReasonCode.NO_MATCHING_SUBSCRIBERS


@final
class AcknowledgementEffect(Effect):
    """PUBACK, PUBREC, PUBREL or PUBCOMP that promises something the group records."""

    __slots__ = ("_to", "_packet_type", "_packet_id", "_reason")

    def __init__(self, link: Link, packet_type: int, packet_id: int, reason: int = 0) -> None:
        self.session = None
        self.link = link
        self.weight = 1
        self._to: Final = link
        self._packet_type: Final = packet_type
        self._packet_id: Final = packet_id
        self._reason: Final = reason

    def release(self, core: "Core") -> None:
        self._to.acknowledge(self._packet_type, self._packet_id, self._reason)


@final
class PacketEffect(Effect):
    """SUBACK, UNSUBACK, or a PINGRESP that must come after them. After SUBACK the retained messages are sent."""

    __slots__ = ("_from", "_to", "_packet")

    def __init__(self, session: "Session", link: Link, packet: Packet) -> None:
        self.session = session
        self.link = link
        self.weight = 1
        if isinstance(packet, Suback):
            for reason in packet.reasons:
                if reason < ReasonCode.UNSPECIFIED_ERROR:
                    self.weight += SUBACK_WEIGHT
        self._from: Final = session
        self._to: Final = link
        self._packet: Final = packet

    def release(self, core: "Core") -> None:
        self._to.send(self._packet)
        if isinstance(self._packet, Suback):
            core.subscriptions.send_retained(self._from)


@final
class ConnackEffect(Effect):
    """The connection opens: CONNACK, then redelivery, then what the client has sent in the meantime."""

    __slots__ = ("_of", "_to", "_packet")

    def __init__(self, session: "Session", link: Link, packet: Connack) -> None:
        self.session = None
        self.link = None
        self.weight = 1
        self._of: Final = session
        self._to: Final = link
        self._packet: Final = packet

    def release(self, core: "Core") -> None:
        core.connections.open(self._of, self._to, self._packet)


@final
class CallEffect(Effect):
    """A call to the shell: everything that was appended before is durable."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.session = None
        self.link = None
        self.weight = 1
        self._call: Final = call

    def release(self, core: "Core") -> None:
        self._call()

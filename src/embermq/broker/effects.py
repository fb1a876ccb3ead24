"""Effects: what a packet causes and what must not happen before its commit group is durable.

Owns: the effects of the open group and of the group that is being made durable, in the order in which the packets
came. Here they are counted (`Session.pending`, `Link.waiting`) and released, and nowhere else.

Why they wait. An acknowledgement promises that something is durable, and a message that was delivered cannot be taken
back. So both wait until the records before them are durable.

The turn. Packets of one pass of the shell's loop are processed together. Their records go to the open group of the
store, their effects to the open list (`pending`). At the end of the turn the group is committed: the list becomes
`_committing`, and the next turns fill a new group and a new list. Only one group is made durable at a time. A store
that has nothing to wait for answers at once, and the effects are released in the same turn, with the same code.

The group. A commit costs about the same for one record as for a hundred. When small groups follow each other closely
and the processor is busy, a group gathers: its commit waits up to 2 ms for more records (`commit_or_gather`). A client
that waits for each acknowledgement would only lose time by that, so a group that has not doubled while it gathered is
followed by groups that do not.

The order. Effects are released in the order in which they were added, group by group, so the answers to a client come
in the order of its packets. What needs no commit must keep that order too: a message at QoS 0 becomes an effect while
an effect of its publisher is pending (`Session.pending`), and a PUBCOMP is sent directly only if the effect with its
PUBREC has been released (`released`). All effects have ascending numbers for that (`added`).

The release. A group may have thousands of messages with thousands of receivers each. So its effects are released in
portions, by weight, with the packets of other clients between them; what waits counts against what is read from
clients (`are_many`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, final

from embermq.broker.context import Context
from embermq.broker.link import Link
from embermq.broker.session import Session
from embermq.protocol.packets import Acknowledgement, Packet, Publish
from embermq.store.interface import StoreError

GATHER_ENOUGH: Final = 40
"""A group with this many effects does not wait, nor does the one after it."""
GATHER_QUIET_MS: Final = 10
"""A group does not wait if the last commit was longer ago than this."""
REST_AFTER_MS: Final = 100
"""The server does not rest while a group gathers (`may_rest`) if a message at QoS 0 has come within this time."""
UNGATHERED_MAX: Final = 64
"""How many groups are committed without gathering after it has gained nothing: 1, 2, 4 and so on up to this."""
DELIVERIES_A_TURN: Final = 4_096
"""How many deliveries of durable messages begin before other clients come first."""
WEIGHT_MAX: Final = 4 * DELIVERIES_A_TURN
"""When more waits than this, no more is read from clients that bring much: all effects wait in one line."""


class Effect(ABC):
    """One effect that waits for a commit. Each kind is defined beside the code that does the work of its release.

    `session`: later packets of this session must not overtake the effect; None if they may.
    `link`: the effect is an answer to this link, which counts against what the shell reads from it; None if it is none.
    `count`: how many packets of the client it is an answer to; 1 if it is of another kind.
    `weight`: how much work its release is, in deliveries of a message to one client.
    """

    __slots__ = ("session", "link", "count", "weight")

    def __init__(
        self, session: Session | None = None, link: Link | None = None, count: int = 1, weight: int = 1
    ) -> None:
        self.session: Final = session
        self.link: Final = link
        self.count = count
        self.weight = weight

    @abstractmethod
    def release(self) -> None:
        """The group is durable: let the effect happen."""


@final
class Effects:
    """All effects that wait for a commit."""

    def __init__(
        self,
        context: Context,
        bug: Callable[[Exception], None],
        wake_in_us: Callable[[int, Callable[[], None]], None] | None,
    ) -> None:
        """`wake_in_us` calls a function after a time; without it no group waits for more records."""
        self.pending: list[Effect] = []  # of the open group
        self.added = 0  # how many there have been; also the number of the newest
        self._store: Final = context.store
        self._counters: Final = context.counters
        self._clock: Final = context.clock
        self._is_immediate: Final = context.store.at_once()
        self._wake: Final = context.wake
        self._bug: Final = bug
        self._open_count = 0  # what the effects of the open group count
        self._committing: list[Effect] = []  # of the group that is being made durable, or released
        self._released = 0  # how many of them are released
        self._is_committing = False  # until all of them are
        self._is_durable = False  # the group is durable, and the rest of them is released in the next turns
        self._weight = 0  # of all effects that are not released
        self._wake_in_us: Final = wake_in_us
        self._gather_us = 0
        self._is_gathering = False  # the commit of the open group waits for more records
        self._gathered_from = 0  # how many effects there were when it began to wait
        self._ungathered = 0  # how many commits do not gather, because gathering gained nothing
        self._next_ungathered = 1  # the same, when gathering gains nothing once more
        self._last_count = 0  # the effects of the last commit
        self._last_ms = 0  # when it began
        self._qos_0_count = 0  # how many messages at QoS 0 have come
        self._qos_0_ms = -REST_AFTER_MS  # when it was noticed that there was one more

    def add(self, effect: Effect) -> None:
        """Let an effect wait for the commit of the open group."""
        self.pending.append(effect)
        self.added += 1
        count = effect.count
        self._open_count += count
        self._weight += effect.weight
        session = effect.session
        if session is not None:
            session.change_pending(count)
        link = effect.link
        if link is not None:
            link.change_waiting(count)

    def newest(self) -> Effect | None:
        """The effect that was added last, if it waits for the commit of the open group."""
        return self.pending[-1] if self.pending else None

    def grow(self, effect: Effect, count: int) -> None:
        """The newest effect is the answer to more packets than when it was added, each as much work."""
        self._open_count += count
        self._weight += count
        if effect.session is not None:
            effect.session.change_pending(count)
        if effect.link is not None:
            effect.link.change_waiting(count)

    def commit(self) -> None:
        """Ask the store to make the open group durable, unless it is still busy with the group before."""
        self._is_gathering = False
        while not self._is_committing:
            self._committing = self.pending
            self.pending = []
            self._open_count = 0
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

    def commit_or_gather(self) -> None:
        """Commit the open group; but when small groups follow each other closely, it may gather first.

        A sync for every message or two costs more CPU than all the rest of a message, so the shell asks for a wait
        (`gather_for`) when the processor is busy. Under heavy load groups are large without waiting. A client that
        waits for each acknowledgement would only lose time: if a group has not doubled while it waited, the next group
        does not wait, and twice as many each time that this happens again.
        """
        count = self._open_count
        if self._is_committing or (self._is_gathering and count < GATHER_ENOUGH):
            return
        is_quiet = self._clock.now_ms - self._last_ms > GATHER_QUIET_MS
        is_large = count >= GATHER_ENOUGH or self._last_count >= GATHER_ENOUGH or self._has_sender_of_many()
        may_wait = self._gather_us > 0 and self._wake_in_us is not None and self._store.must_commit()
        if not may_wait or is_quiet or is_large:
            self._commit_now()
        elif self._ungathered > 0:
            self._ungathered -= 1
            self._commit_now()
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

    def _commit_now(self) -> None:
        self._last_count = self._open_count
        self._last_ms = self._clock.now_ms
        self.commit()

    def _gathered(self) -> None:
        """The time to gather is over."""
        if self._is_gathering:
            self._is_gathering = False
            count = self._open_count
            if count < 2 * self._gathered_from:
                self._ungathered = self._next_ungathered
                self._next_ungathered = min(2 * self._ungathered, UNGATHERED_MAX)
            else:
                self._next_ungathered = 1
            self._commit_now()
            self._wake()

    def may_rest(self) -> bool:
        """Whether packets that come now may wait a little: a group gathers, which most of them will be a part of.

        To wake for each message would cost more than the message. Messages at QoS 0 do not wait for a group, so the
        server does not rest while some come.
        """
        if not self._is_gathering:
            return False
        counters, now_ms = self._counters, self._clock.now_ms
        qos_0_count = counters.publish_received - counters.publish_received_1 - counters.publish_received_2
        if qos_0_count != self._qos_0_count:
            self._qos_0_count, self._qos_0_ms = qos_0_count, now_ms
        return now_ms - self._qos_0_ms >= REST_AFTER_MS

    def may_proceed(self) -> bool:
        """Whether effects can be released, or wait while the store is free to commit their group."""
        return self._is_durable or (bool(self.pending) and not self._is_committing and not self._is_gathering)

    def are_soon(self) -> bool:
        """Whether there are effects that wait only for the end of the turn: then an answer keeps its place behind."""
        return self._is_immediate and bool(self.pending)

    def released(self) -> int:
        """The number of the newest effect that is released; all before it are released too."""
        return self.added - len(self.pending) - len(self._committing) + self._released

    def waiting(self) -> list[Effect]:
        """All that are not released yet, oldest first."""
        return [*self._committing[self._released :], *self.pending]

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
                session.change_pending(-effect.count)
            link = effect.link
            if link is not None:
                link.change_waiting(-effect.count)
            weight = effect.weight
            deliveries_left -= weight
            self._weight -= weight
            try:
                effect.release()
            except Exception as error:  # a bug of ours in one effect must not stop the effects behind it
                self._bug(error)
        if position == count:
            self._committing = []
            self._released = 0
            self._is_committing = False
            self._is_durable = False


@final
class OfferEffect(Effect):
    """A message that was added to one session's queue: a retained one, of the history, or of a share group.

    `is_promised`: of a share group, at QoS 2 (`Outbound.promise`).
    """

    __slots__ = ("_to", "_message", "_qos", "_retain", "_ids", "_is_promised")

    def __init__(
        self,
        to: Session,
        message: Publish,
        qos: int,
        retain: bool,
        ids: tuple[int, ...],
        is_promised: bool = False,
    ) -> None:
        super().__init__()
        self._to: Final = to
        self._message: Final = message
        self._qos: Final = qos
        self._retain: Final = retain
        self._ids: Final = ids
        self._is_promised: Final = is_promised

    def release(self) -> None:
        outbound = self._to.outbound
        if self._is_promised:
            outbound.keep_promise()
        if not self._to.has_ended:
            outbound.offer(self._to.link, [self._message], self._qos, self._retain, self._ids)


@final
class AcknowledgementEffect(Effect):
    """PUBACK, PUBREC, PUBREL or PUBCOMP that promises something the group records."""

    __slots__ = ("_acknowledgement",)

    def __init__(self, link: Link, acknowledgement: Acknowledgement) -> None:
        super().__init__(None, link, acknowledgement.count)
        self._acknowledgement: Final = acknowledgement

    def release(self) -> None:
        if self.link is not None:
            self.link.acknowledge(self._acknowledgement)


@final
class PacketEffect(Effect):
    """UNSUBACK, or a PINGRESP that must come after other answers."""

    __slots__ = ("_packet",)

    def __init__(self, session: Session, link: Link, packet: Packet) -> None:
        super().__init__(session, link)
        self._packet: Final = packet

    def release(self) -> None:
        if self.link is not None:
            self.link.send(self._packet)


@final
class CallEffect(Effect):
    """A call to the shell: everything that was appended before is durable."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], None]) -> None:
        super().__init__()
        self._call: Final = call

    def release(self) -> None:
        self._call()

"""Shared subscriptions: each message goes to one member of a share group (5.0 section 4.8.2; for all dialects).

Owns: the groups by their filter `$share/name/filter`, the one queue of each, and the choice of the member.

A message waits in the group's queue until a member can take it: one that is connected, reads, and has a place in its
window; these get messages in turn. With a member whose session is stored, the queue is in the store as well.
- QoS 0 is sent and forgotten; if no member can take it, it is dropped.
- QoS 1 stays in the group's queue until the member has acknowledged it. If the member's connection ends before, another
  member gets it.
- QoS 2 must stay with the member that it was sent to (MQTT-4.8.2-4, -5). So it is moved to the queue of the member's
  session: the group's queue marks it as handed over in the same commit group, and it is sent after the commit.
No order is kept between members (5.0, MQTT-4.6.0-6).

A client can be in many groups that get the same messages. So what waits in memory is charged to one member, the one
that has been in the group for longest: the queues of all groups that are charged to a client have the limits of one
queue together. A message that waits in several of them counts once in bytes, as it is in memory once. But each group
has its part of the length for itself, so that one whose members are away does not take the place of all others.
"""

from collections import deque
from typing import Final, final

from embermq.broker.context import Context
from embermq.broker.discarded import Discarded
from embermq.broker.effects import Effects, OfferEffect
from embermq.broker.route_group import RouteGroup
from embermq.broker.session import Session, Subscription
from embermq.protocol.packets import Delivery, Publish
from embermq.protocol.topics import filter_of_share
from embermq.store.interface import Queue
from embermq.store.records import SharedQueueEnded, SharedQueueOpened

READ_AHEAD: Final = 256
"""How many messages are read from the queue of a group at a time."""
RANK_BITS: Final = 48
"""How many bits of a group's rank are its number; before them is how many groups its founder was in."""
PUMPED_AT_ONCE: Final = 1_024
PUMPED_A_TURN: Final = 4_096
"""How many messages one group, and all groups together, give to members or drop in one turn."""


@final
class Member:
    """A client that is a member of share groups, and what waits in those that are charged to it.

    In memory, and how much in stored queues. The bytes are `Session.shared_bytes`.
    """

    __slots__ = ("groups", "_session", "_length_max", "_bytes_max", "_part_max", "_length", "_places", "_stored")

    def __init__(self, session: Session, length_max: int, bytes_max: int, part_max: int) -> None:
        """`part_max`: of the length, what each group has for itself."""
        self.groups: Final[dict[ShareGroup, None]] = {}  # charged to it or not
        self._session: Final = session
        self._length_max: Final = length_max
        self._part_max: Final = part_max
        self._bytes_max: Final = bytes_max
        self._length = 0
        self._stored = 0  # entries of stored queues that are not acknowledged
        self._places: Final[dict[int, int]] = {}  # by the identity of a message: in how many groups it waits

    def is_full(self) -> bool:
        """Whether no further message may wait."""
        return self._length >= self._length_max or self._session.shared_bytes >= self._bytes_max

    def has_place(self, message: Publish, length: int) -> bool:
        """Whether a message may wait in one more group, in which `length` others wait.

        If it waits in another, its bytes are counted already. One message may always wait, however large.
        """
        is_small = self._session.shared_bytes < self._bytes_max or id(message) in self._places or length == 0
        return is_small and (self._length < self._length_max or length < self._part_max)

    def has_stored_place(self, length: int) -> bool:
        """Whether one more message may be added to a stored queue of a length."""
        return self._stored < self._length_max or length < self._part_max

    def change_stored(self, count: int) -> None:
        """Messages were added to a stored queue; below 0: as many are not in it any more."""
        self._stored += count

    def add(self, message: Publish) -> None:
        """A message waits in one more group."""
        self._length += 1
        places = self._places.get(id(message), 0)
        if places == 0:
            self._session.change_shared_bytes(message.size_bytes())
        self._places[id(message)] = places + 1

    def remove(self, message: Publish) -> None:
        """It does not wait in one of them any more."""
        self._length -= 1
        places = self._places[id(message)]
        if places > 1:
            self._places[id(message)] = places - 1
        else:
            del self._places[id(message)]
            self._session.change_shared_bytes(-message.size_bytes())


@final
class ShareGroup(RouteGroup):
    """The members of one share name and filter, and the messages that no member has got yet."""

    __slots__ = (
        "share_filter",
        "members",
        "has_ended",
        "_shares",
        "_queue",
        "_queue_id",
        "_order",
        "_is_order_known",
        "_qos_members",
        "_next",
        "_waiting",
        "_charged",
        "_fetched",
        "_durable",
        "_taken",
        "_unfinished",
        "_acknowledged",
    )

    def __init__(self, shares: "Shares", share_filter: str, rank: int, charged: Member) -> None:
        super().__init__(filter_of_share(share_filter), rank)
        self.share_filter: Final = share_filter
        self.members: Final[dict[Session, Subscription]] = {}
        self.has_ended = False
        self._shares: Final = shares
        self._queue: Queue | None = None
        self._queue_id = 0
        self._order: list[Subscription] = []  # the members that are connected: thousands may be away
        self._is_order_known = True
        self._qos_members = 0  # members with QoS 1 or 2
        self._next = 0  # the place in `_order` of the member whose turn it is
        self._waiting: deque[Delivery] = deque()
        self._charged = charged  # of the oldest member; it has all that is in `_waiting`
        self._fetched = 0  # the newest sequence number that was read from the queue, or never needed to be
        self._durable = 0  # the newest sequence number that is durable and may be sent
        self._taken = 0  # the newest sequence number that a member got
        self._unfinished: Final[dict[int, None]] = {}  # sequence numbers that members have not acknowledged, in order
        self._acknowledged = 0

    # -- for the operator ----------------------------------------------------------------------------------------------

    def owed(self) -> int:
        """How many messages wait for a member, or for the acknowledgement of one."""
        return len(self._waiting) if self._queue is None else self._stored()

    def oldest_owed_offset(self) -> int:
        """The record of the oldest of them in the stored queue; 0 if there is none."""
        return 0 if self._queue is None else self._queue.oldest_owed_offset()

    # -- members -----------------------------------------------------------------------------------------------------

    def add(self, subscription: Subscription) -> bool:
        """A session becomes a member, or changes its options. True: it is new."""
        session = subscription.session
        before = self.members.get(session)
        is_new = before is None
        self._qos_members += (subscription.qos > 0) - (before is not None and before.qos > 0)
        self.members[session] = subscription
        self._is_order_known = False
        if self._queue is None and subscription.qos > 0 and session.outbound.queue is not None:
            store = self._shares.store
            self._queue_id = store.sessions.new_id()
            store.append(SharedQueueOpened(self._queue_id, self.share_filter))
            self._queue = store.sessions.queue(self._queue_id)
        return is_new

    def remove(self, session: Session) -> None:
        """A session is no longer a member. What it has got already is completed (5.0, MQTT-3.10.4-3)."""
        is_oldest = next(iter(self.members)) is session
        self._qos_members -= self.members.pop(session).qos > 0
        self._is_order_known = False
        if is_oldest and self.members:
            self._charge(self._shares.member(next(iter(self.members))))

    def _charge(self, charged: Member) -> None:
        """Another member is the oldest: what waits is charged to it. What it has no place for is dropped, unless it is
        in the stored queue: few of those are in memory.
        """
        before, self._charged = self._charged, charged
        if before is charged:
            return
        stored = self._stored()
        before.change_stored(-stored)
        charged.change_stored(stored)
        kept: list[Delivery] = []
        for delivery in self._waiting:
            before.remove(delivery.messages[0])
            if delivery.sequence or charged.has_place(delivery.messages[0], len(kept)):
                charged.add(delivery.messages[0])
                kept.append(delivery)
            else:
                self._shares.counters.dropped_queue_full += 1
        self._waiting.clear()
        self._waiting.extend(kept)

    def _stored(self) -> int:
        """How many messages are in the stored queue and not acknowledged."""
        return 0 if self._queue is None else max(0, self._queue.last() - self._acknowledged)

    def connection_changed(self) -> None:
        """A member has a connection, or has none any more."""
        self._is_order_known = False

    def _connected(self) -> list[Subscription]:
        if not self._is_order_known:
            self._is_order_known = True
            self._order = [member for member in self.members.values() if member.session.link is not None]
        return self._order

    def restore(self, queue_id: int, queue: Queue) -> None:
        """At start: the queue as the store remembers it."""
        self._queue_id = queue_id
        self._queue = queue
        self._durable = queue.last()
        self._fetched = self._taken = self._acknowledged = queue.acknowledged()
        self._charged.change_stored(self._stored())

    def queue_ended(self) -> None:
        """The stored queue has ended before the group."""
        self._charged.change_stored(-self._stored())
        self._queue = None

    def end(self) -> None:
        """The last member is gone."""
        self.has_ended = True
        for delivery in self._waiting:
            self._charged.remove(delivery.messages[0])
        self._charged.change_stored(-self._stored())
        self._shares.discarded.add(self._waiting)
        self._waiting = deque()
        if self._queue is not None:
            self._shares.store.append(SharedQueueEnded(self._queue_id, self.share_filter))

    # -- messages ----------------------------------------------------------------------------------------------------

    def enqueue(self, message: Publish, offset: int, client_id: str) -> int:
        """Add a QoS 1 or 2 message to the stored queue, in the open commit group. Returns its sequence number; 0 at
        QoS 0 or if no queue is stored; -1 if it is full, counted.
        """
        if self._is_for_nobody(message):
            self._shares.counters.dropped_not_authorized += 1
            return -1
        queue = self._queue
        if queue is None or message.qos == 0:
            return 0
        if not self._charged.has_stored_place(self._stored()):
            self._shares.counters.dropped_queue_full += 1
            return -1
        self._charged.change_stored(1)
        return queue.push(message, offset, message.qos, message.retain)

    def offer(self, message: Publish, sequence: int) -> None:
        """A message may be sent: `sequence` is what `enqueue` returned."""
        if self.has_ended or sequence < 0:
            return
        if message.qos == 0 or not self._qos_members:
            self._forward(message, sequence)
            return
        is_next = self._fetched == self._durable
        self._durable = max(self._durable, sequence)
        if sequence == 0:
            if not self._charged.has_place(message, len(self._waiting)):
                self._shares.counters.dropped_queue_full += 1
                return
        elif not is_next or len(self._waiting) >= READ_AHEAD or not self._can_wait(message):
            if not self._waiting and self._connected():
                self._shares.dirty[self] = None
            return  # it is read from the queue when its turn comes
        else:
            self._fetched = sequence
        self._waiting.append(self._shares.delivery_of(message, sequence))
        self._charged.add(message)
        counters = self._shares.counters
        counters.publish_shared += 1
        counters.publish_bytes_shared += len(message.payload)
        self._shares.dirty[self] = None

    def _can_wait(self, message: Publish) -> bool:
        """Whether a message that is stored may wait in memory too: a member may get it soon."""
        return self._charged.has_place(message, len(self._waiting)) and bool(self._connected())

    def _forward(self, message: Publish, sequence: int) -> None:
        if sequence:
            # All members have QoS 0 by now: what is stored before it is sent first.
            self._durable = max(self._durable, sequence)
            self._shares.dirty[self] = None
            return
        member = self._choose(message, 0)
        if member is None:
            if self._connected():
                self._shares.counters.dropped_output_full += 1
        elif not self._give_qos_0(member, message, message.retain and member.retain_as_published):
            self._shares.counters.dropped_output_full += 1

    def pump(self) -> int:
        """Give members what they can take. Returns for how many messages; with `PUMPED_AT_ONCE` there may be more."""
        pumped = 0
        while pumped < PUMPED_AT_ONCE and not self.has_ended:
            if not self._waiting:
                read = self._read_ahead() if self._connected() else 0
                if read == 0:
                    break
                pumped += read - len(self._waiting)
                continue
            delivery = self._waiting[0]
            has_expired = self._shares.clock.has_expired_live(delivery.messages[0])
            member = None if has_expired else self._choose(delivery.messages[0], delivery.qos)
            is_unreadable = not has_expired and member is None and self._is_for_nobody_connected(delivery.messages[0])
            if member is None and not has_expired and not is_unreadable:
                break
            self._waiting.popleft()
            self._charged.remove(delivery.messages[0])
            self._taken = max(self._taken, delivery.sequence)
            pumped += 1
            if member is not None:
                self._give(member, delivery)
            else:
                self._unfinished.pop(delivery.sequence, None)
                self._count_dropped(is_unreadable)
        self._record_acknowledged()
        return pumped

    def _count_dropped(self, is_unreadable: bool) -> None:
        counters = self._shares.counters
        if is_unreadable:
            counters.dropped_not_authorized += 1
        else:
            counters.dropped_expired += 1

    def _may_read(self, member: Session, message: Publish) -> bool:
        return self._shares.access.reaches(member.identity, message.topic_name)

    def _is_for_nobody(self, message: Publish) -> bool:
        """Whether no member may read a message."""
        access = self._shares.access
        if access.access_list is None:
            return False
        return not any(self._may_read(member, message) for member in self.members)

    def _is_for_nobody_connected(self, message: Publish) -> bool:
        """Whether there are connected members, and none may read a message: it must not keep those behind it back."""
        access = self._shares.access
        if access.access_list is None:
            return False
        order = self._connected()
        return bool(order) and not any(self._may_read(member.session, message) for member in order)

    def _read_ahead(self) -> int:
        """Read the next messages of the stored queue; returns how many, with those that a member has."""
        queue = self._queue
        if queue is None or self._fetched >= self._durable:
            return 0
        limit = 1 if self._charged.is_full() else READ_AHEAD
        found = queue.read(self._fetched, min(limit, self._durable - self._fetched))
        for delivery in found:
            self._fetched = delivery.sequence
            if delivery.released:  # a member has it (QoS 2)
                self._taken = max(self._taken, delivery.sequence)
            else:
                self._waiting.append(delivery)
                self._charged.add(delivery.messages[0])
        return len(found)

    def _choose(self, message: Publish, qos: int) -> Subscription | None:
        """The next member in turn that can take a message; None if there is none now.

        A member for which the message is too large is chosen only if it is too large for all that are connected: then
        it is dropped, and counted by the link (5.0, MQTT-3.1.2-25).
        """
        order = self._connected()
        count = len(order)
        too_small: Subscription | None = None
        is_awaited = False
        for step in range(count):
            place = (self._next + step) % count
            member = order[place]
            session = member.session
            link = session.link
            if link is None or not self._may_read(session, message):
                continue
            granted = min(qos, member.qos)
            if link.maximum_packet_size and not link.fits(Delivery([message], granted, False, False, 1, member.ids)):
                too_small = member
            elif link.has_room() and (granted == 0 or session.outbound.can_take(granted)):
                self._next = place + 1
                return member
            else:
                is_awaited = True
        return None if is_awaited else too_small

    def _give(self, member: Subscription, delivery: Delivery) -> None:
        qos = min(delivery.qos, member.qos)
        retain = delivery.retain and member.retain_as_published
        sequence = delivery.sequence
        message = delivery.messages[0]
        if qos == 0:
            self._give_qos_0(member, message, retain)
            self._unfinished.pop(sequence, None)
        elif qos == 1:
            if sequence:
                self._unfinished.setdefault(sequence)
            link = member.session.link
            assert link is not None
            self._shares.counters.count_sent(1, 1, len(message.payload))
            member.session.count_sent(1)
            if not member.session.outbound.send_shared(link, self, delivery, retain, member.ids):
                self.finish(sequence)  # too large for all members: it counts as delivered (5.0, MQTT-3.1.2-25)
        else:
            self._hand_over(member, delivery, retain)

    def _give_qos_0(self, member: Subscription, message: Publish, retain: bool) -> bool:
        link = member.session.link
        if link is None or not link.deliver(Delivery([message], 0, retain, False, 0, member.ids)):
            return False
        self._shares.counters.count_sent(0, 1, len(message.payload))
        member.session.count_sent(1)
        return True

    def _hand_over(self, member: Subscription, delivery: Delivery, retain: bool) -> None:
        """QoS 2: the message belongs to the member's session from here on."""
        session = member.session
        if session.outbound.queue is not None:
            session.outbound.accept(delivery.messages[0], -1, 2, retain, member.ids)
        if delivery.sequence and self._queue is not None:
            self._queue.release(delivery.sequence)
        self._unfinished.pop(delivery.sequence, None)
        session.outbound.promise()
        self._shares.counters.count_sent(2, 1, len(delivery.messages[0].payload))
        session.count_sent(1)
        self._shares.effects.add(OfferEffect(session, delivery.messages[0], 2, retain, member.ids, is_promised=True))

    # -- acknowledgements ----------------------------------------------------------------------------------------------

    def finish(self, sequence: int) -> None:
        """A member has acknowledged a message, or refused it: no other gets it (MQTT-4.8.2-6)."""
        self._unfinished.pop(sequence, None)
        self._shares.dirty[self] = None

    def take_back(self, delivery: Delivery) -> None:
        """A member is gone that has not acknowledged a QoS 1 message: another gets it."""
        if not self.has_ended:
            self._waiting.appendleft(delivery)
            self._charged.add(delivery.messages[0])
            self._shares.dirty[self] = None

    def _record_acknowledged(self) -> None:
        if self._queue is None or self.has_ended:
            return
        done = next(iter(self._unfinished)) - 1 if self._unfinished else self._taken
        if done > self._acknowledged:
            self._charged.change_stored(self._acknowledged - done)
            self._acknowledged = done
            self._queue.acknowledge(done)


@final
class Shares:
    """All share groups."""

    def __init__(self, context: Context, effects: Effects) -> None:
        """The queues of the groups that are charged to a client have the limits of a session's together."""
        limits = context.limits
        self.store: Final = context.store
        self.effects: Final = effects
        self.counters: Final = context.counters
        self.clock: Final = context.clock
        self.access: Final = context.access
        self.discarded: Final = Discarded()  # queues of groups, and of sessions
        self._length_max: Final = limits.queue_messages_max
        self._part_max: Final = limits.queue_messages_max // max(1, limits.share_groups_max)
        self._bytes_max: Final = limits.queue_bytes_max
        self.dirty: dict[ShareGroup, None] = {}  # groups with something to send or to record at the end of this turn
        self._routes: Final = context.routes
        self._groups: Final[dict[str, ShareGroup]] = {}
        self._newest: Delivery | None = None  # of the last message that began to wait in memory only
        self._number = 0  # of groups that there have been
        self._members: Final[dict[Session, Member]] = {}
        self._saved: dict[str, tuple[int, Queue]] = {}  # queues at start whose members are not known yet

    def restore(self) -> None:
        """At start, before the subscriptions of sessions are added."""
        for saved in self.store.sessions.shared_queues():
            self._saved[saved.share_filter] = (saved.queue_id, saved.queue)

    def add_queue(self, queue_id: int, share_filter: str) -> None:
        """A queue that another core began: the group of its filter has it from its first member on."""
        queue = self.store.sessions.queue(queue_id)
        if queue is not None:
            self._saved[share_filter] = (queue_id, queue)

    def queue_ended(self, share_filter: str) -> None:
        """A queue that another core ended; its last member leaves with the next record."""
        group = self._groups.get(share_filter)
        if group is not None:
            group.queue_ended()

    def restored(self) -> None:
        """The subscriptions of all sessions have been added: a queue without a member is of no use."""
        for share_filter, (queue_id, _) in self._saved.items():
            self.store.append(SharedQueueEnded(queue_id, share_filter))
        self._saved.clear()

    def add(self, subscription: Subscription) -> None:
        """A session joins the group of its filter, which begins with the first member."""
        share_filter = subscription.topic_filter
        group = self._groups.get(share_filter)
        if group is None:
            # The first groups of each client have a lower rank than the second ones, and older groups than newer ones.
            self._number += 1
            rank = (1 + subscription.session.share_groups << RANK_BITS) + self._number
            group = ShareGroup(self, share_filter, rank, self.member(subscription.session))
            self._groups[share_filter] = group
            saved = self._saved.pop(share_filter, None)
            if saved is not None:
                group.restore(saved[0], saved[1])
            self._routes.add_group(group)
        if group.add(subscription):
            self.member(subscription.session).groups[group] = None
            subscription.session.count_group(1)
            self._routes.count_member(1)
        self.dirty[group] = None

    def remove(self, session: Session, share_filter: str) -> None:
        """A session leaves its group, which ends with the last member."""
        group = self._groups[share_filter]
        group.remove(session)
        member = self._members[session]
        del member.groups[group]
        if not member.groups:
            del self._members[session]
        session.count_group(-1)
        self._routes.count_member(-1)
        if not group.members:
            del self._groups[share_filter]
            self.dirty.pop(group, None)
            group.end()
            self._routes.remove_group(group)

    def delivery_of(self, message: Publish, sequence: int) -> Delivery:
        """A message as it waits: one object for all groups, unless it has a number in a stored queue."""
        newest = self._newest
        if sequence or newest is None or newest.messages[0] is not message:
            newest = Delivery([message], message.qos, message.retain, False, 0, (), sequence)
            self._newest = None if sequence else newest
        return newest

    def member(self, session: Session) -> Member:
        """What is known of a client that is a member, or becomes one."""
        member = self._members.get(session)
        if member is None:
            member = self._members[session] = Member(session, self._length_max, self._bytes_max, self._part_max)
        return member

    def groups(self) -> list[ShareGroup]:
        """All groups, as a new list."""
        return list(self._groups.values())

    def session_changed(self, session: Session) -> None:
        """A session may be able to take more."""
        if session.share_groups:
            for group in self._members[session].groups:
                self.dirty[group] = None

    def connection_changed(self, session: Session) -> None:
        """A session has a connection, or has none any more."""
        if session.share_groups:
            for group in self._members[session].groups:
                group.connection_changed()

    def pump(self) -> bool:
        """At the end of a turn: let the groups with a change send what their members can take, as much as one turn may.
        True: the next turn has work already.
        """
        dirty = self.dirty
        self.dirty = {}
        left = PUMPED_A_TURN
        unfinished: list[ShareGroup] = []  # behind those that were not reached
        for group in dirty:
            if left <= 0:
                self.dirty[group] = None
                continue
            pumped = group.pump()
            left -= pumped
            if pumped >= PUMPED_AT_ONCE:
                unfinished.append(group)
        for group in unfinished:
            self.dirty[group] = None
        return left <= 0 or bool(unfinished)

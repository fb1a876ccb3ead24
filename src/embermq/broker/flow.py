"""Flow: publishers wait for a receiver that reads, instead of losing what it has no place for.

Owns: which receivers are congested, which publishers are held back for them, and the packets that were deferred.

A receiver is congested from the moment its queue has reached the high water mark until it has drained to the low one.
What its own client has sent does not count, so that a client that fills its own queue holds no publisher back.
A QoS 1 or 2 PUBLISH that would go to a congested receiver is deferred, with all that its publisher sends after it; but
acknowledgements and PINGREQ are processed at once, so two clients that publish to each other do not wait for ever. What
is deferred is bounded in bytes: beyond that the publisher is not read from, unless it is congested itself; then its
packets are processed all the same, and the receiver's queue may drop them when it is full.

The publishers that fill a queue are to wait, not the others. So each publisher may still send a small part of the high
water mark (`PASSING_PART`) while a receiver is congested; all publishers together as much as the high water mark.

A receiver can be hostile: it may never read, come back under other names, or be one of many. So waiting is bounded:
- A receiver that has not drained after `HOLD_BACK_MAX_MS` is slow: no publisher waits for it until it has. The time
  counts for its owner, which is the user, or the address of a client without a user name: all sessions of an owner have
  that time together, and a new session does not have it again. It is forgotten slowly (`HeldTimes`).
- A publisher waits no longer than that either, over all receivers together, and then for a sixth of the time. After
  that its messages are processed, and a receiver's queue drops what it has no place for.
- A wait that ends within `DRAINED_SOON_MS` because the receiver has drained counts for neither. So a publisher that is
  faster than a reader is slowed down to the reader's speed for as long as it lasts, and nothing is lost.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, final

from embermq.broker.context import Context
from embermq.broker.rates import network_of
from embermq.broker.routes import Route
from embermq.broker.session import ClientLink, Session
from embermq.protocol.packets import PUBREL, Acknowledgement, Packet, Pingreq, Publish

HOLD_BACK_MAX_MS: Final = 10_000
"""How long a publisher is held back at a time, and how long publishers wait for the receivers of one owner."""
FORGET_PART: Final = 6
"""In this many milliseconds one is forgotten: in the long run a publisher is held back for a sixth of the time."""
NAMES_MAX: Final = 10_000
"""How many names are remembered; the one whose time was changed longest ago is forgotten first."""
DRAINED_SOON_MS: Final = 2_000
"""A receiver that drains in this time reads well."""
PASSING_PART: Final = 16
"""The part of a receiver's high water mark that each publisher may send to it while it is congested."""
DEFERRED_BYTES_MAX: Final = 128 * 1024
"""Of one publisher: topic names and payloads that wait for a receiver. Beyond it the publisher is not read from."""
PACKET_BYTES: Final = 64
"""What a deferred packet counts besides its topic name and payload."""


@final
class HeldTimes:
    """How long publishers were held back lately, by name: the name of a publisher, or of an owner of slow receivers.

    A time is forgotten as time passes; a bounded number of names is remembered.
    """

    __slots__ = ("_times", "_names_max")

    def __init__(self, names_max: int = NAMES_MAX) -> None:
        self._times: Final[OrderedDict[str, tuple[int, int]]] = OrderedDict()  # a duration, and the instant it is of
        self._names_max: Final = names_max

    def __len__(self) -> int:
        return len(self._times)

    def held_ms(self, name: str, now_ms: int) -> int:
        """What is remembered now."""
        time = self._times.get(name)
        return 0 if time is None else max(0, time[0] - (now_ms - time[1]) // FORGET_PART)

    def is_used_up(self, name: str, now_ms: int, more_ms: int = 0) -> bool:
        """Whether a name has had all its time; `more_ms` has passed that was not added yet."""
        return self.held_ms(name, now_ms) + more_ms >= HOLD_BACK_MAX_MS

    def add(self, name: str, passed_ms: int, now_ms: int) -> None:
        """Somebody was held back for this long, until now."""
        total_ms = min(2 * HOLD_BACK_MAX_MS, self.held_ms(name, now_ms) + passed_ms)
        self._times[name] = (total_ms, now_ms)
        self._times.move_to_end(name)
        if len(self._times) > self._names_max:
            self._times.popitem(last=False)


def ignore_long_queue(client_id: str) -> None:
    """For a core whose long queues are not logged."""


def owner_of(session: Session) -> str:
    """Whom the slowness of a session is charged to: its user, else the host of its address."""
    user_name = session.identity.user_name
    if user_name:
        return f"user {user_name}"
    host, _, port = session.address.rpartition(":")
    return network_of(host.strip("[]")) if host and port.isdigit() else session.address


@final
class Congestion:
    """A receiver that publishers wait for, from now on."""

    __slots__ = ("receiver", "owner", "since_ms", "deferred", "_passed", "_all_passed_bytes")

    def __init__(self, receiver: Session, now_ms: int) -> None:
        self.receiver: Final = receiver
        self.owner: Final = owner_of(receiver)
        self.since_ms: Final = now_ms
        self.deferred: Final[list[Deferred]] = []
        self._passed: Final[dict[Session, int]] = {}  # bytes of publishers that have not had to wait
        self._all_passed_bytes = 0

    def lets_pass(self, publisher: Session, message: Publish) -> bool:
        """Whether a publisher has sent so little to the receiver that it need not wait."""
        outbound = self.receiver.outbound
        size_bytes = outbound.water_bytes(message)
        passed_bytes = self._passed.get(publisher, 0) + size_bytes
        self._all_passed_bytes += size_bytes
        if (
            publisher is self.receiver
            or passed_bytes * PASSING_PART > outbound.high_water_bytes
            or self._all_passed_bytes > outbound.high_water_bytes
        ):
            self._all_passed_bytes -= size_bytes
            return False
        self._passed[publisher] = passed_bytes
        return True


@final
class Deferred:
    """The packets of one publisher that wait for a receiver, the oldest first."""

    __slots__ = ("publisher", "link", "since_ms", "packets", "size_bytes", "is_ready", "may_wait")

    def __init__(self, publisher: Session, link: ClientLink, now_ms: int) -> None:
        self.publisher: Final = publisher
        self.link: Final = link
        self.since_ms: Final = now_ms
        self.packets: list[Packet] = []
        self.size_bytes = 0
        self.is_ready = False  # the core processes them when the turn ends
        self.may_wait = True  # they may be deferred again

    def add(self, packet: Packet) -> None:
        self.packets.append(packet)
        self.size_bytes += PACKET_BYTES
        if isinstance(packet, Publish):
            self.size_bytes += packet.size_bytes()

    def make_ready(self, may_wait: bool) -> None:
        """They are processed when the turn ends."""
        self.is_ready = True
        self.may_wait = may_wait

    def take(self) -> list[Packet]:
        """The packets, which are not deferred any longer."""
        packets, self.packets = self.packets, []
        return packets


@final
class Flow:
    """All congested receivers, and the publishers that wait for them."""

    def __init__(self, context: Context, report_long: Callable[[str], None]) -> None:
        """`report_long` is called with the client id of a session that keeps almost as much of the log as it may."""
        self.congested: Final[dict[Session, Congestion]] = {}
        self.held: Final[dict[Session, Deferred]] = {}  # by publisher, until the core takes what was deferred
        self.rising: dict[Session, None] = {}  # receivers whose queue has reached its high water mark in this turn
        self.ready: list[Deferred] = []  # those of them that wait for nothing but the end of the turn
        self.is_passing = False  # the last message that `blocking` was asked about goes to a congested receiver
        self._owners: Final = HeldTimes()  # of receivers
        self._publishers: Final = HeldTimes()  # by client identifier
        self._counters: Final = context.counters
        self._clock: Final = context.clock
        self._report_long: Final = report_long

    def take_ready(self) -> list[Deferred]:
        """The publishers that go on now."""
        ready, self.ready = self.ready, []
        return ready

    def end_turn(self) -> None:
        """Publishers wait for the receivers whose queue has reached its high water mark in this turn."""
        rising = self.rising
        self.rising = {}
        for session in rising:
            outbound = session.outbound
            if outbound.must_report_long():
                self._counters.queues_long += 1
                self._report_long(session.client_id)
            is_known = outbound.is_congested or outbound.is_slow or session.link is None
            if is_known or not outbound.is_above_high_water():
                continue
            congestion = Congestion(session, self._clock.now_ms)
            if self._owners.is_used_up(congestion.owner, self._clock.now_ms):
                self._counters.receivers_slow += 1
                outbound.set_slow()
                continue
            outbound.set_congested(True)
            self.congested[session] = congestion
            own = self.held.get(session)
            if own is not None:  # its acknowledgements must be read, or it would never drain
                own.link.hold_back(False)

    def blocking(self, publisher: Session, message: Publish, route: Route) -> Congestion | None:
        """What a publisher has to wait for with a message, if anything; else `is_passing` is set."""
        self.is_passing = False
        for receiver in route.receivers:
            if receiver.qos and receiver.session.outbound.is_congested:
                self.is_passing = True
                congestion = self.congested[receiver.session]
                if not congestion.lets_pass(publisher, message):
                    return None if self._publishers.is_used_up(publisher.client_id, self._clock.now_ms) else congestion
        return None

    def count_own(self, publisher: Session, message: Publish, route: Route) -> None:
        """A client whose queue is filling sends a message. Nobody is to wait because it has sent it to itself."""
        for receiver in route.receivers:
            if receiver.session is publisher:
                if receiver.qos and (not receiver.no_local or receiver.own is not None):
                    publisher.outbound.add_own(message)
                return

    def defer(
        self, publisher: Session, congestion: Congestion, link: ClientLink, packets: list[Packet]
    ) -> list[Packet]:
        """Hold a publisher back until a receiver has drained; returns what is to be processed at once."""
        self._counters.publishers_held_back += 1
        deferred = Deferred(publisher, link, self._clock.now_ms)
        self.held[publisher] = deferred
        congestion.deferred.append(deferred)
        return self.add(publisher, packets)

    def add(self, publisher: Session, packets: list[Packet]) -> list[Packet]:
        """More has come from a publisher that is held back; returns what is to be processed at once."""
        deferred = self.held[publisher]
        at_once: list[Packet] = []
        for packet in packets:
            is_answer = isinstance(packet, Acknowledgement) and packet.packet_type != PUBREL
            if is_answer or isinstance(packet, Pingreq):
                at_once.append(packet)
            else:
                deferred.add(packet)
        if deferred.size_bytes > DEFERRED_BYTES_MAX and not deferred.is_ready:
            if publisher.outbound.is_congested:
                self._release(deferred, DRAINED_SOON_MS, may_wait=False)
            else:
                deferred.link.hold_back(True)
        return at_once

    def take(self, deferred: Deferred) -> list[Packet]:
        """What was deferred is to be processed now; its publisher is not held back any more."""
        if self.held.get(deferred.publisher) is deferred:
            del self.held[deferred.publisher]
            deferred.link.hold_back(False)
        return deferred.take()

    def drained(self, session: Session) -> None:
        """A session's queue is below its low water mark."""
        session.outbound.drained()
        if session.outbound.is_congested:
            self._go_on_without(session, DRAINED_SOON_MS)

    def lost(self, session: Session) -> list[Packet]:
        """A connection has ended; returns what its client had sent and what is not processed yet."""
        session.outbound.drained()
        if session.outbound.is_congested:
            self._go_on_without(session, 0)
        deferred = self.held.pop(session, None)
        return [] if deferred is None else deferred.take()  # it may be in `ready`

    def tick(self) -> None:
        """Give up the receivers that have not drained in time, and let publishers go on that have waited enough."""
        now_ms = self._clock.now_ms
        for congestion in list(self.congested.values()):
            if self._owners.is_used_up(congestion.owner, now_ms, now_ms - congestion.since_ms):
                self._counters.receivers_slow += 1
                congestion.receiver.outbound.set_slow()
                self._go_on_without(congestion.receiver, 0)
        for publisher, deferred in self.held.items():
            publisher.heard(now_ms)  # it may not be read from, and then it cannot be heard
            waited_ms = now_ms - deferred.since_ms
            if not deferred.is_ready and self._publishers.is_used_up(publisher.client_id, now_ms, waited_ms):
                self._release(deferred, 0, may_wait=False)

    def _go_on_without(self, receiver: Session, free_ms: int) -> None:
        """Nobody waits for a receiver any more. No wait counts that was not longer than `free_ms`."""
        receiver.outbound.set_congested(False)
        congestion = self.congested.pop(receiver)
        passed_ms = self._clock.now_ms - congestion.since_ms
        if passed_ms > free_ms:
            self._owners.add(congestion.owner, passed_ms, self._clock.now_ms)
        for deferred in congestion.deferred:
            if not deferred.is_ready:
                self._release(deferred, free_ms)

    def _release(self, deferred: Deferred, free_ms: int, may_wait: bool = True) -> None:
        waited_ms = self._clock.now_ms - deferred.since_ms
        if waited_ms > free_ms:
            self._publishers.add(deferred.publisher.client_id, waited_ms, self._clock.now_ms)
        deferred.make_ready(may_wait)
        self.ready.append(deferred)

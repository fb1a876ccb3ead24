"""Flow: publishers wait for a receiver that reads, instead of losing what it has no place for.

Owns: which receivers are congested, which publishers are held back for them, and the packets that were deferred.

A receiver is congested from the moment its queue has reached the high water mark until it has drained to the low one.
What its own client has sent does not count, so that nobody waits for a client that fills its own queue.
A QoS 1 or 2 PUBLISH that would go to a congested receiver is deferred, with all that its publisher sends after it; but
acknowledgements and PINGREQ are processed at once, so two clients that publish to each other do not wait for ever. What
is deferred is bounded in bytes: beyond that the publisher is not read from, unless it is congested itself; then its
packets are processed all the same, and the receiver's queue may drop them when it is full.

The publishers that fill a queue are to wait, not the others. So each publisher may still send a small part of the high
water mark (`PASSING_PART`) while a receiver is congested; all publishers together as much as the high water mark.

A receiver can be hostile: it may never read, come back under other names, or be one of many. So waiting is bounded:
- A receiver that has not drained after `HOLD_BACK_MAX_MS` is slow: nobody waits for it until it has. The time counts
  for its owner, which is the user, or the address of a client without a user name: all sessions of an owner have that
  time together, and a new session does not have it again. It is forgotten slowly (`held_times`).
- A publisher waits no longer than that either, over all receivers together, and then for a sixth of the time. After
  that its messages are processed, and a receiver's queue drops what it has no place for.
- A wait that ends within `DRAINED_SOON_MS` because the receiver has drained counts for neither. So a publisher that is
  faster than a reader is slowed down to the reader's speed for as long as it lasts, and nothing is lost.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from embermq.broker.rates.held_times import HeldTimes
from embermq.broker.rates.network import network_of
from embermq.protocol.acknowledgements import Acknowledgements, parted
from embermq.protocol.packets import PUBREL, Packet, Pingreq, Puback, Pubcomp, Publish, Pubrec

if TYPE_CHECKING:
    from embermq.broker.counters import Counters
    from embermq.broker.link import Link
    from embermq.broker.routes import Route
    from embermq.broker.session import Session

DRAINED_SOON_MS: Final = 2_000
"""A receiver that drains in this time reads well."""
PASSING_PART: Final = 16
"""The part of a receiver's high water mark that each publisher may send to it while it is congested."""
DEFERRED_BYTES_MAX: Final = 128 * 1024
"""Of one publisher: topic names and payloads that wait for a receiver. Beyond it the publisher is not read from."""
PACKET_BYTES: Final = 64
"""What a deferred packet counts besides its topic name and payload."""


def ignore_long_queue(client_id: str) -> None:
    """For a core whose long queues are not logged."""


def owner_of(session: "Session") -> str:
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

    def __init__(self, receiver: "Session", now_ms: int) -> None:
        self.receiver: Final = receiver
        self.owner: Final = owner_of(receiver)
        self.since_ms: Final = now_ms
        self.deferred: Final[list[Deferred]] = []
        self._passed: Final[dict[Session, int]] = {}  # bytes of publishers that have not had to wait
        self._all_passed_bytes = 0

    def lets_pass(self, publisher: "Session", message: Publish) -> bool:
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

    def __init__(self, publisher: "Session", link: "Link", now_ms: int) -> None:
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
            self.size_bytes += len(packet.topic_name) + len(packet.payload) + len(packet.properties)


@final
class Flow:
    """All congested receivers, and the publishers that wait for them."""

    __slots__ = (
        "congested",
        "held",
        "is_passing",
        "now_ms",
        "ready",
        "rising",
        "_counters",
        "_owners",
        "_publishers",
        "_report_long",
    )

    def __init__(self, counters: "Counters", report_long: Callable[[str], None]) -> None:
        """`report_long` is called with the client id of a session that keeps almost as much of the log as it may."""
        self.congested: Final[dict[Session, Congestion]] = {}
        self.held: Final[dict[Session, Deferred]] = {}  # by publisher, until the core takes what was deferred
        self.rising: dict[Session, None] = {}  # receivers whose queue has reached its high water mark in this turn
        self.ready: list[Deferred] = []  # those of them that wait for nothing but the end of the turn
        self.is_passing = False  # the last message that `blocking` was asked about goes to a congested receiver
        self.now_ms = 0  # of the turn
        self._owners: Final = HeldTimes()  # of receivers
        self._publishers: Final = HeldTimes()  # by client identifier
        self._counters: Final = counters
        self._report_long: Final = report_long

    def end_turn(self) -> None:
        """Publishers wait for the receivers whose queue has reached its high water mark in this turn."""
        rising = self.rising
        self.rising = {}
        for session in rising:
            outbound = session.outbound
            if outbound.is_long() and not outbound.is_reported_long:
                outbound.is_reported_long = True
                self._counters.queues_long += 1
                self._report_long(session.client_id)
            is_known = outbound.is_congested or outbound.is_slow or session.link is None
            if is_known or not outbound.is_above_high_water():
                continue
            congestion = Congestion(session, self.now_ms)
            if self._owners.is_used_up(congestion.owner, self.now_ms):
                self._counters.receivers_slow += 1
                outbound.is_slow = True
                continue
            outbound.is_congested = True
            self.congested[session] = congestion
            own = self.held.get(session)
            if own is not None:  # its acknowledgements must be read, or it would never drain
                own.link.hold_back(False)

    def blocking(self, publisher: "Session", message: Publish, route: "Route") -> Congestion | None:
        """What a publisher has to wait for with a message, if anything; else `is_passing` is set."""
        self.is_passing = False
        for receiver in route.receivers:
            if receiver.qos and receiver.session.outbound.is_congested:
                self.is_passing = True
                congestion = self.congested[receiver.session]
                if not congestion.lets_pass(publisher, message):
                    return None if self._publishers.is_used_up(publisher.client_id, self.now_ms) else congestion
        return None

    def count_own(self, publisher: "Session", message: Publish, route: "Route") -> None:
        """A client whose queue is filling sends a message. Nobody is to wait because it has sent it to itself."""
        for receiver in route.receivers:
            if receiver.session is publisher:
                if receiver.qos and (not receiver.no_local or receiver.own is not None):
                    publisher.outbound.add_own(message)
                return

    def defer(self, publisher: "Session", congestion: Congestion, link: "Link", packets: list[Packet]) -> list[Packet]:
        """Hold a publisher back until a receiver has drained; returns what is to be processed at once."""
        self._counters.publishers_held_back += 1
        deferred = Deferred(publisher, link, self.now_ms)
        self.held[publisher] = deferred
        congestion.deferred.append(deferred)
        return self.add(publisher, packets)

    def add(self, publisher: "Session", packets: list[Packet]) -> list[Packet]:
        """More has come from a publisher that is held back; returns what is to be processed at once."""
        deferred = self.held[publisher]
        at_once: list[Packet] = []
        for packet in packets:
            if isinstance(packet, Acknowledgements) and packet.packet_type == PUBREL:
                self._counters.messages_received += len(packet.packet_ids) - 1  # the run has been counted as a packet
                for single in parted([packet]):
                    deferred.add(single)
            elif isinstance(packet, (Puback, Pubrec, Pubcomp, Pingreq, Acknowledgements)):
                at_once.append(packet)
            else:
                deferred.add(packet)
        if deferred.size_bytes > DEFERRED_BYTES_MAX and not deferred.is_ready:
            if publisher.outbound.is_congested:
                deferred.may_wait = False
                self._release(deferred, DRAINED_SOON_MS)
            else:
                deferred.link.hold_back(True)
        return at_once

    def take(self, deferred: Deferred) -> list[Packet]:
        """What was deferred is to be processed now; its publisher is not held back any more."""
        if self.held.get(deferred.publisher) is deferred:
            del self.held[deferred.publisher]
            deferred.link.hold_back(False)
        return deferred.packets

    def drained(self, session: "Session") -> None:
        """A session's queue is below its low water mark."""
        session.outbound.drained()
        if session.outbound.is_congested:
            self._go_on_without(session, DRAINED_SOON_MS)

    def lost(self, session: "Session") -> list[Packet]:
        """A connection has ended; returns what its client had sent and what is not processed yet."""
        session.outbound.drained()
        if session.outbound.is_congested:
            self._go_on_without(session, 0)
        deferred = self.held.pop(session, None)
        if deferred is None:
            return []
        packets = deferred.packets
        deferred.packets = []  # it may be in `ready`
        return packets

    def tick(self, now_ms: int) -> None:
        """Give up the receivers that have not drained in time, and let publishers go on that have waited enough."""
        self.now_ms = now_ms
        for congestion in list(self.congested.values()):
            if self._owners.is_used_up(congestion.owner, now_ms, now_ms - congestion.since_ms):
                self._counters.receivers_slow += 1
                congestion.receiver.outbound.is_slow = True
                self._go_on_without(congestion.receiver, 0)
        for publisher, deferred in self.held.items():
            publisher.heard_ms = now_ms  # it may not be read from, and then it cannot be heard
            waited_ms = now_ms - deferred.since_ms
            if not deferred.is_ready and self._publishers.is_used_up(publisher.client_id, now_ms, waited_ms):
                deferred.may_wait = False
                self._release(deferred, 0)

    def _go_on_without(self, receiver: "Session", free_ms: int) -> None:
        """Nobody waits for a receiver any more. No wait counts that was not longer than `free_ms`."""
        receiver.outbound.is_congested = False
        congestion = self.congested.pop(receiver)
        passed_ms = self.now_ms - congestion.since_ms
        if passed_ms > free_ms:
            self._owners.add(congestion.owner, passed_ms, self.now_ms)
        for deferred in congestion.deferred:
            if not deferred.is_ready:
                self._release(deferred, free_ms)

    def _release(self, deferred: Deferred, free_ms: int) -> None:
        waited_ms = self.now_ms - deferred.since_ms
        if waited_ms > free_ms:
            self._publishers.add(deferred.publisher.client_id, waited_ms, self.now_ms)
        deferred.is_ready = True
        self.ready.append(deferred)

"""Flow: publishers wait for a receiver that reads, instead of losing what it has no place for.

Owns: which receivers are congested, which publishers are held back for them, and the packets that were deferred.

A receiver is congested from the moment its queue has reached the high water mark until it has drained to the low one.
A QoS 1 or 2 PUBLISH that would go to a congested receiver is deferred, with all that its publisher sends after it; but
acknowledgements and PINGREQ are processed at once, so two clients that publish to each other do not wait for ever. What
is deferred is bounded in bytes: beyond that the publisher is not read from, unless it is congested itself; then its
packets are processed all the same, and the receiver's queue may drop them when it is full.
A receiver that has not drained after `HOLD_BACK_MAX_MS` is slow: nobody waits for it until it has.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from embermq.protocol.acknowledgements import Acknowledgements, parted
from embermq.protocol.packets import PUBREL, Packet, Pingreq, Puback, Pubcomp, Publish, Pubrec

if TYPE_CHECKING:
    from embermq.broker.counters import Counters
    from embermq.broker.link import Link
    from embermq.broker.routes import Route
    from embermq.broker.session import Session

HOLD_BACK_MAX_MS: Final = 10_000
"""How long publishers wait for one receiver before it counts as slow."""
DEFERRED_BYTES_MAX: Final = 128 * 1024
"""Of one publisher: topic names and payloads that wait for a receiver. Beyond it the publisher is not read from."""
PACKET_BYTES: Final = 64
"""What a deferred packet counts besides its topic name and payload."""


def ignore_long_queue(client_id: str) -> None:
    """For a core whose long queues are not logged."""


@final
class Deferred:
    """The packets of one publisher that wait for a receiver, the oldest first."""

    __slots__ = ("publisher", "receiver", "link", "packets", "size_bytes", "is_ready", "may_wait")

    def __init__(self, publisher: "Session", receiver: "Session", link: "Link") -> None:
        self.publisher: Final = publisher
        self.receiver: Final = receiver
        self.link: Final = link
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

    __slots__ = ("congested", "held", "now_ms", "ready", "rising", "_counters", "_report_long")

    def __init__(self, counters: "Counters", report_long: Callable[[str], None]) -> None:
        """`report_long` is called with the client id of a session that keeps almost as much of the log as it may."""
        self.congested: Final[dict[Session, int]] = {}  # with the instant from which publishers do not wait any more
        self.held: Final[dict[Session, Deferred]] = {}  # by publisher, until the core takes what was deferred
        self.rising: dict[Session, None] = {}  # receivers whose queue has reached its high water mark in this turn
        self.ready: list[Deferred] = []  # those of them that wait for nothing but the end of the turn
        self.now_ms = 0  # of the last tick
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
            outbound.is_congested = True
            self.congested[session] = self.now_ms + HOLD_BACK_MAX_MS
            own = self.held.get(session)
            if own is not None:  # its acknowledgements must be read, or it would never drain
                own.link.hold_back(False)

    def blocking(self, route: "Route") -> "Session | None":
        """A receiver of a route that publishers wait for."""
        for receiver in route.receivers:
            if receiver.qos and receiver.session.outbound.is_congested:
                return receiver.session
        return None

    def defer(self, publisher: "Session", receiver: "Session", link: "Link", packets: list[Packet]) -> list[Packet]:
        """Hold a publisher back until a receiver has drained; returns what is to be processed at once."""
        self._counters.publishers_held_back += 1
        self.held[publisher] = Deferred(publisher, receiver, link)
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
                self._release(deferred)
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
        """A session's queue is below its low water mark, or it has lost its connection."""
        session.outbound.is_slow = False
        if session.outbound.is_congested:
            self._go_on_without(session)

    def lost(self, session: "Session") -> list[Packet]:
        """A connection has ended; returns what its client had sent and what is not processed yet."""
        self.drained(session)
        deferred = self.held.pop(session, None)
        if deferred is None:
            return []
        packets = deferred.packets
        deferred.packets = []  # it may be in `ready`
        return packets

    def tick(self, now_ms: int) -> None:
        """Give up the receivers that have not drained in time."""
        self.now_ms = now_ms
        for session in [session for session, until_ms in self.congested.items() if until_ms <= now_ms]:
            self._counters.receivers_slow += 1
            session.outbound.is_slow = True
            self._go_on_without(session)
        for publisher in self.held:
            publisher.heard_ms = now_ms  # it may not be read from, and then it cannot be heard

    def _go_on_without(self, receiver: "Session") -> None:
        receiver.outbound.is_congested = False
        del self.congested[receiver]
        for deferred in self.held.values():
            if deferred.receiver is receiver and not deferred.is_ready:
                self._release(deferred)

    def _release(self, deferred: Deferred) -> None:
        deferred.is_ready = True
        self.ready.append(deferred)

"""The flood: publishers keep a window full, subscribers take what comes.

Owns: when a publisher may send, when a run is over, what was lost.
Never: an endless wait. A run sends for its seconds, then drains; without progress it ends and says what is missing.
"""

import select
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bench.load import Peer, Publisher, Subscriber, open_client_over, subscribe
from bench.packets import Shape
from bench.servers import Server
from bench.wires import Wire

WINDOW: Final = 1000  # of one publisher: messages sent but not yet acknowledged and delivered
CYCLE: Final = 4000  # prepared frames of a publisher; more than its window, so no packet id is used twice at a time
STALL_S_MAX: Final = 10.0


@dataclass(frozen=True, slots=True)
class Flood:
    """What one run did."""

    published: int
    delivered: int
    lost: int
    seconds: float
    broker_cpu_s: float
    generator_cpu_s: float
    broker_waited_s: float

    @property
    def rate(self) -> float:
        """Messages delivered a second."""
        return self.delivered / self.seconds

    @property
    def broker_cpu_us(self) -> float:
        """Broker CPU microseconds a delivered message."""
        return self.broker_cpu_s * 1e6 / max(self.delivered, 1)


class Traffic:
    """Publishers and subscribers on one poller, and the window of each publisher."""

    __slots__ = ("_fan_out", "_peers", "_poller", "_window", "publishers", "subscribers")

    def __init__(
        self,
        poller: select.epoll,
        publishers: list[Publisher],
        subscribers: list[Subscriber],
        fan_out: int,
        window: int,
    ) -> None:
        self._poller = poller
        self._peers: dict[int, Peer] = {peer.fd: peer for peer in (*publishers, *subscribers)}
        self._fan_out = fan_out
        self._window = window
        self.publishers = publishers
        self.subscribers = subscribers

    @property
    def published(self) -> int:
        return sum(publisher.sent for publisher in self.publishers)

    @property
    def acked(self) -> int:
        return sum(publisher.acked for publisher in self.publishers)

    @property
    def delivered(self) -> int:
        return sum(subscriber.received for subscriber in self.subscribers)

    def poll(self, timeout_s: float) -> bool:
        """Handle what is ready; False when nothing was."""
        events = self._poller.poll(timeout_s)
        for fd, event in events:
            self._peers[fd].on_event(event)
        return bool(events)

    def top_up(self, most: int | None = None) -> None:
        """Fill the window again, each publisher in turn, once a quarter of its share is free: a client that writes
        what has gathered rather than a packet a call, so that the generator stays cheap for every broker alike."""
        count = len(self.publishers)
        share = self._window
        least = max(share // 4, 1)
        free = share * count
        if self._fan_out:
            free -= self.published - self.delivered // self._fan_out
        each = min(free // count, share)
        if each < least:
            return
        for publisher in self.publishers:
            may = each if publisher.shape.qos == 0 else min(each, share - publisher.sent + publisher.acked)
            if most is not None:
                may, least = min(may, most), min(least, most)
            if may >= max(least, 1) and not publisher.blocked:
                publisher.publish(may)
                most = None if most is None else most - may

    def run(self, seconds: float, messages_max: int | None = None) -> float:
        """Send for `seconds` (or until `messages_max` were published), drain; the seconds until the last progress."""
        begun = time.perf_counter()
        last = begun
        progress = -1
        # A flood into a sink gets no answer: it only waits for space in the socket's buffer, which `top_up` checks.
        wait_s = 0.05 if self._fan_out or self.publishers[0].shape.qos else 0.0
        expected_acks = bool(self.publishers) and self.publishers[0].shape.qos > 0
        while True:
            published = self.published
            now = time.perf_counter()
            sending = now - begun < seconds and (messages_max is None or published < messages_max)
            if sending:
                self.top_up(None if messages_max is None else messages_max - published)
            delivered, acked = self.delivered, self.acked
            if published + delivered + acked != progress:
                progress = published + delivered + acked
                last = now
            elif now - last > STALL_S_MAX:
                return last - begun
            done = delivered >= published * self._fan_out and (not expected_acks or acked >= published)
            if done and not sending:
                return last - begun
            self.poll(wait_s)

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()
        self._poller.close()


def open_traffic(
    port: int,
    shape: Shape,
    topic_names: Sequence[Sequence[str]],
    topic_filters: Sequence[Sequence[str]],
    fan_out: int,
    window: int = WINDOW,
    retain: bool = False,
    wire: Wire = "tcp",
) -> Traffic:
    """A publisher for each list of topic names, a subscriber for each list of filters."""
    poller = select.epoll()
    subscribers = []
    for index, filters in enumerate(topic_filters):
        sock = open_client_over(wire, port, f"sub{index}", shape.level)
        for start in range(0, len(filters), 50):
            subscribe(sock, filters[start : start + 50], shape.qos, shape.level)
        subscribers.append(Subscriber(sock, poller, shape))
    publishers = []
    for index, names in enumerate(topic_names):
        cycle = np.resize(np.array(names, dtype="S18"), max(len(names), CYCLE))
        frames = shape.frames(cycle, retain)
        sock = open_client_over(wire, port, f"pub{index}", shape.level)
        publishers.append(Publisher(sock, poller, shape, frames))
    return Traffic(poller, publishers, subscribers, fan_out, window)


def flood(server: Server, traffic: Traffic, seconds: float, warm_up_s: float = 0.2) -> Flood:
    """Warm up, then measure."""
    try:
        traffic.run(warm_up_s)
        published, delivered = traffic.published, traffic.delivered
        fan_out = traffic.delivered // max(traffic.published, 1)
        broker_cpu_s, generator_cpu_s = server.cpu_seconds(), time.process_time()
        waited_s = server.waited_seconds()
        took = traffic.run(seconds)
        published, delivered = traffic.published - published, traffic.delivered - delivered
        return Flood(
            published=published,
            delivered=delivered,
            lost=published * fan_out - delivered,
            seconds=took,
            broker_cpu_s=server.cpu_seconds() - broker_cpu_s,
            generator_cpu_s=time.process_time() - generator_cpu_s,
            broker_waited_s=server.waited_seconds() - waited_s,
        )
    finally:
        traffic.close()

"""The pair of clients that an attack must not harm: a publisher and a subscriber at QoS 1."""

import select
import time
from contextlib import suppress
from typing import Final, NamedTuple

import numpy as np

from bench import packets
from bench.load import LoadFailed, Peer, open_client, subscribe
from bench.paced import PacedPublisher, TimedSubscriber
from bench.packets import Shape

RATE: Final = 50
AFTER_S_MAX: Final = 15.0
"""How long the pair's last messages may take after an attack."""
P99_MS_MAX: Final = 300.0


class Seen(NamedTuple):
    """What the pair has seen. `late`: more than `P99_MS_MAX` after it was sent; `lost`: not after the attack either."""

    sent: int
    late: int
    lost: int
    p99_ms: float


class Victims:
    """A publisher and a subscriber that are connected before an attack begins."""

    def __init__(self, port: int) -> None:
        shape = Shape(1)
        name = packets.topic_name(0)
        self._poller = select.epoll()
        sock = open_client(port, "pair-subscriber")
        subscribe(sock, [name], 1)
        self._reader = TimedSubscriber(sock, self._poller, shape)
        self._writer = PacedPublisher(open_client(port, "pair-publisher"), self._poller, shape, name)
        self._peers: dict[int, Peer] = {peer.fd: peer for peer in (self._reader, self._writer)}
        self._before = self._sent = 0

    def begin(self, seconds: float) -> None:
        """Publish at the rate."""
        self._reader.ages_ns.clear()
        self._before = self._reader.received
        self._sent = max(1, int(RATE * seconds))
        begun_s = time.perf_counter()
        # If its connection ends, what it could not send counts as lost.
        with suppress(LoadFailed, OSError):
            for number in range(self._sent):
                self._poll_until(begun_s + number / RATE)
                self._writer.publish()

    def end(self, after_s: float = AFTER_S_MAX) -> Seen:
        """Wait for what is missing."""
        reader = self._reader
        ends_s = time.perf_counter() + after_s
        with suppress(LoadFailed, OSError):
            while reader.received < self._before + self._sent and time.perf_counter() < ends_s:
                self._poll_until(time.perf_counter() + 0.05)
        lost = self._before + self._sent - reader.received
        ages_ms = np.concatenate([np.array([], dtype=np.int64), *reader.ages_ns]) / 1e6
        p99_ms = float(np.percentile(ages_ms, 99)) if len(ages_ms) else float("inf")
        return Seen(self._sent, int(np.sum(ages_ms > P99_MS_MAX)), lost, p99_ms)

    def _poll_until(self, due_s: float) -> None:
        while (left_s := due_s - time.perf_counter()) > 0:
            for number, event in self._poller.poll(left_s):
                self._peers[number].on_event(event)

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()
        self._poller.close()

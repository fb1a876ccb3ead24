"""Paced load: many publishers, one message a send call, at a rate the broker can easily hold.

Owns: the schedule, the latency of each message, the broker's CPU per message when nothing can be gathered.
Never: a sleep. The generator spins on its own core, so that a message leaves when it is due, not a millisecond later.
"""

import select
import socket
import struct
import time
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from bench import packets
from bench.flood import STALL_S_MAX
from bench.load import Peer, Subscriber, open_client, subscribe, take_acknowledgements
from bench.packets import Bytes, Shape
from bench.servers import Server

SEED: Final = 7


@dataclass(frozen=True, slots=True)
class Paced:
    sent: int
    delivered: int
    seconds: float
    broker_cpu_s: float
    latency_us: NDArray[np.float64]
    lag_us: NDArray[np.float64]

    @property
    def lost(self) -> int:
        return self.sent - self.delivered

    @property
    def broker_cpu_us(self) -> float:
        return self.broker_cpu_s * 1e6 / max(self.delivered, 1)


@final
class PacedPublisher(Peer):
    """Sends one frame a call, stamped with the instant of the call."""

    __slots__ = ("_frame", "_packet_id", "_shape", "acked")

    def __init__(self, sock: socket.socket, poller: select.epoll, shape: Shape, topic_name: str) -> None:
        super().__init__(sock, poller)
        self._shape = shape
        self._frame = bytearray(shape.frames([topic_name]).tobytes())
        self._packet_id = 0
        self.acked = 0

    def publish(self) -> None:
        if self._shape.qos:
            self._packet_id = self._packet_id % 65_535 + 1
            struct.pack_into(">H", self._frame, self._shape.id_at, self._packet_id)
        struct.pack_into("<q", self._frame, self._shape.payload_at, time.perf_counter_ns())
        self.send(bytes(self._frame))

    def take(self, total: int) -> int:
        self.acked += take_acknowledgements(self, self._shape.qos, total)
        return total - total % 4


class TimedSubscriber(Subscriber):
    """Keeps how old each message was when the read that brought it returned."""

    __slots__ = ("ages_ns",)

    def __init__(self, sock: socket.socket, poller: select.epoll, shape: Shape) -> None:
        super().__init__(sock, poller, shape)
        self.ages_ns: list[NDArray[np.int64]] = []

    def on_rows(self, rows: Bytes) -> None:
        self.ages_ns.append(time.perf_counter_ns() - self.shape.numbers_of(rows))


def paced(server: Server, qos: int, publishers: int, rate: int, seconds: float) -> Paced:
    """Random gaps (seeded), publishers in turn, one subscriber to all of it."""
    shape = Shape(qos)
    poller = select.epoll()
    sock = open_client(server.port, "paced-sub")
    subscribe(sock, ["plant/+/unit/+"], qos)
    reader = TimedSubscriber(sock, poller, shape)
    writers = [
        PacedPublisher(open_client(server.port, f"paced{index}"), poller, shape, packets.topic_name(index))
        for index in range(publishers)
    ]
    peers: dict[int, Peer] = {peer.fd: peer for peer in (reader, *writers)}
    count = int(rate * seconds)
    due_s: list[float] = np.cumsum(np.random.default_rng(SEED).exponential(1 / rate, count)).tolist()
    sent_s: list[float] = []
    clock = time.perf_counter
    poll = poller.poll
    try:
        cpu_s = server.cpu_seconds()
        begun = clock()
        for index, due in enumerate(due_s):
            while (now := clock() - begun) < due:
                for fd, event in poll(0):
                    peers[fd].on_event(event)
            sent_s.append(now)
            writers[index % publishers].publish()
        took = clock() - begun
        received, last = reader.received, clock()
        while reader.received < count and clock() - last < STALL_S_MAX:
            for fd, event in poll(0.05):
                peers[fd].on_event(event)
            if reader.received != received:
                received, last = reader.received, clock()
        cpu_s = server.cpu_seconds() - cpu_s
    finally:
        for peer in peers.values():
            peer.close()
        poller.close()
    ages = np.concatenate(reader.ages_ns) if reader.ages_ns else np.zeros(1, dtype=np.int64)
    return Paced(
        sent=count,
        delivered=reader.received,
        seconds=took,
        broker_cpu_s=cpu_s,
        latency_us=ages / 1e3,
        lag_us=(np.array(sent_s) - np.array(due_s)) * 1e6,
    )

"""An offline session's queue: fill it while the subscriber is away, then receive all of it and check the order.

Owns: the persistent session, its numbered messages and the check that each came once, in order.
Never: a limit of a broker; what was not queued is counted as lost.
"""

import select
import socket
import time
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from bench import packets
from bench.flood import Traffic
from bench.load import Publisher, Subscriber, open_client, subscribe
from bench.packets import Bytes, Shape
from bench.servers import Server

SHAPE: Final = Shape(1)
FILL_S_MAX: Final = 300.0
SILENCE_S_MAX: Final = 5.0
CLIENT_ID: Final = "away"


@dataclass(frozen=True, slots=True)
class Drained:
    received: int
    out_of_order: int
    seconds: float


@final
class OrderedReader(Subscriber):
    """Counts numbers that do not follow the one before."""

    __slots__ = ("_last", "out_of_order")

    def __init__(self, sock: socket.socket, poller: select.epoll, shape: Shape) -> None:
        super().__init__(sock, poller, shape)
        self._last = -1
        self.out_of_order = 0

    def on_rows(self, rows: Bytes) -> None:
        numbers = self.shape.numbers_of(rows)
        self.out_of_order += int(np.count_nonzero(np.diff(numbers, prepend=self._last) != 1))
        self._last = int(numbers[-1])


def drain(server: Server, count: int, window: int) -> Drained:
    name = packets.topic_name(0)
    with open_client(server.port, CLIENT_ID, clean_session=False) as sock:
        subscribe(sock, [name], 1)
        sock.sendall(packets.DISCONNECT)

    poller = select.epoll()
    frames = SHAPE.frames([name] * count)
    SHAPE.number(frames, np.arange(count))
    traffic = Traffic(poller, [Publisher(open_client(server.port, "filler"), poller, SHAPE, frames)], [], 0, window)
    try:
        traffic.run(FILL_S_MAX, count)
    finally:
        traffic.close()

    poller = select.epoll()
    begun = last = now = time.perf_counter()
    reader = OrderedReader(open_client(server.port, CLIENT_ID, clean_session=False), poller, SHAPE)
    try:
        while reader.received < count and now - last < SILENCE_S_MAX:
            events = poller.poll(0.05)
            for _, event in events:
                reader.on_event(event)
            now = time.perf_counter()
            if events:
                last = now
        return Drained(reader.received, reader.out_of_order, last - begun)
    finally:
        reader.close()
        poller.close()

"""Retained messages in bulk: writing a numbered set, reading it back, and knowing exactly what came.

Owns: the numbered retained set and the reader that ticks off every number.
Never: a scenario or a target.
"""

import select
import socket
import time
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from bench import packets
from bench.flood import Traffic
from bench.load import Publisher, Subscriber, buffer, octets, open_client
from bench.packets import Bytes, Shape
from bench.servers import Server

PAYLOAD_BYTES: Final = 100
WRITE: Final = Shape(1, PAYLOAD_BYTES)
SUBACK_BYTES: Final = 5
QUIET_S: Final = 1.0
QUIET_SHARE_MAX: Final = 0.05  # of a core, used or waited for: a broker below it has nothing left to do
IDLE_WAIT_S_MAX: Final = 60.0
SILENCE_S_MAX: Final = 5.0  # after it the set is taken for complete


@dataclass(frozen=True, slots=True)
class Written:
    acked: int
    seconds: float
    broker_cpu_s: float

    @property
    def rate(self) -> float:
        return self.acked / max(self.seconds, 1e-9)

    @property
    def broker_cpu_us(self) -> float:
        return self.broker_cpu_s * 1e6 / max(self.acked, 1)


@dataclass(frozen=True, slots=True)
class Read:
    """What `readers` subscribers got in the end; `complete` counts those who got every number."""

    messages: int
    distinct: int
    complete: int
    unmarked: int
    seconds: float
    resident_bytes_max: int
    numbers: NDArray[np.int64]


def numbered_frames(indexes: NDArray[np.int64], add: int = 0) -> Bytes:
    """A retained frame a topic index, its payload holding the index (plus `add`)."""
    names = np.array([packets.topic_name(int(index)).encode() for index in indexes], dtype=f"S{packets.TOPIC_BYTES}")
    frames = WRITE.frames(names, retain=True)
    WRITE.number(frames, indexes + add)
    return frames


def write(server: Server, frames: list[Bytes], window: int, seconds: float, each_once: bool = False) -> Written:
    """Publish cycles of frames at QoS 1, pipelined, a publisher each; only what was acknowledged counts."""
    poller = select.epoll()
    publishers = [
        Publisher(open_client(server.port, f"writer{index}"), poller, WRITE, cycle)
        for index, cycle in enumerate(frames)
    ]
    traffic = Traffic(poller, publishers, [], 0, window)
    try:
        cpu_s = server.cpu_seconds()
        took = traffic.run(seconds, sum(len(cycle) for cycle in frames) if each_once else None)
        return Written(traffic.acked, took, server.cpu_seconds() - cpu_s)
    finally:
        traffic.close()


def wait_until_idle(server: Server) -> bool:
    """Wait until a broker has finished the work of earlier writes, such as merging; False if it takes too long."""
    deadline = time.perf_counter() + IDLE_WAIT_S_MAX
    while time.perf_counter() < deadline:
        busy_s = server.cpu_seconds() + server.waited_seconds()
        time.sleep(QUIET_S)
        if server.cpu_seconds() + server.waited_seconds() - busy_s < QUIET_SHARE_MAX * QUIET_S:
            return True
    return False


def write_steadily(server: Server, frames: Bytes, window: int, seconds_max: float) -> Written:
    """Publish each frame once, from idle to idle: the CPU of these writes counts, and no other."""
    wait_until_idle(server)
    cpu_s = server.cpu_seconds()
    written = write(server, [frames], window, seconds_max, each_once=True)
    wait_until_idle(server)
    return Written(written.acked, written.seconds, server.cpu_seconds() - cpu_s)


@final
class RetainedReader(Subscriber):
    """Ticks off numbered retained messages; the SUBACK may come before, between or after them."""

    __slots__ = ("_marked", "_subacked", "numbers", "unmarked")

    def __init__(self, sock: socket.socket, poller: select.epoll, shape: Shape, count: int) -> None:
        super().__init__(sock, poller, shape)
        self.numbers: NDArray[np.int64] = np.full(count, -1, dtype=np.int64)
        self.unmarked = 0
        self._marked = shape.first_byte(retain=True)
        self._subacked = False

    def take(self, total: int) -> int:
        skipped = 0
        if not self._subacked:
            starts = np.flatnonzero(octets[: total : self.shape.size] == 0x90)
            if len(starts):
                at = int(starts[0]) * self.shape.size
                if total - at < SUBACK_BYTES:
                    return super().take(at)
                buffer[at : total - SUBACK_BYTES] = buffer[at + SUBACK_BYTES : total]
                self._subacked = True
                skipped = SUBACK_BYTES
        used = super().take(total - skipped)
        if skipped and used < total - skipped:
            # The incomplete frame moved; put it where the caller expects what is left.
            buffer[used + skipped : total] = buffer[used : total - skipped]
        return used + skipped

    def on_rows(self, rows: Bytes) -> None:
        self.unmarked += int(np.count_nonzero(rows[:, 0] != self._marked))
        numbers = self.shape.numbers_of(rows)
        # An updated topic carries its index plus a multiple of the set's size; see `numbered_frames`.
        self.numbers[numbers % len(self.numbers)] = numbers

    @property
    def distinct(self) -> int:
        return int(np.count_nonzero(self.numbers >= 0))


def read_all(server: Server, topic_filter: str, qos: int, count: int, readers: int, seconds_max: float) -> Read:
    """Subscribe and take until every reader has `count` messages, or silence, or the deadline."""
    shape = Shape(qos, PAYLOAD_BYTES)
    poller = select.epoll()
    taking = [
        RetainedReader(open_client(server.port, f"reader{index}"), poller, shape, count) for index in range(readers)
    ]
    peers = {reader.fd: reader for reader in taking}
    begun = last = now = time.perf_counter()
    most = server.resident_bytes()
    measured = begun
    try:
        for reader in taking:
            reader.send(packets.subscribe([topic_filter], qos))
        missing = count * readers
        while missing > 0 and now - last < SILENCE_S_MAX and now - begun < seconds_max:
            events = poller.poll(0.05)
            for fd, event in events:
                peers[fd].on_event(event)
            now = time.perf_counter()
            if events:
                last = now
                missing = count * readers - sum(reader.received for reader in taking)
            if now - measured > 0.1:
                measured, most = now, max(most, server.resident_bytes())
    finally:
        for reader in taking:
            reader.close()
        poller.close()
    return Read(
        messages=sum(reader.received for reader in taking),
        distinct=min(reader.distinct for reader in taking),
        complete=sum(reader.distinct == count for reader in taking),
        unmarked=sum(reader.unmarked for reader in taking),
        seconds=last - begun,
        resident_bytes_max=max(most, server.resident_bytes()),
        numbers=taking[0].numbers,
    )

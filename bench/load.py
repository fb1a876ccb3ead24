"""Load: publishers and subscribers on raw sockets, moving prepared bytes and counting by arithmetic.

Owns: the sockets of the generator, the windows of its publishers, the counts.
Never: an MQTT library, a loop over single messages. A received buffer is read as an array of 32-bit words.
"""

import select
import socket
from collections import deque
from collections.abc import Sequence
from typing import Final, final

import numpy as np

from bench import packets
from bench.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, Bytes, Shape, acks
from bench.wires import ClientSocket, Wire, over

READ_BYTES: Final = 1 << 20
HANDSHAKE_S_MAX: Final = 30.0

# One read buffer for all connections: what a read leaves over is kept by its connection.
buffer: Final = bytearray(READ_BYTES)
_view: Final = memoryview(buffer)
octets: Final[Bytes] = np.frombuffer(buffer, dtype=np.uint8)
_words: Final = np.frombuffer(buffer, dtype="<u4")


class LoadFailed(Exception):
    """The broker refused or closed a connection of the generator."""


def open_client(port: int, client_id: str, clean_session: bool = True, level: int = 4) -> socket.socket:
    """A connected, blocking socket whose CONNECT was accepted."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=HANDSHAKE_S_MAX)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _connect(sock, client_id, clean_session, level)
    return sock


def open_client_over(wire: Wire, port: int, client_id: str, level: int = 4) -> ClientSocket:
    """The same with another protocol below MQTT."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=HANDSHAKE_S_MAX)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client = over(wire, sock)
    _connect(client, client_id, True, level)
    return client


def _connect(sock: ClientSocket, client_id: str, clean_session: bool, level: int) -> None:
    sock.sendall(packets.connect(client_id, clean_session, level=level))
    first_byte, body = _read_packet(sock)
    if first_byte != 0x20 or body[1] != 0:
        raise LoadFailed(f"CONNECT of {client_id} was answered {first_byte:02x} {body.hex()}")


def subscribe(sock: ClientSocket, topic_filters: Sequence[str], qos: int, level: int = 4) -> None:
    """Subscribe and wait for the SUBACK. Only for filters that have no retained messages."""
    sock.sendall(packets.subscribe(topic_filters, qos, level=level))
    first_byte, body = _read_packet(sock)
    if first_byte != 0x90:
        raise LoadFailed(f"SUBSCRIBE was answered {first_byte:02x} {body.hex()}")
    granted = body[3 + body[2] :] if level == 5 else body[2:]  # level 5 has properties, of less than 128 bytes
    if granted != bytes([qos]) * len(topic_filters):
        raise LoadFailed(f"SUBSCRIBE at QoS {qos} was granted {granted[:8].hex()}")


def _read_packet(sock: ClientSocket) -> tuple[int, bytes]:
    """The first byte and the body of an answer of less than 16 KiB."""
    first_byte, length = read_exactly(sock, 2)
    if length & 0x80:
        length = length & 0x7F | read_exactly(sock, 1)[0] << 7
    return first_byte, read_exactly(sock, length)


def read_exactly(sock: ClientSocket, count: int) -> bytes:
    parts = b""
    while len(parts) < count:
        part = sock.recv(count - len(parts))
        if not part:
            raise LoadFailed("the broker closed a connection")
        parts += part
    return parts


class Peer:
    """A non-blocking socket with an output queue of whole packets, and the incomplete tail of what it read."""

    __slots__ = ("_out", "_tail", "fd", "poller", "sock")

    def __init__(self, sock: ClientSocket, poller: select.epoll) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.fd = sock.fileno()
        self.poller = poller
        self._out: deque[memoryview] = deque()
        self._tail = b""
        poller.register(self.fd, select.EPOLLIN)

    @property
    def blocked(self) -> bool:
        """Whether the broker has not taken yet what was given to `send`."""
        return bool(self._out)

    def send(self, data: memoryview | bytes) -> None:
        blocked = bool(self._out)
        self._out.append(memoryview(data))
        if not blocked:
            self.flush()
            if self._out:
                self.poller.modify(self.fd, select.EPOLLIN | select.EPOLLOUT)

    def flush(self) -> None:
        out = self._out
        while out:
            try:
                count = self.sock.send(out[0])
            except BlockingIOError:
                return
            if count < len(out[0]):
                out[0] = out[0][count:]
                return
            out.popleft()

    def on_event(self, event: int) -> None:
        if event & select.EPOLLOUT:
            self.flush()
            if not self._out:
                self.poller.modify(self.fd, select.EPOLLIN)
        if event & ~select.EPOLLOUT:
            self.read()

    def read(self) -> None:
        """Read once; what `take` leaves of it is put before the next read."""
        kept = len(self._tail)
        if kept:
            buffer[:kept] = self._tail
        try:
            count = self.sock.recv_into(_view[kept:])
        except BlockingIOError:
            return
        if not count:
            raise LoadFailed("the broker closed a connection under load")
        total = kept + count
        used = self.take(total)
        self._tail = bytes(_view[used:total])

    def take(self, total: int) -> int:
        """Handle the first `total` bytes of the shared buffer; how many of them were whole packets."""
        raise NotImplementedError

    def close(self) -> None:
        self.poller.unregister(self.fd)
        self.sock.close()


@final
class Publisher(Peer):
    """Sends a prepared cycle of frames over and over; `acked` counts finished exchanges (at QoS 0: never)."""

    __slots__ = ("_cycle", "_cycle_bytes", "_position", "acked", "sent", "shape")

    def __init__(self, sock: ClientSocket, poller: select.epoll, shape: Shape, frames: Bytes) -> None:
        super().__init__(sock, poller)
        self.shape = shape
        self.sent = 0
        self.acked = 0
        self._cycle = memoryview(frames.tobytes())
        self._cycle_bytes = len(self._cycle)
        self._position = 0

    def publish(self, count: int) -> None:
        """Queue the next `count` frames of the cycle."""
        self.sent += count
        left = count * self.shape.size
        while left:
            step = min(left, self._cycle_bytes - self._position)
            self.send(self._cycle[self._position : self._position + step])
            self._position = (self._position + step) % self._cycle_bytes
            left -= step

    def take(self, total: int) -> int:
        self.acked += take_acknowledgements(self, self.shape.qos, total)
        return total - total % 4


def take_acknowledgements(publisher: Peer, qos: int, total: int) -> int:
    """Answer each PUBREC in the shared buffer; how many exchanges have ended."""
    count = total // 4
    if qos == 1:
        return count
    words = _words[:count]
    recs = words[(words & 0xFF) == PUBREC]
    if len(recs):
        rels = recs & 0xFFFF0000 | (2 << 8 | PUBREL)
        publisher.send(rels.astype("<u4").tobytes())
    return count - len(recs)


class Subscriber(Peer):
    """Counts frames of one shape and acknowledges them."""

    __slots__ = ("_head_word", "received", "shape")

    def __init__(self, sock: ClientSocket, poller: select.epoll, shape: Shape) -> None:
        super().__init__(sock, poller)
        self.shape = shape
        self.received = 0
        self._head_word = shape.first_byte() | (shape.size - 2) << 8 | packets.TOPIC_BYTES << 24

    def take(self, total: int) -> int:
        size = self.shape.size
        if self.shape.qos == 2:
            return self._take_exactly_once(total)
        count = total // size
        self.received += count
        if count:
            rows = octets[: count * size].reshape(count, size)
            self.on_rows(rows)
            if self.shape.qos == 1:
                id_at = self.shape.id_at
                self.send(acks(rows[:, id_at : id_at + 2], PUBACK))
        return count * size

    def on_rows(self, rows: Bytes) -> None:
        """For a subclass that reads the frames."""

    def _take_exactly_once(self, total: int) -> int:
        """PUBLISH and PUBREL mixed: both are whole words, and no word inside a frame equals the head of one."""
        words = _words[: total // 4]
        heads = np.flatnonzero(words == self._head_word)
        frame_words = self.shape.size // 4
        used = len(words)
        if len(heads) and heads[-1] + frame_words > used:
            used = int(heads[-1])
            heads = heads[:-1]
            words = words[:used]
        answer = b""
        is_release = (words & 0xFFFF) == (2 << 8 | PUBREL)
        if len(heads):
            self.received += len(heads)
            ids = words[heads + self.shape.id_at // 4] & 0xFFFF0000
            answer = (ids | (2 << 8 | PUBREC)).astype("<u4").tobytes()
            is_release[heads[:, None] + np.arange(frame_words)] = False  # a payload may look like one
            self.on_rows(octets[4 * heads[:, None] + np.arange(self.shape.size)])
        rels = words[is_release]
        if len(rels):
            answer += (rels & 0xFFFF0000 | (2 << 8 | PUBCOMP)).astype("<u4").tobytes()
        if answer:
            self.send(answer)
        return used * 4

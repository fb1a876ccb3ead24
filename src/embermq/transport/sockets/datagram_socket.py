"""A UDP socket.

Owns: reading datagrams, as many in a turn as is fair to the other sockets, and those that the kernel has not taken yet.
"""

import socket
from collections import deque
from collections.abc import Callable
from typing import Final, final

from embermq.transport.sockets.interface import CLOSED, READABLE, WRITABLE, Watched
from embermq.transport.sockets.poll import Poll

DATAGRAM_BYTES_MAX: Final = 65_535
RECEIVED_MAX: Final = 256
"""How many datagrams are read in one turn."""
UNSENT_MAX: Final = 4_096
"""How many datagrams wait for the kernel; more are lost, as any datagram may be."""

Address = tuple[str | int, ...]


@final
class DatagramSocket(Watched):
    """A `DatagramTransport`. `received` is called with each datagram and its sender's address."""

    def __init__(self, poll: Poll, bound: socket.socket, received: Callable[[bytes, Address], None]) -> None:
        """`bound` does not block, and is this object's from now on."""
        Watched.__init__(self, bound.fileno())
        self._poll: Final = poll
        self._socket: Final = bound
        self._received: Final = received
        self._buffer: Final = bytearray(DATAGRAM_BYTES_MAX)
        self._view: Final = memoryview(self._buffer)
        self._unsent: Final[deque[tuple[bytes, Address]]] = deque()
        poll.add(self)

    def ready(self, events: int) -> None:
        if events & WRITABLE:
            self._send_on()
        if not events & ~WRITABLE:
            return
        for _ in range(RECEIVED_MAX):
            if self.descriptor == CLOSED:
                return
            try:
                count, address = self._socket.recvfrom_into(self._buffer)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:  # a peer cannot be reached: the engine finds out by its retries
                continue
            self._received(bytes(self._view[:count]), address)

    def sendto(self, data: bytes, addr: Address) -> None:
        if self.descriptor == CLOSED:
            return
        unsent = self._unsent
        if not unsent and not self._is_sent(data, addr):
            unsent.append((data, addr))
            self._poll.change(self.descriptor, READABLE, READABLE | WRITABLE)
        elif unsent and len(unsent) < UNSENT_MAX:
            unsent.append((data, addr))

    def close(self) -> None:
        """Send what the kernel takes, and end."""
        if self.descriptor == CLOSED:
            return
        if self._unsent:
            self._send_on()
        self._poll.remove(self)
        self.descriptor = CLOSED
        self._socket.close()

    def _send_on(self) -> None:
        unsent = self._unsent
        while unsent:
            data, address = unsent[0]
            if not self._is_sent(data, address):
                return
            unsent.popleft()
        self._poll.change(self.descriptor, READABLE | WRITABLE, READABLE)

    def _is_sent(self, data: bytes, address: Address) -> bool:
        """False: the kernel has no room for it now."""
        try:
            self._socket.sendto(data, address)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:  # it cannot be sent: a datagram that is lost
            return True
        return True

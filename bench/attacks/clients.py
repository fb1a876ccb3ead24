"""What attacks are made of: where the server listens, and clients that send the same bytes over and over.

Never: a figure; those are in `bench.attacks.__main__`.
"""

import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from bench.load import LoadFailed, open_client

USER: Final = "user"
CHUNK_BYTES: Final = 256 * 1024
NOT_SERVED: Final = 2
"""The exit code of an attack that saw others not being served."""


class Target(NamedTuple):
    """Where a server listens, on loopback; 0 where it does not."""

    port: int
    ws_port: int = 0
    tls_port: int = 0
    http_port: int = 0
    sn_port: int = 0


class Attack(NamedTuple):
    """What hostile clients do until an instant of `time.monotonic`, whatever the server does.

    `settings`: the server's besides those that all attacks have. `grown_mib_max`: how much its memory may grow.
    """

    run: Callable[[Target, float], None]
    settings: str = ""
    grown_mib_max: int | None = None


class Sender:
    """A client that sends the same bytes over and over, and reads the answers."""

    def __init__(self, number: int, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.number = number
        self.sock = sock
        self.position = 0

    def proceed(self, event: int, data: memoryview) -> None:
        """Raises `OSError` when the server has ended the connection."""
        with suppress(BlockingIOError):
            if event & ~select.EPOLLOUT and not self.sock.recv(CHUNK_BYTES):
                raise ConnectionResetError
            if event & select.EPOLLOUT:
                sent = self.sock.send(data[self.position : self.position + CHUNK_BYTES])
                self.position = (self.position + sent) % len(data)


def flood(opened: Callable[[int], socket.socket], count: int, data: bytes, until_s: float) -> None:
    """`count` clients send as fast as the server reads, or nothing if there is no data."""
    view = memoryview(data)
    events = select.EPOLLIN | (select.EPOLLOUT if data else 0)
    senders: dict[int, Sender] = {}
    missing = list(range(count))
    with select.epoll() as poller:
        while time.monotonic() < until_s:
            if missing:
                with suppress(OSError, LoadFailed):
                    sender = Sender(missing[-1], opened(missing[-1]))
                    senders[sender.sock.fileno()] = sender
                    poller.register(sender.sock.fileno(), events)
                    missing.pop()
            for number, event in poller.poll(0 if missing else 0.1):
                sender = senders[number]
                try:
                    sender.proceed(event, view)
                except OSError:
                    del senders[number]
                    sender.sock.close()
                    missing.append(sender.number)
        for sender in senders.values():
            sender.sock.close()


def mqtt(target: Target) -> Callable[[int], socket.socket]:
    """How a client of MQTT opens a connection."""
    return lambda number: open_client(target.port, f"attacker-{number}")

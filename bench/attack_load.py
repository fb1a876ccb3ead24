"""Attacks: what hostile clients do to starve a server, to fill its memory or its log, or to take its files.

Owns: the clients of each attack and what they send. Each attack goes on until an instant of `time.monotonic`, whatever
the server does: a client that is disconnected comes back.
Never: a figure; those are in `bench.attacks`.
"""

import select
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Final, NamedTuple

from bench import packets
from bench.load import HANDSHAKE_S_MAX, LoadFailed, open_client, read_exactly

USER: Final = "user"
CHUNK_BYTES: Final = 256 * 1024
FILTERS_IN_PACKET: Final = 2_000
UPGRADE: Final = (
    b"GET /mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
)


class Target(NamedTuple):
    """Where a server listens."""

    port: int
    ws_port: int


Attack = Callable[[Target, float], None]


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


def subscribes_of(topic_filters: list[str]) -> bytes:
    """SUBSCRIBE packets with as many filters as one may have."""
    parts = range(0, len(topic_filters), FILTERS_IN_PACKET)
    return b"".join(packets.subscribe(topic_filters[at : at + FILTERS_IN_PACKET], 0) for at in parts)


def nothing(target: Target, until_s: float) -> None:
    """No attack: what the pair sees on this machine anyway."""
    time.sleep(max(0.0, until_s - time.monotonic()))


# -- subscriptions -----------------------------------------------------------------------------------------------------


def million_filters(target: Target, until_s: float) -> None:
    """One SUBSCRIBE of 4 MiB with a million filters, again and again."""
    flood(mqtt(target), 1, packets.subscribe(["a"] * 1_000_000, 0), until_s)


def deep_filters(target: Target, until_s: float) -> None:
    """20,000 filters of 128 levels by one client, which goes and comes back."""
    levels = "/x" * 127
    data = subscribes_of([f"{number}{levels}" for number in range(20_000)])
    flood(mqtt(target), 1, data, (time.monotonic() + until_s) / 2)
    flood(mqtt(target), 1, data, until_s)


def long_filters(target: Target, until_s: float) -> None:
    """Filters of 60,000 bytes by one client, each after the answer to the last."""
    rest = "x" * 59_990
    with suppress(OSError, LoadFailed), open_client(target.port, "attacker") as sock:
        number = 0
        while time.monotonic() < until_s:
            number += 1
            sock.sendall(packets.subscribe([f"{number:010d}{rest}"], 0))
            read_exactly(sock, 5)


def overlapping_filters(target: Target, until_s: float, levels: int = 14) -> None:
    """2^levels filters that match the same topics, and 100 messages a second to new ones."""
    filters = [
        "/".join("+" if number >> level & 1 else "a" for level in range(levels)) + "/+" for number in range(1 << levels)
    ]
    topic = "a/" * levels
    with suppress(OSError, LoadFailed), ExitStack() as stack:
        reader = stack.enter_context(open_client(target.port, "attacker-reader"))
        writer = stack.enter_context(open_client(target.port, "attacker-writer"))
        reader.sendall(subscribes_of(filters))
        reader.setblocking(False)
        number = 0
        while time.monotonic() < until_s:
            number += 1
            name = f"{topic}{number}".encode()
            writer.sendall(bytes([0x30, 2 + len(name)]) + len(name).to_bytes(2) + name)
            with suppress(BlockingIOError):
                reader.recv(CHUNK_BYTES)
            time.sleep(0.01)


# -- floods of small packets -------------------------------------------------------------------------------------------


def pings(target: Target, until_s: float) -> None:
    """PINGREQ of 20 clients as fast as they are read."""
    flood(mqtt(target), 20, packets.PINGREQ * 65_536, until_s)


def acknowledgements(target: Target, until_s: float) -> None:
    """PUBACK of 20 clients for messages that they did not get."""
    flood(mqtt(target), 20, bytes([packets.PUBACK, 2, 0, 1]) * 32_768, until_s)


def small_subscribes(target: Target, until_s: float) -> None:
    """SUBSCRIBE of 8 clients, each packet with one filter."""
    flood(mqtt(target), 8, packets.subscribe(["a/b/c"], 0) * 16_384, until_s)


# -- before CONNECT ----------------------------------------------------------------------------------------------------


def wrong_passwords(target: Target, until_s: float) -> None:
    """300 new connections a second, each with a wrong password of a user that exists."""
    body = b"\x00\x04MQTT\x04\xc2\x00\x00\x00\x00" + len(USER).to_bytes(2) + USER.encode() + b"\x00\x05wrong"
    waiting: deque[socket.socket] = deque()
    due_s = time.monotonic()
    while (now_s := time.monotonic()) < until_s:
        if now_s < due_s:
            time.sleep(due_s - now_s)
        due_s += 1 / 300
        with suppress(OSError):
            sock = socket.create_connection(("127.0.0.1", target.port), timeout=1)
            sock.sendall(bytes([0x10, len(body)]) + body)
            waiting.append(sock)
        while len(waiting) > 600:
            waiting.popleft().close()
    for sock in waiting:
        sock.close()


def malformed_packets(target: Target, until_s: float) -> None:
    """New connections as fast as possible, each with a packet that is none."""
    while time.monotonic() < until_s:
        with suppress(OSError), socket.create_connection(("127.0.0.1", target.port), timeout=1) as sock:
            sock.sendall(b"\x00\x00")
            sock.recv(1)


def idle_connections(target: Target, until_s: float) -> None:
    """400 connections that send nothing; those that are closed come back."""
    flood(lambda _: socket.create_connection(("127.0.0.1", target.port), HANDSHAKE_S_MAX), 400, b"", until_s)


def unfinished_websocket_messages(target: Target, until_s: float) -> None:
    """50 WebSockets that send a message of 14 MiB without its last byte, and no CONNECT."""
    length = 14 * 1024 * 1024
    frame = b"\x82\xff" + length.to_bytes(8) + b"mask" + bytes(length - 1)

    def opened(_: int) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", target.ws_port), HANDSHAKE_S_MAX)
        sock.sendall(UPGRADE)
        sock.recv(CHUNK_BYTES)
        return sock

    flood(opened, 50, frame, until_s)


ATTACKS: Final[dict[str, Attack]] = {
    "nothing": nothing,
    "million-filters": million_filters,
    "deep-filters": deep_filters,
    "long-filters": long_filters,
    "overlapping-filters": overlapping_filters,
    "pings": pings,
    "acknowledgements": acknowledgements,
    "small-subscribes": small_subscribes,
    "wrong-passwords": wrong_passwords,
    "malformed-packets": malformed_packets,
    "idle-connections": idle_connections,
    "unfinished-websocket-messages": unfinished_websocket_messages,
}

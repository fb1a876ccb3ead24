"""Scenarios about connections: how fast they come, what an idle one weighs, a thousand of them publishing at once.

Owns: opening many sockets in bulk, and counting every one that did not get what it was owed.
Never: a retry. An error is a figure.
"""

import contextlib
import select
import socket
import struct
import time
from collections.abc import Iterator
from typing import Final

from bench import packets
from bench.figures import Figures, Metric
from bench.flood import STALL_S_MAX, Traffic
from bench.load import HANDSHAKE_S_MAX, LoadFailed, Publisher, Subscriber, open_client, read_exactly, subscribe
from bench.packets import Shape
from bench.scenario import Scale, Scenario
from bench.servers import Server

AT_ONCE: Final = 50  # sockets opened before the first answer is awaited; below every broker's listen backlog
IDLE_BYTES_MAX: Final = 3 * 1024
EACH: Final = 20  # messages a client of the thousand publishes
CONNACK: Final = b"\x20\x02\x00\x00"
# The kernel keeps the time: with `settimeout`, Python asks whether a socket is ready before each call.
RECEIVE_TIMEOUT: Final = struct.pack("ll", int(HANDSHAKE_S_MAX), 0)


def open_batch(port: int, connects: list[bytes]) -> tuple[list[socket.socket], int]:
    """Connected clients, all CONNECTs sent before any CONNACK is read; and how many failed."""
    socks: list[socket.socket] = []
    failed = 0
    for connect in connects:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, RECEIVE_TIMEOUT)
        try:
            sock.connect(("127.0.0.1", port))
            sock.send(connect)
        except OSError:
            failed += 1
            sock.close()
            continue
        socks.append(sock)
    accepted = []
    for sock in socks:
        try:
            good = read_exactly(sock, 4) == CONNACK
        except (OSError, LoadFailed):
            good = False
        if good:
            accepted.append(sock)
        else:
            failed += 1
            sock.close()
    return accepted, failed


def connect_rate(server: Server, scale: Scale) -> Iterator[Figures]:
    """CONNECT, CONNACK, DISCONNECT, end of stream; then the next ones."""
    done = failed = 0
    connects = [packets.connect(f"rate{index}") for index in range(AT_ONCE)]
    cpu_s = server.cpu_seconds()
    begun = time.perf_counter()
    while time.perf_counter() - begun < scale.seconds:
        socks, refused = open_batch(server.port, connects)
        failed += refused
        for sock in socks:
            sock.send(packets.DISCONNECT)
        for sock in socks:
            # The broker closes first, so no port of ours is left waiting.
            with contextlib.suppress(OSError):
                sock.recv(1)
            sock.close()
        done += len(socks)
    took = time.perf_counter() - begun
    yield {
        "rate": done / took,
        "cpu_us": (server.cpu_seconds() - cpu_s) * 1e6 / max(done, 1),
        "errors": failed,
    }


def idle_connections(server: Server, scale: Scale) -> Iterator[Figures]:
    """Open them, weigh the process, then ask each one whether it is still there."""
    before = server.resident_bytes()
    opened: list[socket.socket] = []
    failed = 0
    try:
        begun = time.perf_counter()
        for start in range(0, scale.idle, AT_ONCE):
            count = min(AT_ONCE, scale.idle - start)
            socks, refused = open_batch(
                server.port, [packets.connect(f"idle{start + index}") for index in range(count)]
            )
            opened += socks
            failed += refused
        took = time.perf_counter() - begun
        weight = server.resident_bytes() - before
        for sock in opened:
            sock.send(packets.PINGREQ)
        for sock in opened:
            try:
                failed += read_exactly(sock, 2) != packets.PINGRESP
            except (OSError, LoadFailed):
                failed += 1
    finally:
        for sock in opened:
            sock.close()
    yield {
        "bytes": weight / max(len(opened), 1),
        "opened": len(opened),
        "open_rate": len(opened) / took,
        "errors": failed,
    }


def thousand_publishers(server: Server, scale: Scale) -> Iterator[Figures]:
    """Every client sends its messages at QoS 1 in the same instant; one subscriber takes them all."""
    shape = Shape(1)
    poller = select.epoll()
    sock = open_client(server.port, "many-sub")
    subscribe(sock, ["plant/+/unit/+"], 1)
    reader = Subscriber(sock, poller, shape)
    socks: list[socket.socket] = []
    failed = 0
    for start in range(0, scale.clients, AT_ONCE):
        opened, refused = open_batch(server.port, [packets.connect(f"many{start + index}") for index in range(AT_ONCE)])
        socks += opened
        failed += refused
    writers = [
        Publisher(client, poller, shape, shape.frames([packets.topic_name(index)] * EACH))
        for index, client in enumerate(socks)
    ]
    traffic = Traffic(poller, writers, [reader], 1, 0)
    begun = last = time.perf_counter()
    try:
        for writer in writers:
            writer.publish(EACH)
        progress = 0
        wanted = len(writers) * EACH
        while (traffic.delivered < wanted or traffic.acked < wanted) and time.perf_counter() - last < STALL_S_MAX:
            traffic.poll(0.05)
            if traffic.delivered + traffic.acked != progress:
                progress, last = traffic.delivered + traffic.acked, time.perf_counter()
        missing = 2 * wanted - traffic.delivered - traffic.acked
    finally:
        traffic.close()
    yield {"rate": wanted / (last - begun), "errors": failed + missing}


ERRORS: Final = Metric("errors", "errors", "count", "zero")

SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        name="connect",
        title="CONNECT, CONNACK, DISCONNECT",
        metrics=(
            Metric("rate", "connections", "1/s", "more", ratio=1.0),
            Metric("cpu_us", "broker CPU", "us/connection", "less"),
            ERRORS,
        ),
        run=connect_rate,
        with_peers=True,
    ),
    Scenario(
        name="idle",
        title="idle connections",
        metrics=(
            Metric("bytes", "resident memory", "bytes/connection", "less", value=IDLE_BYTES_MAX),
            Metric("opened", "opened", "connections"),
            Metric("open_rate", "opened a second", "1/s", "more"),
            ERRORS,
        ),
        run=idle_connections,
        fresh=True,
        with_peers=True,
    ),
    Scenario(
        name="thousand",
        title="1,000 clients publishing at once, QoS 1",
        metrics=(Metric("rate", "delivered", "messages/s", "more"), ERRORS),
        run=thousand_publishers,
    ),
)

"""Attacks over TLS: handshakes that do not end, or end slowly, and clients that only take memory or time."""

import socket
import ssl
import time
from contextlib import suppress
from typing import Final

from bench import packets
from bench.attacks.clients import Attack, Target, flood
from bench.load import HANDSHAKE_S_MAX

HELLO_BEGUN: Final = bytes.fromhex("16030100ff01") + (131_000).to_bytes(3) + b"\x03\x03" + bytes(249)
"""The beginning of a ClientHello that announces as much as OpenSSL takes."""


def _connected(target: Target) -> socket.socket:
    return socket.create_connection(("127.0.0.1", target.tls_port), HANDSHAKE_S_MAX)


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _hello() -> bytes:
    """A whole ClientHello, which makes the server sign."""
    outgoing = ssl.MemoryBIO()
    client = _context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def half_handshakes(target: Target, until_s: float) -> None:
    """2,000 connections with the beginning of a ClientHello; those that are closed come back."""

    def opened(_: int) -> socket.socket:
        sock = _connected(target)
        sock.sendall(HELLO_BEGUN)
        return sock

    flood(opened, 2_000, b"", until_s)


def slow_handshakes(target: Target, until_s: float) -> None:
    """800 connections with a whole ClientHello that never go on."""
    hello = _hello()

    def opened(_: int) -> socket.socket:
        sock = _connected(target)
        sock.sendall(hello)
        return sock

    flood(opened, 800, b"", until_s)


def many_handshakes(target: Target, until_s: float) -> None:
    """New connections as fast as possible, in hundreds, each with a whole ClientHello, and closed."""
    hello = _hello()
    while time.monotonic() < until_s:
        opened: list[socket.socket] = []
        with suppress(OSError):
            for _ in range(100):
                opened.append(_connected(target))
                opened[-1].sendall(hello)
            for sock in opened:
                sock.settimeout(1)
                sock.recv(1)
        for sock in opened:
            sock.close()


def _opened(target: Target, client_id: str, context: ssl.SSLContext) -> ssl.SSLSocket:
    wire = context.wrap_socket(_connected(target), server_hostname="localhost")
    wire.sendall(packets.connect(client_id))
    wire.recv(100)
    return wire


def idle_tls_clients(target: Target, until_s: float) -> None:
    """1,000 clients that have connected and do nothing."""
    opened: list[ssl.SSLSocket] = []
    context = _context()
    with suppress(OSError):
        for number in range(1_000):
            opened.append(_opened(target, f"idle-{number}", context))
            if time.monotonic() > until_s:
                break
    time.sleep(max(0.0, until_s - time.monotonic()))
    for wire in opened:
        wire.close()


def small_records(target: Target, until_s: float) -> None:
    """10 clients that send PINGREQ in records of one byte."""
    context = _context()
    opened = [_opened(target, f"small-{number}", context) for number in range(10)]
    sent = [0] * len(opened)
    for wire in opened:
        wire.setblocking(False)
    while time.monotonic() < until_s:
        for number, wire in enumerate(opened):
            with suppress(OSError):
                for _ in range(500):
                    at = sent[number] & 1
                    sent[number] += wire.send(packets.PINGREQ[at : at + 1])
            with suppress(OSError):
                wire.recv(65_536)
    for wire in opened:
        wire.close()


ATTACKS: Final = {
    "half-handshakes": Attack(half_handshakes, grown_mib_max=60),
    "slow-handshakes": Attack(slow_handshakes, grown_mib_max=60),
    "many-handshakes": Attack(many_handshakes, grown_mib_max=60),
    "idle-tls-clients": Attack(idle_tls_clients, grown_mib_max=58),
    "small-records": Attack(small_records, grown_mib_max=60),
}

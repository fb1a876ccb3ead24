"""Attacks before CONNECT: connections that do not become clients."""

import socket
import time
from collections import deque
from contextlib import suppress
from typing import Final

from bench.attacks.clients import USER, Attack, Target, flood
from bench.load import HANDSHAKE_S_MAX


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


ATTACKS: Final = {
    "wrong-passwords": Attack(wrong_passwords),
    "malformed-packets": Attack(malformed_packets),
    "idle-connections": Attack(idle_connections),
}

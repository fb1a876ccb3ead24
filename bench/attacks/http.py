"""Attacks on the HTTP interface. Where others must still be answered, a thread asks beside the attack, and fails it."""

import gzip
import socket
import struct
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from typing import Final

from bench.attacks.clients import CHUNK_BYTES, NOT_SERVED, USER, Attack, Target, flood
from bench.load import HANDSHAKE_S_MAX, open_client

LOGIN: Final = "Basic " + b64encode(f"{USER}:right".encode()).decode()
RESET: Final = struct.pack("ii", 1, 0)
"""For SO_LINGER: close without waiting, with RST."""
CHECK_S_MAX: Final = 2.0
MIB: Final = 1024 * 1024


def request(path: str, *headers: str, method: str = "GET") -> bytes:
    """The head of a request."""
    return "\r\n".join((f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", "")).encode()


def http(target: Target, receive_bytes: int = 0) -> Callable[[int], socket.socket]:
    """How a client of HTTP opens a connection."""

    def opened(_: int) -> socket.socket:
        sock = socket.socket()
        if receive_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.settimeout(HANDSHAKE_S_MAX)
        sock.connect(("127.0.0.1", target.http_port))
        return sock

    return opened


class Asked:
    """Somebody who asks the same ten times a second, each time on a new connection. `end` exits if an answer failed."""

    def __init__(self, target: Target, path: str, until_s: float, **headers: str) -> None:
        self._port = target.http_port
        self._path = path
        self._headers = headers
        self._until_s = until_s
        self._failed: list[str] = []
        self._count = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ask()  # before the attack: a password that was right once is known
        self._thread.start()

    def _ask(self) -> None:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=CHECK_S_MAX)
        self._count += 1
        try:
            connection.request("GET", self._path, headers=self._headers)
            status = connection.getresponse().status
            if status != 200:
                self._failed.append(str(status))
        except (OSError, HTTPException) as error:
            self._failed.append(type(error).__name__)
        finally:
            connection.close()

    def _run(self) -> None:
        while time.monotonic() < self._until_s:
            self._ask()
            time.sleep(0.1)

    def end(self) -> None:
        self._thread.join(CHECK_S_MAX + 1)
        if self._failed:
            print(f"{len(self._failed)} of {self._count} GET {self._path} failed: {set(self._failed)}", file=sys.stderr)
            raise SystemExit(NOT_SERVED)


def gzip_bodies(target: Target, until_s: float) -> None:
    """8 connections that send 3 MB of gzip, which are 3 GB, without a login."""
    body = gzip.compress(bytes(16 * MIB), 9) * 184
    headers = ("Content-Type: application/json", "Content-Encoding: gzip", f"Content-Length: {len(body)}")
    flood(http(target), 8, request("/api/v1/retained/set", *headers, method="POST") + body, until_s)


def small_chunks(target: Target, until_s: float) -> None:
    """8 connections that send a body in chunks of one byte, without a login and without an end."""
    head = request("/api/v1/retained/set", "Transfer-Encoding: chunked", method="POST")
    flood(http(target), 8, head + b"1\r\nx\r\n" * 500_000, until_s)


def pipelined_requests(target: Target, until_s: float) -> None:
    """8 connections that send requests without a login, and do not wait for answers."""
    flood(http(target), 8, request("/api/v1/statistics") * 1_000, until_s)


def endless_heads(target: Target, until_s: float) -> None:
    """50 connections that send headers without an end."""
    head = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
    flood(http(target), 50, head + b"".join(b"x-%d: %s\r\n" % (i, b"y" * 8_000) for i in range(100)), until_s)


def idle_http_connections(target: Target, until_s: float) -> None:
    """400 connections that send half of a request; those that are closed come back. Health checks go on."""
    healthy = Asked(target, "/healthz", until_s)
    operator = Asked(target, "/metrics", until_s, Authorization=LOGIN)

    def opened(number: int) -> socket.socket:
        sock = http(target)(number)
        sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: lo")
        return sock

    flood(opened, 400, b"", until_s)
    healthy.end()
    operator.end()


def wrong_tokens(target: Target, until_s: float) -> None:
    """4 connections that try tokens and passwords. A user with the right password from the same address is answered."""
    user = Asked(target, "/metrics", until_s, Authorization=LOGIN)
    guess = b64encode(f"{USER}:wrong".encode()).decode()
    tries = [request("/metrics", f"Authorization: {each}") for each in ("Bearer wrong", f"Basic {guess}")]
    flood(http(target), 4, b"".join(tries), until_s)
    user.end()


def gone_clients(target: Target, until_s: float) -> None:
    """Clients that ask for an answer of 4 MiB, read its beginning, and reset the connection."""
    _retain(target, 8)
    asked = request("/api/v1/retained", f"Authorization: {LOGIN}", "Accept: application/x-ndjson")
    listed = request("/api/v1/retained", f"Authorization: {LOGIN}")
    body = request("/api/v1/retained/set", f"Authorization: {LOGIN}", "Content-Length: 1000", method="POST")
    while time.monotonic() < until_s:
        for each in (asked, listed, body):
            with suppress(OSError), http(target, 4096)(0) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                sock.sendall(each)
                if each is not body:
                    sock.recv(4096)
                time.sleep(0.01)


def unread_streams(target: Target, until_s: float) -> None:
    """16 live tails that nobody reads, of messages of 6 MiB, 4 a second."""
    tails = [http(target, 4096)(number) for number in range(16)]
    for number, sock in enumerate(tails):
        sock.sendall(request(f"/api/v1/messages/tail?filter=unread/{number}", f"Authorization: {LOGIN}"))
        sock.recv(15)
    number = 0
    with open_client(target.port, "attacker") as publisher:
        while time.monotonic() < until_s:
            publisher.sendall(publish(f"unread/{number % 16}", b"x" * (6 * MIB)))
            number += 1
            time.sleep(0.25)
    for sock in tails:
        sock.close()


def unread_answers(target: Target, until_s: float) -> None:
    """100 clients that ask for a page of 4 MiB, and read none of it."""
    _retain(target, 4)
    asked = request("/api/v1/retained", f"Authorization: {LOGIN}")

    def opened(number: int) -> socket.socket:
        sock = http(target, 4096)(number)
        sock.sendall(asked)
        return sock

    unread = [opened(number) for number in range(100)]
    time.sleep(max(0.0, until_s - time.monotonic()))
    for sock in unread:
        sock.close()


def publish(topic_name: str, payload: bytes, *, retain: bool = False) -> bytes:
    """A PUBLISH at QoS 0 of any size."""
    body = len(topic_name).to_bytes(2) + topic_name.encode() + payload
    length = len(body)
    size = bytearray()
    while length > 127:
        size.append(length & 127 | 128)
        length >>= 7
    return bytes([0x31 if retain else 0x30]) + bytes(size) + bytes([length]) + body


def _retain(target: Target, count: int) -> None:
    with open_client(target.port, "attacker") as publisher:
        for number in range(count):
            publisher.sendall(publish(f"unread/{number}", b"x" * MIB, retain=True))
        publisher.sendall(b"\xc0\x00")
        publisher.recv(CHUNK_BYTES)
    time.sleep(0.5)  # until they are durable


ATTACKS: Final = {
    "http-gzip-bodies": Attack(gzip_bodies, grown_mib_max=32),
    "http-small-chunks": Attack(small_chunks, grown_mib_max=32),
    "http-pipelined-requests": Attack(pipelined_requests, grown_mib_max=32),
    "http-endless-heads": Attack(endless_heads, grown_mib_max=64),
    "http-idle-connections": Attack(idle_http_connections, grown_mib_max=32),
    "http-wrong-tokens": Attack(wrong_tokens, "[listeners]\nshared_addresses = []\n", grown_mib_max=32),
    "http-gone-clients": Attack(gone_clients, grown_mib_max=128),
    "http-unread-streams": Attack(unread_streams, grown_mib_max=160),
    "http-unread-answers": Attack(unread_answers, grown_mib_max=128),
}

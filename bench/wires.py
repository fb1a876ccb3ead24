"""Wires: how the generator's bytes travel where that is not plain TCP.

Owns: a TLS client and a WebSocket client that look like a non-blocking socket to `load`.
Never: a check of a certificate (it is made for the run), or a message; WebSocket frames are cut where `send` is called.
"""

import secrets
import socket
import ssl
import struct
import subprocess
from base64 import b64encode
from pathlib import Path
from typing import Final, Literal, Protocol, final

import numpy as np

Wire = Literal["tcp", "tls", "websocket"]

_MASKED: Final = 0x80
_BINARY: Final = 0x82
_NO_MASK: Final = bytes(4)  # a masking key of zeros changes nothing


class ClientSocket(Protocol):
    """What the generator uses of a socket. BlockingIOError: nothing can be sent or read now."""

    def fileno(self) -> int: ...
    def setblocking(self, flag: bool, /) -> None: ...
    def send(self, data: memoryview | bytes, /) -> int: ...
    def sendall(self, data: bytes, /) -> None: ...
    def recv(self, size: int, /) -> bytes: ...
    def recv_into(self, buffer: memoryview, /) -> int: ...
    def close(self) -> None: ...


@final
class TlsSocket:
    """TLS over a socket."""

    def __init__(self, sock: socket.socket) -> None:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        self._sock = context.wrap_socket(sock, server_hostname="localhost")
        self.fileno = self._sock.fileno
        self.setblocking = self._sock.setblocking
        self.sendall = self._sock.sendall
        self.recv = self._sock.recv
        self.close = self._sock.close

    def send(self, data: memoryview | bytes, /) -> int:
        try:
            return self._sock.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def recv_into(self, buffer: memoryview, /) -> int:
        """All that is there: what is decrypted already does not make the socket readable again."""
        count = 0
        while count < len(buffer):
            try:
                more = self._sock.recv_into(buffer[count:])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            if not more:
                return count
            count += more
        if not count:
            raise BlockingIOError
        return count


@final
class WebSocketSocket:
    """WebSocket over a socket: each `send` is one frame, and the frames of the server are taken apart."""

    def __init__(self, sock: socket.socket, path: str = "/mqtt") -> None:
        self._sock = sock
        self._left = 0  # bytes of the server's frame that are still to come
        self._head = b""  # the beginning of a frame's head that is not complete
        self.fileno = sock.fileno
        self.setblocking = sock.setblocking
        self.close = sock.close
        key = b64encode(secrets.token_bytes(16)).decode()
        sock.sendall(
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n".encode()
        )
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            part = sock.recv(1)
            if not part:
                raise OSError(f"the upgrade to WebSocket was refused: {answer!r}")
            answer += part
        if b" 101 " not in answer.split(b"\r\n")[0]:
            raise OSError(f"the upgrade to WebSocket was refused: {answer!r}")

    def send(self, data: memoryview | bytes, /) -> int:
        frame = _frame_head(len(data)) + bytes(data)
        sent = self._sock.send(frame)
        if sent < len(frame):  # a frame that has begun must be completed before the next
            self._sock.setblocking(True)
            self._sock.sendall(frame[sent:])
            self._sock.setblocking(False)
        return len(data)

    def sendall(self, data: bytes, /) -> None:
        self._sock.sendall(_frame_head(len(data)) + data)

    def recv(self, size: int, /) -> bytes:
        buffer = bytearray(size)
        while True:
            data = self._sock.recv(self._wanted(size))
            if not data:
                return b""
            count = self._take(data, memoryview(buffer))
            if count:
                return bytes(buffer[:count])

    def recv_into(self, buffer: memoryview, /) -> int:
        data = self._sock.recv(len(buffer))
        if not data:
            return 0
        count = self._take(data, buffer)
        if not count:
            raise BlockingIOError
        return count

    def _wanted(self, size: int) -> int:
        """Not more than the frame has, so that nothing is read beyond what is asked for."""
        return min(size, self._left) if self._left else 1

    def _take(self, data: bytes, buffer: memoryview) -> int:
        """Put the payload of frames into a buffer; how many bytes that are."""
        data, at, count = self._head + data, 0, 0
        self._head = b""
        while at < len(data):
            if not self._left:
                head, self._left = _read_frame_head(data, at)
                if not head:
                    self._head = data[at:]
                    break
                alike = _alike(data, at, head + self._left)
                if alike:  # else the generator would be busier than the broker
                    rows = np.frombuffer(data, np.uint8, alike * (head + self._left), at).reshape(alike, -1)
                    payload = rows[:, head:].tobytes()
                    buffer[count : count + len(payload)] = payload
                    at, count, self._left = at + rows.size, count + len(payload), 0
                    continue
                at += head
            step = min(self._left, len(data) - at)
            buffer[count : count + step] = data[at : at + step]
            at, count, self._left = at + step, count + step, self._left - step
        return count


def _frame_head(length: int) -> bytes:
    if length < 126:
        return bytes((_BINARY, _MASKED | length)) + _NO_MASK
    if length < 1 << 16:
        return struct.pack(">BBH", _BINARY, _MASKED | 126, length) + _NO_MASK
    return struct.pack(">BBQ", _BINARY, _MASKED | 127, length) + _NO_MASK


def _read_frame_head(data: bytes, at: int) -> tuple[int, int]:
    """How long the head of a frame is, and its payload; 0 if the head is not complete."""
    if len(data) - at < 2:
        return 0, 0
    length = data[at + 1]
    if length < 126:
        return 2, length
    more = 2 if length == 126 else 8
    if len(data) - at < 2 + more:
        return 0, 0
    return 2 + more, int.from_bytes(data[at + 2 : at + 2 + more], "big")


def _alike(data: bytes, at: int, size: int) -> int:
    """How many whole frames of a size follow each other, if there are many and all have the same head."""
    count = (len(data) - at) // size
    if count < 8:
        return 0
    heads = np.frombuffer(data, np.uint8, count * size, at).reshape(count, size)[:, :2]
    return count if bool((heads == heads[0]).all()) else 0


def over(wire: Wire, sock: socket.socket) -> ClientSocket:
    """A connected socket, with a wire's protocol on it."""
    if wire == "tls":
        return TlsSocket(sock)
    return WebSocketSocket(sock) if wire == "websocket" else sock


def make_certificate(directory: Path) -> tuple[Path, Path]:
    """A certificate that signs itself, and its key; OSError or CalledProcessError without `openssl`."""
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    asked = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    subprocess.run(
        [*asked, "-subj", "/CN=localhost", "-keyout", str(key), "-out", str(certificate)],
        check=True,
        capture_output=True,
    )
    return certificate, key

"""The client's side of a WebSocket (RFC 6455): a socket whose bytes travel in binary messages.

Owns: the upgrade, and reading and writing frames. It has those methods of a socket that a connection of MQTT calls.
Never: a packet. Packets and WebSocket messages need not begin and end together (MQTT-6.0.0-2).
"""

import os
from base64 import b64encode
from hashlib import sha1
from struct import Struct
from typing import Final, Protocol, final

from embermq.errors import ConfigError

HEAD_BYTES_MAX: Final = 16 * 1024
"""The longest answer to the upgrade."""
READ_BYTES: Final = 256 * 1024
CONTROL_BYTES_MAX: Final = 125
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_SIZE_2: Final = Struct(">H")
_SIZE_8: Final = Struct(">Q")
_MASKED: Final = 0x80
_FINAL: Final = 0x80
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA


class ByteStream(Protocol):
    """What a WebSocket asks of the connection that carries it: these methods of a socket."""

    def settimeout(self, seconds: float | None, /) -> None: ...
    def sendall(self, data: bytes, /) -> None: ...
    def recv(self, size: int, /) -> bytes: ...
    def close(self) -> None: ...


@final
class WebSocket:
    """A socket after the upgrade. `address` is what errors call the server."""

    __slots__ = ("_address", "_buffer", "_is_closing", "_left", "_socket")

    def __init__(self, connection: ByteStream, address: str, host: str, path: str) -> None:
        self._socket: Final = connection
        self._address: Final = address
        self._left = 0  # of the payload of a frame whose beginning was given
        self._is_closing = False
        self._buffer = self._upgrade(host, path)

    def settimeout(self, seconds: float) -> None:
        self._socket.settimeout(seconds)

    def sendall(self, data: bytes) -> None:
        self._send(_BINARY, data)

    def recv(self, size: int) -> bytes:
        """Some bytes of the messages; empty at the end. The size of the answer is that of what has come."""
        while not self._is_closing:
            if self._left and self._buffer:
                data, self._buffer = self._buffer[: self._left], self._buffer[self._left :]
                self._left -= len(data)
                return data
            if self._left or not self._read_frame():
                more = self._socket.recv(READ_BYTES)
                if not more:
                    break
                self._buffer += more
        return b""

    def close(self) -> None:
        try:
            if not self._is_closing:
                self._send(_CLOSE, b"\x03\xe8")  # 1000, normal closure
        except OSError:
            pass  # it is closed anyway
        finally:
            self._socket.close()

    def _upgrade(self, host: str, path: str) -> bytes:
        """Ask for the upgrade; returns what has come after the answer."""
        key = b64encode(os.urandom(16))
        lines = [
            f"GET {path} HTTP/1.1",
            f"Host: {host}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key.decode()}",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Protocol: mqtt",
        ]
        self._socket.sendall("".join(f"{line}\r\n" for line in [*lines, ""]).encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            more = self._socket.recv(READ_BYTES) if len(answer) < HEAD_BYTES_MAX else b""
            if not more:
                raise self._wrong("no answer to the upgrade")
            answer += more
        head, _, rest = answer.partition(b"\r\n\r\n")
        status, *lines = head.decode("latin-1").split("\r\n")
        version, _, said = status.partition(" ")
        if version != "HTTP/1.1":
            raise self._wrong("the answer is not HTTP")
        if not said.startswith("101"):
            raise ConfigError(f"{self._address} refuses the WebSocket: {said[:100]!a} for the path {path}")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if headers.get("sec-websocket-accept") != b64encode(sha1(key + _GUID).digest()).decode():
            raise self._wrong("the answer to the upgrade does not fit the question")
        if headers.get("sec-websocket-protocol") != "mqtt":
            raise ConfigError(f"{self._address} does not offer MQTT over this WebSocket")
        return rest

    def _read_frame(self) -> bool:
        """Take the head of the next frame, or the whole of a control frame; False: more has to come first."""
        buffer = self._buffer
        if len(buffer) < 2:
            return False
        kind, size, at = buffer[0] & 0x0F, buffer[1] & 0x7F, 2
        if buffer[0] & 0x70 or buffer[1] & _MASKED:
            raise self._wrong("a frame that was not agreed on")
        if kind not in (_CONTINUATION, _BINARY, _CLOSE, _PING, _PONG):
            raise self._wrong("a message that is not binary")
        if kind >= _CLOSE:
            if size > CONTROL_BYTES_MAX:
                raise self._wrong("a control frame that is too long")
            if len(buffer) < at + size:
                return False
            payload, self._buffer = buffer[at : at + size], buffer[at + size :]
            self._control(kind, payload)
            return True
        if size > CONTROL_BYTES_MAX:
            number = _SIZE_2 if size == CONTROL_BYTES_MAX + 1 else _SIZE_8
            at += number.size
            if len(buffer) < at:
                return False
            size = number.unpack_from(buffer, 2)[0]
        self._left, self._buffer = size, buffer[at:]
        return True

    def _control(self, kind: int, payload: bytes) -> None:
        if kind == _PING:
            self._send(_PONG, payload)
        elif kind == _CLOSE:
            self._send(_CLOSE, payload[:2])
            self._is_closing = True

    def _send(self, kind: int, payload: bytes) -> None:
        size = len(payload)
        if size <= CONTROL_BYTES_MAX:
            head = bytes((_FINAL | kind, _MASKED | size))
        elif size < 1 << 16:
            head = bytes((_FINAL | kind, _MASKED | (CONTROL_BYTES_MAX + 1))) + _SIZE_2.pack(size)
        else:
            head = bytes((_FINAL | kind, _MASKED | (CONTROL_BYTES_MAX + 2))) + _SIZE_8.pack(size)
        mask = os.urandom(4)
        repeated = (mask * (size // 4 + 1))[:size]
        masked = (int.from_bytes(payload) ^ int.from_bytes(repeated)).to_bytes(size)
        self._socket.sendall(head + mask + masked)

    def _wrong(self, what: str) -> ConfigError:
        return ConfigError(f"{self._address} does not answer as a WebSocket server: {what}")

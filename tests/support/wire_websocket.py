"""The test clients of `wire` and `wire_v5` over a WebSocket, with frames of its own making.

Owns: the handshake and the frames of RFC 6455 as far as tests need them.
"""

import base64
import hashlib
import os
from typing import NamedTuple

from support.wire import Address, Stream, Wire
from support.wire_v5 import WireV5

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
ACCEPT_SUFFIX = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Response(NamedTuple):
    status: int
    headers: dict[str, str]


class WebSocketStream(Stream):
    """Each `send` is one binary frame; `send_frame` gives the choice."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._raw = bytearray()

    def upgrade(self, path: str = "/mqtt", subprotocols: str | None = "mqtt") -> Response:
        """The HTTP request that makes a WebSocket of the connection, and what the server says to it."""
        key = base64.b64encode(os.urandom(16))
        lines = [f"GET {path} HTTP/1.1", "Host: localhost", "Upgrade: websocket", "Connection: Upgrade"]
        lines += [f"Sec-WebSocket-Key: {key.decode()}", "Sec-WebSocket-Version: 13"]
        if subprotocols is not None:
            lines.append(f"Sec-WebSocket-Protocol: {subprotocols}")
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode())
        while b"\r\n\r\n" not in self._raw:
            self._raw += super()._receive_bytes()
        head, _, rest = bytes(self._raw).partition(b"\r\n\r\n")
        self._raw[:] = rest
        status, *header_lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in header_lines)}
        response = Response(int(status.split()[1]), headers)
        if response.status == 101:
            accept = base64.b64encode(hashlib.sha1(key + ACCEPT_SUFFIX).digest()).decode()
            assert headers["sec-websocket-accept"] == accept
        return response

    def send_frame(self, opcode: int, data: bytes, *, final: bool = True) -> None:
        mask = os.urandom(4)
        length = len(data)
        if length < 126:
            size = bytes([0x80 | length])
        elif length < 65_536:
            size = b"\xfe" + length.to_bytes(2)
        else:
            size = b"\xff" + length.to_bytes(8)
        masked = bytes(byte ^ mask[index & 3] for index, byte in enumerate(data))
        self._socket.sendall(bytes([(0x80 if final else 0) | opcode]) + size + mask + masked)

    def send(self, *parts: bytes | str) -> None:
        data = b"".join(bytes.fromhex(part) if isinstance(part, str) else part for part in parts)
        self.send_frame(BINARY, data)

    def _take(self, count: int) -> bytes:
        while len(self._raw) < count:
            self._raw += super()._receive_bytes()
        taken = bytes(self._raw[:count])
        del self._raw[:count]
        return taken

    def receive_frame(self) -> tuple[int, bytes]:
        """The opcode and the data of the next frame."""
        first, second = self._take(2)
        assert not second & 0x80, "a server does not mask"
        length = second & 0x7F
        if length == 126:
            length = int.from_bytes(self._take(2))
        elif length == 127:
            length = int.from_bytes(self._take(8))
        return first & 15, self._take(length)

    def _receive_bytes(self) -> bytes:
        opcode, data = self.receive_frame()
        if opcode == CLOSE:
            raise ConnectionError("the server closed the WebSocket")
        assert opcode in (BINARY, CONTINUATION), f"packets travel in binary frames, not in {opcode}"
        return data


class WebSocketWire(WebSocketStream, Wire):
    """MQTT 3.1.1 over a WebSocket."""


class WebSocketWireV5(WebSocketStream, WireV5):
    """MQTT 5 over a WebSocket."""

"""Frames of WebSockets (RFC 6455, 5): those of a client to the bytes that they carry, and packets to those of a server.

Owns: where frames begin and end, and what is wrong with one.
Never: a socket. A message is not gathered: the bytes of an incomplete frame are passed on, as those of TCP are.
"""

from struct import Struct
from typing import Final, final

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64

CONTINUATION: Final = 0
TEXT: Final = 1
BINARY: Final = 2
CLOSE: Final = 8
PING: Final = 9
PONG: Final = 10

NORMAL: Final = 1000
"""Close codes (RFC 6455, 7.4.1)."""
PROTOCOL_ERROR: Final = 1002
UNSUPPORTED_DATA: Final = 1003

_FINAL: Final = 0x80
_RESERVED: Final = 0x70
_OPCODE: Final = 0x0F
_CONTROL: Final = 0x08
_MASKED: Final = 0x80
_LENGTH: Final = 0x7F
_CONTROL_BYTES_MAX: Final = 125
_NO_MASK: Final = bytes(4)
_LARGE_BYTES: Final = 256
"""From here on, words of eight bytes are quicker than one integer."""
_HEAD_2: Final = Struct(">BBH")
_HEAD_8: Final = Struct(">BBQ")
_SMALL_HEADS: Final = [bytes((_FINAL | BINARY, length)) for length in range(_CONTROL_BYTES_MAX + 1)]


def unmasked(data: bytes, mask: bytes) -> bytes:
    """What a client has masked (5.3), and the other way round. `mask` is that of the first byte."""
    size = len(data)
    if mask == _NO_MASK or not size:
        return data
    if size < _LARGE_BYTES:
        repeated = (mask * (size // 4 + 1))[:size]
        return (int.from_bytes(data, "little") ^ int.from_bytes(repeated, "little")).to_bytes(size, "little")
    word: i64 = read_i64_le(mask + mask, 0)
    whole: i64 = size & ~7
    writer = BytesWriter()
    at: i64 = 0
    while at < whole:
        write_i64_le(writer, read_i64_le(data, at) ^ word)
        at += 8
    if whole < size:
        writer.write(unmasked(data[whole:], mask))
    return writer.getvalue()


def head(opcode: int, length: int) -> bytes:
    """Of a whole message from a server: never masked, here never compressed."""
    first = _FINAL | opcode
    if length <= _CONTROL_BYTES_MAX:
        return bytes((first, length))
    return _HEAD_2.pack(first, 126, length) if length < 65_536 else _HEAD_8.pack(first, 127, length)


@final
class FrameReader:
    """The frames of one client.

    `problem` and `close_code` are set when they broke a rule; everything after that is ignored.
    `ping` is the data of the last Ping, until it is set to None. `closed` is that of a Close.
    """

    def __init__(self) -> None:
        self.problem = ""
        self.close_code = 0
        self.ping: bytes | None = None
        self.closed: bytes | None = None
        self._head = b""  # of a frame, incomplete
        self._payload_bytes = 0  # of the frame, not received yet
        self._opcode = 0
        self._mask = _NO_MASK
        self._in_message = False  # a frame has come that was not the last one of its message
        self._control = b""  # of a control frame that is not complete

    def take_ping(self) -> bytes | None:
        """The payload of the last Ping since the last call; None if there was none."""
        ping, self.ping = self.ping, None
        return ping

    def feed(self, data: bytes) -> bytes:
        """The bytes of binary messages in what has come. Never raises for what a peer sent: see `problem`."""
        if self.problem or self._has_closed():
            return b""
        if self._head:
            data = self._head + data
            self._head = b""
        parts: list[bytes] = []
        at: i64 = 0
        end: i64 = len(data)
        while at < end:
            if not self._payload_bytes:
                begun = self._begin_frame(data, at)
                if not begun:
                    break
                at += begun
            at += self._take_payload(data, at, parts)
            if self._has_closed():
                break
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _has_closed(self) -> bool:
        # A method: the compiler would take what was found once for what is still so.
        return self.closed is not None

    def _begin_frame(self, data: bytes, at: i64) -> i64:
        """How many bytes the head of a frame has; 0 if it is not complete, or breaks a rule."""
        available: i64 = len(data) - at
        if available < 2:
            self._head = data[at:]
            return 0
        first, second = data[at], data[at + 1]
        length: i64 = second & _LENGTH
        extended: i64 = 8 if length == 127 else 2 if length == 126 else 0
        self._check(first, second, length)
        if self.problem:
            return 0
        size = 6 + extended
        if available < size:
            self._head = data[at:]
            return 0
        if extended:
            length = int.from_bytes(data[at + 2 : at + 2 + extended]) if extended == 2 or data[at + 2] < 0x80 else -1
            if length < 0:
                self._fail("a frame of more than 2^63 bytes")
                return 0
        self._opcode = first & _OPCODE
        if not first & _CONTROL:
            self._in_message = not first & _FINAL
        self._mask = data[at + size - 4 : at + size]
        self._payload_bytes = length
        return size

    def _check(self, first: int, second: int, length: i64) -> None:
        opcode = first & _OPCODE
        if not second & _MASKED:
            self._fail("a frame that is not masked (RFC 6455, 5.1)")
        elif first & _RESERVED or opcode not in (CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG):
            self._fail("a reserved bit or opcode (RFC 6455, 5.2)")
        elif opcode & _CONTROL:
            if not first & _FINAL or length > _CONTROL_BYTES_MAX:
                self._fail("a control frame that is long, or one of several (RFC 6455, 5.5)")
        elif opcode == TEXT:
            self._fail("a text frame", UNSUPPORTED_DATA)  # MQTT-6.0.0-1
        elif (opcode == CONTINUATION) is not self._in_message:
            self._fail("a frame that does not continue its message (RFC 6455, 5.4)")

    def _fail(self, problem: str, close_code: int = PROTOCOL_ERROR) -> None:
        self.problem = problem
        self.close_code = close_code

    def _take_payload(self, data: bytes, at: i64, parts: list[bytes]) -> i64:
        """What has come of the payload of the frame; how many bytes that are."""
        step: i64 = min(self._payload_bytes, len(data) - at)
        taken = unmasked(data[at : at + step], self._mask)
        self._payload_bytes -= step
        if not self._opcode & _CONTROL:
            if step:
                parts.append(taken)
        else:
            self._control += taken
            if not self._payload_bytes:
                self._take_control()
        if self._payload_bytes and step & 3:
            turned = step & 3
            self._mask = self._mask[turned:] + self._mask[:turned]
        return step

    def _take_control(self) -> None:
        control, self._control = self._control, b""
        if self._opcode == PING:
            self.ping = control
        elif self._opcode == CLOSE:
            self.closed = control


@final
class PacketFrames:
    """A frame for each packet that is sent. Some clients lose what follows the first packet of a frame."""

    def __init__(self) -> None:
        self._packet_bytes = 0  # of the packet, not written yet

    def framed(self, data: bytes) -> list[bytes]:
        """Packets in frames, as parts to be written. A large packet may come in two writes."""
        end: i64 = len(data)
        at: i64 = min(self._packet_bytes, end)
        self._packet_bytes -= at
        if at == end:
            return [data]
        parts: list[bytes] = [data[:at]] if at else []
        while at < end:
            length: i64 = 0
            shift: i64 = 0
            body: i64 = at + 1
            byte: i64 = 0x80
            while byte & 0x80 and body < end:
                byte = data[body]
                length |= (byte & 0x7F) << shift
                shift += 7
                body += 1
            stop = body + length
            size = stop - at
            parts.append(_SMALL_HEADS[size] if size <= _CONTROL_BYTES_MAX else head(BINARY, size))
            if stop > end:
                self._packet_bytes = stop - end
                stop = end
            parts.append(data[at:stop])
            at = stop
        return parts

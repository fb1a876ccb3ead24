"""Frames of a WebSocket client, checked before the HTTP library assembles messages of them (RFC 6455, 5.1 and 5.2).

Owns: where frames begin in what has come, and how many bytes the message has that is not finished.
Never: a message; the library's reader makes those.
"""

from collections.abc import Callable
from typing import Final, Protocol, final

FINAL: Final = 0x80
CONTROL: Final = 0x08
MASKED: Final = 0x80
LENGTH: Final = 0x7F
LENGTH_OF_2_BYTES: Final = 126
LENGTH_OF_8_BYTES: Final = 127
MASK_BYTES: Final = 4


class FrameReader(Protocol):
    """What the HTTP library hands bytes to after the upgrade."""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]: ...
    def feed_eof(self) -> None: ...


@final
class FrameCheck:
    """Stands between the socket and the library's reader, and passes on what is allowed.

    The library takes frames that are not masked, and has one bound for a message, which is that of the largest packet.
    `message_bytes_max` may be raised when the client is known. `refuse` is called once, with the reason.
    """

    __slots__ = ("message_bytes_max", "_head", "_is_refused", "_message_bytes", "_payload_bytes", "_reader", "_refuse")

    def __init__(self, reader: FrameReader, message_bytes_max: int, refuse: Callable[[str], None]) -> None:
        self.message_bytes_max = message_bytes_max
        self._reader: Final = reader
        self._refuse: Final = refuse
        self._head = b""  # of a frame, incomplete
        self._payload_bytes = 0  # of the frame, not received yet
        self._message_bytes = 0  # announced by the frames of the message that is not finished
        self._is_refused = False

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """As the library's reader: whether nothing more is taken, and what was not used."""
        if not self._is_refused:
            problem = self._problem(data)
            if not problem:
                return self._reader.feed_data(data)
            self._is_refused = True
            self._refuse(problem)
        return True, b""

    def feed_eof(self) -> None:
        self._reader.feed_eof()

    def _problem(self, data: bytes) -> str:
        """What is wrong with the frames that begin in this data; empty if nothing is."""
        if self._head:
            data = self._head + data
        at, end = 0, len(data)
        while True:
            step = min(self._payload_bytes, end - at)
            self._payload_bytes -= step
            at += step
            if end - at < 2:
                break
            if not data[at + 1] & MASKED:
                return "a frame that is not masked (RFC 6455, 5.1)"
            length = data[at + 1] & LENGTH
            extended_bytes = 8 if length == LENGTH_OF_8_BYTES else 2 if length == LENGTH_OF_2_BYTES else 0
            head_bytes = 2 + extended_bytes + MASK_BYTES
            if end - at < head_bytes:
                break
            if extended_bytes:
                length = int.from_bytes(data[at + 2 : at + 2 + extended_bytes])
            if not data[at] & CONTROL:  # control frames may come between those of a message
                self._message_bytes += length
                if self._message_bytes > self.message_bytes_max:
                    return f"a WebSocket message of more than {self.message_bytes_max} bytes"
                if data[at] & FINAL:
                    self._message_bytes = 0
            self._payload_bytes = length
            at += head_bytes
        self._head = data[at:]
        return ""

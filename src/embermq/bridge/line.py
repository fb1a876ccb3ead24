"""The socket to the other broker: TCP, TLS or WebSocket, without waiting once it is open.

Owns: what is not written yet. Every error is a `ConfigError` with one sentence.
"""

import select
import socket
import ssl
from contextlib import suppress
from typing import Final, final

from embermq.client.address import ServerAddress, open_socket, open_websocket
from embermq.client.websocket import WebSocket
from embermq.errors import ConfigError

READ_BYTES: Final = 64 * 1024
READS_MAX: Final = 4
"""How often one call reads: TLS and WebSocket keep what they have read, which no poll sees."""
WRITE_BYTES: Final = 256 * 1024
OPEN_TIMEOUT_S: Final = 10.0

_NOT_NOW: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


@final
class _Unwritten:
    """A socket whose output is gathered once it is open: what a WebSocket writes in between must not wait."""

    __slots__ = ("_socket", "is_open", "output")

    def __init__(self, connection: socket.socket) -> None:
        self._socket: Final = connection
        self.is_open = False
        self.output: Final = bytearray()

    def settimeout(self, seconds: float | None, /) -> None:
        self._socket.settimeout(seconds)

    def recv(self, size: int, /) -> bytes:
        return self._socket.recv(size)

    def sendall(self, data: bytes, /) -> None:
        if self.is_open:
            self.output.extend(data)
        else:
            self._socket.sendall(data)

    def close(self) -> None:
        self._socket.close()

    def opened(self) -> None:
        self._socket.setblocking(False)
        self.is_open = True


@final
class Line:
    """One open connection."""

    def __init__(self, address: ServerAddress, timeout_s: float = OPEN_TIMEOUT_S) -> None:
        self._address: Final = address
        self._socket: Final = open_socket(address, timeout_s)
        self._unwritten: Final = _Unwritten(self._socket)
        self._websocket: WebSocket | None = None
        if address.ws_path:
            self._websocket = open_websocket(self._unwritten, address)
        self._unwritten.opened()

    @property
    def unwritten_bytes(self) -> int:
        return len(self._unwritten.output)

    def write(self, data: bytes) -> None:
        """Add to what is to be written, and write what the network takes."""
        if data:
            (self._websocket or self._unwritten).sendall(data)
        output = self._unwritten.output
        try:
            while output:
                with memoryview(output) as view, view[:WRITE_BYTES] as part:
                    count = self._socket.send(part)
                del output[:count]
        except _NOT_NOW:
            return
        except OSError as error:
            raise self._lost(error) from None

    def read(self) -> tuple[bytes, bool]:
        """What has come; and whether there may be more that was read already."""
        parts: list[bytes] = []
        connection = self._websocket or self._unwritten
        for _ in range(READS_MAX):
            try:
                data = connection.recv(READ_BYTES)
            except _NOT_NOW:
                return b"".join(parts), False
            except OSError as error:
                raise self._lost(error) from None
            if not data:
                if parts:  # its last words come first; the end comes with the next call
                    return b"".join(parts), True
                raise ConfigError(f"{self._address} closed the connection")
            parts.append(data)
        return b"".join(parts), True

    def wait(self, other: int, timeout_s: float, is_reading: bool) -> bool:
        """Wait until there is something to read or to write, or another file can be read; whether this one can be."""
        poll = select.poll()
        poll.register(other, select.POLLIN)
        events = (select.POLLIN if is_reading else 0) | (select.POLLOUT if self._unwritten.output else 0)
        descriptor = self._socket.fileno()
        if events:  # else the end of the connection would wake this again and again
            poll.register(descriptor, events)
        found = dict(poll.poll(max(0, int(timeout_s * 1000))))
        return is_reading and bool(found.get(descriptor, 0) & ~select.POLLOUT)

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()

    def _lost(self, error: OSError) -> ConfigError:
        return ConfigError(f"the connection to {self._address} failed: {error.strerror or error}")

"""The network: one wire for each connection, on which bytes travel when the world moves them, in pieces of any size.

Owns: what is on its way in both directions, and how a connection ends: closed by either side, or cut.
"""

from collections import deque
from typing import Final, Protocol

from embermq.transport.stream import StreamConnection
from simulation.clock import CLOCK

HIGH_WATER_BYTES: Final = 64 * 1024


class Receiver(Protocol):
    """A client, as its wire sees it."""

    def received(self, wire: "Wire", data: bytes) -> None: ...
    def ended(self, wire: "Wire") -> None: ...


class Wire:
    """One connection; for the server it is the transport."""

    def __init__(self, number: int, client: Receiver) -> None:
        self.number: Final = number
        self.client: Final = client
        self._server: StreamConnection | None = None
        self._to_server = bytearray()
        self._to_client = bytearray()
        self._is_read = True  # the server reads
        self._high_bytes = HIGH_WATER_BYTES
        self._was_high = False
        self._has_client_left = False
        self._has_server_left = False
        self.server_knows_end = False
        self.server_left_us = 0  # when the server ended it
        self.was_open = False  # CONNACK has come to the client
        self.is_stalled = False  # the client does not read
        self.delivered_bytes = 0  # to the server
        self.written_us = 0  # when the server wrote the oldest of what is on its way to the client
        self._writes: deque[tuple[int, int]] = deque()  # how many bytes, and when

    def open(self, server: StreamConnection) -> None:
        self._server = server
        server.connection_made(self)

    # -- the server's side: ByteTransport ------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        assert not self._has_server_left, "a transport that has ended raises"
        self._to_client += data
        self._writes.append((len(data), CLOCK.now_us))
        self._was_high = self._was_high or len(self._to_client) > self._high_bytes

    def get_write_buffer_size(self) -> int:
        return len(self._to_client)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = high if high is not None else HIGH_WATER_BYTES

    def pause_reading(self) -> None:
        self._is_read = False

    def resume_reading(self) -> None:
        self._is_read = True

    def close(self) -> None:
        self._has_server_left = True
        self.server_left_us = CLOCK.now_us

    def abort(self) -> None:
        self.close()
        self._to_client.clear()

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    # -- the client's side ---------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        if not self._has_client_left:
            self._to_server += data

    def leave(self) -> None:
        """The client closes its side; what it has sent before still travels."""
        self._has_client_left = True
        self._to_client.clear()

    # -- the world's side ----------------------------------------------------------------------------------------------

    def can_reach_server(self) -> bool:
        if self.server_knows_end:
            return False
        return (bool(self._to_server) and self._is_read) or self._has_client_left or self._has_server_left

    def can_reach_client(self) -> bool:
        if self._has_client_left or self.is_stalled:
            return False
        return bool(self._to_client) or self._has_server_left

    def sent_bytes(self) -> int:
        """How many bytes the client has sent, delivered or not."""
        return self.delivered_bytes + len(self._to_server)

    def to_server(self, size: int) -> None:
        """Some bytes arrive at the server, or the end behind the last ones."""
        server = self._server
        assert server is not None
        if self._has_server_left:
            if not self._to_client or self._has_client_left:
                self._end(None)
        elif self._to_server and self._is_read:
            data = bytes(self._to_server[:size])
            del self._to_server[:size]
            self.delivered_bytes += len(data)
            server.data_received(data)
        elif self._has_client_left and not self._to_server:
            self._end(None)
        elif self._has_client_left and not self._is_read:
            return

    def to_client(self, size: int) -> None:
        """Some bytes arrive at the client, or the end behind the last ones."""
        if self._to_client:
            data = bytes(self._to_client[:size])
            del self._to_client[:size]
            self._note_written(len(data))
            self.client.received(self, data)
            if self._was_high and not self._to_client and not self._has_server_left:
                self._was_high = False
                if self._server is not None and not self.server_knows_end:
                    self._server.resume_writing()
        elif self._has_server_left:
            self._has_client_left = True
            self.client.ended(self)

    def _note_written(self, size: int) -> None:
        self.written_us = self._writes[0][1]
        while size > 0:
            count, written_us = self._writes.popleft()
            if count > size:
                self._writes.appendleft((count - size, written_us))
            size -= count

    def cut(self) -> None:
        """The connection breaks: both sides learn of it, and what is on its way is lost."""
        self._to_server.clear()
        self._to_client.clear()
        if not self._has_client_left:
            self._has_client_left = True
            self.client.ended(self)
        if not self.server_knows_end:
            self._end(ConnectionResetError("cut"))

    def server_died(self) -> None:
        """The server's process is gone; the client learns of it."""
        self.server_knows_end = True
        self._server = None
        if not self._has_client_left:
            self._has_client_left = True
            self.client.ended(self)

    def _end(self, error: Exception | None) -> None:
        server, self._server = self._server, None
        self.server_knows_end = True
        self._has_server_left = True
        if server is not None:
            server.connection_lost(error)

    def is_done(self) -> bool:
        """Nothing can happen on it any more."""
        return self.server_knows_end and self._has_client_left

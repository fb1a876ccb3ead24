"""The meter of one connection: how many messages and bytes its client sends, and how long it is not read from.

Owns: `limits.client_publish_rate_max` and `limits.client_bytes_rate_max`. A client above them loses nothing: what it
sends waits in the network.
"""

from typing import TYPE_CHECKING, Final, final

from embermq.broker.rates.bucket import Bucket
from embermq.transport.pauses import RATE

if TYPE_CHECKING:
    from embermq.transport.server import Server
    from embermq.transport.stream import StreamConnection

METERED_SHARE_BYTES: Final = 4 * 1024
"""How many bytes of a client with a rate are processed at a time: by so much it may exceed the rate in a burst."""
PAUSE_MS_MAX: Final = 1_000
"""A longer pause is made of several. After each the client counts as heard: it has sent what is not read."""


@final
class Meter:
    """The rates of one client."""

    __slots__ = ("_bytes", "_connection", "_is_waiting", "_publishes", "_server")

    def __init__(self, connection: "StreamConnection", server: "Server") -> None:
        publish_rate, byte_rate = server.limits.client_publish_rate_max, server.limits.client_bytes_rate_max
        now_ms = server.now_ms()
        self._publishes: Final = Bucket(publish_rate, now_ms) if publish_rate else None
        self._bytes: Final = Bucket(byte_rate, now_ms) if byte_rate else None
        self._connection: Final = connection
        self._server: Final = server
        self._is_waiting = False

    def charge(self, publishes: int, size_bytes: int) -> None:
        """So much was processed: the client is not read from for as long as its rate asks for."""
        now_ms = self._server.now_ms()
        wait_ms = self._publishes.spend(publishes, now_ms) if self._publishes is not None else 0
        if self._bytes is not None:
            wait_ms = max(wait_ms, self._bytes.spend(size_bytes, now_ms))
        if wait_ms and not self._is_waiting:
            self._is_waiting = True
            self._server.core.counters.clients_slowed_by_rate += 1
            self._connection.pause_reading(RATE)
            self._server.loop.call_later(min(wait_ms, PAUSE_MS_MAX) / 1000, self._waited)

    def _waited(self) -> None:
        connection = self._connection
        if not connection.is_open():
            return
        self._is_waiting = False
        if connection.session is not None:
            connection.session.heard_ms = self._server.now_ms()  # what it has sent since is not read
        self.charge(0, 0)
        if not self._is_waiting:
            connection.resume_reading(RATE)

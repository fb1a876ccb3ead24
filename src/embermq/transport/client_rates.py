"""The rates of one client: `limits.client_publish_rate_max` and `limits.client_bytes_rate_max`.

Owns: what happens above them. The client is not read from for as long as they ask for: it loses nothing, what it sends
waits in the network.
"""

from typing import Final, final

from embermq.broker.limits import Limits
from embermq.broker.rates import Bucket
from embermq.transport.server import Server
from embermq.transport.stream_link import RATE, StreamLink

METERED_SHARE_BYTES: Final = 4 * 1024
"""How many bytes of a client with a rate are processed at a time, by which it may exceed the rate in a burst."""
PAUSE_MS_MAX: Final = 1_000
"""A longer pause is made of several. After each the client counts as heard: it has sent what is not read."""


@final
class ClientRates:
    """What one client may still send at its rates."""

    def __init__(self, limits: Limits, server: Server) -> None:
        now_ms = server.now_ms()
        publish_rate, byte_rate = limits.client_publish_rate_max, limits.client_bytes_rate_max
        self._publishes: Final = Bucket(publish_rate, now_ms) if publish_rate else None
        self._bytes: Final = Bucket(byte_rate, now_ms) if byte_rate else None
        self._server: Final = server
        self._is_pausing = False

    def charge(self, link: StreamLink, publishes: int, size_bytes: int) -> None:
        """Count what was processed, and pause if that is more than the rates allow."""
        wait_s = self._spend_s(publishes, size_bytes, self._server.now_ms())
        if wait_s and not self._is_pausing:
            self._is_pausing = True
            link.pause_reading(RATE)
            self._pause(link, wait_s)

    def _spend_s(self, publishes: int, size_bytes: int, now_ms: int) -> float:
        """For how many seconds the client is not to be read from; 0: not at all."""
        wait_ms = self._publishes.spend(publishes, now_ms) if self._publishes is not None else 0
        if self._bytes is not None:
            wait_ms = max(wait_ms, self._bytes.spend(size_bytes, now_ms))
        return min(wait_ms, PAUSE_MS_MAX) / 1000

    def _pause(self, link: StreamLink, wait_s: float) -> None:
        self._server.core.counters.clients_slowed_by_rate += 1
        self._server.loop.call_later(wait_s, self._paused, link)

    def _paused(self, link: StreamLink) -> None:
        if not link.is_open():
            return
        now_ms = self._server.now_ms()
        self._server.core.heard(link, now_ms)
        wait_s = self._spend_s(0, 0, now_ms)
        if wait_s:
            self._pause(link, wait_s)
        else:
            self._is_pausing = False
            link.resume_reading(RATE)

"""Rates: how often something may happen in a second, and which addresses are one peer.

Owns: token buckets. A bucket holds what one second allows, so that short bursts pass.
Never: a clock. Time comes in as `now_ms`.
"""

import ipaddress
from collections import OrderedDict
from typing import Final, final

CLIENTS_MAX: Final = 10_000
"""How many clients are remembered; the one that was seen longest ago is forgotten first."""


@final
class Bucket:
    """One bucket. `rate` is how much may happen in a second."""

    __slots__ = ("_rate", "_level", "_at_ms")

    def __init__(self, rate: int, now_ms: int) -> None:
        self._rate: Final = rate
        self._level = float(rate)
        self._at_ms = now_ms

    def take(self, count: int, now_ms: int) -> bool:
        """Whether `count` more may happen now; if so, they count."""
        self._fill(now_ms)
        if self._level < count:
            return False
        self._level -= count
        return True

    def spend(self, count: int, now_ms: int) -> int:
        """`count` more have happened; returns after how many milliseconds the next may."""
        self._fill(now_ms)
        self._level -= count
        return 0 if self._level >= 0 else 1 + int(-self._level * 1000 / self._rate)

    def _fill(self, now_ms: int) -> None:
        passed_ms = now_ms - self._at_ms
        if passed_ms > 0:
            self._at_ms = now_ms
            self._level = min(float(self._rate), self._level + self._rate * passed_ms / 1000)


@final
class ClientBuckets:
    """A bucket for each client identifier. `rate` 0: everything may happen."""

    __slots__ = ("_rate", "_clients_max", "_buckets")

    def __init__(self, rate: int, clients_max: int = CLIENTS_MAX) -> None:
        self._rate: Final = rate
        self._clients_max: Final = clients_max
        self._buckets: Final[OrderedDict[str, Bucket]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, client_id: str, now_ms: int) -> bool:
        """Whether it may happen once more for a client; if so, it counts."""
        if not self._rate:
            return True
        bucket = self._buckets.get(client_id)
        if bucket is None:
            bucket = self._buckets[client_id] = Bucket(self._rate, now_ms)
            if len(self._buckets) > self._clients_max:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(client_id)
        return bucket.take(1, now_ms)


def network_of(address: str) -> str:
    """What counts as one peer: an address of IPv4, a network of IPv6, of which one peer has many addresses."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    return address if found.version == 4 else str(ipaddress.ip_network((found, 64), strict=False))

"""Bounds by address: how many connections one has at a time, and how long it waits after failed log-ins.

Owns: the counts of each address. Addresses that many clients share (a proxy, a gateway) are named in
`listeners.shared_addresses` and have no bounds; loopback is one of them by default.
An address of IPv6 counts as its network of 64 bits, of which one peer has all addresses.
"""

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, final

from embermq.broker.rates import network_of
from embermq.protocol.reasons import ReasonCode

SHARED_ADDRESSES: Final = ("127.0.0.0/8", "::1/128")
FAILED_LOGIN: Final = frozenset({ReasonCode.BAD_USER_NAME_OR_PASSWORD, ReasonCode.NOT_AUTHORIZED})
FAILURES_S: Final = 60.0
"""How long after the last failure all failures of an address are forgotten."""
WAIT_FIRST_S: Final = 1.0
WAIT_MAX_S: Final = 60.0
"""How long an address waits after the first failure too many; each further one doubles it, up to the second time."""
ADDRESSES_MAX: Final = 10_000
"""How many addresses with failures are remembered; the one that failed longest ago is forgotten first. It is also how
many keys of addresses are kept."""


@final
class _Failures:
    """The failed log-ins of one address."""

    def __init__(self) -> None:
        self._count = 0
        self.last_s = 0.0
        self.until_s = 0.0  # when it may try again

    def add(self, now_s: float, failures_max: int) -> None:
        """One more; from `failures_max` on the address has to wait."""
        self._count += 1
        self.last_s = now_s
        beyond = self._count - failures_max
        if beyond >= 0:
            self.until_s = now_s + min(WAIT_MAX_S, WAIT_FIRST_S * 2.0 ** min(beyond, 16))


@final
class AddressBounds:
    """The counts of all addresses. A bound of 0 is none."""

    def __init__(
        self,
        connections_max: int,
        failures_max: int,
        shared_addresses: Sequence[str],
        addresses_max: int = ADDRESSES_MAX,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connections_max: Final = connections_max
        self._failures_max: Final = failures_max
        self._shared = _networks(shared_addresses)
        self._addresses_max: Final = addresses_max
        self._now_s: Final = now_s
        self._keys: Final[dict[str, str]] = {}  # by host, of those that were asked for last: parsing one takes long
        self._connections: Final[dict[str, int]] = {}
        self._failed: Final[OrderedDict[str, _Failures]] = OrderedDict()
        self.refused = 0  # connections, because their address had too many
        self.logins_delayed = 0  # log-ins, because their address had failed too often

    def share(self, addresses: Sequence[str]) -> None:
        """From now on these have no bounds, in place of those before; connections that there are keep theirs."""
        self._shared = _networks(addresses)
        self._keys.clear()

    def key(self, peer: object) -> str:
        """What a peer's address counts as, by what a socket tells of it; empty if it has no bounds."""
        host = peer[0] if isinstance(peer, (tuple, list)) and peer else None
        if not isinstance(host, str):
            return ""
        key = self._keys.get(host)
        if key is None:
            key = self._key_of(host)
            if len(self._keys) >= self._addresses_max:
                self._keys.clear()
            self._keys[host] = key
        return key

    def _key_of(self, host: str) -> str:
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return ""
        if address.version == 6 and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if any(address.version == each.version and address in each for each in self._shared):
            return ""
        return network_of(str(address))

    def add(self, key: str) -> bool:
        """One more connection of an address; False, and counted, if it has too many."""
        if not key or not self._connections_max:
            return True
        count = self._connections.get(key, 0)
        if count >= self._connections_max:
            self.refused += 1
            return False
        self._connections[key] = count + 1
        return True

    def remove(self, key: str) -> None:
        """A connection of an address has ended."""
        count = self._connections.get(key, 0)
        if count > 1:
            self._connections[key] = count - 1
        else:
            self._connections.pop(key, None)

    def refused_login(self, key: str, reason: ReasonCode) -> None:
        """A CONNECT from an address was refused."""
        if not key or not self._failures_max or reason not in FAILED_LOGIN:
            return
        now_s = self._now_s()
        failures = self._failed.pop(key, None)
        if failures is None or now_s - failures.last_s > FAILURES_S:
            failures = _Failures()
        self._failed[key] = failures
        failures.add(now_s, self._failures_max)
        if len(self._failed) > self._addresses_max:
            self._failed.popitem(last=False)

    def must_wait(self, key: str) -> bool:
        """Whether an address has failed too often to try a password now; counted."""
        if not self.wait_s(key):
            return False
        self.logins_delayed += 1
        return True

    def wait_s(self, key: str) -> float:
        """How long an address has to wait until it may try a password."""
        failures = self._failed.get(key)
        return max(0.0, failures.until_s - self._now_s()) if failures is not None else 0.0

    def counts(self) -> dict[str, int]:
        """For `$SYS/broker/`."""
        return {"connections/refused/address": self.refused, "connections/refused/login-delay": self.logins_delayed}


def _networks(addresses: Sequence[str]) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    return [ipaddress.ip_network(each, strict=False) for each in addresses]

"""One peer of the listener: its address, its wire profile, and how much was sent to it.

Owns: the address and the forwarder's route to it, which change when a client moves, whether the address is proven
(docs/mqtt-sn.md, "A datagram is untrusted"), and the datagrams that the shell has not taken yet.
"""

from typing import Final, final

from embermq.protocol.sn.counters import SnCounters
from embermq.protocol.sn.events import Address
from embermq.protocol.sn.settings import SnSettings
from embermq.protocol.sn.wire.codec import encode
from embermq.protocol.sn.wire.framing import wrap_route
from embermq.protocol.sn.wire.layouts import Profile
from embermq.protocol.sn.wire.packets import SnPacket

NetworkIdentity = tuple[Address, bytes]
"""Who sent a datagram: its socket address, and the route behind a forwarder (empty without one)."""

WRONG_PROOFS_MAX: Final = 3
"""How many wrong answers an address may give and be proven by a right one: the numbers have 15 bits."""
UNPROVEN_RATIO: Final = 3
"""How many bytes are sent to an unproven address for each byte that came from it; the same bound as in QUIC."""


@final
class Output:
    """The datagrams to all peers, gathered until the shell takes them."""

    def __init__(self, counters: SnCounters) -> None:
        self._counters: Final = counters
        self._datagrams: list[tuple[bytes, Address]] = []

    def send(self, identity: NetworkIdentity, packet: bytes) -> int:
        """Gather an encoded packet, by the route that its receiver has; returns the size of the datagram."""
        datagram = wrap_route(identity[1], packet)
        self._counters.datagrams_sent += 1
        self._counters.bytes_sent += len(datagram)
        self._datagrams.append((datagram, identity[0]))
        return len(datagram)

    def take(self) -> list[tuple[bytes, Address]]:
        """What was gathered since the last time, in order."""
        datagrams = self._datagrams
        self._datagrams = []
        return datagrams


@final
class Peer:
    """The other end of a virtual connection."""

    def __init__(
        self,
        identity: NetworkIdentity,
        profile: Profile,
        settings: SnSettings,
        output: Output,
    ) -> None:
        self.identity = identity
        self.profile: Final = profile
        self.is_proven = not settings.prove_address
        self._received_bytes = 0
        self._sent_bytes = 0
        self._wrong_proofs = 0  # numbers from this address that were not sent to it
        # It has used an alias that it does not have: a guess, or one of an earlier session. Aliases prove nothing then.
        self._has_wrong_alias = False
        self._settings: Final = settings
        self._output: Final = output

    def address(self) -> Address:
        """Where the peer is."""
        return self.identity[0]

    def move(self, identity: NetworkIdentity) -> None:
        """The peer has another address now, which has to be proven again."""
        self.identity = identity
        self.is_proven = not self._settings.prove_address
        self._received_bytes = 0
        self._sent_bytes = 0
        self._wrong_proofs = 0
        self._has_wrong_alias = False

    def received(self, size: int) -> None:
        """Bytes have come from the address."""
        self._received_bytes += size

    def prove(self) -> None:
        """A random number has come back that was sent to the address, so the address is not forged."""
        if self._wrong_proofs < WRONG_PROOFS_MAX:
            self.is_proven = True

    def prove_by_alias(self) -> None:
        """An alias was used that the address was sent: that proves it, unless aliases are guessed there."""
        if not self._has_wrong_alias and self._wrong_proofs == 0:
            self.is_proven = True

    def wrong_proof(self) -> None:
        """A number has come that was not sent to the address."""
        self._wrong_proofs += 1

    def wrong_alias(self) -> None:
        """An alias has come that the client does not have."""
        self._has_wrong_alias = True

    def send(self, packet: SnPacket) -> None:
        """Send a packet."""
        self.send_bytes(encode(packet, self.profile))

    def send_bytes(self, packet: bytes) -> None:
        """Send a packet that is encoded already."""
        self._sent_bytes += self._output.send(self.identity, packet)

    def may_send(self, size: int) -> bool:
        """Whether a message of that size is within what an address may be sent before it is proven."""
        if self.is_proven:
            return True
        allowed = UNPROVEN_RATIO * self._received_bytes + self._settings.unproven_bytes
        return self._sent_bytes + size <= allowed

"""One peer of the listener: its address, its wire profile, and how much was sent to it.

Owns: the address and the forwarder's route to it, which change when a client moves, and whether the address is proven
(docs/mqtt-sn.md, "A datagram is untrusted").
"""

from typing import Final, final

from embermq.protocol.sn.counters import SnCounters
from embermq.protocol.sn.events import Address, Event, SendDatagram
from embermq.protocol.sn.settings import SnSettings
from embermq.protocol.sn.wire.encode import encode
from embermq.protocol.sn.wire.framing import wrap_route
from embermq.protocol.sn.wire.kinds import SnPacket
from embermq.protocol.sn.wire.layouts import Profile

NetworkIdentity = tuple[Address, bytes]
"""Who sent a datagram: its socket address, and the route behind a forwarder (empty without one)."""

WRONG_PROOFS_MAX: Final = 3
"""How many wrong answers an address may give and be proven by a right one: the numbers have 15 bits."""
UNPROVEN_RATIO: Final = 3
"""How many bytes are sent to an unproven address for each byte that came from it; the same bound as in QUIC."""


def send_datagram(identity: NetworkIdentity, packet: bytes, events: list[Event], counters: SnCounters) -> int:
    """Send an encoded packet, by the route that its receiver has; returns the size of the datagram."""
    datagram = wrap_route(identity[1], packet)
    counters.datagrams_sent += 1
    counters.bytes_sent += len(datagram)
    events.append(SendDatagram(identity[0], datagram))
    return len(datagram)


@final
class Peer:
    """The other end of a virtual connection: packets go out to it as events for the shell."""

    __slots__ = (
        "identity",
        "profile",
        "is_proven",
        "received_bytes",
        "sent_bytes",
        "has_wrong_alias",
        "wrong_proofs",
        "_settings",
        "_events",
        "_counters",
    )

    def __init__(
        self,
        identity: NetworkIdentity,
        profile: Profile,
        settings: SnSettings,
        events: list[Event],
        counters: SnCounters,
    ) -> None:
        self.identity = identity
        self.profile: Final = profile
        self.is_proven = not settings.prove_address
        self.received_bytes = 0
        self.sent_bytes = 0
        self.wrong_proofs = 0  # numbers from this address that were not sent to it
        # It has used an alias that it does not have: a guess, or one of an earlier session. Aliases prove nothing then.
        self.has_wrong_alias = False
        self._settings: Final = settings
        self._events: Final = events
        self._counters: Final = counters

    def address(self) -> Address:
        """Where the peer is."""
        return self.identity[0]

    def move(self, identity: NetworkIdentity) -> None:
        """The peer has another address now, which has to be proven again."""
        self.identity = identity
        self.is_proven = not self._settings.prove_address
        self.received_bytes = 0
        self.sent_bytes = 0
        self.wrong_proofs = 0
        self.has_wrong_alias = False

    def prove(self) -> None:
        """A random number has come back that was sent to the address, so the address is not forged."""
        if self.wrong_proofs < WRONG_PROOFS_MAX:
            self.is_proven = True

    def send(self, packet: SnPacket) -> None:
        """Send a packet."""
        self.send_bytes(encode(packet, self.profile))

    def send_bytes(self, packet: bytes) -> None:
        """Send a packet that is encoded already."""
        self.sent_bytes += send_datagram(self.identity, packet, self._events, self._counters)

    def may_send(self, size: int) -> bool:
        """Whether a message of that size is within what an address may be sent before it is proven."""
        if self.is_proven:
            return True
        allowed = UNPROVEN_RATIO * self.received_bytes + self._settings.unproven_bytes
        return self.sent_bytes + size <= allowed

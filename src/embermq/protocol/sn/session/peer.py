"""The wire to one peer: where it is, what it speaks, and how much went each way.

Owns: the address and the way to it, which a peer that wakes elsewhere may change, and whether the address is proven.
"""

from typing import Final, final

from embermq.protocol.sn.events import Address, Event, Send
from embermq.protocol.sn.session.counters import SnCounters
from embermq.protocol.sn.settings import SnSettings
from embermq.protocol.sn.wire.encode import encode
from embermq.protocol.sn.wire.framing import wrap_route
from embermq.protocol.sn.wire.kinds import SnPacket
from embermq.protocol.sn.wire.layouts import Profile

UNPROVEN_RATIO: Final = 3
"""How many bytes an address that may be a forged one is sent for each that came from it, as QUIC has it."""


@final
class Wire:
    """Packets out to one peer, as events for the shell."""

    __slots__ = (
        "address",
        "route",
        "profile",
        "proven",
        "received_bytes",
        "sent_bytes",
        "_settings",
        "_events",
        "_counters",
    )

    def __init__(
        self,
        address: Address,
        route: bytes,
        profile: Profile,
        settings: SnSettings,
        events: list[Event],
        counters: SnCounters,
    ) -> None:
        self.address = address
        self.route = route
        self.profile: Final = profile
        self.proven = not settings.prove_address
        self.received_bytes = 0
        self.sent_bytes = 0
        self._settings: Final = settings
        self._events: Final = events
        self._counters: Final = counters

    def move(self, address: Address, route: bytes) -> None:
        """The peer is somewhere else now, and has to prove it anew."""
        self.address = address
        self.route = route
        self.proven = not self._settings.prove_address
        self.received_bytes = 0
        self.sent_bytes = 0

    def send(self, packet: SnPacket) -> None:
        """Send a packet."""
        self.send_bytes(encode(packet, self.profile))

    def send_bytes(self, data: bytes) -> None:
        """Send a packet that is encoded already."""
        datagram = wrap_route(self.route, data)
        self.sent_bytes += len(datagram)
        self._counters.datagrams_sent += 1
        self._counters.bytes_sent += len(datagram)
        self._events.append(Send(self.address, datagram))

    def may_send(self, size: int) -> bool:
        """Whether a message of that size is not yet too much for an address that nobody has proved."""
        if self.proven:
            return True
        allowed = UNPROVEN_RATIO * self.received_bytes + self._settings.unproven_bytes
        return self.sent_bytes + size <= allowed

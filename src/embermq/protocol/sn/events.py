"""What the engine wants done: datagrams to send, and what the core has to hear of.

Owns: the small set of values that cross from the engine to its shell. The other way there are only the engine's doors.
"""

from typing import TYPE_CHECKING, Final, final

from embermq.protocol import packets as core
from embermq.protocol.errors import PeerError

if TYPE_CHECKING:
    from embermq.protocol.sn.session.connection import VirtualConnection

Address = tuple[str | int, ...]
"""A socket address; nothing but its first part, the host, is ever looked at."""


class Event:
    """One thing to do; only for typing."""

    __slots__ = ()


@final
class Send(Event):
    """Send a datagram."""

    __slots__ = ("address", "datagram")

    def __init__(self, address: Address, datagram: bytes) -> None:
        self.address: Final = address
        self.datagram: Final = datagram


@final
class Opened(Event):
    """A client asks for its session: authenticate it, then `Core.connect`.

    `sleeper`: its connection before this one, in which it sleeps. It has come back, so that one ends by DISCONNECT,
    without its will.
    """

    __slots__ = ("connection", "connect", "sleeper")

    def __init__(
        self, connection: "VirtualConnection", connect: core.Connect, sleeper: "VirtualConnection | None"
    ) -> None:
        self.connection: Final = connection
        self.connect: Final = connect
        self.sleeper: Final = sleeper


@final
class Received(Event):
    """A packet of a connected client: `Core.receive`."""

    __slots__ = ("connection", "packet")

    def __init__(self, connection: "VirtualConnection", packet: core.Packet) -> None:
        self.connection: Final = connection
        self.packet: Final = packet


@final
class Failed(Event):
    """A client broke a rule: `Core.failed`."""

    __slots__ = ("connection", "error")

    def __init__(self, connection: "VirtualConnection", error: PeerError) -> None:
        self.connection: Final = connection
        self.error: Final = error


@final
class Lost(Event):
    """A client is gone without a word: `Core.lost`."""

    __slots__ = ("connection", "reason")

    def __init__(self, connection: "VirtualConnection", reason: str) -> None:
        self.connection: Final = connection
        self.reason: Final = reason


@final
class Writable(Event):
    """A client has room again: `Core.writable`."""

    __slots__ = ("connection",)

    def __init__(self, connection: "VirtualConnection") -> None:
        self.connection: Final = connection


@final
class WillChanged(Event):
    """A connected client has replaced its will (1.2), or has none any more."""

    __slots__ = ("connection", "will")

    def __init__(self, connection: "VirtualConnection", will: core.Will | None) -> None:
        self.connection: Final = connection
        self.will: Final = will


@final
class Sessionless(Event):
    """A message without a session: `Core.publish_unconnected`."""

    __slots__ = ("message",)

    def __init__(self, message: core.Publish) -> None:
        self.message: Final = message

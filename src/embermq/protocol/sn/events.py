"""What the core has to be told of the clients of an MQTT-SN listener.

Owns: the small set of values that cross from the engine to its shell. In the other direction there are only the public
methods of `Engine` and of `VirtualConnection`.
"""

from typing import TYPE_CHECKING, Final, final

from embermq.protocol import packets as core
from embermq.protocol.errors import PeerError

if TYPE_CHECKING:
    from embermq.protocol.sn.connection import VirtualConnection

Address = tuple[str | int, ...]
"""A socket address. The engine compares addresses, and reads only the first part, the host."""


class Event:
    """One thing to do; only for typing."""


class ClientEvent(Event):
    """Something that the core has to be told about a client whose session it knows."""

    def __init__(self, connection: "VirtualConnection") -> None:
        self.connection: Final = connection


@final
class ConnectRequest(Event):
    """A client asks for its session: authenticate it, then `Core.connect`.

    `sleeper`: the connection in which the same client sleeps. It ends by DISCONNECT, without its will, since the client
    has come back.
    """

    def __init__(
        self, connection: "VirtualConnection", connect: core.Connect, sleeper: "VirtualConnection | None"
    ) -> None:
        self.connection: Final = connection
        self.connect: Final = connect
        self.sleeper: Final = sleeper


@final
class PacketReceived(ClientEvent):
    """A packet of a connected client: `Core.receive`."""

    def __init__(self, connection: "VirtualConnection", packet: core.Packet) -> None:
        super().__init__(connection)
        self.packet: Final = packet


@final
class RuleViolation(ClientEvent):
    """A client broke a rule that ends its connection: `Core.failed`."""

    def __init__(self, connection: "VirtualConnection", error: PeerError) -> None:
        super().__init__(connection)
        self.error: Final = error


@final
class ClientLost(ClientEvent):
    """A client is gone without a DISCONNECT: `Core.lost`."""

    def __init__(self, connection: "VirtualConnection", reason: str) -> None:
        super().__init__(connection)
        self.reason: Final = reason


@final
class ClientWritable(ClientEvent):
    """A client can take messages again, after the core was told that it cannot: `Core.writable`."""


@final
class WillChange(ClientEvent):
    """A connected client has replaced its will (1.2), or has deleted it."""

    def __init__(self, connection: "VirtualConnection", will: core.Will | None) -> None:
        super().__init__(connection)
        self.will: Final = will


@final
class SessionlessPublish(Event):
    """A message without a session: `Core.publish_sessionless`."""

    def __init__(self, message: core.Publish) -> None:
        self.message: Final = message

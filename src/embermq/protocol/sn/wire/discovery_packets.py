"""The packets by which clients find a server: ADVERTISE, SEARCHGW, GWINFO.

Owns: their fields. Whether and when they are sent is a setting.
"""

from typing import Final, final

from embermq.protocol.sn.wire import kinds
from embermq.protocol.sn.wire.fields import ADDRESS, DURATION, GATEWAY_ID, RADIUS, Values
from embermq.protocol.sn.wire.kinds import SnPacket


@final
class Advertise(SnPacket):
    """A server announces itself; the next ADVERTISE follows in `duration_s`."""

    __slots__ = ("gateway_id", "duration_s")

    def __init__(self, gateway_id: int, duration_s: int) -> None:
        self.gateway_id: Final = gateway_id
        self.duration_s: Final = duration_s

    def kind(self) -> int:
        return kinds.ADVERTISE

    def fill(self, values: Values) -> None:
        values.numbers[GATEWAY_ID] = self.gateway_id
        values.numbers[DURATION] = self.duration_s


def read_advertise(values: Values) -> SnPacket:
    return Advertise(values.numbers[GATEWAY_ID], values.numbers[DURATION])


@final
class Searchgw(SnPacket):
    """A client searches for a server. `radius` in 1.2, W and A; B has opaque `network_information` instead."""

    __slots__ = ("radius", "network_information")

    def __init__(self, radius: int = 0, network_information: bytes = b"") -> None:
        self.radius: Final = radius
        self.network_information: Final = network_information

    def kind(self) -> int:
        return kinds.SEARCHGW

    def fill(self, values: Values) -> None:
        values.numbers[RADIUS] = self.radius
        values.set_blob(ADDRESS, self.network_information)


def read_searchgw(values: Values) -> SnPacket:
    return Searchgw(values.numbers[RADIUS], values.blob(ADDRESS))


@final
class Gwinfo(SnPacket):
    """The answer to SEARCHGW; the address is there only when a client answers for the server."""

    __slots__ = ("gateway_id", "gateway_address")

    def __init__(self, gateway_id: int, gateway_address: bytes = b"") -> None:
        self.gateway_id: Final = gateway_id
        self.gateway_address: Final = gateway_address

    def kind(self) -> int:
        return kinds.GWINFO

    def fill(self, values: Values) -> None:
        values.numbers[GATEWAY_ID] = self.gateway_id
        values.set_blob(ADDRESS, self.gateway_address)


def read_gwinfo(values: Values) -> SnPacket:
    return Gwinfo(values.numbers[GATEWAY_ID], values.blob(ADDRESS))

"""The kinds of MQTT-SN packets, apart from the type code that each wire profile has for them.

Owns: the numbers by which the tables of this package name a packet, and the base class of all packets.
"""

from typing import Final

from embermq.protocol.packets import Packet
from embermq.protocol.sn.wire.fields import Values

ADVERTISE: Final = 0
SEARCHGW: Final = 1
GWINFO: Final = 2
AUTH: Final = 3
CONNECT: Final = 4
CONNACK: Final = 5
WILLTOPICREQ: Final = 6
WILLTOPIC: Final = 7
WILLMSGREQ: Final = 8
WILLMSG: Final = 9
REGISTER: Final = 10
REGACK: Final = 11
PUBLISH: Final = 12
PUBACK: Final = 13
PUBCOMP: Final = 14
PUBREC: Final = 15
PUBREL: Final = 16
PUBWOS: Final = 17
SUBSCRIBE: Final = 18
SUBACK: Final = 19
UNSUBSCRIBE: Final = 20
UNSUBACK: Final = 21
PINGREQ: Final = 22
PINGRESP: Final = 23
DISCONNECT: Final = 24
WAKEUP: Final = 25
WILLTOPICUPD: Final = 26
WILLTOPICRESP: Final = 27
WILLMSGUPD: Final = 28
WILLMSGRESP: Final = 29
SLEEPREQ: Final = 30
SLEEPRESP: Final = 31
KINDS: Final = 32


class SnPacket(Packet):
    """The base of every MQTT-SN packet: it has a kind, and values to write."""

    __slots__: tuple[str, ...] = ()

    def kind(self) -> int:
        """Which packet this is, whatever its type code in a profile."""
        raise NotImplementedError

    def fill(self, values: Values) -> None:
        """Put the packet's fields into flat values; a packet without a body has none."""

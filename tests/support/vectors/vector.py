"""One line of the list of vectors: bytes on the wire beside what they mean, or beside the error that they are."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from embermq.protocol.errors import MalformedPacket, PeerError
from embermq.protocol.mqtt.dialect import MQTT_5, MQTT_31, MQTT_311, Dialect
from embermq.protocol.packets import Packet
from embermq.protocol.reasons import ReasonCode

# The protocol levels.
V31: Final = 3
V311: Final = 4
V5: Final = 5

# Who may send it.
CLIENT: Final = ("client",)
SERVER: Final = ("server",)
EITHER: Final = ("client", "server")

_DIALECTS: Final = {V31: MQTT_31, V311: MQTT_311, V5: MQTT_5}


@dataclass(frozen=True)
class Vector:
    """A good packet. `tail` is appended to `hex`, for what is too long to be written out.

    Unless `is_written`, the bytes are only read: we would write the same packet otherwise. `plain` is what a packet of
    5.0 says, properties included, as data that no codec has made (`plain_v5`).
    """

    name: str
    level: int
    senders: tuple[str, ...]
    hex: str
    packet: Packet
    proves: tuple[str, ...] = ()
    tail: bytes = field(default=b"", repr=False)
    is_written: bool = True
    plain: Mapping[str, object] = field(default_factory=dict)

    @property
    def wire(self) -> bytes:
        return bytes.fromhex(self.hex) + self.tail

    @property
    def dialect(self) -> Dialect:
        return _DIALECTS[self.level]

    @property
    def id(self) -> str:
        return f"level-{self.level}-{self.name}"


@dataclass(frozen=True)
class Rejected:
    """A bad packet, the error it ends the connection with and the clause that error names.

    Where the standard names a reason code it is `reason`; else a malformed packet has 0x81 and a protocol error 0x82.
    """

    name: str
    level: int
    senders: tuple[str, ...]
    hex: str
    error: type[PeerError]
    clause: str
    proves: tuple[str, ...] = ()
    reason: int = 0

    @property
    def wire(self) -> bytes:
        return bytes.fromhex(self.hex)

    @property
    def reason_code(self) -> int:
        general = ReasonCode.MALFORMED_PACKET if self.error is MalformedPacket else ReasonCode.PROTOCOL_ERROR
        return self.reason or general

    @property
    def id(self) -> str:
        return f"level-{self.level}-{self.name}"

"""The dialects: what differs between the versions of MQTT on a byte stream, as tables.

Owns: for each version which packets exist, the functions that read and write them, its return codes and its layouts;
and which of the versions a CONNECT asks for. No other module compares a protocol level.

Each packet has one reader and one writer for all dialects (`readers`, `writers`), which ask for the traits that differ.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, final

from embermq.protocol.errors import MalformedPacket, PeerError, ProtocolError
from embermq.protocol.mqtt import readers, writers
from embermq.protocol.mqtt.fields import VIOLATION, Fields, binary_field
from embermq.protocol.packets import (
    AUTH,
    DISCONNECT,
    PUBREL,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from embermq.protocol.reasons import ReasonCode

Reader: TypeAlias = "Callable[[Fields, Dialect], Packet]"
Writer: TypeAlias = "Callable[[Packet, Dialect], bytes]"

CLIENT_ID_CHARACTERS_MAX: Final = 100
"""How many characters of a client identifier an error shows; it may have 65,535."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Dialect:
    """One version of MQTT.

    `readers_from_client` and `readers_from_server`: first byte of a packet -> its reader. The first byte is type and
    flags together, so a lookup checks the reserved flags as well (2.2.2).
    `writers`: class of a packet -> its writer.
    `return_codes`: MQTT 5 reason -> CONNACK return code; a reason that is not listed closes the connection unanswered.
    `suback_failure`: how SUBACK says that a filter is refused, where it cannot say why.
    `has_properties`: packets have properties and reason codes, and SUBSCRIBE has options (MQTT 5).
    `is_bridge`: subscriptions have the options of MQTT 5 that a bridge needs: what is retained stays so, and what the
    bridge has published does not come back to it.
    `clauses`: statements that the readers of all dialects name by their ids in 3.1.1 -> their ids in this dialect.
    """

    level: int
    name: str
    protocol_name: bytes
    readers_from_client: dict[int, Reader]
    readers_from_server: dict[int, Reader]
    writers: dict[type[Packet], Writer]
    return_codes: dict[int, int]
    suback_failure: int
    has_session_present: bool
    has_reserved_connect_flag: bool
    may_omit_credentials: bool
    has_properties: bool
    is_bridge: bool
    clauses: dict[str, str]

    def translated(self, error: PeerError) -> PeerError:
        """An error of a reader, with the id that its statement has in this dialect."""
        clause = self.clauses.get(error.clause)
        if clause is None:
            return error
        if isinstance(error, MalformedPacket):
            return MalformedPacket(error.detail, clause, error.reason)
        return ProtocolError(error.detail, clause, error.reason)


# -- what the versions share ---------------------------------------------------------------------------------------

_READERS_BOTH: Final[dict[int, Reader]] = {
    **{0x30 | flags: readers.read_publish for flags in range(16)},
    **dict.fromkeys((64, 80, 98, 112), readers.read_acknowledgement),
}
_READERS_FROM_CLIENT: Final[dict[int, Reader]] = {
    **_READERS_BOTH,
    0x10: readers.read_connect,
    0x82: readers.read_subscribe,
    0xA2: readers.read_unsubscribe,
    0xC0: readers.read_pingreq,
    0xE0: readers.read_disconnect,
}
_READERS_FROM_SERVER: Final[dict[int, Reader]] = {
    **_READERS_BOTH,
    0x20: readers.read_connack,
    0x90: readers.read_suback,
    0xB0: readers.read_unsuback,
    0xD0: readers.read_pingresp,
}
_WRITERS: Final[dict[type[Packet], Writer]] = {
    Connect: writers.write_connect,
    Connack: writers.write_connack,
    Publish: writers.write_publish,
    Acknowledgement: writers.write_acknowledgement,
    Subscribe: writers.write_subscribe,
    Suback: writers.write_suback,
    Unsubscribe: writers.write_unsubscribe,
    Unsuback: writers.write_unsuback,
    Pingreq: writers.write_pingreq,
    Pingresp: writers.write_pingresp,
    Disconnect: writers.write_disconnect,
}

# -- the versions --------------------------------------------------------------------------------------------------

MQTT_311: Final = Dialect(
    level=4,
    name="MQTT 3.1.1",
    protocol_name=b"MQTT",
    readers_from_client=_READERS_FROM_CLIENT,
    readers_from_server=_READERS_FROM_SERVER,
    writers=_WRITERS,
    return_codes={  # 3.2.2.3
        ReasonCode.SUCCESS: 0,
        ReasonCode.UNSUPPORTED_PROTOCOL_VERSION: 1,
        ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: 2,
        ReasonCode.SERVER_UNAVAILABLE: 3,
        ReasonCode.SERVER_BUSY: 3,
        ReasonCode.CONNECTION_RATE_EXCEEDED: 3,
        ReasonCode.SERVER_SHUTTING_DOWN: 3,
        ReasonCode.QUOTA_EXCEEDED: 3,
        ReasonCode.BAD_USER_NAME_OR_PASSWORD: 4,
        ReasonCode.NOT_AUTHORIZED: 5,
    },
    suback_failure=0x80,
    has_session_present=True,
    has_reserved_connect_flag=True,
    may_omit_credentials=False,
    has_properties=False,
    is_bridge=False,
    clauses={},
)
MQTT_31: Final = replace(
    MQTT_311,
    level=3,
    name="MQTT 3.1",
    protocol_name=b"MQIsdp",
    readers_from_client={
        **_READERS_FROM_CLIENT,
        # 3.1 gave these a DUP flag for a packet that is sent again.
        0x6A: readers.read_acknowledgement,
        0x8A: readers.read_subscribe,
        0xAA: readers.read_unsubscribe,
    },
    readers_from_server={**_READERS_FROM_SERVER, 0x6A: readers.read_acknowledgement},
    suback_failure=0,  # SUBACK cannot refuse: the lowest QoS is all it can say
    has_session_present=False,
    has_reserved_connect_flag=False,  # bit 0 is unused, and may have any value
    may_omit_credentials=True,  # old clients set the two flags and end the packet without the fields
)
MQTT_5: Final = replace(
    MQTT_311,
    level=5,
    name="MQTT 5.0",
    readers_from_client={**_READERS_FROM_CLIENT, 0xF0: readers.read_auth},
    readers_from_server={**_READERS_FROM_SERVER, 0xE0: readers.read_disconnect, 0xF0: readers.read_auth},
    writers={**_WRITERS, readers.WirePublish: writers.write_publish, Auth: writers.write_auth},
    return_codes={},  # CONNACK carries the reason itself
    has_properties=True,
    clauses={
        VIOLATION: "MQTT-4.13.1-1",
        "MQTT-1.5.3-1": "MQTT-1.5.4-1",
        "MQTT-1.5.3-2": "MQTT-1.5.4-2",
        "MQTT-2.2.2-2": "MQTT-2.1.3-1",
        "MQTT-3.1.2-13": "MQTT-3.1.2-11",
        "MQTT-3.1.2-14": "MQTT-3.1.2-12",
        "MQTT-3.1.2-15": "MQTT-3.1.2-13",
        "MQTT-3.2.2-4": "MQTT-3.2.2-6",
        "MQTT-3.8.3-3": "MQTT-3.8.3-2",
        "MQTT-3.8.4-5": "MQTT-3.8.4-6",
        "MQTT-4.7.1-2": "MQTT-4.7.1-1",
        "MQTT-4.7.1-3": "MQTT-4.7.1-2",
    },
)
# Bridges of Mosquitto set the highest bit of the level.
MQTT_311_BRIDGE: Final = replace(MQTT_311, name=f"{MQTT_311.name} (bridge)", is_bridge=True)
MQTT_31_BRIDGE: Final = replace(MQTT_31, name=f"{MQTT_31.name} (bridge)", is_bridge=True)

DIALECTS: Final[dict[tuple[bytes, int], Dialect]] = {
    (dialect.protocol_name, dialect.level): dialect for dialect in (MQTT_31, MQTT_311, MQTT_5)
}
BRIDGE_BIT: Final = 0x80
_BRIDGES: Final[dict[tuple[bytes, int], Dialect]] = {
    (dialect.protocol_name, dialect.level | BRIDGE_BIT): dialect for dialect in (MQTT_31_BRIDGE, MQTT_311_BRIDGE)
}
LEVELS: Final = tuple(level for _, level in DIALECTS)
LEVELS_BEFORE_5: Final = (3, 4)
_PROTOCOL_NAMES: Final = frozenset(name for name, _ in DIALECTS)
# A level from here on has a property section between the keep alive and the client id.
_LEVEL_WITH_PROPERTIES: Final = 5

# Packet type -> the statement about its flags, where it has one of its own.
_FLAGS_CLAUSES: Final[dict[int, str]] = {
    PUBREL: "MQTT-3.6.1-1",
    SUBSCRIBE: "MQTT-3.8.1-1",
    UNSUBSCRIBE: "MQTT-3.10.1-1",
    DISCONNECT: "MQTT-3.14.1-1",
    AUTH: "MQTT-3.15.1-1",
}


def requested_dialect(fields: Fields, levels: tuple[int, ...] = LEVELS_BEFORE_5) -> Dialect:
    """The dialect of one of the levels that the first two fields of a CONNECT ask for (3.1.2.1, 3.1.2.2)."""
    protocol_name = fields.binary()
    if protocol_name not in _PROTOCOL_NAMES:
        raise ProtocolError(f"protocol name {protocol_name[:16]!r}", "MQTT-3.1.2-1")
    level = fields.byte()
    asked = (protocol_name, level)
    dialect = DIALECTS.get(asked) or _BRIDGES.get(asked)
    if dialect is None or dialect.level not in levels:
        raise ProtocolError(
            _unsupported(protocol_name, level, fields), "MQTT-3.1.2-2", ReasonCode.UNSUPPORTED_PROTOCOL_VERSION
        )
    return dialect


def dialect_for_later_level(start: bytes, levels: tuple[int, ...]) -> Dialect | None:
    """The dialect in which a client of a version above all that there are is answered: the latest, if that is spoken.

    `start`: the first two fields of a CONNECT. None: it is of no such version.
    """
    name = binary_field(MQTT_5.protocol_name)
    is_later = start.startswith(name) and MQTT_5.level < start[len(name)] < BRIDGE_BIT
    return MQTT_5 if is_later and MQTT_5.level in levels else None


def _unsupported(protocol_name: bytes, level: int, fields: Fields) -> str:
    """What a log line says about a client of another level: its name where that can be read, and what to do."""
    version = "MQTT 5" if (protocol_name, level) == (b"MQTT", 5) else f"level {level} of {protocol_name.decode()}"
    try:
        fields.byte()
        fields.integer()
        if level >= _LEVEL_WITH_PROPERTIES:
            fields.part(fields.variable_byte_integer())
        client = f" (client {fields.text()[:CLIENT_ID_CHARACTERS_MAX]!r})"
    except PeerError:
        client = ""
    return f"{version} is not supported; connect with {MQTT_311.name}{client}"


def unexpected(first: int, known: dict[int, Reader]) -> PeerError:
    """Why no packet from this peer may begin with this byte."""
    packet_type = first >> 4
    if packet_type in [one >> 4 for one in known]:
        clause = _FLAGS_CLAUSES.get(packet_type, "MQTT-2.2.2-2")
        return MalformedPacket(f"reserved flags {first & 15:#03x} of packet type {packet_type}", clause)
    if packet_type in (0, AUTH):
        return MalformedPacket(f"packet type {packet_type}", VIOLATION)
    return ProtocolError(f"packet type {packet_type} from the wrong side", VIOLATION)

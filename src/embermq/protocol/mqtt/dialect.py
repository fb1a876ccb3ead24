"""The dialects: what differs between the versions of MQTT on a byte stream, as tables.

Owns: for each version which packets exist, the functions that read and write them, its return codes and its layouts;
and which of the versions a CONNECT asks for. No other module compares a protocol level.

MQTT 5 has its own readers and writers where packets carry reasons and properties (`readers_v5`, `writers_v5`).
"""

from collections.abc import Callable
from typing import Final, TypeAlias, final

from embermq.protocol.errors import MalformedPacket, PeerError, ProtocolError
from embermq.protocol.mqtt import readers, readers_v5, writers, writers_v5
from embermq.protocol.mqtt.fields import VIOLATION, Fields, binary_field
from embermq.protocol.packets import (
    AUTH,
    DISCONNECT,
    PUBREL,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from embermq.protocol.reasons import ReasonCode

Reader: TypeAlias = "Callable[[Fields, Dialect], Packet]"
ConnectReader: TypeAlias = "Callable[[Fields, Dialect], Connect]"
Writer: TypeAlias = "Callable[[Packet, Dialect], bytes]"

CLIENT_ID_CHARACTERS_MAX: Final = 100
"""How many characters of a client identifier an error shows; it may have 65,535."""


@final
class Dialect:
    """One version of MQTT.

    `readers_from_client` and `readers_from_server`: first byte of a packet -> its reader. The first byte is type and
    flags together, so a lookup checks the reserved flags as well (2.2.2).
    `writers`: class of a packet -> its writer.
    `return_codes`: MQTT 5 reason -> CONNACK return code; a reason that is not listed closes the connection unanswered.
    `connect_reader`: the function that reads a CONNECT behind its level.
    `clauses`: statements that the readers of all dialects name by their ids in 3.1.1 -> their ids in this dialect.
    """

    __slots__ = (
        "level",
        "name",
        "protocol_name",
        "readers_from_client",
        "readers_from_server",
        "writers",
        "return_codes",
        "suback_failure",
        "has_session_present",
        "has_reserved_connect_flag",
        "may_omit_credentials",
        "has_publish_properties",
        "connect_reader",
        "clauses",
    )

    def __init__(
        self,
        level: int,
        name: str,
        protocol_name: bytes,
        readers_from_client: dict[int, Reader],
        readers_from_server: dict[int, Reader],
        writers: dict[type[Packet], Writer],
        return_codes: dict[int, int],
        suback_failure: int,
        has_session_present: bool,
        has_reserved_connect_flag: bool,
        may_omit_credentials: bool,
        has_publish_properties: bool,
        connect_reader: ConnectReader = readers.read_connect,
        clauses: dict[str, str] | None = None,
    ) -> None:
        self.level: Final = level
        self.name: Final = name
        self.protocol_name: Final = protocol_name
        self.readers_from_client: Final = readers_from_client
        self.readers_from_server: Final = readers_from_server
        self.writers: Final = writers
        self.return_codes: Final = return_codes
        self.suback_failure: Final = suback_failure
        self.has_session_present: Final = has_session_present
        self.has_reserved_connect_flag: Final = has_reserved_connect_flag
        self.may_omit_credentials: Final = may_omit_credentials
        self.has_publish_properties: Final = has_publish_properties
        self.connect_reader: Final = connect_reader
        self.clauses: Final[dict[str, str]] = clauses or {}

    def translated(self, error: PeerError) -> PeerError:
        """An error of a reader, with the id that its statement has in this dialect."""
        clause = self.clauses.get(error.clause)
        if clause is None:
            return error
        if isinstance(error, MalformedPacket):
            return MalformedPacket(error.detail, clause, error.reason)
        return ProtocolError(error.detail, clause, error.reason)


# -- 3.1.1, and what 3.1 shares with it ----------------------------------------------------------------------------

_READERS_BOTH: Final[dict[int, Reader]] = {
    **{0x30 | flags: readers.read_publish for flags in range(16)},
    0x40: readers.read_puback,
    0x50: readers.read_pubrec,
    0x62: readers.read_pubrel,
    0x70: readers.read_pubcomp,
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
    Puback: writers.write_puback,
    Pubrec: writers.write_pubrec,
    Pubrel: writers.write_pubrel,
    Pubcomp: writers.write_pubcomp,
    Subscribe: writers.write_subscribe,
    Suback: writers.write_suback,
    Unsubscribe: writers.write_unsubscribe,
    Unsuback: writers.write_unsuback,
    Pingreq: writers.write_pingreq,
    Pingresp: writers.write_pingresp,
    Disconnect: writers.write_disconnect,
}
_RETURN_CODES: Final[dict[int, int]] = {  # 3.2.2.3
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
}

MQTT_311: Final = Dialect(
    level=4,
    name="MQTT 3.1.1",
    protocol_name=b"MQTT",
    readers_from_client=_READERS_FROM_CLIENT,
    readers_from_server=_READERS_FROM_SERVER,
    writers=_WRITERS,
    return_codes=_RETURN_CODES,
    suback_failure=0x80,
    has_session_present=True,
    has_reserved_connect_flag=True,
    may_omit_credentials=False,
    has_publish_properties=False,
)
MQTT_31: Final = Dialect(
    level=3,
    name="MQTT 3.1",
    protocol_name=b"MQIsdp",
    readers_from_client={
        **_READERS_FROM_CLIENT,
        # 3.1 gave these a DUP flag for a packet that is sent again.
        0x6A: readers.read_pubrel,
        0x8A: readers.read_subscribe,
        0xAA: readers.read_unsubscribe,
    },
    readers_from_server={**_READERS_FROM_SERVER, 0x6A: readers.read_pubrel},
    writers=_WRITERS,
    return_codes=_RETURN_CODES,
    suback_failure=0,  # SUBACK cannot refuse: the lowest QoS is all it can say
    has_session_present=False,
    has_reserved_connect_flag=False,  # bit 0 is unused, and may have any value
    may_omit_credentials=True,  # old clients set the two flags and end the packet without the fields
    has_publish_properties=False,
)

# -- bridges of Mosquitto ------------------------------------------------------------------------------------------


def _of_bridge(dialect: Dialect) -> Dialect:
    """A version as bridges speak it, which set the highest bit of the level: their subscriptions have the options of
    MQTT 5 that a bridge needs.
    """
    return Dialect(
        level=dialect.level,
        name=f"{dialect.name} (bridge)",
        protocol_name=dialect.protocol_name,
        readers_from_client={
            first: readers.read_subscribe_of_bridge if first >> 4 == SUBSCRIBE else reader
            for first, reader in dialect.readers_from_client.items()
        },
        readers_from_server=dialect.readers_from_server,
        writers=dialect.writers,
        return_codes=dialect.return_codes,
        suback_failure=dialect.suback_failure,
        has_session_present=dialect.has_session_present,
        has_reserved_connect_flag=dialect.has_reserved_connect_flag,
        may_omit_credentials=dialect.may_omit_credentials,
        has_publish_properties=dialect.has_publish_properties,
    )


MQTT_311_BRIDGE: Final = _of_bridge(MQTT_311)
MQTT_31_BRIDGE: Final = _of_bridge(MQTT_31)

# -- 5.0 -----------------------------------------------------------------------------------------------------------

_READERS_BOTH_5: Final[dict[int, Reader]] = {
    0x40: readers_v5.read_puback,
    0x50: readers_v5.read_pubrec,
    0x62: readers_v5.read_pubrel,
    0x70: readers_v5.read_pubcomp,
}
MQTT_5: Final = Dialect(
    level=5,
    name="MQTT 5.0",
    protocol_name=b"MQTT",
    readers_from_client={
        **_READERS_BOTH_5,
        **{0x30 | flags: readers_v5.read_publish_of_client for flags in range(16)},
        0x10: readers_v5.read_connect,
        0x82: readers_v5.read_subscribe,
        0xA2: readers_v5.read_unsubscribe,
        0xC0: readers.read_pingreq,
        0xE0: readers_v5.read_disconnect_of_client,
        0xF0: readers_v5.read_auth_of_client,
    },
    readers_from_server={
        **_READERS_BOTH_5,
        **{0x30 | flags: readers_v5.read_publish_of_server for flags in range(16)},
        0x20: readers_v5.read_connack,
        0x90: readers_v5.read_suback,
        0xB0: readers_v5.read_unsuback,
        0xD0: readers.read_pingresp,
        0xE0: readers_v5.read_disconnect_of_server,
        0xF0: readers_v5.read_auth_of_server,
    },
    writers={
        Connect: writers_v5.write_connect,
        Connack: writers_v5.write_connack,
        Publish: writers_v5.write_publish,
        readers_v5.WirePublish: writers_v5.write_wire_publish,
        Puback: writers_v5.write_puback,
        Pubrec: writers_v5.write_pubrec,
        Pubrel: writers_v5.write_pubrel,
        Pubcomp: writers_v5.write_pubcomp,
        Subscribe: writers_v5.write_subscribe,
        Suback: writers_v5.write_suback,
        Unsubscribe: writers_v5.write_unsubscribe,
        Unsuback: writers_v5.write_unsuback,
        Pingreq: writers.write_pingreq,
        Pingresp: writers.write_pingresp,
        Disconnect: writers_v5.write_disconnect,
        Auth: writers_v5.write_auth,
    },
    return_codes={},  # CONNACK carries the reason itself
    suback_failure=0x80,
    has_session_present=True,
    has_reserved_connect_flag=True,
    may_omit_credentials=False,
    has_publish_properties=True,
    connect_reader=readers_v5.read_connect,
    clauses={
        VIOLATION: "MQTT-4.13.1-1",
        "MQTT-1.5.3-1": "MQTT-1.5.4-1",
        "MQTT-1.5.3-2": "MQTT-1.5.4-2",
        "MQTT-2.2.2-2": "MQTT-2.1.3-1",
        "MQTT-4.7.1-2": "MQTT-4.7.1-1",
        "MQTT-4.7.1-3": "MQTT-4.7.1-2",
    },
)

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


def is_of_later_level(start: bytes) -> bool:
    """Whether the first two fields of a CONNECT name a level above all that there are."""
    name = binary_field(MQTT_5.protocol_name)
    return start.startswith(name) and MQTT_5.level < start[len(name)] < BRIDGE_BIT


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

"""The fields that MQTT-SN packets are made of, and the steps of a layout.

Owns: the names of all fields of all wire profiles, and a flat record of their values.
Never: which packet has which field in which place (`profiles`), or what a field means to a session.
A number field holds an int, a blob field bytes; flag bits are number fields like any other.
"""

from typing import Final, final

from embermq.protocol.topics import decode_text

# Number fields. An absent field keeps its value of `ABSENT`, which is -1 where 0 has a meaning of its own.
PACKET_ID: Final = 0
VERSION: Final = 1
KEEP_ALIVE: Final = 2
SESSION_EXPIRY: Final = 3
MAX_PACKET: Final = 4
AWAKE_MESSAGES: Final = 5
TOPIC_ALIAS: Final = 6  # also the length of a full topic name, and the two characters of a short one
REASON: Final = 7
GATEWAY_ID: Final = 8
DURATION: Final = 9
RADIUS: Final = 10
REMAINING: Final = 11
WILL_ALIAS: Final = 12
WILL_LENGTH: Final = 13
SERVER_KEEP_ALIVE: Final = 14
SLEEP: Final = 15
# Flag bits.
DUP: Final = 16
QOS: Final = 17
RETAIN: Final = 18
TOPIC_TYPE: Final = 19
WILL: Final = 20
CLEAN_START: Final = 21
AUTH: Final = 22
NO_LOCAL: Final = 23
RETAIN_AS_PUBLISHED: Final = 24
RETAIN_HANDLING: Final = 25
SESSION_PRESENT: Final = 26
HAS_REASON: Final = 27
HAS_EXPIRY: Final = 28
HAS_REASON_STRING: Final = 29
HAS_ALIAS: Final = 30
HAS_PACKET_ID: Final = 31
HAS_KEEP_ALIVE: Final = 32
HAS_AWAKE: Final = 33
HAS_SLEEP: Final = 34
RETAIN_ALIASES: Final = 35
SUGGESTIONS: Final = 36
ADDRESS_CHANGE: Final = 37
WILL_QOS: Final = 38
WILL_RETAIN: Final = 39
WILL_TOPIC_TYPE: Final = 40
NUMBERS: Final = 41

# Blob fields, numbered from 64 so that the two sorts cannot be confused.
BLOB: Final = 64
CLIENT_ID: Final = BLOB + 0
NAME: Final = BLOB + 1
PAYLOAD: Final = BLOB + 2
AUTH_METHOD: Final = BLOB + 3
AUTH_DATA: Final = BLOB + 4
WILL_NAME: Final = BLOB + 5
WILL_PAYLOAD: Final = BLOB + 6
REASON_STRING: Final = BLOB + 7
ADDRESS: Final = BLOB + 8
BLOBS: Final = 9

_OPTIONAL: Final = (SESSION_EXPIRY, REMAINING, SERVER_KEEP_ALIVE, SLEEP, WILL_ALIAS)
ABSENT: Final[list[int]] = [-1 if field in _OPTIONAL else 0 for field in range(NUMBERS)]

# What the two low bits of the flags say about a topic, as the model has it; `profiles` maps the bits of each wire.
SESSION_ALIAS: Final = 0
PREDEFINED_ALIAS: Final = 1
SHORT_NAME: Final = 2
FULL_NAME: Final = 3

# How the field of a step is written.
FLAGS: Final = 0  # one byte, spread over flag bits
U8: Final = 1
U16: Final = 2
U32: Final = 3
REST: Final = 4  # a blob up to the end of the packet
SIZED: Final = 5  # a blob whose length is a number field before it
LEN8: Final = 6  # a blob after its own one-byte length
LEN16: Final = 7  # a blob after its own two-byte length
TOPIC_REST: Final = 8  # a subscription's topic: two bytes of alias or short name, or a filter up to the end
RETURN_CODE: Final = 9  # one byte of 1.2's four return codes, mapped to reason codes
ERROR_CODE: Final = 10  # one byte, 0 for every success; the granted QoS is in the flags


@final
class Bits:
    """One flag: the field it sets, how far it is shifted, and its mask after the shift."""

    __slots__ = ("field", "shift", "mask")

    def __init__(self, field: int, shift: int, width: int = 1) -> None:
        self.field: Final = field
        self.shift: Final = shift
        self.mask: Final = (1 << width) - 1


@final
class Step:
    """One field of a layout.

    `when`: present only if that flag bit is not 0. `when_full`: present only if that topic type is a full name.
    `optional`: present only if the packet has not ended. `length`: for SIZED, the number field that holds the length.
    """

    __slots__ = ("kind", "field", "when", "when_full", "optional", "length", "bits", "reserved")

    def __init__(
        self,
        kind: int,
        field: int,
        when: int = -1,
        optional: bool = False,
        length: int = -1,
        bits: tuple[Bits, ...] = (),
        reserved: int = 0,
        when_full: int = -1,
    ) -> None:
        self.kind: Final = kind
        self.field: Final = field
        self.when: Final = when
        self.when_full: Final = when_full
        self.optional: Final = optional
        self.length: Final = length
        self.bits: Final = bits
        self.reserved: Final = reserved


@final
class Values:
    """The values of a packet's fields, between its class and its bytes."""

    __slots__ = ("numbers", "blobs")

    def __init__(self) -> None:
        self.numbers: Final = ABSENT.copy()
        self.blobs: Final[list[bytes]] = [b""] * BLOBS

    def blob(self, field: int) -> bytes:
        """The bytes of a blob field."""
        return self.blobs[field - BLOB]

    def set_blob(self, field: int, value: bytes) -> None:
        """Set the bytes of a blob field."""
        self.blobs[field - BLOB] = value

    def text(self, field: int) -> str:
        """A blob field as a string of the standard (1.7.4)."""
        return text_of(self.blobs[field - BLOB])

    def flag(self, field: int) -> bool:
        """A one-bit flag as a bool."""
        return self.numbers[field] != 0

    def holds(self, field: int) -> bool:
        """Whether a field has another value than an absent field has."""
        if field >= BLOB:
            return len(self.blobs[field - BLOB]) > 0
        return self.numbers[field] != ABSENT[field]


def text_of(data: bytes) -> str:
    """Bytes as a string of the standard (2.0: section 1.7.4)."""
    return decode_text(data, "MQTT-SN-1.7.4-1", "MQTT-SN-1.7.4-2")

"""The fields that MQTT-SN packets are made of.

Owns: the names of all fields of all wire profiles, by which the layouts and `packets.SnPacket` refer to them.
Never: which packet has which field in which place (`profiles`), or what a field means to a session.
A number field holds an int, a text field a string, a blob field bytes; flag bits are number fields like any other.
"""

from typing import Final

from embermq.protocol.topics import decode_text

# Number fields. An absent field has its value of `ABSENT`, which is -1 where 0 has a meaning of its own.
PACKET_ID: Final = 0
VERSION: Final = 1
KEEP_ALIVE: Final = 2
SESSION_EXPIRY: Final = 3
MAX_PACKET: Final = 4
AWAKE_MESSAGES: Final = 5
TOPIC_ALIAS: Final = 6
REASON: Final = 7
GATEWAY_ID: Final = 8
DURATION: Final = 9
RADIUS: Final = 10
REMAINING: Final = 11
WILL_ALIAS: Final = 12
SERVER_KEEP_ALIVE: Final = 13
SLEEP: Final = 14
# Flag bits.
DUP: Final = 15
QOS: Final = 16
RETAIN: Final = 17
TOPIC_TYPE: Final = 18
WILL: Final = 19
CLEAN_START: Final = 20
AUTH: Final = 21
NO_LOCAL: Final = 22
RETAIN_AS_PUBLISHED: Final = 23
RETAIN_HANDLING: Final = 24
SESSION_PRESENT: Final = 25
RETAIN_ALIASES: Final = 26
SUGGESTIONS: Final = 27
ADDRESS_CHANGE: Final = 28
WILL_QOS: Final = 29
WILL_RETAIN: Final = 30
WILL_TOPIC_TYPE: Final = 31
# Lengths of fields that follow: they are set only while a packet is read.
NAME_LENGTH: Final = 32
WILL_NAME_LENGTH: Final = 33
WILL_PAYLOAD_LENGTH: Final = 34
NUMBERS: Final = 35

# Text fields from 64 and blob fields from 80, so that the three sorts cannot be confused.
TEXT: Final = 64
CLIENT_ID: Final = TEXT + 0
NAME: Final = TEXT + 1
AUTH_METHOD: Final = TEXT + 2
WILL_NAME: Final = TEXT + 3
REASON_STRING: Final = TEXT + 4
TEXTS: Final = 5

BLOB: Final = 80
PAYLOAD: Final = BLOB + 0
AUTH_DATA: Final = BLOB + 1
WILL_PAYLOAD: Final = BLOB + 2
ADDRESS: Final = BLOB + 3
BLOBS: Final = 4

_OPTIONAL: Final = (SESSION_EXPIRY, REMAINING, SERVER_KEEP_ALIVE, SLEEP, WILL_ALIAS)
ABSENT: Final[list[int]] = [-1 if field in _OPTIONAL else 0 for field in range(NUMBERS)]

# What the two low bits of the flags say about a topic, as the model has it; `profiles` maps the bits of each wire.
SESSION_ALIAS: Final = 0
PREDEFINED_ALIAS: Final = 1
SHORT_NAME: Final = 2
FULL_NAME: Final = 3


def text_of(data: bytes) -> str:
    """Bytes as a string of the standard (2.0: section 1.7.4)."""
    return decode_text(data, "MQTT-SN-1.7.4-1", "MQTT-SN-1.7.4-2")

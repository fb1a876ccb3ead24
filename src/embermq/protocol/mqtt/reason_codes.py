"""Which reason code may stand in which packet of MQTT 5, and what is said in place of one that may not (5.0, 2.4).

Owns: the sets of codes, by packet and sender; the nearest code that a packet has; the fixed sentence for each failure.
Never: when a code is due.
"""

from typing import Final

from embermq.protocol.packets import (
    AUTH,
    CONNACK,
    DISCONNECT,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    SUBACK,
    UNSUBACK,
)
from embermq.protocol.reasons import ReasonCode

FAILURE: Final = 0x80
"""From here on a code says that something failed."""

_PUBLISHED: Final = frozenset((0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99))
_RELEASED: Final = frozenset((0x00, 0x92))
CODES: Final[dict[int, frozenset[int]]] = {
    CONNACK: frozenset((0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F)),
    PUBACK: _PUBLISHED,
    PUBREC: _PUBLISHED,
    PUBREL: _RELEASED,
    PUBCOMP: _RELEASED,
    SUBACK: frozenset((0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2)),
    UNSUBACK: frozenset((0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91)),
    AUTH: frozenset((0x00, 0x18, 0x19)),
}
"""Packet type -> its codes, where both sides have the same."""
# 0x8C is in table 2-6 of the standard, and not in table 3-10; it is accepted.
DISCONNECT_BY_CLIENT: Final = frozenset(
    (0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x8C, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99)
)
DISCONNECT_BY_SERVER: Final = (DISCONNECT_BY_CLIENT - {0x04}) | frozenset(
    (0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x9A, 0x9B, 0x9C, 0x9D, 0x9E, 0x9F, 0xA0, 0xA1, 0xA2)
)
AUTH_BY_CLIENT: Final = frozenset((0x18, 0x19))
AUTH_BY_SERVER: Final = frozenset((0x00, 0x18))

_NEAREST: Final[dict[int, dict[int, int]]] = {
    CONNACK: {
        ReasonCode.SERVER_SHUTTING_DOWN: ReasonCode.SERVER_UNAVAILABLE,
        ReasonCode.KEEP_ALIVE_TIMEOUT: ReasonCode.SERVER_UNAVAILABLE,
        ReasonCode.SESSION_TAKEN_OVER: ReasonCode.SERVER_UNAVAILABLE,
        ReasonCode.TOPIC_FILTER_INVALID: ReasonCode.PROTOCOL_ERROR,
        ReasonCode.RECEIVE_MAXIMUM_EXCEEDED: ReasonCode.PROTOCOL_ERROR,
        ReasonCode.TOPIC_ALIAS_INVALID: ReasonCode.PROTOCOL_ERROR,
        ReasonCode.MESSAGE_RATE_TOO_HIGH: ReasonCode.CONNECTION_RATE_EXCEEDED,
        ReasonCode.ADMINISTRATIVE_ACTION: ReasonCode.NOT_AUTHORIZED,
    },
    PUBACK: {
        ReasonCode.TOPIC_FILTER_INVALID: ReasonCode.TOPIC_NAME_INVALID,
        ReasonCode.PACKET_TOO_LARGE: ReasonCode.QUOTA_EXCEEDED,
    },
    PUBREL: {},
    PUBCOMP: {},
    SUBACK: {ReasonCode.TOPIC_NAME_INVALID: ReasonCode.TOPIC_FILTER_INVALID},
    UNSUBACK: {ReasonCode.TOPIC_NAME_INVALID: ReasonCode.TOPIC_FILTER_INVALID},
    DISCONNECT: {
        ReasonCode.UNSUPPORTED_PROTOCOL_VERSION: ReasonCode.PROTOCOL_ERROR,
        ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: ReasonCode.NOT_AUTHORIZED,
        ReasonCode.BAD_USER_NAME_OR_PASSWORD: ReasonCode.NOT_AUTHORIZED,
        ReasonCode.SERVER_UNAVAILABLE: ReasonCode.SERVER_BUSY,
        ReasonCode.BANNED: ReasonCode.NOT_AUTHORIZED,
        ReasonCode.PACKET_IDENTIFIER_NOT_FOUND: ReasonCode.PROTOCOL_ERROR,
        ReasonCode.PACKET_IDENTIFIER_IN_USE: ReasonCode.PROTOCOL_ERROR,
    },
}
_NEAREST[PUBREC] = _NEAREST[PUBACK]


def sendable(packet_type: int, reason: int) -> int:
    """The reason if a server may send it in this packet, else the nearest one that it may."""
    codes = DISCONNECT_BY_SERVER if packet_type == DISCONNECT else CODES[packet_type]
    if reason in codes:
        return reason
    if codes is _RELEASED:
        return ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
    if reason < FAILURE:
        return ReasonCode.SUCCESS
    return _NEAREST[packet_type].get(reason, ReasonCode.UNSPECIFIED_ERROR)


REASON_STRINGS: Final[dict[int, str]] = {
    int(reason): reason.name.replace("_", " ").capitalize() for reason in ReasonCode if reason >= FAILURE
}
"""What a Reason String says: the name of the failure, never our own detail."""

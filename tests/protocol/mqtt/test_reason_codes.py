"""Reason codes by packet: the tables are those of the standard, and what a server sends is always in them."""

import pytest

from embermq.protocol import packets
from embermq.protocol.mqtt.reason_codes import (
    CODES,
    DISCONNECT_BY_CLIENT,
    DISCONNECT_BY_SERVER,
    REASON_STRINGS,
    sendable,
)
from embermq.protocol.packets import CONNACK, DISCONNECT, PUBACK, PUBCOMP, PUBREL, SUBACK, UNSUBACK
from embermq.protocol.reasons import ReasonCode
from support.clauses import v5
from support.properties_v5 import CLIENT_DISCONNECT_CODES, REASON_CODES


def test_the_codes_of_each_packet_are_those_of_the_standard() -> None:
    for name, codes in REASON_CODES.items():
        if name != "DISCONNECT":
            assert CODES[getattr(packets, name)] == set(codes), name
    assert set(CLIENT_DISCONNECT_CODES) == DISCONNECT_BY_CLIENT
    assert set(REASON_CODES["DISCONNECT"]) - {0x04} == DISCONNECT_BY_SERVER


@v5(
    "MQTT-3.2.2-8",
    "MQTT-3.4.2-1",
    "MQTT-3.5.2-1",
    "MQTT-3.6.2-1",
    "MQTT-3.7.2-1",
    "MQTT-3.9.3-2",
    "MQTT-3.11.3-2",
    "MQTT-3.14.2-1",
)
@pytest.mark.parametrize("name", [name for name in REASON_CODES if name != "AUTH"])
def test_every_reason_becomes_one_that_the_packet_has(name: str) -> None:
    for reason in ReasonCode:
        sent = sendable(getattr(packets, name), reason)
        assert sent in REASON_CODES[name], reason.name
        assert (sent >= 0x80) == (reason >= 0x80) or name in ("PUBREL", "PUBCOMP")
        if reason in REASON_CODES[name] and (name, reason) != ("DISCONNECT", 0x04):
            assert sent == reason


@pytest.mark.parametrize(
    ("packet_type", "reason", "sent"),
    [
        (CONNACK, ReasonCode.SERVER_SHUTTING_DOWN, ReasonCode.SERVER_UNAVAILABLE),
        (DISCONNECT, ReasonCode.BAD_USER_NAME_OR_PASSWORD, ReasonCode.NOT_AUTHORIZED),
        (DISCONNECT, ReasonCode.SERVER_UNAVAILABLE, ReasonCode.SERVER_BUSY),
        (PUBACK, ReasonCode.PACKET_TOO_LARGE, ReasonCode.QUOTA_EXCEEDED),
        (SUBACK, ReasonCode.TOPIC_NAME_INVALID, ReasonCode.TOPIC_FILTER_INVALID),
        (UNSUBACK, ReasonCode.QUOTA_EXCEEDED, ReasonCode.UNSPECIFIED_ERROR),
        (PUBREL, ReasonCode.UNSPECIFIED_ERROR, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND),
        (PUBCOMP, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND),
    ],
)
def test_the_nearest_reason_is_sent(packet_type: int, reason: ReasonCode, sent: ReasonCode) -> None:
    assert sendable(packet_type, reason) == sent


def test_every_failure_has_its_sentence() -> None:
    assert REASON_STRINGS[0x8E] == "Session taken over"
    assert set(REASON_STRINGS) == {reason for reason in ReasonCode if reason >= 0x80}

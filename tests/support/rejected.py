"""Bytes on the wire that are no good packet, each with the error it ends its connection with and the clause it breaks.

A new bug on the wire is a new line here. `test_decode.py` runs every line; those here are judged by the rules of 3.1.1.
"""

from dataclasses import dataclass
from typing import Final

from embermq.protocol.errors import MalformedPacket, PeerError, ProtocolError
from embermq.protocol.reasons import ReasonCode
from support.vectors import CLIENT, EITHER, SERVER, V311

BAD_VERSION: Final = ReasonCode.UNSUPPORTED_PROTOCOL_VERSION
BAD_NAME: Final = ReasonCode.TOPIC_NAME_INVALID
BAD_FILTER: Final = ReasonCode.TOPIC_FILTER_INVALID

# The statement behind every breach that has none of its own.
_VIOLATION: Final = "MQTT-4.8.0-1"


@dataclass(frozen=True)
class Rejected:
    """A bad packet, the error it ends the connection with and the clause that error names."""

    name: str
    senders: tuple[str, ...]
    hex: str
    error: type[PeerError]
    clause: str
    proves: tuple[str, ...] = ()
    reason: ReasonCode | None = None
    level: int = V311

    @property
    def wire(self) -> bytes:
        return bytes.fromhex(self.hex)


REJECTED: Final = [
    # The fixed header: types, directions, flags, lengths.
    Rejected("type-0", EITHER, "00 00", MalformedPacket, _VIOLATION),
    Rejected("type-0-with-flags", EITHER, "0f 02 0001", MalformedPacket, _VIOLATION),
    Rejected("type-15", EITHER, "f0 00", MalformedPacket, _VIOLATION),
    Rejected("connack-to-a-server", CLIENT, "20 02 00 00", ProtocolError, _VIOLATION),
    Rejected("suback-to-a-server", CLIENT, "90 03 0001 00", ProtocolError, _VIOLATION),
    Rejected("unsuback-to-a-server", CLIENT, "b0 02 0001", ProtocolError, _VIOLATION),
    Rejected("pingresp-to-a-server", CLIENT, "d0 00", ProtocolError, _VIOLATION),
    Rejected("connect-to-a-client", SERVER, "10 0c 0004 4d515454 04 02 0000 0000", ProtocolError, _VIOLATION),
    Rejected("subscribe-to-a-client", SERVER, "82 06 0001 0001 61 00", ProtocolError, _VIOLATION),
    Rejected("unsubscribe-to-a-client", SERVER, "a2 05 0001 0001 61", ProtocolError, _VIOLATION),
    Rejected("pingreq-to-a-client", SERVER, "c0 00", ProtocolError, _VIOLATION),
    Rejected("disconnect-to-a-client", SERVER, "e0 00", ProtocolError, _VIOLATION),
    Rejected("connect-flags", CLIENT, "11 0c 0004 4d515454 04 02 0000 0000", MalformedPacket, "MQTT-2.2.2-2"),
    Rejected("puback-flags", EITHER, "42 02 0001", MalformedPacket, "MQTT-2.2.2-2"),
    Rejected("pubrec-flags", EITHER, "51 02 0001", MalformedPacket, "MQTT-2.2.2-2"),
    Rejected("pubcomp-flags", EITHER, "78 02 0001", MalformedPacket, "MQTT-2.2.2-2"),
    Rejected("pingreq-flags", CLIENT, "c4 00", MalformedPacket, "MQTT-2.2.2-2"),
    Rejected("pubrel-no-flags", EITHER, "60 02 0001", MalformedPacket, "MQTT-3.6.1-1", ("MQTT-2.2.2-2",)),
    Rejected("pubrel-dup", EITHER, "6a 02 0001", MalformedPacket, "MQTT-3.6.1-1", ("MQTT-2.2.2-2",)),
    Rejected("subscribe-no-flags", CLIENT, "80 06 0001 0001 61 00", MalformedPacket, "MQTT-3.8.1-1"),
    Rejected("subscribe-dup", CLIENT, "8a 06 0001 0001 61 00", MalformedPacket, "MQTT-3.8.1-1"),
    Rejected("unsubscribe-no-flags", CLIENT, "a0 05 0001 0001 61", MalformedPacket, "MQTT-3.10.1-1"),
    Rejected("unsubscribe-dup", CLIENT, "aa 05 0001 0001 61", MalformedPacket, "MQTT-3.10.1-1"),
    Rejected("disconnect-flags", CLIENT, "e2 00", MalformedPacket, "MQTT-3.14.1-1"),
    Rejected("connack-flags", SERVER, "22 02 00 00", MalformedPacket, "MQTT-2.2.2-2"),
    Rejected("suback-flags", SERVER, "92 03 0001 00", MalformedPacket, "MQTT-2.2.2-2"),
    Rejected("unsuback-flags", SERVER, "b2 02 0001", MalformedPacket, "MQTT-2.2.2-2"),
    Rejected("pingresp-flags", SERVER, "d1 00", MalformedPacket, "MQTT-2.2.2-2"),
    Rejected("remaining-length-of-five-bytes", EITHER, "30 8080808001", MalformedPacket, _VIOLATION),
    Rejected("remaining-length-without-end", EITHER, "30 ffffffffff", MalformedPacket, _VIOLATION),
    # CONNECT: name, level, flags, fields.
    Rejected("connect-name", CLIENT, "10 0c 0004 4d515453 04 02 0000 0000", ProtocolError, "MQTT-3.1.2-1"),
    Rejected("connect-name-in-small", CLIENT, "10 0c 0004 6d717474 04 02 0000 0000", ProtocolError, "MQTT-3.1.2-1"),
    Rejected("connect-name-empty", CLIENT, "10 08 0000 04 02 0000 0000", ProtocolError, "MQTT-3.1.2-1"),
    Rejected(
        "connect-level-5",
        CLIENT,
        "10 0d 0004 4d515454 05 02 0000 00 0000",
        ProtocolError,
        "MQTT-3.1.2-2",
        reason=BAD_VERSION,
    ),
    Rejected(
        "connect-level-0",
        CLIENT,
        "10 0c 0004 4d515454 00 02 0000 0000",
        ProtocolError,
        "MQTT-3.1.2-2",
        reason=BAD_VERSION,
    ),
    Rejected(
        "connect-level-of-a-bridge",
        CLIENT,
        "10 0c 0004 4d515454 84 02 0000 0000",
        ProtocolError,
        "MQTT-3.1.2-2",
        reason=BAD_VERSION,
    ),
    Rejected(
        "connect-new-name-old-level",
        CLIENT,
        "10 0c 0004 4d515454 03 02 0000 0000",
        ProtocolError,
        "MQTT-3.1.2-2",
        reason=BAD_VERSION,
    ),
    Rejected(
        "connect-old-name-new-level",
        CLIENT,
        "10 0e 0006 4d5149736470 04 02 0000 0000",
        ProtocolError,
        "MQTT-3.1.2-2",
        reason=BAD_VERSION,
    ),
    Rejected("connect-reserved-flag", CLIENT, "10 0c 0004 4d515454 04 03 0000 0000", MalformedPacket, "MQTT-3.1.2-3"),
    Rejected(
        "connect-will-qos-without-will",
        CLIENT,
        "10 0c 0004 4d515454 04 0a 0000 0000",
        MalformedPacket,
        "MQTT-3.1.2-13",
        ("MQTT-3.1.2-11",),
    ),
    Rejected(
        "connect-will-retain-without-will",
        CLIENT,
        "10 0c 0004 4d515454 04 22 0000 0000",
        MalformedPacket,
        "MQTT-3.1.2-15",
        ("MQTT-3.1.2-11",),
    ),
    Rejected(
        "connect-will-qos-3",
        CLIENT,
        "10 13 0004 4d515454 04 1e 0000 0001 63 0001 77 0001 78",
        MalformedPacket,
        "MQTT-3.1.2-14",
    ),
    Rejected(
        "connect-will-flag-without-will",
        CLIENT,
        "10 0d 0004 4d515454 04 06 0000 0001 63",
        MalformedPacket,
        _VIOLATION,
        ("MQTT-3.1.2-9",),
    ),
    Rejected(
        "connect-will-without-will-flag",
        CLIENT,
        "10 13 0004 4d515454 04 02 0000 0001 63 0001 77 0001 78",
        MalformedPacket,
        _VIOLATION,
        ("MQTT-3.1.2-11",),
    ),
    Rejected(
        "connect-password-flag-alone",
        CLIENT,
        "10 10 0004 4d515454 04 42 0000 0001 63 0001 70",
        MalformedPacket,
        "MQTT-3.1.2-22",
    ),
    Rejected(
        "connect-user-name-flag-without-field",
        CLIENT,
        "10 0d 0004 4d515454 04 82 0000 0001 63",
        MalformedPacket,
        _VIOLATION,
        ("MQTT-3.1.2-19",),
    ),
    Rejected(
        "connect-user-name-without-flag",
        CLIENT,
        "10 10 0004 4d515454 04 02 0000 0001 63 0001 75",
        MalformedPacket,
        _VIOLATION,
        ("MQTT-3.1.2-18",),
    ),
    Rejected(
        "connect-password-flag-without-field",
        CLIENT,
        "10 10 0004 4d515454 04 c2 0000 0001 63 0001 75",
        MalformedPacket,
        _VIOLATION,
        ("MQTT-3.1.2-21",),
    ),
    Rejected(
        "connect-password-without-flag",
        CLIENT,
        "10 13 0004 4d515454 04 82 0000 0001 63 0001 75 0001 70",
        MalformedPacket,
        _VIOLATION,
        ("MQTT-3.1.2-20",),
    ),
    Rejected(
        "connect-without-client-id",
        CLIENT,
        "10 0a 0004 4d515454 04 02 0000",
        MalformedPacket,
        _VIOLATION,
        ("MQTT-3.1.3-3",),
    ),
    Rejected("connect-empty", CLIENT, "10 00", MalformedPacket, _VIOLATION),
    Rejected("connect-trailing-byte", CLIENT, "10 0d 0004 4d515454 04 02 0000 0000 00", MalformedPacket, _VIOLATION),
    Rejected(
        "connect-client-id-not-utf8",
        CLIENT,
        "10 0d 0004 4d515454 04 02 0000 0001 ff",
        MalformedPacket,
        "MQTT-1.5.3-1",
        ("MQTT-3.1.3-4",),
    ),
    Rejected(
        "connect-client-id-null",
        CLIENT,
        "10 0d 0004 4d515454 04 02 0000 0001 00",
        MalformedPacket,
        "MQTT-1.5.3-2",
    ),
    Rejected(
        "connect-will-topic-not-utf8",
        CLIENT,
        "10 12 0004 4d515454 04 06 0000 0001 63 0001 c3 0000",
        MalformedPacket,
        "MQTT-1.5.3-1",
        ("MQTT-3.1.3-10",),
    ),
    Rejected(
        "connect-will-topic-empty",
        CLIENT,
        "10 11 0004 4d515454 04 06 0000 0001 63 0000 0000",
        ProtocolError,
        "MQTT-4.7.3-1",
        reason=BAD_NAME,
    ),
    Rejected(
        "connect-will-topic-wildcard",
        CLIENT,
        "10 12 0004 4d515454 04 06 0000 0001 63 0001 23 0000",
        ProtocolError,
        "MQTT-3.3.2-2",
        ("MQTT-4.7.1-1",),
        BAD_NAME,
    ),
    Rejected(
        "connect-user-name-not-utf8",
        CLIENT,
        "10 10 0004 4d515454 04 82 0000 0001 63 0001 80",
        MalformedPacket,
        "MQTT-1.5.3-1",
        ("MQTT-3.1.3-11",),
    ),
    Rejected(
        "connect-user-name-null",
        CLIENT,
        "10 11 0004 4d515454 04 82 0000 0001 63 0002 6100",
        MalformedPacket,
        "MQTT-1.5.3-2",
    ),
    # PUBLISH: QoS, identifier, topic name.
    Rejected("publish-both-qos-bits", EITHER, "36 05 0003612f62", MalformedPacket, "MQTT-3.3.1-4"),
    Rejected("publish-all-flags", EITHER, "3f 07 0003612f62 0001", MalformedPacket, "MQTT-3.3.1-4"),
    Rejected("publish-dup-at-qos0", EITHER, "38 03 0001 61", MalformedPacket, "MQTT-3.3.1-2"),
    Rejected("publish-retained-dup-at-qos0", EITHER, "39 03 0001 61", MalformedPacket, "MQTT-3.3.1-2"),
    Rejected("publish-dup-at-qos0-with-a-bad-topic", EITHER, "38 03 0001 2b", MalformedPacket, "MQTT-3.3.1-2"),
    Rejected("publish-qos1-id-0", EITHER, "32 07 0003612f62 0000", ProtocolError, "MQTT-2.3.1-1"),
    Rejected("publish-qos2-id-0", EITHER, "34 07 0003612f62 0000", ProtocolError, "MQTT-2.3.1-1"),
    Rejected("publish-qos1-without-id", EITHER, "32 05 0003612f62", MalformedPacket, _VIOLATION),
    Rejected("publish-qos1-half-an-id", EITHER, "32 06 0003612f62 01", MalformedPacket, _VIOLATION),
    Rejected("publish-empty", EITHER, "30 00", MalformedPacket, _VIOLATION),
    Rejected("publish-half-a-length", EITHER, "30 01 00", MalformedPacket, _VIOLATION),
    Rejected(
        "publish-topic-beyond-the-packet",
        EITHER,
        "30 04 0003 612f",
        MalformedPacket,
        _VIOLATION,
        ("MQTT-3.3.2-1",),
    ),
    Rejected("publish-topic-empty", EITHER, "30 04 0000 6869", ProtocolError, "MQTT-4.7.3-1", (), BAD_NAME),
    Rejected(
        "publish-topic-hash",
        EITHER,
        "30 05 0003612f23",
        ProtocolError,
        "MQTT-3.3.2-2",
        ("MQTT-4.7.1-1",),
        BAD_NAME,
    ),
    Rejected(
        "publish-topic-plus",
        EITHER,
        "30 05 00032b2f61",
        ProtocolError,
        "MQTT-3.3.2-2",
        ("MQTT-4.7.1-1",),
        BAD_NAME,
    ),
    Rejected("publish-topic-hash-inside", EITHER, "30 05 0003612361", ProtocolError, "MQTT-3.3.2-2", (), BAD_NAME),
    Rejected("publish-topic-null", EITHER, "30 05 0003610062", MalformedPacket, "MQTT-1.5.3-2", ("MQTT-4.7.3-2",)),
    Rejected("publish-topic-latin1", EITHER, "30 03 0001e9", MalformedPacket, "MQTT-1.5.3-1", ("MQTT-3.3.2-1",)),
    Rejected("publish-topic-surrogate", EITHER, "30 05 0003eda080", MalformedPacket, "MQTT-1.5.3-1"),
    Rejected("publish-topic-surrogate-pair", EITHER, "30 08 0006eda081edb080", MalformedPacket, "MQTT-1.5.3-1"),
    Rejected("publish-topic-overlong-null", EITHER, "30 04 0002c080", MalformedPacket, "MQTT-1.5.3-1"),
    Rejected("publish-topic-overlong-slash", EITHER, "30 05 0003e080af", MalformedPacket, "MQTT-1.5.3-1"),
    Rejected("publish-topic-half-a-letter", EITHER, "30 04 0002e282", MalformedPacket, "MQTT-1.5.3-1"),
    Rejected("publish-topic-beyond-unicode", EITHER, "30 06 0004f4908080", MalformedPacket, "MQTT-1.5.3-1"),
    # The acknowledgements: identifier and size.
    Rejected("puback-id-0", EITHER, "40 02 0000", ProtocolError, "MQTT-2.3.1-1"),
    Rejected("pubrec-id-0", EITHER, "50 02 0000", ProtocolError, "MQTT-2.3.1-1"),
    Rejected("pubrel-id-0", EITHER, "62 02 0000", ProtocolError, "MQTT-2.3.1-1"),
    Rejected("pubcomp-id-0", EITHER, "70 02 0000", ProtocolError, "MQTT-2.3.1-1"),
    Rejected("puback-empty", EITHER, "40 00", MalformedPacket, _VIOLATION),
    Rejected("pubrec-half-an-id", EITHER, "50 01 01", MalformedPacket, _VIOLATION),
    Rejected("puback-trailing-byte", EITHER, "40 03 0001 00", MalformedPacket, _VIOLATION),
    Rejected("pubrec-trailing-byte", EITHER, "50 03 0001 00", MalformedPacket, _VIOLATION),
    Rejected("pubrel-trailing-byte", EITHER, "62 03 0001 00", MalformedPacket, _VIOLATION),
    Rejected("pubcomp-trailing-byte", EITHER, "70 03 0001 00", MalformedPacket, _VIOLATION),
    # SUBSCRIBE and UNSUBSCRIBE: identifier, at least one filter, valid filters, QoS.
    Rejected("subscribe-id-0", CLIENT, "82 06 0000 0001 61 00", ProtocolError, "MQTT-2.3.1-1"),
    Rejected("subscribe-nothing", CLIENT, "82 02 0001", ProtocolError, "MQTT-3.8.3-3"),
    Rejected("subscribe-empty", CLIENT, "82 00", MalformedPacket, _VIOLATION),
    Rejected("subscribe-without-qos", CLIENT, "82 05 0001 0001 61", MalformedPacket, _VIOLATION),
    Rejected("subscribe-qos-3", CLIENT, "82 06 0001 0001 61 03", MalformedPacket, "MQTT-3.8.3-4"),
    Rejected("subscribe-reserved-bit", CLIENT, "82 06 0001 0001 61 04", MalformedPacket, "MQTT-3.8.3-4"),
    Rejected("subscribe-highest-reserved-bit", CLIENT, "82 06 0001 0001 61 81", MalformedPacket, "MQTT-3.8.3-4"),
    Rejected(
        "subscribe-second-filter-bad", CLIENT, "82 0a 0001 0001 61 00 0001 62 03", MalformedPacket, "MQTT-3.8.3-4"
    ),
    Rejected("subscribe-filter-empty", CLIENT, "82 05 0001 0000 00", ProtocolError, "MQTT-4.7.3-1", (), BAD_FILTER),
    Rejected("subscribe-a#", CLIENT, "82 07 0001 0002 6123 00", ProtocolError, "MQTT-4.7.1-2", (), BAD_FILTER),
    Rejected("subscribe-#/a", CLIENT, "82 08 0001 0003 232f61 00", ProtocolError, "MQTT-4.7.1-2", (), BAD_FILTER),
    Rejected("subscribe-a/#/", CLIENT, "82 09 0001 0004 612f232f 00", ProtocolError, "MQTT-4.7.1-2", (), BAD_FILTER),
    Rejected("subscribe-##", CLIENT, "82 07 0001 0002 2323 00", ProtocolError, "MQTT-4.7.1-2", (), BAD_FILTER),
    Rejected("subscribe-+a", CLIENT, "82 07 0001 0002 2b61 00", ProtocolError, "MQTT-4.7.1-3", (), BAD_FILTER),
    Rejected("subscribe-a/b+", CLIENT, "82 09 0001 0004 612f622b 00", ProtocolError, "MQTT-4.7.1-3", (), BAD_FILTER),
    Rejected(
        "subscribe-filter-null",
        CLIENT,
        "82 07 0001 0002 6100 00",
        MalformedPacket,
        "MQTT-1.5.3-2",
        ("MQTT-4.7.3-2",),
    ),
    Rejected(
        "subscribe-filter-not-utf8",
        CLIENT,
        "82 06 0001 0001 ff 00",
        MalformedPacket,
        "MQTT-1.5.3-1",
        ("MQTT-3.8.3-1",),
    ),
    Rejected("unsubscribe-id-0", CLIENT, "a2 05 0000 0001 61", ProtocolError, "MQTT-2.3.1-1"),
    Rejected("unsubscribe-nothing", CLIENT, "a2 02 0001", ProtocolError, "MQTT-3.10.3-2"),
    Rejected("unsubscribe-cut", CLIENT, "a2 06 0001 0001 61 00", MalformedPacket, _VIOLATION),
    Rejected("unsubscribe-filter-empty", CLIENT, "a2 04 0001 0000", ProtocolError, "MQTT-4.7.3-1", (), BAD_FILTER),
    Rejected("unsubscribe-a#", CLIENT, "a2 06 0001 0002 6123", ProtocolError, "MQTT-4.7.1-2", (), BAD_FILTER),
    Rejected(
        "unsubscribe-filter-not-utf8",
        CLIENT,
        "a2 05 0001 0001 ff",
        MalformedPacket,
        "MQTT-1.5.3-1",
        ("MQTT-3.10.3-1",),
    ),
    # The packets without a body.
    Rejected("pingreq-with-a-body", CLIENT, "c0 01 00", MalformedPacket, _VIOLATION),
    Rejected("disconnect-with-a-body", CLIENT, "e0 01 00", MalformedPacket, _VIOLATION),
    Rejected("pingresp-with-a-body", SERVER, "d0 01 00", MalformedPacket, _VIOLATION),
    # What only a server sends.
    Rejected("connack-reserved-bit", SERVER, "20 02 02 00", MalformedPacket, _VIOLATION),
    Rejected("connack-return-code-6", SERVER, "20 02 00 06", MalformedPacket, _VIOLATION),
    Rejected("connack-refusal-with-session", SERVER, "20 02 01 05", ProtocolError, "MQTT-3.2.2-4"),
    Rejected("connack-short", SERVER, "20 01 00", MalformedPacket, _VIOLATION),
    Rejected("connack-trailing-byte", SERVER, "20 03 00 00 00", MalformedPacket, _VIOLATION),
    Rejected("suback-nothing", SERVER, "90 02 0001", ProtocolError, "MQTT-3.8.4-5"),
    Rejected("suback-return-code-3", SERVER, "90 03 0001 03", MalformedPacket, "MQTT-3.9.3-2"),
    Rejected("suback-id-0", SERVER, "90 03 0000 00", ProtocolError, "MQTT-2.3.1-1"),
    Rejected("unsuback-trailing-byte", SERVER, "b0 03 0001 00", MalformedPacket, _VIOLATION),
]

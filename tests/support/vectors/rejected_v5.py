"""Bytes that are no good packet of MQTT 5.0, each with the error it ends its connection with and the clause it breaks.

Each line has one fault. What depends on a connection (an alias above the maximum, a
second CONNECT, ...) is not here: these are faults of single packets.
"""
# A line for each packet.
# ruff: noqa: E501

from typing import Final

from embermq.protocol.errors import MalformedPacket, ProtocolError
from support.properties_v5 import (
    CLIENT_DISCONNECT_CODES,
    PLACES,
    PROPERTIES,
    REASON_CODES,
    framed,
    required,
    senders_of,
)
from support.vectors.vector import CLIENT, EITHER, SERVER, V5, Rejected

# The statement behind every breach that has none of its own.
_VIOLATION: Final = "MQTT-4.13.1-1"


# fmt: off
REJECTED: Final = [
    # The fixed header: types, directions, flags, lengths.
    Rejected("type-0", V5, EITHER, "00 00", MalformedPacket, _VIOLATION),
    Rejected("connack-to-a-server", V5, CLIENT, "20 03 00 00 00", ProtocolError, _VIOLATION),
    Rejected("suback-to-a-server", V5, CLIENT, "90 04 0001 00 00", ProtocolError, _VIOLATION),
    Rejected("unsuback-to-a-server", V5, CLIENT, "b0 04 0001 00 00", ProtocolError, _VIOLATION),
    Rejected("pingresp-to-a-server", V5, CLIENT, "d0 00", ProtocolError, _VIOLATION),
    Rejected("connect-to-a-client", V5, SERVER, "10 0e 00044d515454 05 02 0000 00 000163", ProtocolError, _VIOLATION),
    Rejected("subscribe-to-a-client", V5, SERVER, "82 09 0001 00 0003612f62 00", ProtocolError, _VIOLATION),
    Rejected("unsubscribe-to-a-client", V5, SERVER, "a2 08 0001 00 0003612f62", ProtocolError, _VIOLATION),
    Rejected("pingreq-to-a-client", V5, SERVER, "c0 00", ProtocolError, _VIOLATION),
    Rejected("connect-flags", V5, CLIENT, "11 0e 00044d515454 05 02 0000 00 000163", MalformedPacket, "MQTT-2.1.3-1"),
    Rejected("connack-flags", V5, SERVER, "22 03 00 00 00", MalformedPacket, "MQTT-2.1.3-1"),
    Rejected("puback-flags", V5, EITHER, "42 02 0001", MalformedPacket, "MQTT-2.1.3-1"),
    Rejected("pubrec-flags", V5, EITHER, "51 02 0001", MalformedPacket, "MQTT-2.1.3-1"),
    Rejected("pubcomp-flags", V5, EITHER, "78 02 0001", MalformedPacket, "MQTT-2.1.3-1"),
    Rejected("pubrel-no-flags", V5, EITHER, "60 02 0001", MalformedPacket, "MQTT-3.6.1-1", ("MQTT-2.1.3-1",)),
    Rejected("pubrel-dup", V5, EITHER, "6a 02 0001", MalformedPacket, "MQTT-3.6.1-1"),
    Rejected("subscribe-no-flags", V5, CLIENT, "80 09 0001 00 0003612f62 00", MalformedPacket, "MQTT-3.8.1-1", ("MQTT-2.1.3-1",)),
    Rejected("subscribe-dup", V5, CLIENT, "8a 09 0001 00 0003612f62 00", MalformedPacket, "MQTT-3.8.1-1"),
    Rejected("unsubscribe-no-flags", V5, CLIENT, "a0 08 0001 00 0003612f62", MalformedPacket, "MQTT-3.10.1-1", ("MQTT-2.1.3-1",)),
    Rejected("unsubscribe-dup", V5, CLIENT, "aa 08 0001 00 0003612f62", MalformedPacket, "MQTT-3.10.1-1"),
    Rejected("suback-flags", V5, SERVER, "92 04 0001 00 00", MalformedPacket, "MQTT-2.1.3-1"),
    Rejected("unsuback-flags", V5, SERVER, "b2 04 0001 00 00", MalformedPacket, "MQTT-2.1.3-1"),
    Rejected("pingreq-flags", V5, CLIENT, "c4 00", MalformedPacket, "MQTT-2.1.3-1"),
    Rejected("pingresp-flags", V5, SERVER, "d1 00", MalformedPacket, "MQTT-2.1.3-1"),
    Rejected("disconnect-flags", V5, EITHER, "e2 00", MalformedPacket, "MQTT-3.14.1-1"),
    Rejected("auth-flags", V5, EITHER, "f2 06 18 04 1500014d", MalformedPacket, "MQTT-3.15.1-1"),
    Rejected("remaining-length-of-five-bytes", V5, EITHER, "30 8080808001", MalformedPacket, _VIOLATION),
    Rejected("remaining-length-without-end", V5, EITHER, "30 ffffffffff", MalformedPacket, _VIOLATION),
    Rejected("remaining-length-with-idle-bytes", V5, EITHER, "30 84808000 0001 61 00", MalformedPacket, "MQTT-1.5.5-1"),
    Rejected("pingreq-with-idle-length-byte", V5, CLIENT, "c0 8000", MalformedPacket, "MQTT-1.5.5-1"),
    Rejected("pingreq-with-a-body", V5, CLIENT, "c0 01 00", MalformedPacket, _VIOLATION),
    Rejected("pingresp-with-a-body", V5, SERVER, "d0 01 00", MalformedPacket, _VIOLATION),
    # CONNECT: version, flags, fields.
    Rejected("connect-version-6", V5, CLIENT, "10 0e 00044d515454 06 02 0000 00 000163", ProtocolError, "MQTT-3.1.2-2", reason=0x84),
    Rejected("connect-version-of-a-bridge", V5, CLIENT, "10 0e 00044d515454 85 02 0000 00 000163", ProtocolError, "MQTT-3.1.2-2", reason=0x84),
    Rejected("connect-old-name-new-version", V5, CLIENT, "10 10 00064d5149736470 05 02 0000 00 000163", ProtocolError, "MQTT-3.1.2-2", reason=0x84),
    Rejected("connect-reserved-flag", V5, CLIENT, "10 0e 00044d515454 05 03 0000 00 000163", MalformedPacket, "MQTT-3.1.2-3"),
    Rejected("connect-will-qos-without-will", V5, CLIENT, "10 0e 00044d515454 05 0a 0000 00 000163", MalformedPacket, "MQTT-3.1.2-11"),
    Rejected("connect-will-retain-without-will", V5, CLIENT, "10 0e 00044d515454 05 22 0000 00 000163", MalformedPacket, "MQTT-3.1.2-13"),
    Rejected("connect-will-qos-3", V5, CLIENT, "10 15 00044d515454 05 1e 0000 00 000163 00 000177 000178", MalformedPacket, "MQTT-3.1.2-12"),
    Rejected("connect-empty", V5, CLIENT, "10 00", MalformedPacket, _VIOLATION, ("MQTT-3.1.4-1",)),
    Rejected("connect-without-property-length", V5, CLIENT, "10 0a 00044d515454 05 02 0000", MalformedPacket, _VIOLATION, ("MQTT-3.1.4-1",)),
    Rejected("connect-without-client-id", V5, CLIENT, "10 0b 00044d515454 05 02 0000 00", MalformedPacket, _VIOLATION, ("MQTT-3.1.4-1", "MQTT-3.1.3-3")),
    Rejected("connect-of-311-with-version-5", V5, CLIENT, "10 0d 00044d515454 05 02 0000 000163", MalformedPacket, _VIOLATION, ("MQTT-3.1.4-1",)),
    Rejected("connect-trailing-byte", V5, CLIENT, "10 0f 00044d515454 05 02 0000 00 000163 00", MalformedPacket, _VIOLATION, ("MQTT-3.1.4-1",)),
    Rejected("connect-will-flag-without-will", V5, CLIENT, "10 0e 00044d515454 05 06 0000 00 000163", MalformedPacket, _VIOLATION, ("MQTT-3.1.4-1", "MQTT-3.1.2-9")),
    Rejected("connect-will-without-property-length", V5, CLIENT, "10 13 00044d515454 05 06 0000 00 000163 0177 000178", MalformedPacket, _VIOLATION, ("MQTT-3.1.4-1",)),
    Rejected("connect-will-without-payload", V5, CLIENT, "10 12 00044d515454 05 06 0000 00 000163 00 000177", MalformedPacket, _VIOLATION, ("MQTT-3.1.4-1", "MQTT-3.1.2-9")),
    Rejected("connect-user-name-flag-without-user-name", V5, CLIENT, "10 0e 00044d515454 05 82 0000 00 000163", MalformedPacket, _VIOLATION, ("MQTT-3.1.4-1", "MQTT-3.1.2-17")),
    Rejected("connect-password-flag-without-password", V5, CLIENT, "10 0e 00044d515454 05 42 0000 00 000163", MalformedPacket, _VIOLATION, ("MQTT-3.1.4-1", "MQTT-3.1.2-19")),
    Rejected("connect-user-name-without-flag", V5, CLIENT, "10 12 00044d515454 05 02 0000 00 000163 00026a6f", MalformedPacket, _VIOLATION, ("MQTT-3.1.4-1", "MQTT-3.1.2-16")),
    Rejected("connect-client-id-not-utf8", V5, CLIENT, "10 0e 00044d515454 05 02 0000 00 0001ff", MalformedPacket, "MQTT-1.5.4-1", ("MQTT-3.1.3-4",)),
    Rejected("connect-client-id-null", V5, CLIENT, "10 0e 00044d515454 05 02 0000 00 000100", MalformedPacket, "MQTT-1.5.4-2"),
    Rejected("connect-client-id-beyond-the-packet", V5, CLIENT, "10 0e 00044d515454 05 02 0000 00 000263", MalformedPacket, _VIOLATION, ("MQTT-3.1.4-1",)),
    Rejected("connect-will-topic-not-utf8", V5, CLIENT, "10 14 00044d515454 05 06 0000 00 000163 00 0001c3 0000", MalformedPacket, "MQTT-1.5.4-1", ("MQTT-3.1.3-11",)),
    Rejected("connect-will-topic-null", V5, CLIENT, "10 14 00044d515454 05 06 0000 00 000163 00 000100 0000", MalformedPacket, "MQTT-1.5.4-2"),
    Rejected("connect-will-topic-empty", V5, CLIENT, "10 13 00044d515454 05 06 0000 00 000163 00 0000 0000", ProtocolError, "MQTT-4.7.3-1", reason=0x90),
    Rejected("connect-will-topic-wildcard", V5, CLIENT, "10 14 00044d515454 05 06 0000 00 000163 00 000123 0000", ProtocolError, "MQTT-4.7.0-1", reason=0x90),
    Rejected("connect-user-name-not-utf8", V5, CLIENT, "10 11 00044d515454 05 82 0000 00 000163 000180", MalformedPacket, "MQTT-1.5.4-1", ("MQTT-3.1.3-12",)),
    Rejected("connect-user-name-null", V5, CLIENT, "10 12 00044d515454 05 82 0000 00 000163 00026100", MalformedPacket, "MQTT-1.5.4-2"),
    # Values of properties that are out of range.
    Rejected("connect-receive-maximum-0", V5, CLIENT, "10 11 00044d515454 05 02 0000 03 210000 000163", ProtocolError, _VIOLATION),
    Rejected("connect-maximum-packet-size-0", V5, CLIENT, "10 13 00044d515454 05 02 0000 05 2700000000 000163", ProtocolError, _VIOLATION),
    Rejected("connect-request-response-information-2", V5, CLIENT, "10 10 00044d515454 05 02 0000 02 1902 000163", ProtocolError, _VIOLATION),
    Rejected("connect-request-response-information-255", V5, CLIENT, "10 10 00044d515454 05 02 0000 02 19ff 000163", ProtocolError, _VIOLATION),
    Rejected("connect-request-problem-information-2", V5, CLIENT, "10 10 00044d515454 05 02 0000 02 1702 000163", ProtocolError, _VIOLATION),
    Rejected("connect-request-problem-information-255", V5, CLIENT, "10 10 00044d515454 05 02 0000 02 17ff 000163", ProtocolError, _VIOLATION),
    Rejected("connack-receive-maximum-0", V5, SERVER, "20 06 00 00 03 210000", ProtocolError, _VIOLATION),
    Rejected("connack-maximum-packet-size-0", V5, SERVER, "20 08 00 00 05 2700000000", ProtocolError, _VIOLATION),
    Rejected("connack-maximum-qos-2", V5, SERVER, "20 05 00 00 02 2402", ProtocolError, _VIOLATION),
    Rejected("connack-maximum-qos-255", V5, SERVER, "20 05 00 00 02 24ff", ProtocolError, _VIOLATION),
    Rejected("connack-retain-available-2", V5, SERVER, "20 05 00 00 02 2502", ProtocolError, _VIOLATION),
    Rejected("connack-wildcard-subscription-available-2", V5, SERVER, "20 05 00 00 02 2802", ProtocolError, _VIOLATION),
    Rejected("connack-subscription-ids-available-2", V5, SERVER, "20 05 00 00 02 2902", ProtocolError, _VIOLATION),
    Rejected("connack-shared-subscription-available-2", V5, SERVER, "20 05 00 00 02 2a02", ProtocolError, _VIOLATION),
    Rejected("publish-payload-format-2", V5, EITHER, "30 08 0003612f62 02 0102", ProtocolError, _VIOLATION),
    Rejected("publish-payload-format-255", V5, EITHER, "30 08 0003612f62 02 01ff", ProtocolError, _VIOLATION),
    Rejected("will-payload-format-2", V5, CLIENT, "10 17 00044d515454 05 06 0000 00 000163 02 0102 000177 000178", ProtocolError, _VIOLATION),
    Rejected("subscribe-subscription-id-0", V5, CLIENT, "82 0b 0001 02 0b00 0003612f62 00", ProtocolError, _VIOLATION),
    Rejected("publish-topic-alias-0", V5, EITHER, "30 09 0003612f62 03 230000", ProtocolError, "MQTT-3.3.2-8", reason=0x94),
    Rejected("publish-subscription-id-0", V5, SERVER, "30 08 0003612f62 02 0b00", ProtocolError, _VIOLATION),
    Rejected("publish-subscription-id-of-a-client", V5, CLIENT, "30 08 0003612f62 02 0b01", ProtocolError, "MQTT-3.3.4-6"),
    Rejected("publish-response-topic-hash", V5, EITHER, "30 0c 0003612f62 06 080003612f23", ProtocolError, "MQTT-3.3.2-14"),
    Rejected("publish-response-topic-plus", V5, EITHER, "30 0a 0003612f62 04 0800012b", ProtocolError, "MQTT-3.3.2-14"),
    Rejected("will-response-topic-hash", V5, CLIENT, "10 1b 00044d515454 05 06 0000 00 000163 06 080003612f23 000177 000178", ProtocolError, "MQTT-3.3.2-14"),
    Rejected("will-response-topic-plus", V5, CLIENT, "10 19 00044d515454 05 06 0000 00 000163 04 0800012b 000177 000178", ProtocolError, "MQTT-3.3.2-14"),
    Rejected("disconnect-session-expiry-of-a-server", V5, SERVER, "e0 07 00 05 110000003c", ProtocolError, "MQTT-3.14.2-2"),
    Rejected("disconnect-server-reference-of-a-client", V5, CLIENT, "e0 06 00 04 1c000168", ProtocolError, _VIOLATION),
    Rejected("connect-authentication-data-without-method", V5, CLIENT, "10 12 00044d515454 05 02 0000 04 16000178 000163", ProtocolError, _VIOLATION),
    Rejected("connack-authentication-data-without-method", V5, SERVER, "20 07 00 00 04 16000178", ProtocolError, _VIOLATION),
    Rejected("auth-without-method", V5, EITHER, "f0 02 18 00", ProtocolError, "MQTT-4.12.0-5"),
    Rejected("auth-data-without-method", V5, EITHER, "f0 06 18 04 16000178", ProtocolError, "MQTT-4.12.0-5"),
    Rejected("auth-shortest", V5, SERVER, "f0 00", ProtocolError, "MQTT-4.12.0-5"),
    # Property sections that cannot be read.
    Rejected("connect-property-length-without-end", V5, CLIENT, "10 11 00044d515454 05 02 0000 ffffffff 000163", MalformedPacket, _VIOLATION),
    Rejected("connect-property-length-with-idle-byte", V5, CLIENT, "10 16 00044d515454 05 02 0000 8700 2600016b000176 000163", MalformedPacket, "MQTT-1.5.5-1"),
    Rejected("connect-property-length-too-long", V5, CLIENT, "10 15 00044d515454 05 02 0000 7f 2600016b000176 000163", MalformedPacket, _VIOLATION),
    Rejected("connect-property-cut", V5, CLIENT, "10 13 00044d515454 05 02 0000 05 2600016b00 000163", MalformedPacket, _VIOLATION),
    Rejected("will-property-length-without-end", V5, CLIENT, "10 18 00044d515454 05 06 0000 00 000163 ffffffff 000177 000178", MalformedPacket, _VIOLATION),
    Rejected("will-property-length-with-idle-byte", V5, CLIENT, "10 1d 00044d515454 05 06 0000 00 000163 8700 2600016b000176 000177 000178", MalformedPacket, "MQTT-1.5.5-1"),
    Rejected("will-property-length-too-long", V5, CLIENT, "10 1c 00044d515454 05 06 0000 00 000163 7f 2600016b000176 000177 000178", MalformedPacket, _VIOLATION),
    Rejected("will-property-cut", V5, CLIENT, "10 1a 00044d515454 05 06 0000 00 000163 05 2600016b00 000177 000178", MalformedPacket, _VIOLATION),
    Rejected("connack-property-length-without-end", V5, SERVER, "20 06 00 00 ffffffff", MalformedPacket, _VIOLATION),
    Rejected("connack-property-length-with-idle-byte", V5, SERVER, "20 0b 00 00 8700 2600016b000176", MalformedPacket, "MQTT-1.5.5-1"),
    Rejected("connack-property-length-too-long", V5, SERVER, "20 0a 00 00 7f 2600016b000176", MalformedPacket, _VIOLATION),
    Rejected("connack-property-cut", V5, SERVER, "20 08 00 00 05 2600016b00", MalformedPacket, _VIOLATION),
    Rejected("publish-property-length-without-end", V5, EITHER, "30 09 0003612f62 ffffffff", MalformedPacket, _VIOLATION),
    Rejected("publish-property-length-with-idle-byte", V5, EITHER, "30 0e 0003612f62 8700 2600016b000176", MalformedPacket, "MQTT-1.5.5-1"),
    Rejected("publish-property-length-too-long", V5, EITHER, "30 0d 0003612f62 7f 2600016b000176", MalformedPacket, _VIOLATION),
    Rejected("publish-property-cut", V5, EITHER, "30 0b 0003612f62 05 2600016b00", MalformedPacket, _VIOLATION),
    Rejected("puback-property-length-without-end", V5, EITHER, "40 07 0001 00 ffffffff", MalformedPacket, _VIOLATION),
    Rejected("puback-property-length-with-idle-byte", V5, EITHER, "40 0c 0001 00 8700 2600016b000176", MalformedPacket, "MQTT-1.5.5-1"),
    Rejected("puback-property-length-too-long", V5, EITHER, "40 0b 0001 00 7f 2600016b000176", MalformedPacket, _VIOLATION),
    Rejected("puback-property-cut", V5, EITHER, "40 09 0001 00 05 2600016b00", MalformedPacket, _VIOLATION),
    Rejected("pubrec-property-length-without-end", V5, EITHER, "50 07 0001 00 ffffffff", MalformedPacket, _VIOLATION),
    Rejected("pubrec-property-length-with-idle-byte", V5, EITHER, "50 0c 0001 00 8700 2600016b000176", MalformedPacket, "MQTT-1.5.5-1"),
    Rejected("pubrec-property-length-too-long", V5, EITHER, "50 0b 0001 00 7f 2600016b000176", MalformedPacket, _VIOLATION),
    Rejected("pubrec-property-cut", V5, EITHER, "50 09 0001 00 05 2600016b00", MalformedPacket, _VIOLATION),
    Rejected("pubrel-property-length-without-end", V5, EITHER, "62 07 0001 00 ffffffff", MalformedPacket, _VIOLATION),
    Rejected("pubrel-property-length-with-idle-byte", V5, EITHER, "62 0c 0001 00 8700 2600016b000176", MalformedPacket, "MQTT-1.5.5-1"),
    Rejected("pubrel-property-length-too-long", V5, EITHER, "62 0b 0001 00 7f 2600016b000176", MalformedPacket, _VIOLATION),
    Rejected("pubrel-property-cut", V5, EITHER, "62 09 0001 00 05 2600016b00", MalformedPacket, _VIOLATION),
    Rejected("pubcomp-property-length-without-end", V5, EITHER, "70 07 0001 00 ffffffff", MalformedPacket, _VIOLATION),
    Rejected("pubcomp-property-length-with-idle-byte", V5, EITHER, "70 0c 0001 00 8700 2600016b000176", MalformedPacket, "MQTT-1.5.5-1"),
    Rejected("pubcomp-property-length-too-long", V5, EITHER, "70 0b 0001 00 7f 2600016b000176", MalformedPacket, _VIOLATION),
    Rejected("pubcomp-property-cut", V5, EITHER, "70 09 0001 00 05 2600016b00", MalformedPacket, _VIOLATION),
    Rejected("subscribe-property-length-without-end", V5, CLIENT, "82 0c 0001 ffffffff 0003612f62 00", MalformedPacket, _VIOLATION),
    Rejected("subscribe-property-length-with-idle-byte", V5, CLIENT, "82 11 0001 8700 2600016b000176 0003612f62 00", MalformedPacket, "MQTT-1.5.5-1"),
    Rejected("subscribe-property-length-too-long", V5, CLIENT, "82 10 0001 7f 2600016b000176 0003612f62 00", MalformedPacket, _VIOLATION),
    Rejected("subscribe-property-cut", V5, CLIENT, "82 0e 0001 05 2600016b00 0003612f62 00", MalformedPacket, _VIOLATION),
    Rejected("suback-property-length-without-end", V5, SERVER, "90 07 0001 ffffffff 00", MalformedPacket, _VIOLATION),
    Rejected("suback-property-length-with-idle-byte", V5, SERVER, "90 0c 0001 8700 2600016b000176 00", MalformedPacket, "MQTT-1.5.5-1"),
    Rejected("suback-property-length-too-long", V5, SERVER, "90 0b 0001 7f 2600016b000176 00", MalformedPacket, _VIOLATION),
    Rejected("suback-property-cut", V5, SERVER, "90 09 0001 05 2600016b00 00", MalformedPacket, _VIOLATION),
    Rejected("unsubscribe-property-length-without-end", V5, CLIENT, "a2 0b 0001 ffffffff 0003612f62", MalformedPacket, _VIOLATION),
    Rejected("unsubscribe-property-length-with-idle-byte", V5, CLIENT, "a2 10 0001 8700 2600016b000176 0003612f62", MalformedPacket, "MQTT-1.5.5-1"),
    Rejected("unsubscribe-property-length-too-long", V5, CLIENT, "a2 0f 0001 7f 2600016b000176 0003612f62", MalformedPacket, _VIOLATION),
    Rejected("unsubscribe-property-cut", V5, CLIENT, "a2 0d 0001 05 2600016b00 0003612f62", MalformedPacket, _VIOLATION),
    Rejected("unsuback-property-length-without-end", V5, SERVER, "b0 07 0001 ffffffff 00", MalformedPacket, _VIOLATION),
    Rejected("unsuback-property-length-with-idle-byte", V5, SERVER, "b0 0c 0001 8700 2600016b000176 00", MalformedPacket, "MQTT-1.5.5-1"),
    Rejected("unsuback-property-length-too-long", V5, SERVER, "b0 0b 0001 7f 2600016b000176 00", MalformedPacket, _VIOLATION),
    Rejected("unsuback-property-cut", V5, SERVER, "b0 09 0001 05 2600016b00 00", MalformedPacket, _VIOLATION),
    Rejected("disconnect-property-length-without-end", V5, EITHER, "e0 05 00 ffffffff", MalformedPacket, _VIOLATION),
    Rejected("disconnect-property-length-with-idle-byte", V5, EITHER, "e0 0a 00 8700 2600016b000176", MalformedPacket, "MQTT-1.5.5-1"),
    Rejected("disconnect-property-length-too-long", V5, EITHER, "e0 09 00 7f 2600016b000176", MalformedPacket, _VIOLATION),
    Rejected("disconnect-property-cut", V5, EITHER, "e0 07 00 05 2600016b00", MalformedPacket, _VIOLATION),
    Rejected("auth-property-length-without-end", V5, EITHER, "f0 05 18 ffffffff", MalformedPacket, _VIOLATION),
    Rejected("auth-property-length-with-idle-byte", V5, EITHER, "f0 0a 18 8700 2600016b000176", MalformedPacket, "MQTT-1.5.5-1"),
    Rejected("auth-property-length-too-long", V5, EITHER, "f0 09 18 7f 2600016b000176", MalformedPacket, _VIOLATION),
    Rejected("auth-property-cut", V5, EITHER, "f0 07 18 05 2600016b00", MalformedPacket, _VIOLATION),
    Rejected("connect-property-length-of-five-bytes", V5, CLIENT, "10 12 00044d515454 05 02 0000 8080808001 000163", MalformedPacket, _VIOLATION),
    Rejected("connect-property-identifier-alone", V5, CLIENT, "10 0f 00044d515454 05 02 0000 01 11 000163", MalformedPacket, _VIOLATION),
    Rejected("publish-property-identifier-with-idle-byte", V5, EITHER, "30 09 0003612f62 03 8100 01", MalformedPacket, "MQTT-1.5.5-1"),
    Rejected("publish-property-identifier-of-two-bytes", V5, EITHER, "30 09 0003612f62 03 8101 00", MalformedPacket, _VIOLATION),
    Rejected("connect-session-expiry-cut", V5, CLIENT, "10 12 00044d515454 05 02 0000 04 11000000 000163", MalformedPacket, _VIOLATION),
    Rejected("connect-receive-maximum-cut", V5, CLIENT, "10 10 00044d515454 05 02 0000 02 2100 000163", MalformedPacket, _VIOLATION),
    Rejected("connect-maximum-packet-size-cut", V5, CLIENT, "10 12 00044d515454 05 02 0000 04 27000400 000163", MalformedPacket, _VIOLATION),
    Rejected("connect-authentication-method-cut", V5, CLIENT, "10 12 00044d515454 05 02 0000 04 1500024d 000163", MalformedPacket, _VIOLATION),
    Rejected("connect-authentication-data-cut", V5, CLIENT, "10 10 00044d515454 05 02 0000 02 1600 000163", MalformedPacket, _VIOLATION),
    Rejected("publish-message-expiry-cut", V5, EITHER, "30 0a 0003612f62 04 0200000e", MalformedPacket, _VIOLATION),
    Rejected("publish-content-type-cut", V5, EITHER, "30 0b 0003612f62 05 030003612f", MalformedPacket, _VIOLATION),
    Rejected("publish-correlation-data-cut", V5, EITHER, "30 0a 0003612f62 04 09000200", MalformedPacket, _VIOLATION),
    Rejected("publish-topic-alias-cut", V5, EITHER, "30 08 0003612f62 02 2300", MalformedPacket, _VIOLATION),
    Rejected("publish-user-property-cut", V5, EITHER, "30 0a 0003612f62 04 2600016b", MalformedPacket, _VIOLATION),
    Rejected("subscribe-subscription-id-cut", V5, CLIENT, "82 0b 0001 02 0b80 0003612f62 00", MalformedPacket, _VIOLATION),
    Rejected("will-will-delay-cut", V5, CLIENT, "10 19 00044d515454 05 06 0000 00 000163 04 18000000 000177 000178", MalformedPacket, _VIOLATION),
    Rejected("connack-assigned-client-id-cut", V5, SERVER, "20 06 00 00 03 120002", MalformedPacket, _VIOLATION),
    Rejected("connack-server-keep-alive-cut", V5, SERVER, "20 05 00 00 02 131e", MalformedPacket, _VIOLATION),
    Rejected("subscribe-subscription-id-of-five-bytes", V5, CLIENT, "82 0f 0001 06 0b8080808001 0003612f62 00", MalformedPacket, _VIOLATION),
    Rejected("subscribe-subscription-id-with-idle-byte", V5, CLIENT, "82 0c 0001 03 0b8100 0003612f62 00", MalformedPacket, "MQTT-1.5.5-1"),
    # Strings of properties that are no strings.
    Rejected("connect-authentication-method-not-utf8", V5, CLIENT, "10 12 00044d515454 05 02 0000 04 150001ff 000163", MalformedPacket, "MQTT-1.5.4-1"),
    Rejected("connect-authentication-method-null", V5, CLIENT, "10 12 00044d515454 05 02 0000 04 15000100 000163", MalformedPacket, "MQTT-1.5.4-2"),
    Rejected("connack-assigned-client-id-not-utf8", V5, SERVER, "20 07 00 00 04 120001ff", MalformedPacket, "MQTT-1.5.4-1"),
    Rejected("connack-assigned-client-id-null", V5, SERVER, "20 07 00 00 04 12000100", MalformedPacket, "MQTT-1.5.4-2"),
    Rejected("connack-response-information-not-utf8", V5, SERVER, "20 07 00 00 04 1a0001ff", MalformedPacket, "MQTT-1.5.4-1"),
    Rejected("connack-response-information-null", V5, SERVER, "20 07 00 00 04 1a000100", MalformedPacket, "MQTT-1.5.4-2"),
    Rejected("connack-server-reference-not-utf8", V5, SERVER, "20 07 00 00 04 1c0001ff", MalformedPacket, "MQTT-1.5.4-1"),
    Rejected("connack-server-reference-null", V5, SERVER, "20 07 00 00 04 1c000100", MalformedPacket, "MQTT-1.5.4-2"),
    Rejected("connack-reason-string-not-utf8", V5, SERVER, "20 07 00 00 04 1f0001ff", MalformedPacket, "MQTT-1.5.4-1"),
    Rejected("connack-reason-string-null", V5, SERVER, "20 07 00 00 04 1f000100", MalformedPacket, "MQTT-1.5.4-2"),
    Rejected("publish-content-type-not-utf8", V5, EITHER, "30 0a 0003612f62 04 030001ff", MalformedPacket, "MQTT-1.5.4-1", ("MQTT-3.3.2-19",)),
    Rejected("publish-content-type-null", V5, EITHER, "30 0a 0003612f62 04 03000100", MalformedPacket, "MQTT-1.5.4-2"),
    Rejected("publish-response-topic-not-utf8", V5, EITHER, "30 0a 0003612f62 04 080001ff", MalformedPacket, "MQTT-1.5.4-1", ("MQTT-3.3.2-13",)),
    Rejected("publish-response-topic-null", V5, EITHER, "30 0a 0003612f62 04 08000100", MalformedPacket, "MQTT-1.5.4-2"),
    Rejected("puback-reason-string-not-utf8", V5, EITHER, "40 08 0001 00 04 1f0001ff", MalformedPacket, "MQTT-1.5.4-1"),
    Rejected("puback-reason-string-null", V5, EITHER, "40 08 0001 00 04 1f000100", MalformedPacket, "MQTT-1.5.4-2"),
    Rejected("suback-reason-string-not-utf8", V5, SERVER, "90 08 0001 04 1f0001ff 00", MalformedPacket, "MQTT-1.5.4-1"),
    Rejected("suback-reason-string-null", V5, SERVER, "90 08 0001 04 1f000100 00", MalformedPacket, "MQTT-1.5.4-2"),
    Rejected("disconnect-reason-string-not-utf8", V5, EITHER, "e0 06 00 04 1f0001ff", MalformedPacket, "MQTT-1.5.4-1"),
    Rejected("disconnect-reason-string-null", V5, EITHER, "e0 06 00 04 1f000100", MalformedPacket, "MQTT-1.5.4-2"),
    Rejected("will-content-type-not-utf8", V5, CLIENT, "10 19 00044d515454 05 06 0000 00 000163 04 030001ff 000177 000178", MalformedPacket, "MQTT-1.5.4-1", ("MQTT-3.3.2-19",)),
    Rejected("will-content-type-null", V5, CLIENT, "10 19 00044d515454 05 06 0000 00 000163 04 03000100 000177 000178", MalformedPacket, "MQTT-1.5.4-2"),
    Rejected("auth-authentication-method-not-utf8", V5, EITHER, "f0 06 18 04 150001ff", MalformedPacket, "MQTT-1.5.4-1"),
    Rejected("auth-authentication-method-null", V5, EITHER, "f0 06 18 04 15000100", MalformedPacket, "MQTT-1.5.4-2"),
    Rejected("publish-content-type-surrogate", V5, EITHER, "30 0c 0003612f62 06 030003eda080", MalformedPacket, "MQTT-1.5.4-1"),
    Rejected("publish-user-property-name-not-utf8", V5, EITHER, "30 0d 0003612f62 07 260001ff000176", MalformedPacket, "MQTT-1.5.4-1", ("MQTT-1.5.7-1",)),
    Rejected("publish-user-property-value-null", V5, EITHER, "30 0d 0003612f62 07 2600016b000100", MalformedPacket, "MQTT-1.5.4-2", ("MQTT-1.5.7-1",)),
    # PUBLISH: QoS, packet id, topic name.
    Rejected("publish-both-qos-bits", V5, EITHER, "36 0a 0003612f62 0001 00 6869", MalformedPacket, "MQTT-3.3.1-4"),
    Rejected("publish-all-flags", V5, EITHER, "3f 0a 0003612f62 0001 00 6869", MalformedPacket, "MQTT-3.3.1-4"),
    Rejected("publish-dup-at-qos0", V5, EITHER, "38 08 0003612f62 00 6869", MalformedPacket, "MQTT-3.3.1-2"),
    Rejected("publish-retained-dup-at-qos0", V5, EITHER, "39 08 0003612f62 00 6869", MalformedPacket, "MQTT-3.3.1-2"),
    Rejected("publish-qos1-id-0-of-a-client", V5, CLIENT, "32 0a 0003612f62 0000 00 6869", ProtocolError, "MQTT-2.2.1-3"),
    Rejected("publish-qos1-id-0-of-a-server", V5, SERVER, "32 0a 0003612f62 0000 00 6869", ProtocolError, "MQTT-2.2.1-4"),
    Rejected("publish-qos2-id-0-of-a-client", V5, CLIENT, "34 0a 0003612f62 0000 00 6869", ProtocolError, "MQTT-2.2.1-3"),
    Rejected("publish-qos2-id-0-of-a-server", V5, SERVER, "34 0a 0003612f62 0000 00 6869", ProtocolError, "MQTT-2.2.1-4"),
    Rejected("publish-qos1-without-id", V5, EITHER, "32 05 0003612f62", MalformedPacket, _VIOLATION),
    Rejected("publish-qos1-half-an-id", V5, EITHER, "32 06 0003612f62 01", MalformedPacket, _VIOLATION),
    Rejected("publish-qos1-without-property-length", V5, EITHER, "32 07 0003612f62 0001", MalformedPacket, _VIOLATION),
    Rejected("publish-empty", V5, EITHER, "30 00", MalformedPacket, _VIOLATION),
    Rejected("publish-half-a-length", V5, EITHER, "30 01 00", MalformedPacket, _VIOLATION),
    Rejected("publish-without-property-length", V5, EITHER, "30 05 0003612f62", MalformedPacket, _VIOLATION),
    Rejected("publish-topic-beyond-the-packet", V5, EITHER, "30 04 0003612f", MalformedPacket, _VIOLATION, ("MQTT-3.3.2-1",)),
    Rejected("publish-no-topic-and-no-alias", V5, EITHER, "30 05 0000 00 6869", ProtocolError, _VIOLATION),
    Rejected("publish-topic-hash", V5, EITHER, "30 08 0003612f23 00 6869", ProtocolError, "MQTT-3.3.2-2", ("MQTT-4.7.0-1",), reason=0x90),
    Rejected("publish-topic-plus", V5, EITHER, "30 08 00032b2f61 00 6869", ProtocolError, "MQTT-3.3.2-2", ("MQTT-4.7.0-1",), reason=0x90),
    Rejected("publish-topic-hash-with-alias", V5, EITHER, "30 09 000123 03 230001 6869", ProtocolError, "MQTT-3.3.2-2", reason=0x90),
    Rejected("publish-topic-null", V5, EITHER, "30 06 0003610062 00", MalformedPacket, "MQTT-1.5.4-2", ("MQTT-4.7.3-2",)),
    Rejected("publish-topic-latin1", V5, EITHER, "30 04 0001e9 00", MalformedPacket, "MQTT-1.5.4-1", ("MQTT-3.3.2-1",)),
    Rejected("publish-topic-surrogate", V5, EITHER, "30 06 0003eda080 00", MalformedPacket, "MQTT-1.5.4-1"),
    Rejected("publish-topic-surrogate-pair", V5, EITHER, "30 09 0006eda081edb080 00", MalformedPacket, "MQTT-1.5.4-1"),
    Rejected("publish-topic-overlong-null", V5, EITHER, "30 05 0002c080 00", MalformedPacket, "MQTT-1.5.4-1"),
    Rejected("publish-topic-overlong-slash", V5, EITHER, "30 06 0003e080af 00", MalformedPacket, "MQTT-1.5.4-1"),
    Rejected("publish-topic-half-a-letter", V5, EITHER, "30 05 0002e282 00", MalformedPacket, "MQTT-1.5.4-1"),
    Rejected("publish-topic-beyond-unicode", V5, EITHER, "30 07 0004f4908080 00", MalformedPacket, "MQTT-1.5.4-1"),
    # The acknowledgements: packet id, reason code, size.
    Rejected("puback-id-0", V5, EITHER, "40 02 0000", ProtocolError, "MQTT-2.2.1-5"),
    Rejected("puback-empty", V5, EITHER, "40 00", MalformedPacket, _VIOLATION),
    Rejected("puback-half-an-id", V5, EITHER, "40 01 01", MalformedPacket, _VIOLATION),
    Rejected("puback-trailing-byte", V5, EITHER, "40 05 0001 00 00 00", MalformedPacket, _VIOLATION),
    Rejected("pubrec-id-0", V5, EITHER, "50 02 0000", ProtocolError, "MQTT-2.2.1-5"),
    Rejected("pubrec-empty", V5, EITHER, "50 00", MalformedPacket, _VIOLATION),
    Rejected("pubrec-half-an-id", V5, EITHER, "50 01 01", MalformedPacket, _VIOLATION),
    Rejected("pubrec-trailing-byte", V5, EITHER, "50 05 0001 00 00 00", MalformedPacket, _VIOLATION),
    Rejected("pubrel-id-0", V5, EITHER, "62 02 0000", ProtocolError, "MQTT-2.2.1-5"),
    Rejected("pubrel-empty", V5, EITHER, "62 00", MalformedPacket, _VIOLATION),
    Rejected("pubrel-half-an-id", V5, EITHER, "62 01 01", MalformedPacket, _VIOLATION),
    Rejected("pubrel-trailing-byte", V5, EITHER, "62 05 0001 00 00 00", MalformedPacket, _VIOLATION),
    Rejected("pubcomp-id-0", V5, EITHER, "70 02 0000", ProtocolError, "MQTT-2.2.1-5"),
    Rejected("pubcomp-empty", V5, EITHER, "70 00", MalformedPacket, _VIOLATION),
    Rejected("pubcomp-half-an-id", V5, EITHER, "70 01 01", MalformedPacket, _VIOLATION),
    Rejected("pubcomp-trailing-byte", V5, EITHER, "70 05 0001 00 00 00", MalformedPacket, _VIOLATION),
    # SUBSCRIBE and UNSUBSCRIBE: packet id, filters, options.
    Rejected("subscribe-id-0", V5, CLIENT, "82 09 0000 00 0003612f62 00", ProtocolError, "MQTT-2.2.1-3"),
    Rejected("subscribe-nothing", V5, CLIENT, "82 03 0001 00", ProtocolError, "MQTT-3.8.3-2"),
    Rejected("subscribe-empty", V5, CLIENT, "82 00", MalformedPacket, _VIOLATION),
    Rejected("subscribe-without-property-length", V5, CLIENT, "82 02 0001", MalformedPacket, _VIOLATION),
    Rejected("subscribe-without-options", V5, CLIENT, "82 06 0001 00 000161", MalformedPacket, _VIOLATION),
    Rejected("subscribe-qos-3", V5, CLIENT, "82 07 0001 00 000161 03", ProtocolError, _VIOLATION),
    Rejected("subscribe-retain-handling-3", V5, CLIENT, "82 07 0001 00 000161 30", ProtocolError, _VIOLATION),
    Rejected("subscribe-reserved-bit", V5, CLIENT, "82 07 0001 00 000161 40", MalformedPacket, "MQTT-3.8.3-5"),
    Rejected("subscribe-highest-reserved-bit", V5, CLIENT, "82 07 0001 00 000161 81", MalformedPacket, "MQTT-3.8.3-5"),
    Rejected("subscribe-second-filter-bad", V5, CLIENT, "82 0b 0001 00 000161 00 000162 c0", MalformedPacket, "MQTT-3.8.3-5"),
    Rejected("subscribe-no-local-on-shared", V5, CLIENT, "82 10 0001 00 000a2473686172652f672f61 04", ProtocolError, "MQTT-3.8.3-4"),
    Rejected("subscribe-filter-empty", V5, CLIENT, "82 06 0001 00 0000 00", ProtocolError, "MQTT-4.7.3-1", reason=0x8F),
    Rejected("unsubscribe-filter-empty", V5, CLIENT, "a2 05 0001 00 0000", ProtocolError, "MQTT-4.7.3-1", reason=0x8F),
    Rejected("subscribe-filter-a#", V5, CLIENT, "82 08 0001 00 00026123 00", ProtocolError, "MQTT-4.7.1-1", reason=0x8F),
    Rejected("unsubscribe-filter-a#", V5, CLIENT, "a2 07 0001 00 00026123", ProtocolError, "MQTT-4.7.1-1", reason=0x8F),
    Rejected("subscribe-filter-#/a", V5, CLIENT, "82 09 0001 00 0003232f61 00", ProtocolError, "MQTT-4.7.1-1", reason=0x8F),
    Rejected("subscribe-filter-a/#/", V5, CLIENT, "82 0a 0001 00 0004612f232f 00", ProtocolError, "MQTT-4.7.1-1", reason=0x8F),
    Rejected("subscribe-filter-##", V5, CLIENT, "82 08 0001 00 00022323 00", ProtocolError, "MQTT-4.7.1-1", reason=0x8F),
    Rejected("subscribe-filter-+a", V5, CLIENT, "82 08 0001 00 00022b61 00", ProtocolError, "MQTT-4.7.1-2", reason=0x8F),
    Rejected("unsubscribe-filter-+a", V5, CLIENT, "a2 07 0001 00 00022b61", ProtocolError, "MQTT-4.7.1-2", reason=0x8F),
    Rejected("subscribe-filter-a/b+", V5, CLIENT, "82 0a 0001 00 0004612f622b 00", ProtocolError, "MQTT-4.7.1-2", reason=0x8F),
    Rejected("subscribe-filter-share-without-filter", V5, CLIENT, "82 0e 0001 00 00082473686172652f67 00", ProtocolError, "MQTT-4.8.2-2", reason=0x8F),
    Rejected("unsubscribe-filter-share-without-filter", V5, CLIENT, "a2 0d 0001 00 00082473686172652f67", ProtocolError, "MQTT-4.8.2-2", reason=0x8F),
    Rejected("subscribe-filter-share-with-empty-filter", V5, CLIENT, "82 0f 0001 00 00092473686172652f672f 00", ProtocolError, "MQTT-4.8.2-2", reason=0x8F),
    Rejected("subscribe-filter-share-without-name", V5, CLIENT, "82 0f 0001 00 00092473686172652f2f61 00", ProtocolError, "MQTT-4.8.2-1", reason=0x8F),
    Rejected("unsubscribe-filter-share-without-name", V5, CLIENT, "a2 0e 0001 00 00092473686172652f2f61", ProtocolError, "MQTT-4.8.2-1", reason=0x8F),
    Rejected("subscribe-filter-share-name-plus", V5, CLIENT, "82 10 0001 00 000a2473686172652f2b2f61 00", ProtocolError, "MQTT-4.8.2-2", reason=0x8F),
    Rejected("subscribe-filter-share-name-hash", V5, CLIENT, "82 11 0001 00 000b2473686172652f67232f61 00", ProtocolError, "MQTT-4.8.2-2", reason=0x8F),
    Rejected("subscribe-filter-share-of-a-bad-filter", V5, CLIENT, "82 11 0001 00 000b2473686172652f672f6123 00", ProtocolError, "MQTT-4.7.1-1", reason=0x8F),
    Rejected("subscribe-filter-share-alone", V5, CLIENT, "82 0d 0001 00 00072473686172652f 00", ProtocolError, "MQTT-4.8.2-1", reason=0x8F),
    Rejected("subscribe-filter-null", V5, CLIENT, "82 08 0001 00 00026100 00", MalformedPacket, "MQTT-1.5.4-2", ("MQTT-4.7.3-2",)),
    Rejected("subscribe-filter-not-utf8", V5, CLIENT, "82 07 0001 00 0001ff 00", MalformedPacket, "MQTT-1.5.4-1", ("MQTT-3.8.3-1",)),
    Rejected("unsubscribe-id-0", V5, CLIENT, "a2 08 0000 00 0003612f62", ProtocolError, "MQTT-2.2.1-3"),
    Rejected("unsubscribe-nothing", V5, CLIENT, "a2 03 0001 00", ProtocolError, "MQTT-3.10.3-2"),
    Rejected("unsubscribe-without-property-length", V5, CLIENT, "a2 02 0001", MalformedPacket, _VIOLATION),
    Rejected("unsubscribe-cut", V5, CLIENT, "a2 07 0001 00 000161 00", MalformedPacket, _VIOLATION),
    Rejected("unsubscribe-filter-not-utf8", V5, CLIENT, "a2 06 0001 00 0001ff", MalformedPacket, "MQTT-1.5.4-1", ("MQTT-3.10.3-1",)),
    # What only a server sends.
    Rejected("connack-reserved-bit", V5, SERVER, "20 03 02 00 00", MalformedPacket, "MQTT-3.2.2-1"),
    Rejected("connack-highest-reserved-bit", V5, SERVER, "20 03 81 00 00", MalformedPacket, "MQTT-3.2.2-1"),
    Rejected("connack-refusal-with-session", V5, SERVER, "20 03 01 87 00", ProtocolError, "MQTT-3.2.2-6"),
    Rejected("connack-short", V5, SERVER, "20 01 00", MalformedPacket, _VIOLATION),
    Rejected("connack-of-311", V5, SERVER, "20 02 00 00", MalformedPacket, _VIOLATION),
    Rejected("connack-trailing-byte", V5, SERVER, "20 04 00 00 00 00", MalformedPacket, _VIOLATION),
    Rejected("suback-nothing", V5, SERVER, "90 03 0001 00", ProtocolError, "MQTT-3.8.4-6"),
    Rejected("suback-id-0", V5, SERVER, "90 04 0000 00 00", ProtocolError, "MQTT-2.2.1-6"),
    Rejected("suback-of-311", V5, SERVER, "90 02 0001", MalformedPacket, _VIOLATION),
    Rejected("unsuback-nothing", V5, SERVER, "b0 03 0001 00", ProtocolError, "MQTT-3.11.3-2"),
    Rejected("unsuback-id-0", V5, SERVER, "b0 04 0000 00 00", ProtocolError, "MQTT-2.2.1-6"),
    Rejected("unsuback-of-311", V5, SERVER, "b0 02 0001", MalformedPacket, _VIOLATION),
    # DISCONNECT and AUTH: who may send which reason code, size.
    Rejected("disconnect-with-will-of-a-server", V5, SERVER, "e0 01 04", ProtocolError, "MQTT-3.14.2-1"),
    Rejected("disconnect-trailing-byte", V5, EITHER, "e0 03 00 00 00", MalformedPacket, _VIOLATION),
    Rejected("auth-success-of-a-client", V5, CLIENT, "f0 06 00 04 1500014d", ProtocolError, "MQTT-3.15.2-1"),
    Rejected("auth-again-of-a-server", V5, SERVER, "f0 06 19 04 1500014d", ProtocolError, "MQTT-3.15.2-1"),
    Rejected("auth-without-property-length", V5, EITHER, "f0 01 18", MalformedPacket, _VIOLATION),
    Rejected("auth-trailing-byte", V5, EITHER, "f0 07 18 04 1500014d 00", MalformedPacket, _VIOLATION),
]
# fmt: on

# An identifier that the standard does not know, in each place (2.2.2.2).
UNKNOWN: Final = [
    Rejected(
        f"{place.lower()}-unknown-property-{identifier:02x}",
        V5,
        senders_of(place),
        framed(place, f"{required(place, identifier)} {identifier:02x} 00"),
        MalformedPacket,
        _VIOLATION,
    )
    for place in PLACES
    for identifier in (0x00, 0x04, 0x2B, 0x7F)
]

# Each property in each place where it may not stand (2.2.2.2).
MISPLACED: Final = [
    Rejected(
        f"{place.lower()}-with-{found.slug}",
        V5,
        senders_of(place),
        framed(place, f"{required(place, identifier)} {found.hex}"),
        MalformedPacket,
        _VIOLATION,
    )
    for place in PLACES
    for identifier, found in PROPERTIES.items()
    if place not in found.places
]

# Each property twice where it may stand once.
REPEATED: Final = [
    Rejected(
        f"{place.lower()}-{found.slug}-twice",
        V5,
        senders_of(place, identifier),
        framed(place, f"{required(place, identifier)} {found.hex} {found.hex}"),
        ProtocolError,
        _VIOLATION,
    )
    for place in PLACES
    for identifier, found in PROPERTIES.items()
    if place in found.places and identifier != 0x26 and (place, identifier) != ("PUBLISH", 0x0B)
]

# Each property in each place where it may stand, cut behind each of its bytes; the lengths around it are right.
CUT: Final = [
    Rejected(
        f"{place.lower()}-{found.slug}-of-{kept}-bytes",
        V5,
        senders_of(place, identifier),
        framed(place, required(place, identifier) + bytes.fromhex(found.hex)[:kept].hex()),
        MalformedPacket,
        _VIOLATION,
    )
    for place in PLACES
    for identifier, found in PROPERTIES.items()
    if place in found.places
    for kept in range(1, len(bytes.fromhex(found.hex)))
]

# Each text that is no string, in each place where it may stand (1.5.4).
_TEXTS: Final = {
    **dict.fromkeys((3, 8, 18, 21, 26, 28, 31), "{:02x} 0001 {}"),
    0x26: "{:02x} 0001 6b 0001 {}",
}
NO_TEXT: Final = [
    Rejected(
        f"{place.lower()}-{PROPERTIES[identifier].slug}-with-byte-{byte}",
        V5,
        senders_of(place, identifier),
        framed(place, required(place, identifier) + form.format(identifier, byte)),
        MalformedPacket,
        clause,
    )
    for identifier, form in _TEXTS.items()
    for place in PROPERTIES[identifier].places
    for byte, clause in (("ff", "MQTT-1.5.4-1"), ("00", "MQTT-1.5.4-2"))
]

# Each property that says yes or no and says something else.
NO_BOOLEAN: Final = [
    Rejected(
        f"{place.lower()}-{PROPERTIES[identifier].slug}-{value:02x}",
        V5,
        senders_of(place, identifier),
        framed(place, f"{identifier:02x} {value:02x}"),
        ProtocolError,
        _VIOLATION,
    )
    for identifier in (0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A)
    for place in PROPERTIES[identifier].places
    for value in (2, 255)
]

# Packet -> the clause on its reason codes, and the packet around one.
_CODES: Final = {
    "CONNACK": ("MQTT-3.2.2-8", "20 03 00 {:02x} 00"),
    "PUBACK": ("MQTT-3.4.2-1", "40 03 0001 {:02x}"),
    "PUBREC": ("MQTT-3.5.2-1", "50 03 0001 {:02x}"),
    "PUBREL": ("MQTT-3.6.2-1", "62 03 0001 {:02x}"),
    "PUBCOMP": ("MQTT-3.7.2-1", "70 03 0001 {:02x}"),
    "SUBACK": ("MQTT-3.9.3-2", "90 04 0001 00 {:02x}"),
    "UNSUBACK": ("MQTT-3.11.3-2", "b0 04 0001 00 {:02x}"),
    "DISCONNECT": ("MQTT-3.14.2-1", "e0 01 {:02x}"),
    "AUTH": ("MQTT-3.15.2-1", "f0 06 {:02x} 04 1500014d"),
}

# Reason codes that a packet does not have: each code that another packet has, and some that none has.
BAD_CODES: Final = [
    Rejected(f"{packet.lower()}-{code:02x}", V5, senders_of(packet), wire.format(code), ProtocolError, clause)
    for packet, (clause, wire) in _CODES.items()
    for code in sorted({0x03, 0x7F, 0xA3, 0xFF}.union(*REASON_CODES.values()))
    if code not in REASON_CODES[packet]
]

# Reason codes of DISCONNECT that only a server sends.
SERVER_CODES: Final = [
    Rejected(f"disconnect-{code:02x}-of-a-client", V5, CLIENT, f"e0 01 {code:02x}", ProtocolError, "MQTT-3.14.2-1")
    for code in REASON_CODES["DISCONNECT"]
    if code not in CLIENT_DISCONNECT_CODES
]

ALL_REJECTED: Final = [
    *REJECTED,
    *UNKNOWN,
    *MISPLACED,
    *REPEATED,
    *CUT,
    *NO_TEXT,
    *NO_BOOLEAN,
    *BAD_CODES,
    *SERVER_CODES,
]

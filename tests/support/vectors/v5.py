"""Good packets of MQTT 5.0, in both directions, as plain data (`plain_v5`). The bad ones are in `rejected_v5.py`.

The bytes are only read where the packet does not say all that they say: a property at its default, user properties that
nobody uses, another order than ours. `test_vectors_and_paho.py` reads every line with another implementation of MQTT 5.
"""
# A line for each packet.
# ruff: noqa: E501

from collections.abc import Mapping
from typing import Final

from support.properties_v5 import (
    CLIENT_DISCONNECT_CODES,
    PLACES,
    PROPERTIES,
    REASON_CODES,
    Properties,
    framed,
    required,
    senders_of,
)
from support.vectors.plain_v5 import Request, Will, packet_of
from support.vectors.vector import CLIENT, EITHER, SERVER, V5, Vector

_ONLY_READ: Final = (
    *[f"{kind}-all-properties" for kind in ("connack", "puback", "pubrec", "pubrel", "pubcomp")],
    *[f"{kind}-all-properties" for kind in ("subscribe", "suback", "unsubscribe", "unsuback", "auth")],
    *[f"{kind}-with-reason-string" for kind in ("puback", "pubrec", "pubrel", "pubcomp", "suback", "unsuback")],
    *[f"{kind}-with-user-property" for kind in ("puback", "pubrec", "pubrel", "pubcomp", "connack", "disconnect")],
    *[f"{kind}-with-user-property" for kind in ("subscribe", "suback", "unsubscribe", "unsuback", "auth")],
    "connect-will-all-properties",
    "connect-everything",
    "publish-all-properties-of-a-client",
    "publish-all-properties-of-a-server",
    "disconnect-all-properties-of-a-client",
    "disconnect-all-properties-of-a-server",
    "connack-with-maximum-qos",
    "connack-maximum-qos-0",
    "connack-with-retain-available",
    "connack-with-wildcard-subscription-available",
    "connack-with-subscription-identifiers-available",
    "connect-session-expiry-0",
    "connect-receive-maximum-65535",
    "connect-topic-alias-maximum-0",
    "connect-request-problem-information-1",
    "connect-request-response-information-0",
    "connect-will-delay-0",
)


def _vector(
    name: str, senders: tuple[str, ...], hex: str, plain: Mapping[str, object], proves: tuple[str, ...] = ()
) -> Vector:
    return Vector(name, V5, senders, hex, packet_of(plain), proves, is_written=name not in _ONLY_READ, plain=plain)


def packet_with(place: str, identifier: int) -> Mapping[str, object]:
    """What the shortest packet with the example of a property says; see `framed`."""
    properties: Properties = [(identifier, PROPERTIES[identifier].example)]
    if required(place, identifier):
        properties.insert(0, (0x15, PROPERTIES[0x15].example))
    if place == "WILL":
        return {"type": "CONNECT", "client_id": "c", "will": Will("w", b"x", properties=properties)}
    fields: Mapping[str, Mapping[str, object]] = {
        "CONNECT": {"client_id": "c"},
        "CONNACK": {},
        "PUBLISH": {"topic_name": "a/b"},
        "SUBSCRIBE": {"packet_id": 1, "requests": [Request("a/b")]},
        "SUBACK": {"packet_id": 1, "reasons": [0]},
        "UNSUBSCRIBE": {"packet_id": 1, "topic_filters": ["a/b"]},
        "UNSUBACK": {"packet_id": 1, "reasons": [0]},
        "DISCONNECT": {},
        "AUTH": {"reason": 0x18},
    }
    return {"type": place, **fields.get(place, {"packet_id": 1}), "properties": properties}


# fmt: off
VECTORS: Final = [
    # CONNECT: shortest, flags, will, all properties.
    _vector("connect-shortest", CLIENT, "10 0d 00044d515454 05 02 0000 00 0000", {"type": "CONNECT", "client_id": ""}, ("MQTT-3.1.3-3", "MQTT-2.2.2-1")),
    _vector("connect-keep-alive", CLIENT, "10 0f 00044d515454 05 02 003c 00 00026331", {"type": "CONNECT", "client_id": "c1", "keep_alive_s": 60}),
    _vector("connect-keep-alive-longest", CLIENT, "10 0e 00044d515454 05 02 ffff 00 000163", {"type": "CONNECT", "client_id": "c", "keep_alive_s": 65_535}),
    _vector("connect-without-clean-start", CLIENT, "10 0e 00044d515454 05 00 0000 00 000163", {"type": "CONNECT", "client_id": "c", "clean_start": False}),
    _vector(
        "connect-client-id-of-23-bytes",
        CLIENT,
        "10 24 00044d515454 05 02 0000 00 00173031323334353637383941424358595a61626378797a30",
        {"type": "CONNECT", "client_id": "0123456789ABCXYZabcxyz0"},
        ("MQTT-3.1.3-5",),
    ),
    _vector("connect-client-id-beyond-the-basic-plane", CLIENT, "10 11 00044d515454 05 02 0000 00 0004f09f94a5", {"type": "CONNECT", "client_id": "🔥"}, ("MQTT-3.1.3-4",)),
    _vector("connect-user-name", CLIENT, "10 12 00044d515454 05 82 0000 00 000163 00026a6f", {"type": "CONNECT", "client_id": "c", "user_name": "jo"}, ("MQTT-3.1.2-17", "MQTT-3.1.2-18")),
    _vector("connect-password-without-user-name", CLIENT, "10 12 00044d515454 05 42 0000 00 000163 00027077", {"type": "CONNECT", "client_id": "c", "password": b"pw"}, ("MQTT-3.1.2-16", "MQTT-3.1.2-19")),
    _vector(
        "connect-password-is-any-bytes",
        CLIENT,
        "10 17 00044d515454 05 c2 0000 00 000163 00016a 000400fffe80",
        {"type": "CONNECT", "client_id": "c", "user_name": "j", "password": b"\x00\xff\xfe\x80"},
        ("MQTT-3.1.2-19",),
    ),
    _vector("connect-user-name-and-password-empty", CLIENT, "10 12 00044d515454 05 c2 0000 00 000163 0000 0000", {"type": "CONNECT", "client_id": "c", "user_name": "", "password": b""}),
    _vector("connect-will", CLIENT, "10 15 00044d515454 05 06 0000 00 000163 00 000177 000178", {"type": "CONNECT", "client_id": "c", "will": Will("w", b"x")}, ("MQTT-3.1.2-9",)),
    _vector("connect-will-empty-payload", CLIENT, "10 14 00044d515454 05 26 0000 00 000163 00 000177 0000", {"type": "CONNECT", "client_id": "c", "will": Will("w", b"", 0, True)}),
    _vector("connect-will-qos1", CLIENT, "10 15 00044d515454 05 0e 0000 00 000163 00 000177 000178", {"type": "CONNECT", "client_id": "c", "will": Will("w", b"x", 1, False)}, ("MQTT-3.1.2-12",)),
    _vector("connect-will-qos2-retained", CLIENT, "10 15 00044d515454 05 36 0000 00 000163 00 000177 000178", {"type": "CONNECT", "client_id": "c", "will": Will("w", b"x", 2, True)}, ("MQTT-3.1.2-12",)),
    _vector(
        "connect-all-properties",
        CLIENT,
        (
            "10 39 00044d515454 05 02 0000 2b 110000003c 21000a 2700000400 220005 1901 1700 2600016b000176 "
            "2600016b000177 1500014d 1600020001 000163"
        ),
        {
            "type": "CONNECT",
            "client_id": "c",
            "properties": [
                (0x11, 60),
                (0x21, 10),
                (0x27, 1_024),
                (0x22, 5),
                (0x19, 1),
                (0x17, 0),
                (0x26, ("k", "v")),
                (0x26, ("k", "w")),
                (0x15, "M"),
                (0x16, b"\x00\x01"),
            ],
        },
    ),
    _vector(
        "connect-will-all-properties",
        CLIENT,
        (
            "10 40 00044d515454 05 06 0000 00 000163 2b 1800000005 0101 0200000e10 030003612f78 080003722f31 "
            "09000200ff 2600016b000176 26000161000162 000177 000178"
        ),
        {
            "type": "CONNECT",
            "client_id": "c",
            "will": Will(
                "w",
                b"x",
                properties=[
                    (0x18, 5),
                    (0x01, 1),
                    (0x02, 3_600),
                    (0x03, "a/x"),
                    (0x08, "r/1"),
                    (0x09, b"\x00\xff"),
                    (0x26, ("k", "v")),
                    (0x26, ("a", "b")),
                ],
            ),
        },
        ("MQTT-3.1.3-10",),
    ),
    _vector(
        "connect-everything",
        CLIENT,
        (
            "10 77 00044d515454 05 f4 001e 2b 110000003c 21000a 2700000400 220005 1901 1700 2600016b000176 "
            "2600016b000177 1500014d 1600020001 000163 2b 1800000005 0101 0200000e10 030003612f78 "
            "080003722f31 09000200ff 2600016b000176 26000161000162 0003772f31 000300c3a9 00026a6f 00027077"
        ),
        {
            "type": "CONNECT",
            "client_id": "c",
            "clean_start": False,
            "keep_alive_s": 30,
            "will": Will(
                "w/1",
                b"\x00\xc3\xa9",
                2,
                True,
                properties=[
                    (0x18, 5),
                    (0x01, 1),
                    (0x02, 3_600),
                    (0x03, "a/x"),
                    (0x08, "r/1"),
                    (0x09, b"\x00\xff"),
                    (0x26, ("k", "v")),
                    (0x26, ("a", "b")),
                ],
            ),
            "user_name": "jo",
            "password": b"pw",
            "properties": [
                (0x11, 60),
                (0x21, 10),
                (0x27, 1_024),
                (0x22, 5),
                (0x19, 1),
                (0x17, 0),
                (0x26, ("k", "v")),
                (0x26, ("k", "w")),
                (0x15, "M"),
                (0x16, b"\x00\x01"),
            ],
        },
        ("MQTT-3.1.3-1",),
    ),
    # CONNACK.
    _vector("connack", SERVER, "20 03 00 00 00", {"type": "CONNACK"}, ("MQTT-2.2.2-1",)),
    _vector("connack-session-present", SERVER, "20 03 01 00 00", {"type": "CONNACK", "session_present": True}),
    _vector(
        "connack-all-properties",
        SERVER,
        (
            "20 45 00 00 42 110000003c 21000a 2401 2501 2700000400 1200026339 220005 1f00026e6f "
            "2600016b000176 2801 2901 2a01 13001e 1a0002722f 1c0003683a31 1500014d 1600020001"
        ),
        {
            "type": "CONNACK",
            "properties": [
                (0x11, 60),
                (0x21, 10),
                (0x24, 1),
                (0x25, 1),
                (0x27, 1_024),
                (0x12, "c9"),
                (0x22, 5),
                (0x1F, "no"),
                (0x26, ("k", "v")),
                (0x28, 1),
                (0x29, 1),
                (0x2A, 1),
                (0x13, 30),
                (0x1A, "r/"),
                (0x1C, "h:1"),
                (0x15, "M"),
                (0x16, b"\x00\x01"),
            ],
        },
    ),
    *[
        _vector(
            f"connack-{code:02x}",
            SERVER,
            f"20 03 00 {code:02x} 00",
            {"type": "CONNACK", "reason": code},
            ("MQTT-3.2.2-8",),
        )
        for code in REASON_CODES["CONNACK"][1:]
    ],
    # PUBLISH.
    _vector("publish-shortest", EITHER, "30 04 000161 00", {"type": "PUBLISH", "topic_name": "a"}, ("MQTT-2.2.1-2", "MQTT-2.2.2-1")),
    _vector("publish-qos0", EITHER, "30 08 0003612f62 00 6869", {"type": "PUBLISH", "topic_name": "a/b", "payload": b"hi"}),
    _vector("publish-retained", EITHER, "31 08 0003612f62 00 6869", {"type": "PUBLISH", "topic_name": "a/b", "payload": b"hi", "retain": True}),
    _vector("publish-qos1", EITHER, "32 0a 0003612f62 0001 00 6869", {"type": "PUBLISH", "topic_name": "a/b", "payload": b"hi", "qos": 1, "packet_id": 1}),
    _vector("publish-qos1-again", EITHER, "3a 0a 0003612f62 0001 00 6869", {"type": "PUBLISH", "topic_name": "a/b", "payload": b"hi", "qos": 1, "packet_id": 1, "dup": True}),
    _vector("publish-qos2", EITHER, "34 0a 0003612f62 ffff 00 6869", {"type": "PUBLISH", "topic_name": "a/b", "payload": b"hi", "qos": 2, "packet_id": 65_535}),
    _vector("publish-qos2-retained-again", EITHER, "3d 0a 0003612f62 8000 00 6869", {"type": "PUBLISH", "topic_name": "a/b", "payload": b"hi", "qos": 2, "packet_id": 32_768, "dup": True, "retain": True}),
    _vector("publish-byte-order-mark-is-kept", EITHER, "30 07 0004efbbbf61 00", {"type": "PUBLISH", "topic_name": "\ufeffa"}, ("MQTT-1.5.4-3",)),
    _vector("publish-payload-that-looks-like-packets", EITHER, "30 08 000161 00 c000e000", {"type": "PUBLISH", "topic_name": "a", "payload": b"\xc0\x00\xe0\x00"}),
    _vector("publish-alias-and-topic", EITHER, "30 0b 0003612f62 03 230001 6869", {"type": "PUBLISH", "topic_name": "a/b", "payload": b"hi", "properties": [(0x23, 1)]}),
    _vector("publish-alias-alone", EITHER, "30 08 0000 03 230001 6869", {"type": "PUBLISH", "topic_name": "", "payload": b"hi", "properties": [(0x23, 1)]}),
    _vector("publish-alias-highest", EITHER, "32 0a 0000 0007 03 23ffff 6869", {"type": "PUBLISH", "topic_name": "", "payload": b"hi", "qos": 1, "packet_id": 7, "properties": [(0x23, 65_535)]}),
    _vector("publish-payload-format-0", EITHER, "30 0a 0003612f62 02 0100 6869", {"type": "PUBLISH", "topic_name": "a/b", "payload": b"hi", "properties": [(0x01, 0)]}),
    _vector("publish-message-expiry-0", EITHER, "30 0d 0003612f62 05 0200000000 6869", {"type": "PUBLISH", "topic_name": "a/b", "payload": b"hi", "properties": [(0x02, 0)]}),
    _vector("publish-message-expiry-highest", EITHER, "30 0d 0003612f62 05 02ffffffff 6869", {"type": "PUBLISH", "topic_name": "a/b", "payload": b"hi", "properties": [(0x02, 4_294_967_295)]}),
    _vector("publish-correlation-data-empty", EITHER, "30 0b 0003612f62 03 090000 6869", {"type": "PUBLISH", "topic_name": "a/b", "payload": b"hi", "properties": [(0x09, b"")]}),
    _vector("publish-content-type-empty", EITHER, "30 0b 0003612f62 03 030000 6869", {"type": "PUBLISH", "topic_name": "a/b", "payload": b"hi", "properties": [(0x03, "")]}),
    _vector(
        "publish-user-properties-in-order",
        EITHER,
        "30 22 0003612f62 1a 26000162000131 26000161000132 26000162000131 2600000000 6869",
        {
            "type": "PUBLISH",
            "topic_name": "a/b",
            "payload": b"hi",
            "properties": [(0x26, ("b", "1")), (0x26, ("a", "2")), (0x26, ("b", "1")), (0x26, ("", ""))],
        },
        ("MQTT-3.3.2-17", "MQTT-3.3.2-18"),
    ),
    _vector("publish-subscription-id-127", SERVER, "30 0a 0003612f62 02 0b7f 6869", {"type": "PUBLISH", "topic_name": "a/b", "payload": b"hi", "properties": [(0x0B, 127)]}, ("MQTT-1.5.5-1",)),
    _vector("publish-subscription-id-128", SERVER, "30 0b 0003612f62 03 0b8001 6869", {"type": "PUBLISH", "topic_name": "a/b", "payload": b"hi", "properties": [(0x0B, 128)]}, ("MQTT-1.5.5-1",)),
    _vector("publish-subscription-id-16383", SERVER, "30 0b 0003612f62 03 0bff7f 6869", {"type": "PUBLISH", "topic_name": "a/b", "payload": b"hi", "properties": [(0x0B, 16_383)]}, ("MQTT-1.5.5-1",)),
    _vector("publish-subscription-id-16384", SERVER, "30 0c 0003612f62 04 0b808001 6869", {"type": "PUBLISH", "topic_name": "a/b", "payload": b"hi", "properties": [(0x0B, 16_384)]}, ("MQTT-1.5.5-1",)),
    _vector("publish-subscription-id-2097151", SERVER, "30 0c 0003612f62 04 0bffff7f 6869", {"type": "PUBLISH", "topic_name": "a/b", "payload": b"hi", "properties": [(0x0B, 2_097_151)]}, ("MQTT-1.5.5-1",)),
    _vector("publish-subscription-id-2097152", SERVER, "30 0d 0003612f62 05 0b80808001 6869", {"type": "PUBLISH", "topic_name": "a/b", "payload": b"hi", "properties": [(0x0B, 2_097_152)]}, ("MQTT-1.5.5-1",)),
    _vector("publish-subscription-id-268435455", SERVER, "30 0d 0003612f62 05 0bffffff7f 6869", {"type": "PUBLISH", "topic_name": "a/b", "payload": b"hi", "properties": [(0x0B, 268_435_455)]}, ("MQTT-1.5.5-1",)),
    _vector(
        "publish-subscription-ids-of-several",
        SERVER,
        "30 0f 0003612f62 07 0b01 0bac02 0b01 6869",
        {"type": "PUBLISH", "topic_name": "a/b", "payload": b"hi", "properties": [(0x0B, 1), (0x0B, 300), (0x0B, 1)]},
        ("MQTT-3.3.4-4",),
    ),
    _vector(
        "publish-all-properties-of-a-client",
        EITHER,
        ("35 2c 0003612f62 000a 22 0101 0200000e10 230003 080003722f31 09000200ff 2600016b000176 030003612f78 6869"),
        {
            "type": "PUBLISH",
            "topic_name": "a/b",
            "payload": b"hi",
            "qos": 2,
            "packet_id": 10,
            "retain": True,
            "properties": [
                (0x01, 1),
                (0x02, 3_600),
                (0x23, 3),
                (0x08, "r/1"),
                (0x09, b"\x00\xff"),
                (0x26, ("k", "v")),
                (0x03, "a/x"),
            ],
        },
    ),
    _vector(
        "publish-all-properties-of-a-server",
        SERVER,
        (
            "32 31 0003612f62 000a 27 0101 0200000e10 230003 080003722f31 09000200ff 2600016b000176 0b01 "
            "0bc801 030003612f78 6869"
        ),
        {
            "type": "PUBLISH",
            "topic_name": "a/b",
            "payload": b"hi",
            "qos": 1,
            "packet_id": 10,
            "properties": [
                (0x01, 1),
                (0x02, 3_600),
                (0x23, 3),
                (0x08, "r/1"),
                (0x09, b"\x00\xff"),
                (0x26, ("k", "v")),
                (0x0B, 1),
                (0x0B, 200),
                (0x03, "a/x"),
            ],
        },
    ),
    _vector(
        "publish-property-length-127",
        EITHER,
        "30 8501 0003612f62 7f 03007c" + "78" * 124,
        {
            "type": "PUBLISH",
            "topic_name": "a/b",
            "properties": [
                (
                    0x03,
                    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
                )
            ],
        },
        ("MQTT-1.5.5-1",),
    ),
    _vector(
        "publish-property-length-128",
        EITHER,
        "30 8701 0003612f62 8001 03007d" + "78" * 125,
        {
            "type": "PUBLISH",
            "topic_name": "a/b",
            "properties": [
                (
                    0x03,
                    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
                )
            ],
        },
        ("MQTT-1.5.5-1",),
    ),
    _vector(
        "publish-properties-out-of-numeric-order",
        EITHER,
        "30 15 0003612f62 0d 2600016b000176 03000174 0101 6869",
        {
            "type": "PUBLISH",
            "topic_name": "a/b",
            "payload": b"hi",
            "properties": [(0x26, ("k", "v")), (0x03, "t"), (0x01, 1)],
        },
    ),
    # PUBACK.
    _vector("puback", EITHER, "40 02 0001", {"type": "PUBACK", "packet_id": 1}),
    _vector("puback-highest-id", EITHER, "40 02 ffff", {"type": "PUBACK", "packet_id": 65_535}),
    *[
        _vector(
            f"puback-{code:02x}",
            EITHER,
            f"40 03 0001 {code:02x}",
            {"type": "PUBACK", "packet_id": 1, "reason": code},
            ("MQTT-3.4.2-1",),
        )
        for code in REASON_CODES["PUBACK"][1:]
    ],
    _vector(
        "puback-all-properties",
        EITHER,
        "40 17 000a 10 13 1f00026e6f 2600016b000176 2600016b000176",
        {
            "type": "PUBACK",
            "packet_id": 10,
            "reason": 0x10,
            "properties": [(0x1F, "no"), (0x26, ("k", "v")), (0x26, ("k", "v"))],
        },
    ),
    # PUBREC.
    _vector("pubrec", EITHER, "50 02 0001", {"type": "PUBREC", "packet_id": 1}),
    _vector("pubrec-highest-id", EITHER, "50 02 ffff", {"type": "PUBREC", "packet_id": 65_535}),
    *[
        _vector(
            f"pubrec-{code:02x}",
            EITHER,
            f"50 03 0001 {code:02x}",
            {"type": "PUBREC", "packet_id": 1, "reason": code},
            ("MQTT-3.5.2-1",),
        )
        for code in REASON_CODES["PUBREC"][1:]
    ],
    _vector(
        "pubrec-all-properties",
        EITHER,
        "50 17 000a 10 13 1f00026e6f 2600016b000176 2600016b000176",
        {
            "type": "PUBREC",
            "packet_id": 10,
            "reason": 0x10,
            "properties": [(0x1F, "no"), (0x26, ("k", "v")), (0x26, ("k", "v"))],
        },
    ),
    # PUBREL.
    _vector("pubrel", EITHER, "62 02 0001", {"type": "PUBREL", "packet_id": 1}),
    _vector("pubrel-highest-id", EITHER, "62 02 ffff", {"type": "PUBREL", "packet_id": 65_535}),
    *[
        _vector(
            f"pubrel-{code:02x}",
            EITHER,
            f"62 03 0001 {code:02x}",
            {"type": "PUBREL", "packet_id": 1, "reason": code},
            ("MQTT-3.6.2-1",),
        )
        for code in REASON_CODES["PUBREL"][1:]
    ],
    _vector(
        "pubrel-all-properties",
        EITHER,
        "62 17 000a 92 13 1f00026e6f 2600016b000176 2600016b000176",
        {
            "type": "PUBREL",
            "packet_id": 10,
            "reason": 0x92,
            "properties": [(0x1F, "no"), (0x26, ("k", "v")), (0x26, ("k", "v"))],
        },
    ),
    # PUBCOMP.
    _vector("pubcomp", EITHER, "70 02 0001", {"type": "PUBCOMP", "packet_id": 1}),
    _vector("pubcomp-highest-id", EITHER, "70 02 ffff", {"type": "PUBCOMP", "packet_id": 65_535}),
    *[
        _vector(
            f"pubcomp-{code:02x}",
            EITHER,
            f"70 03 0001 {code:02x}",
            {"type": "PUBCOMP", "packet_id": 1, "reason": code},
            ("MQTT-3.7.2-1",),
        )
        for code in REASON_CODES["PUBCOMP"][1:]
    ],
    _vector(
        "pubcomp-all-properties",
        EITHER,
        "70 17 000a 92 13 1f00026e6f 2600016b000176 2600016b000176",
        {
            "type": "PUBCOMP",
            "packet_id": 10,
            "reason": 0x92,
            "properties": [(0x1F, "no"), (0x26, ("k", "v")), (0x26, ("k", "v"))],
        },
    ),
    # SUBSCRIBE: every option.
    _vector("subscribe", CLIENT, "82 09 0001 00 0003612f62 00", {"type": "SUBSCRIBE", "packet_id": 1, "requests": [Request("a/b")]}, ("MQTT-2.2.2-1",)),
    _vector("subscribe-qos1", CLIENT, "82 09 0001 00 0003612f62 01", {"type": "SUBSCRIBE", "packet_id": 1, "requests": [Request("a/b", 1)]}),
    _vector("subscribe-qos2", CLIENT, "82 09 0001 00 0003612f62 02", {"type": "SUBSCRIBE", "packet_id": 1, "requests": [Request("a/b", 2)]}),
    _vector("subscribe-no-local", CLIENT, "82 09 0001 00 0003612f62 04", {"type": "SUBSCRIBE", "packet_id": 1, "requests": [Request("a/b", no_local=True)]}),
    _vector("subscribe-retain-as-published", CLIENT, "82 09 0001 00 0003612f62 08", {"type": "SUBSCRIBE", "packet_id": 1, "requests": [Request("a/b", retain_as_published=True)]}),
    _vector("subscribe-retain-handling-1", CLIENT, "82 09 0001 00 0003612f62 10", {"type": "SUBSCRIBE", "packet_id": 1, "requests": [Request("a/b", retain_handling=1)]}),
    _vector("subscribe-retain-handling-2", CLIENT, "82 09 0001 00 0003612f62 20", {"type": "SUBSCRIBE", "packet_id": 1, "requests": [Request("a/b", retain_handling=2)]}),
    _vector("subscribe-all-options", CLIENT, "82 09 0001 00 0003612f62 2e", {"type": "SUBSCRIBE", "packet_id": 1, "requests": [Request("a/b", 2, no_local=True, retain_as_published=True, retain_handling=2)]}),
    _vector("subscribe-shared", CLIENT, "82 12 0001 00 000c2473686172652f672f612f2b 01", {"type": "SUBSCRIBE", "packet_id": 1, "requests": [Request("$share/g/a/+", 1)]}, ("MQTT-4.8.2-1", "MQTT-4.8.2-2")),
    _vector("subscribe-shared-all", CLIENT, "82 10 0001 00 000a2473686172652f672f23 1a", {"type": "SUBSCRIBE", "packet_id": 1, "requests": [Request("$share/g/#", 2, retain_as_published=True, retain_handling=1)]}),
    _vector("subscribe-shared-slash", CLIENT, "82 10 0001 00 000a2473686172652f672f2f 00", {"type": "SUBSCRIBE", "packet_id": 1, "requests": [Request("$share/g//")]}),
    _vector("subscribe-name-like-shared", CLIENT, "82 1a 0001 00 000b247368617265642f672f61 00 0006247368617265 00", {"type": "SUBSCRIBE", "packet_id": 1, "requests": [Request("$shared/g/a"), Request("$share")]}),
    _vector(
        "subscribe-many",
        CLIENT,
        "82 18 000a 00 000123 02 0003612f2b 09 0004612f2f23 10 00012b 06",
        {
            "type": "SUBSCRIBE",
            "packet_id": 10,
            "requests": [
                Request("#", 2),
                Request("a/+", 1, retain_as_published=True),
                Request("a//#", retain_handling=1),
                Request("+", 2, no_local=True),
            ],
        },
    ),
    _vector("subscribe-the-same-filter-twice", CLIENT, "82 0b 0002 00 000161 00 000161 01", {"type": "SUBSCRIBE", "packet_id": 2, "requests": [Request("a"), Request("a", 1)]}),
    _vector("subscribe-subscription-id-1", CLIENT, "82 0b 0001 02 0b01 0003612f62 00", {"type": "SUBSCRIBE", "packet_id": 1, "requests": [Request("a/b")], "properties": [(0x0B, 1)]}, ("MQTT-1.5.5-1",)),
    _vector("subscribe-subscription-id-127", CLIENT, "82 0b 0001 02 0b7f 0003612f62 00", {"type": "SUBSCRIBE", "packet_id": 1, "requests": [Request("a/b")], "properties": [(0x0B, 127)]}, ("MQTT-1.5.5-1",)),
    _vector("subscribe-subscription-id-128", CLIENT, "82 0c 0001 03 0b8001 0003612f62 00", {"type": "SUBSCRIBE", "packet_id": 1, "requests": [Request("a/b")], "properties": [(0x0B, 128)]}, ("MQTT-1.5.5-1",)),
    _vector("subscribe-subscription-id-16383", CLIENT, "82 0c 0001 03 0bff7f 0003612f62 00", {"type": "SUBSCRIBE", "packet_id": 1, "requests": [Request("a/b")], "properties": [(0x0B, 16_383)]}, ("MQTT-1.5.5-1",)),
    _vector("subscribe-subscription-id-16384", CLIENT, "82 0d 0001 04 0b808001 0003612f62 00", {"type": "SUBSCRIBE", "packet_id": 1, "requests": [Request("a/b")], "properties": [(0x0B, 16_384)]}, ("MQTT-1.5.5-1",)),
    _vector(
        "subscribe-subscription-id-2097151",
        CLIENT,
        "82 0d 0001 04 0bffff7f 0003612f62 00",
        {"type": "SUBSCRIBE", "packet_id": 1, "requests": [Request("a/b")], "properties": [(0x0B, 2_097_151)]},
        ("MQTT-1.5.5-1",),
    ),
    _vector(
        "subscribe-subscription-id-2097152",
        CLIENT,
        "82 0e 0001 05 0b80808001 0003612f62 00",
        {"type": "SUBSCRIBE", "packet_id": 1, "requests": [Request("a/b")], "properties": [(0x0B, 2_097_152)]},
        ("MQTT-1.5.5-1",),
    ),
    _vector(
        "subscribe-subscription-id-268435455",
        CLIENT,
        "82 0e 0001 05 0bffffff7f 0003612f62 00",
        {"type": "SUBSCRIBE", "packet_id": 1, "requests": [Request("a/b")], "properties": [(0x0B, 268_435_455)]},
        ("MQTT-1.5.5-1",),
    ),
    _vector(
        "subscribe-all-properties",
        CLIENT,
        "82 1c ffff 13 0bffffff7f 2600016b000176 2600016b000176 0003612f62 01",
        {
            "type": "SUBSCRIBE",
            "packet_id": 65_535,
            "requests": [Request("a/b", 1)],
            "properties": [(0x0B, 268_435_455), (0x26, ("k", "v")), (0x26, ("k", "v"))],
        },
    ),
    # SUBACK.
    *[
        _vector(
            f"suback-{code:02x}",
            SERVER,
            f"90 04 0001 00 {code:02x}",
            {"type": "SUBACK", "packet_id": 1, "reasons": [code]},
            ("MQTT-3.9.3-2",),
        )
        for code in REASON_CODES["SUBACK"]
    ],
    _vector("suback-many", SERVER, "90 0f 000a 00 0001028083878f91979ea1a2", {"type": "SUBACK", "packet_id": 10, "reasons": [0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2]}),
    _vector(
        "suback-all-properties",
        SERVER,
        "90 18 0001 13 1f00026e6f 2600016b000176 2600016c000177 8700",
        {
            "type": "SUBACK",
            "packet_id": 1,
            "reasons": [0x87, 0x00],
            "properties": [(0x1F, "no"), (0x26, ("k", "v")), (0x26, ("l", "w"))],
        },
    ),
    # UNSUBACK.
    *[
        _vector(
            f"unsuback-{code:02x}",
            SERVER,
            f"b0 04 0001 00 {code:02x}",
            {"type": "UNSUBACK", "packet_id": 1, "reasons": [code]},
            ("MQTT-3.11.3-2",),
        )
        for code in REASON_CODES["UNSUBACK"]
    ],
    _vector("unsuback-many", SERVER, "b0 0a 000a 00 00118083878f91", {"type": "UNSUBACK", "packet_id": 10, "reasons": [0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91]}),
    _vector(
        "unsuback-all-properties",
        SERVER,
        "b0 18 0001 13 1f00026e6f 2600016b000176 2600016c000177 8700",
        {
            "type": "UNSUBACK",
            "packet_id": 1,
            "reasons": [0x87, 0x00],
            "properties": [(0x1F, "no"), (0x26, ("k", "v")), (0x26, ("l", "w"))],
        },
    ),
    # UNSUBSCRIBE.
    _vector("unsubscribe", CLIENT, "a2 08 0001 00 0003612f62", {"type": "UNSUBSCRIBE", "packet_id": 1, "topic_filters": ["a/b"]}, ("MQTT-2.2.2-1",)),
    _vector("unsubscribe-many", CLIENT, "a2 17 0100 00 0003612f23 00012b 000a2473686172652f672f61", {"type": "UNSUBSCRIBE", "packet_id": 256, "topic_filters": ["a/#", "+", "$share/g/a"]}),
    _vector(
        "unsubscribe-all-properties",
        CLIENT,
        "a2 16 0001 0e 2600016b000176 2600016c000177 0003612f62",
        {
            "type": "UNSUBSCRIBE",
            "packet_id": 1,
            "topic_filters": ["a/b"],
            "properties": [(0x26, ("k", "v")), (0x26, ("l", "w"))],
        },
    ),
    # PINGREQ and PINGRESP.
    _vector("pingreq", CLIENT, "c0 00", {"type": "PINGREQ"}),
    _vector("pingresp", SERVER, "d0 00", {"type": "PINGRESP"}),
    # DISCONNECT: each reason code from those who may send it.
    _vector("disconnect", EITHER, "e0 00", {"type": "DISCONNECT"}),
    _vector("disconnect-04", CLIENT, "e0 01 04", {"type": "DISCONNECT", "reason": 0x04}, ("MQTT-3.14.2-1",)),
    *[
        _vector(
            f"disconnect-{code:02x}",
            EITHER if code in CLIENT_DISCONNECT_CODES else SERVER,
            f"e0 01 {code:02x}",
            {"type": "DISCONNECT", "reason": code},
            ("MQTT-3.14.2-1",),
        )
        for code in REASON_CODES["DISCONNECT"][2:]
    ],
    _vector(
        "disconnect-all-properties-of-a-client",
        CLIENT,
        "e0 1a 04 18 1100000000 1f00026e6f 2600016b000176 2600016b000176",
        {
            "type": "DISCONNECT",
            "reason": 0x04,
            "properties": [(0x11, 0), (0x1F, "no"), (0x26, ("k", "v")), (0x26, ("k", "v"))],
        },
    ),
    _vector(
        "disconnect-all-properties-of-a-server",
        SERVER,
        "e0 14 9d 12 1f00026e6f 2600016b000176 1c0003683a31",
        {"type": "DISCONNECT", "reason": 0x9D, "properties": [(0x1F, "no"), (0x26, ("k", "v")), (0x1C, "h:1")]},
    ),
    _vector("disconnect-session-never-expires", CLIENT, "e0 07 00 05 11ffffffff", {"type": "DISCONNECT", "properties": [(0x11, 4_294_967_295)]}),
    # AUTH.
    _vector("auth-success", SERVER, "f0 06 00 04 1500014d", {"type": "AUTH", "properties": [(0x15, "M")]}, ("MQTT-3.15.2-1",)),
    _vector("auth-continue", EITHER, "f0 06 18 04 1500014d", {"type": "AUTH", "reason": 0x18, "properties": [(0x15, "M")]}, ("MQTT-3.15.2-1", "MQTT-4.12.0-2")),
    _vector("auth-again", CLIENT, "f0 06 19 04 1500014d", {"type": "AUTH", "reason": 0x19, "properties": [(0x15, "M")]}, ("MQTT-3.15.2-1",)),
    _vector(
        "auth-all-properties",
        EITHER,
        "f0 1e 18 1c 1500014d 1600020001 1f00026e6f 2600016b000176 2600016b000176",
        {
            "type": "AUTH",
            "reason": 0x18,
            "properties": [(0x15, "M"), (0x16, b"\x00\x01"), (0x1F, "no"), (0x26, ("k", "v")), (0x26, ("k", "v"))],
        },
    ),
    # Every property alone in every packet that may have it.
    *[
        _vector(
            f"{place.lower()}-with-{found.slug}",
            senders_of(place, identifier),
            framed(place, required(place, identifier) + found.hex),
            packet_with(place, identifier),
        )
        for place in PLACES
        for identifier, found in PROPERTIES.items()
        if place in found.places
    ],
    # Lowest and highest values of numbers, where 0 means something.
    _vector("connect-session-never-expires", CLIENT, "10 13 00044d515454 05 02 0000 05 11ffffffff 000163", {"type": "CONNECT", "client_id": "c", "properties": [(0x11, 4_294_967_295)]}),
    _vector("connect-session-expiry-0", CLIENT, "10 13 00044d515454 05 02 0000 05 1100000000 000163", {"type": "CONNECT", "client_id": "c", "properties": [(0x11, 0)]}),
    _vector("connect-receive-maximum-1", CLIENT, "10 11 00044d515454 05 02 0000 03 210001 000163", {"type": "CONNECT", "client_id": "c", "properties": [(0x21, 1)]}),
    _vector("connect-receive-maximum-65535", CLIENT, "10 11 00044d515454 05 02 0000 03 21ffff 000163", {"type": "CONNECT", "client_id": "c", "properties": [(0x21, 65_535)]}),
    _vector("connect-maximum-packet-size-1", CLIENT, "10 13 00044d515454 05 02 0000 05 2700000001 000163", {"type": "CONNECT", "client_id": "c", "properties": [(0x27, 1)]}),
    _vector("connect-maximum-packet-size-of-the-largest-body", CLIENT, "10 13 00044d515454 05 02 0000 05 270fffffff 000163", {"type": "CONNECT", "client_id": "c", "properties": [(0x27, 268_435_455)]}),
    _vector("connect-topic-alias-maximum-0", CLIENT, "10 11 00044d515454 05 02 0000 03 220000 000163", {"type": "CONNECT", "client_id": "c", "properties": [(0x22, 0)]}),
    _vector("connect-topic-alias-maximum-65535", CLIENT, "10 11 00044d515454 05 02 0000 03 22ffff 000163", {"type": "CONNECT", "client_id": "c", "properties": [(0x22, 65_535)]}),
    _vector("connect-request-problem-information-1", CLIENT, "10 10 00044d515454 05 02 0000 02 1701 000163", {"type": "CONNECT", "client_id": "c", "properties": [(0x17, 1)]}),
    _vector("connect-request-response-information-0", CLIENT, "10 10 00044d515454 05 02 0000 02 1900 000163", {"type": "CONNECT", "client_id": "c", "properties": [(0x19, 0)]}),
    _vector("connect-will-delay-0", CLIENT, "10 1a 00044d515454 05 06 0000 00 000163 05 1800000000 000177 000178", {"type": "CONNECT", "client_id": "c", "will": Will("w", b"x", properties=[(0x18, 0)])}),
    _vector(
        "connect-will-delay-highest",
        CLIENT,
        "10 1a 00044d515454 05 06 0000 00 000163 05 18ffffffff 000177 000178",
        {"type": "CONNECT", "client_id": "c", "will": Will("w", b"x", properties=[(0x18, 4_294_967_295)])},
    ),
    _vector("connack-maximum-qos-0", SERVER, "20 05 00 00 02 2400", {"type": "CONNACK", "properties": [(0x24, 0)]}),
    _vector("connack-server-keep-alive-0", SERVER, "20 06 00 00 03 130000", {"type": "CONNACK", "properties": [(0x13, 0)]}),
]
# fmt: on

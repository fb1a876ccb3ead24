"""Good packets of MQTT 3.1 and 3.1.1, in both directions. The bad ones are in `rejected_v311.py`."""
# A line for each packet.
# ruff: noqa: E501

from functools import partial
from typing import Final

from embermq.protocol.packets import (
    SESSION_NEVER_EXPIRES,
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
    Will,
)
from embermq.protocol.reasons import ReasonCode
from support.acknowledgements import puback, pubcomp, pubrec, pubrel
from support.vectors.vector import CLIENT, EITHER, SERVER, V31, V311, Vector

NEVER: Final = SESSION_NEVER_EXPIRES


def _filled(name: str, head: str, payload_bytes: int) -> Vector:
    """A PUBLISH to a/b whose remaining length is five more than its payload."""
    payload = b"\xa5" * payload_bytes
    return Vector(name, V311, EITHER, f"{head} 0003612f62", Publish("a/b", payload), tail=payload)


LONGEST_TOPIC: Final = "/" * 65_535

# We read these, but would write the same packet otherwise.
_only_read: Final = partial(Vector, is_written=False)

# fmt: off
VECTORS: Final = [
    Vector("connect-shortest", V311, CLIENT, "10 0c 0004 4d515454 04 02 0000 0000", Connect(""), ("MQTT-3.1.3-3",)),
    Vector("connect-keep-alive", V311, CLIENT, "10 0e 0004 4d515454 04 02 003c 0002 6331", Connect("c1", keep_alive_s=60), ("MQTT-3.1.2-18", "MQTT-3.1.2-20", "MQTT-3.1.2-11")),
    Vector("connect-keep-alive-longest", V311, CLIENT, "10 0d 0004 4d515454 04 02 ffff 0001 63", Connect("c", keep_alive_s=65_535)),
    Vector("connect-persistent", V311, CLIENT, "10 0e 0004 4d515454 04 00 000a 0002 6331", Connect("c1", clean_start=False, keep_alive_s=10, session_expiry_s=NEVER)),
    Vector(
        "connect-client-id-of-23-bytes",
        V311,
        CLIENT,
        "10 23 0004 4d515454 04 02 0000 0017 3031323334353637383941424358595a61626378797a30",
        Connect("0123456789ABCXYZabcxyz0"),
        ("MQTT-3.1.3-5",),
    ),
    Vector("connect-user-name", V311, CLIENT, "10 11 0004 4d515454 04 82 0000 0001 63 0002 6a6f", Connect("c", user_name="jo"), ("MQTT-3.1.2-19", "MQTT-3.1.2-20")),
    Vector(
        "connect-password-is-any-bytes",
        V311,
        CLIENT,
        "10 16 0004 4d515454 04 c2 0000 0001 63 0001 6a 0004 00fffe80",
        Connect("c", user_name="j", password=b"\x00\xff\xfe\x80"),
        ("MQTT-3.1.2-21",),
    ),
    Vector("connect-user-name-and-password-empty", V311, CLIENT, "10 11 0004 4d515454 04 c2 0000 0001 63 0000 0000", Connect("c", user_name="", password=b"")),
    Vector("connect-will-qos0", V311, CLIENT, "10 13 0004 4d515454 04 06 0000 0001 63 0001 77 0001 78", Connect("c", will=Will("w", b"x")), ("MQTT-3.1.2-9",)),
    Vector("connect-will-empty-message", V311, CLIENT, "10 12 0004 4d515454 04 26 0000 0001 63 0001 77 0000", Connect("c", will=Will("w", b"", 0, retain=True))),
    Vector(
        "connect-everything",
        V311,
        CLIENT,
        "10 1f 0004 4d515454 04 f4 001e 0001 63 0003 772f31 0003 00ff62 0002 6a6f 0002 7077",
        Connect(
            "c",
            clean_start=False,
            keep_alive_s=30,
            will=Will("w/1", b"\x00\xffb", 2, retain=True),
            user_name="jo",
            password=b"pw",
            session_expiry_s=NEVER,
        ),
        ("MQTT-3.1.2-9", "MQTT-3.1.3-1", "MQTT-3.1.2-19", "MQTT-3.1.2-21"),
    ),
    Vector("connect-client-id-beyond-the-basic-plane", V311, CLIENT, "10 10 0004 4d515454 04 02 0000 0004 f09f94a5", Connect("\U0001f525"), ("MQTT-3.1.3-4",)),
    Vector("connect-31", V31, CLIENT, "10 11 0006 4d5149736470 03 02 0005 0003 6f6c64", Connect("old", keep_alive_s=5, protocol_level=3)),
    Vector(
        "connect-31-everything",
        V31,
        CLIENT,
        "10 1d 0006 4d5149736470 03 ee 0000 0003 6f6c64 0001 77 0001 78 0001 75 0001 70",
        Connect("old", will=Will("w", b"x", 1, retain=True), user_name="u", password=b"p", protocol_level=3),
    ),
    Vector("connack", V311, SERVER, "20 02 00 00", Connack(False)),
    Vector("connack-session-present", V311, SERVER, "20 02 01 00", Connack(True)),
    Vector("connack-version", V311, SERVER, "20 02 00 01", Connack(False, ReasonCode.UNSUPPORTED_PROTOCOL_VERSION)),
    Vector("connack-client-id", V311, SERVER, "20 02 00 02", Connack(False, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)),
    Vector("connack-unavailable", V311, SERVER, "20 02 00 03", Connack(False, ReasonCode.SERVER_UNAVAILABLE)),
    Vector("connack-password", V311, SERVER, "20 02 00 04", Connack(False, ReasonCode.BAD_USER_NAME_OR_PASSWORD)),
    Vector("connack-rights", V311, SERVER, "20 02 00 05", Connack(False, ReasonCode.NOT_AUTHORIZED)),
    Vector("publish-shortest", V311, EITHER, "30 03 0001 61", Publish("a", b""), ("MQTT-2.3.1-5",)),
    Vector("publish-qos0", V311, EITHER, "30 07 0003612f62 6869", Publish("a/b", b"hi"), ("MQTT-2.3.1-5",)),
    Vector("publish-retained", V311, EITHER, "31 07 0003612f62 6869", Publish("a/b", b"hi", retain=True)),
    Vector("publish-qos1", V311, EITHER, "32 09 0003612f62 0001 6869", Publish("a/b", b"hi", 1, packet_id=1)),
    Vector("publish-retained-qos1", V311, EITHER, "33 09 0003612f62 000a 6869", Publish("a/b", b"hi", 1, retain=True, packet_id=10)),
    Vector("publish-qos1-empty", V311, EITHER, "32 07 0003612f62 0100", Publish("a/b", b"", 1, packet_id=256)),
    Vector("publish-qos1-again", V311, EITHER, "3a 07 0003612f62 0001", Publish("a/b", b"", 1, dup=True, packet_id=1)),
    Vector("publish-qos2", V311, EITHER, "34 08 0003612f62 ffff 00", Publish("a/b", b"\0", 2, packet_id=65_535)),
    Vector("publish-retained-qos2-again", V311, EITHER, "3d 08 0003612f62 8000 ff", Publish("a/b", b"\xff", 2, retain=True, dup=True, packet_id=32_768)),
    Vector("publish-31", V31, EITHER, "32 09 0003612f62 0001 6869", Publish("a/b", b"hi", 1, packet_id=1)),
    Vector("publish-payload-that-looks-like-packets", V311, EITHER, "30 08 0001 61 c000e00030", Publish("a", b"\xc0\0\xe0\0\x30")),
    Vector("publish-slash", V311, EITHER, "30 03 0001 2f", Publish("/", b"")),
    Vector("publish-spaces-and-case", V311, EITHER, "30 06 0004 20412061", Publish(" A a", b""), ("MQTT-4.7.3-4",)),
    Vector("publish-byte-order-mark-is-kept", V311, EITHER, "30 09 0007 efbbbf61efbbbf", Publish("\ufeffa\ufeff", b""), ("MQTT-1.5.3-3", "MQTT-4.7.3-4")),
    Vector("publish-two-forms-of-one-letter", V311, EITHER, "30 08 0006 c3a9 2f 65cc81", Publish("\u00e9/e\u0301", b""), ("MQTT-4.7.3-4",)),
    Vector("publish-ends-of-the-planes", V311, EITHER, "30 0a 0008 efbfbf7ff48fbfbf", Publish("\uffff\x7f\U0010ffff", b"")),
    Vector("publish-longest-topic", V311, EITHER, "30 81 80 04 ffff", Publish(LONGEST_TOPIC, b""), ("MQTT-4.7.3-3",), LONGEST_TOPIC.encode()),
    _filled("publish-remaining-length-126", "30 7e", 121),
    _filled("publish-remaining-length-127", "30 7f", 122),
    _filled("publish-remaining-length-128", "30 8001", 123),
    _filled("publish-remaining-length-129", "30 8101", 124),
    _filled("publish-remaining-length-16383", "30 ff7f", 16_378),
    _filled("publish-remaining-length-16384", "30 808001", 16_379),
    _filled("publish-remaining-length-2097151", "30 ffff7f", 2_097_146),
    _filled("publish-remaining-length-2097152", "30 80808001", 2_097_147),
    Vector("puback", V311, EITHER, "40 02 0001", puback(1)),
    Vector("puback-highest-id", V311, EITHER, "40 02 ffff", puback(65_535)),
    Vector("pubrec", V311, EITHER, "50 02 0100", pubrec(256)),
    Vector("pubrel", V311, EITHER, "62 02 7fff", pubrel(32_767)),
    Vector("pubcomp", V311, EITHER, "70 02 00ff", pubcomp(255)),
    Vector("subscribe", V311, CLIENT, "82 08 0001 0003612f62 00", Subscribe(1, [SubscriptionRequest("a/b")])),
    Vector(
        "subscribe-many",
        V311,
        CLIENT,
        "82 17 000a 0001 23 02 0003 612f2b 01 0004 612f2f23 00 0001 2b 02",
        Subscribe(
            10,
            [
                SubscriptionRequest("#", 2),
                SubscriptionRequest("a/+", 1),
                SubscriptionRequest("a//#", 0),
                SubscriptionRequest("+", 2),
            ],
        ),
    ),
    Vector("subscribe-the-same-filter-twice", V311, CLIENT, "82 0a 0002 0001 61 00 0001 61 01", Subscribe(2, [SubscriptionRequest("a", 0), SubscriptionRequest("a", 1)])),
    Vector("suback", V311, SERVER, "90 03 0001 00", Suback(1, [0])),
    Vector("suback-many", V311, SERVER, "90 06 000a 00010280", Suback(10, [0, 1, 2, 0x80]), ("MQTT-3.9.3-2",)),
    Vector("unsubscribe", V311, CLIENT, "a2 07 0001 0003612f62", Unsubscribe(1, ["a/b"])),
    Vector("unsubscribe-many", V311, CLIENT, "a2 0a 0100 0003612f23 0001 2b", Unsubscribe(256, ["a/#", "+"])),
    Vector("unsuback", V311, SERVER, "b0 02 0001", Unsuback(1)),
    Vector("pingreq", V311, CLIENT, "c0 00", Pingreq()),
    Vector("pingresp", V311, SERVER, "d0 00", Pingresp()),
    Vector("disconnect", V311, CLIENT, "e0 00", Disconnect()),
    _only_read("remaining-length-with-idle-bytes", V311, EITHER, "30 83808000 0001 61", Publish("a", b"")),
    _only_read("pingreq-with-idle-length-byte", V311, CLIENT, "c0 8000", Pingreq()),
    _only_read("connect-31-user-name-flag-alone", V31, CLIENT, "10 0f 0006 4d5149736470 03 c2 0000 0001 63", Connect("c", protocol_level=3)),
    _only_read("connect-31-password-flag-alone", V31, CLIENT, "10 12 0006 4d5149736470 03 c2 0000 0001 63 0001 75", Connect("c", user_name="u", protocol_level=3)),
    _only_read("connect-31-unused-flag", V31, CLIENT, "10 0f 0006 4d5149736470 03 03 0000 0001 63", Connect("c", protocol_level=3)),
    _only_read("pubrel-31-again", V31, CLIENT, "6a 02 0001", pubrel(1)),
    _only_read("subscribe-31-again", V31, CLIENT, "8a 06 0001 0001 61 00", Subscribe(1, [SubscriptionRequest("a")])),
    _only_read("unsubscribe-31-again", V31, CLIENT, "aa 05 0001 0001 61", Unsubscribe(1, ["a"])),
]
# fmt: on

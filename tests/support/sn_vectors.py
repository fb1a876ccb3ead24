"""MQTT-SN wire bytes as data: one list for decode and encode, one for what must be refused."""
# A line for each packet.
# ruff: noqa: E501

from typing import NamedTuple

from embermq.protocol.errors import MalformedPacket, PeerError, ProtocolError
from embermq.protocol.sn.wire.fields import PREDEFINED_ALIAS
from embermq.protocol.sn.wire.layouts import Profile
from embermq.protocol.sn.wire.profiles import V12, A, B, W
from support import sn_packets as sn


class Vector(NamedTuple):
    """Bytes and the packet they are. `canonical` is False where we would write the same packet more briefly."""

    name: str
    profile: Profile
    hex: str
    packet: sn.SnPacket
    canonical: bool = True


class Rejected(NamedTuple):
    """Bytes that are no packet of the profile."""

    name: str
    profile: Profile
    hex: str
    error: type[PeerError]


def vector_id(vector: Vector | Rejected) -> str:
    return f"{vector.profile.name}-{vector.name}"


AB = sn.full_name("a/b")
PLUS = sn.full_name("a/+")
WILL = sn.ConnectWill(sn.full_name("w/t"), b"bye", 1, True)


def connect_12(**fields: object) -> sn.SnPacket:
    return sn.connect("dev1", version=1, **fields)  # type: ignore[arg-type]  # test data, checked by the comparison


# fmt: off
VECTORS_12 = [
    Vector("advertise", V12, "05 00 07 03 84", sn.advertise(7, 900)),
    Vector("searchgw", V12, "03 01 01", sn.searchgw(1)),
    Vector("gwinfo", V12, "03 02 07", sn.gwinfo(7)),
    Vector("connect-clean", V12, "0a 04 04 01 00 3c 64 65 76 31", connect_12()),
    Vector("connect-clean-will", V12, "0a 04 0c 01 00 3c 64 65 76 31", connect_12(will_flag=True)),
    Vector("connack", V12, "03 05 00", sn.connack()),
    Vector("connack-congestion", V12, "03 05 01", sn.connack(0xF1)),
    Vector("willtopicreq", V12, "02 06", sn.will_request(True)),
    Vector("willmsgreq", V12, "02 08", sn.will_request(False)),
    Vector("willtopic", V12, "06 07 30 77 2f 74", sn.will_topic("w/t", 1, True)),
    Vector("willtopic-empty", V12, "02 07", sn.will_topic("")),
    Vector("willmsg", V12, "05 09 62 79 65", sn.will_message(b"bye")),
    Vector("register-client", V12, "09 0a 00 00 00 01 61 2f 62", sn.register(1, "a/b")),
    Vector("register-server", V12, "09 0a 00 05 00 09 61 2f 62", sn.register(9, "a/b", 5)),
    Vector("regack", V12, "07 0b 00 05 00 01 00", sn.regack(1, 5)),
    Vector("publish-qos0", V12, "09 0c 00 00 05 00 00 68 69", sn.publish(sn.session_alias(5), b"hi")),
    Vector("publish-qos1-retain", V12, "09 0c 30 00 05 00 07 68 69", sn.publish(sn.session_alias(5), b"hi", 1, True, packet_id=7)),
    Vector("publish-qos2-dup", V12, "09 0c c0 00 05 00 08 68 69", sn.publish(sn.session_alias(5), b"hi", 2, dup=True, packet_id=8)),
    Vector("publish-retain-empty", V12, "07 0c 10 00 05 00 00", sn.publish(sn.session_alias(5), b"", retain=True)),
    Vector("publish-sessionless", V12, "09 0c 61 00 01 00 00 68 69", sn.pubwos(sn.predefined_alias(1), b"hi")),
    Vector("publish-sessionless-short", V12, "09 0c 72 61 62 00 00 68 69", sn.pubwos(sn.short_name("ab"), b"hi", True)),
    Vector("publish-sessionless-named", V12, "0c 0c 60 00 03 00 00 61 2f 62 68 69", sn.pubwos(AB, b"hi")),
    Vector("puback", V12, "07 0d 00 05 00 07 00", sn.acknowledgement(sn.PUBACK, 7, 0, 5)),
    Vector("puback-invalid-id", V12, "07 0d 00 05 00 07 02", sn.acknowledgement(sn.PUBACK, 7, 0xF0, 5)),
    Vector("puback-not-supported", V12, "07 0d 00 05 00 07 03", sn.acknowledgement(sn.PUBACK, 7, 0x83, 5)),
    Vector("puback-reserved-code", V12, "07 0d 00 05 00 07 09", sn.acknowledgement(sn.PUBACK, 7, 0x80, 5), canonical=False),
    Vector("pubrec", V12, "04 0f 00 08", sn.acknowledgement(sn.PUBREC, 8)),
    Vector("pubrel", V12, "04 10 00 08", sn.acknowledgement(sn.PUBREL, 8)),
    Vector("pubcomp", V12, "04 0e 00 08", sn.acknowledgement(sn.PUBCOMP, 8)),
    Vector("subscribe", V12, "08 12 20 00 02 61 2f 2b", sn.subscribe(2, PLUS, 1)),
    Vector("subscribe-dup", V12, "08 12 a0 00 02 61 2f 2b", sn.subscribe(2, PLUS, 1, dup=True)),
    Vector("subscribe-predefined", V12, "07 12 01 00 03 00 01", sn.subscribe(3, sn.predefined_alias(1))),
    Vector("subscribe-short", V12, "07 12 42 00 04 78 79", sn.subscribe(4, sn.short_name("xy"), 2)),
    Vector("suback", V12, "08 13 20 00 00 00 02 00", sn.suback(2, 1)),
    Vector("suback-refused", V12, "08 13 00 00 00 00 02 03", sn.suback(2, 0x83)),
    Vector("unsubscribe", V12, "08 14 00 00 05 61 2f 2b", sn.unsubscribe(5, PLUS)),
    Vector("unsuback", V12, "04 15 00 05", sn.acknowledgement(sn.UNSUBACK, 5)),
    Vector("pingreq", V12, "02 16", sn.pingreq()),
    Vector("pingreq-client", V12, "06 16 64 65 76 31", sn.pingreq(client_id="dev1")),
    Vector("pingresp", V12, "02 17", sn.pingresp()),
    Vector("disconnect", V12, "02 18", sn.disconnect()),
    Vector("disconnect-sleep", V12, "04 18 00 1e", sn.disconnect(session_expiry_s=30)),
    Vector("willtopicupd", V12, "06 1a 30 77 2f 74", sn.will_topic("w/t", 1, True, update=True)),
    Vector("willtopicupd-empty", V12, "02 1a", sn.will_topic("", update=True)),
    Vector("willtopicresp", V12, "03 1b 00", sn.will_response(True)),
    Vector("willmsgupd", V12, "05 1c 62 79 65", sn.will_message(b"bye", update=True)),
    Vector("willmsgresp", V12, "03 1d 00", sn.will_response(False)),
    # Bits that mean nothing in a packet are ignored: real clients of 1.2 set them.
    Vector("subscribe-stray-bit", V12, "08 12 24 00 02 61 2f 2b", sn.subscribe(2, PLUS, 1), canonical=False),
]
# fmt: on

# fmt: off
VECTORS_W = [
    Vector("connect", W, "14 04 01 02 00 3c 00 00 a8 c0 05 dc 73 6a 63 6c 69 65 6e 74", sn.connect("sjclient", session_expiry_s=43200, packet_bytes_max=1500)),
    Vector("connack", W, "0a 05 00 01 00 00 00 3c 67 31", sn.connack(0, 0, True, 60, client_id="g1")),
    Vector("auth", W, "0c 03 18 05 50 4c 41 49 4e 01 02 03", sn.auth(0, 0x18, "PLAIN", b"\1\2\3")),
    Vector("register", W, "09 0a 00 00 00 06 61 2f 62", sn.register(6, "a/b")),
    Vector("regack", W, "08 0b 00 00 05 00 06 00", sn.regack(6, 5)),
    Vector("publish-qos0", W, "0a 0c 13 00 03 61 2f 62 68 69", sn.publish(AB, b"hi", retain=True)),
    Vector("publish-qos1", W, "09 0c 30 00 07 00 05 68 69", sn.publish(sn.session_alias(5), b"hi", 1, True, packet_id=7)),
    Vector("publish-m1", W, "0b 11 02 73 00 03 61 2f 62 68 69", sn.pubwos(AB, b"hi", True)),
    Vector("puback", W, "05 0d 00 07 00", sn.acknowledgement(sn.PUBACK, 7)),
    Vector("pubrec", W, "04 0f 00 09", sn.acknowledgement(sn.PUBREC, 9)),
    Vector("subscribe", W, "08 12 d7 00 0e 61 2f 2b", sn.subscribe(14, PLUS, 2, True, True, 1)),
    Vector("suback", W, "08 13 20 00 05 00 0e 00", sn.suback(14, 1, 5)),
    Vector("suback-refused", W, "08 13 00 00 00 00 0e 87", sn.suback(14, 0x87)),
    Vector("unsuback", W, "05 15 00 12 11", sn.acknowledgement(sn.UNSUBACK, 18, 0x11)),
    Vector("pingreq", W, "02 16", sn.pingreq()),
    Vector("pingreq-wake", W, "07 16 00 64 65 76 31", sn.pingreq(client_id="dev1")),
    Vector("pingreq-wake-3", W, "07 16 03 64 65 76 31", sn.pingreq(client_id="dev1", awake_messages=3)),
    Vector("pingresp", W, "02 17", sn.pingresp()),
    Vector("pingresp-left", W, "03 17 07", sn.pingresp(messages_remaining=7)),
    Vector("disconnect-bare", W, "02 18", sn.disconnect()),
    Vector("disconnect-flags", W, "03 18 00", sn.disconnect(), canonical=False),
    Vector("disconnect-sleep", W, "07 18 05 00 00 01 2c", sn.disconnect(session_expiry_s=300, retain_aliases=True)),
    Vector("disconnect-aliases", W, "03 18 01", sn.disconnect(retain_aliases=True)),
    Vector("willtopic", W, "06 07 30 77 2f 74", sn.will_topic("w/t", 1, True)),
]
# fmt: on

# fmt: off
VECTORS_A = [
    Vector("connect-clean", A, "12 05 01 00 01 02 00 3c 00 00 00 00 00 00 64 65 76 31", sn.connect("dev1", packet_id=1, session_expiry_s=0)),
    Vector(
        "connect-resume",
        A,
        "12 05 10 00 02 02 00 3c 00 00 0e 10 00 80 64 65 76 31",
        sn.connect("dev1", False, packet_id=2, session_expiry_s=3600, awake_messages=2, packet_bytes_max=128),
    ),
    Vector("connect-will", A, "1d 05 03 17 00 03 02 00 3c 00 00 00 00 00 00 00 03 00 03 77 2f 74 62 79 65 64 65 76 31", sn.connect("dev1", packet_id=3, session_expiry_s=0, will=WILL)),
    Vector(
        "connect-will-predefined",
        A,
        "1a 05 03 01 00 03 02 00 3c 00 00 00 00 00 00 00 09 00 03 62 79 65 64 65 76 31",
        sn.connect("dev1", packet_id=3, session_expiry_s=0, will=sn.ConnectWill(sn.predefined_alias(9), b"bye")),
    ),
    Vector(
        "connect-auth",
        A,
        "19 05 05 00 01 02 00 3c 00 00 00 00 00 00 01 50 00 03 01 02 03 64 65 76 31",
        sn.connect("dev1", packet_id=1, session_expiry_s=0, auth_method="P", auth_data=b"\1\2\3"),
    ),
    Vector("connect-no-client-id", A, "0e 05 01 00 04 02 00 3c 00 00 00 00 00 00", sn.connect("", packet_id=4, session_expiry_s=0)),
    Vector("connack", A, "0a 06 00 00 01 00 00 00 00 00", sn.connack(0, 1, session_expiry_s=0)),
    Vector("connack-present", A, "0a 06 01 00 02 00 00 00 0e 10", sn.connack(0, 2, True, 3600)),
    Vector("connack-assigned", A, "0c 06 00 00 04 00 00 00 00 00 67 31", sn.connack(0, 4, session_expiry_s=0, client_id="g1")),
    Vector("connack-bad-version", A, "0a 06 00 00 05 84 00 00 00 00", sn.connack(0x84, 5, session_expiry_s=0)),
    Vector("auth", A, "0e 04 00 03 18 05 50 4c 41 49 4e 01 02 03", sn.auth(3, 0x18, "PLAIN", b"\1\2\3")),
    Vector("register", A, "09 0a 00 06 00 00 61 2f 62", sn.register(6, "a/b")),
    Vector("regack", A, "08 0b 00 00 06 00 05 00", sn.regack(6, 5)),
    Vector("pubwos-predefined", A, "07 11 11 00 01 68 69", sn.pubwos(sn.predefined_alias(1), b"hi", True)),
    Vector("pubwos-short", A, "07 11 02 61 62 68 69", sn.pubwos(sn.short_name("ab"), b"hi")),
    Vector("pubwos-name", A, "0a 11 13 00 03 61 2f 62 68 69", sn.pubwos(AB, b"hi", True)),
    Vector("pubwos-delete", A, "08 11 13 00 03 61 2f 62", sn.pubwos(AB, b"", True)),
    Vector("publish-qos0", A, "07 0c 00 00 05 68 69", sn.publish(sn.session_alias(5), b"hi")),
    Vector("publish-qos0-name", A, "0a 0c 13 00 03 61 2f 62 68 69", sn.publish(AB, b"hi", retain=True)),
    Vector("publish-qos1", A, "09 0c 30 00 07 00 05 68 69", sn.publish(sn.session_alias(5), b"hi", 1, True, packet_id=7)),
    Vector("publish-empty", A, "07 0c 30 00 08 00 05", sn.publish(sn.session_alias(5), b"", 1, True, packet_id=8)),
    Vector("publish-qos2-dup", A, "0c 0c c3 00 09 00 03 61 2f 62 68 69", sn.publish(AB, b"hi", 2, dup=True, packet_id=9)),
    Vector("puback", A, "05 0d 00 07 00", sn.acknowledgement(sn.PUBACK, 7)),
    Vector("puback-unknown-alias", A, "05 0d 00 07 f0", sn.acknowledgement(sn.PUBACK, 7, 0xF0)),
    Vector("pubrec", A, "05 0f 00 09 00", sn.acknowledgement(sn.PUBREC, 9)),
    Vector("pubrel", A, "05 10 00 09 00", sn.acknowledgement(sn.PUBREL, 9)),
    Vector("pubcomp", A, "05 0e 00 09 00", sn.acknowledgement(sn.PUBCOMP, 9)),
    Vector("subscribe-rh0", A, "08 12 23 00 0a 61 2f 2b", sn.subscribe(10, PLUS, 1)),
    Vector("subscribe-rh1", A, "08 12 27 00 0b 61 2f 2b", sn.subscribe(11, PLUS, 1, retain_handling=1)),
    Vector("subscribe-rh2", A, "08 12 2b 00 0c 61 2f 2b", sn.subscribe(12, PLUS, 1, retain_handling=2)),
    Vector("subscribe-rap", A, "08 12 33 00 0d 61 2f 2b", sn.subscribe(13, PLUS, 1, retain_as_published=True)),
    Vector("subscribe-all", A, "08 12 d7 00 0e 61 2f 2b", sn.subscribe(14, PLUS, 2, True, True, 1)),
    Vector("subscribe-predefined", A, "07 12 01 00 11 00 01", sn.subscribe(17, sn.predefined_alias(1))),
    Vector("suback-wildcard", A, "08 13 00 00 00 00 0a 01", sn.suback(10, 1)),
    Vector("suback-alias", A, "08 13 00 00 05 00 0a 01", sn.suback(10, 1, 5)),
    Vector("suback-bad-filter", A, "08 13 00 00 00 00 0a 8f", sn.suback(10, 0x8F)),
    Vector("unsubscribe", A, "08 14 03 00 12 61 2f 2b", sn.unsubscribe(18, PLUS)),
    Vector("unsuback", A, "05 15 00 12 00", sn.acknowledgement(sn.UNSUBACK, 18)),
    Vector("unsuback-none", A, "05 15 00 12 11", sn.acknowledgement(sn.UNSUBACK, 18, 0x11)),
    Vector("pingreq", A, "04 16 00 13", sn.pingreq(19)),
    Vector("pingreq-wake", A, "08 16 00 14 64 65 76 31", sn.pingreq(20, "dev1")),
    Vector("pingresp", A, "04 17 00 13", sn.pingresp(19)),
    Vector("pingresp-0-left", A, "05 17 00 14 00", sn.pingresp(20, 0)),
    Vector("disconnect", A, "03 18 00", sn.disconnect()),
    Vector("disconnect-rc0", A, "04 18 08 00", sn.disconnect(), canonical=False),
    Vector("disconnect-will", A, "04 18 08 04", sn.disconnect(4)),
    Vector("disconnect-sleep", A, "07 18 05 00 00 01 2c", sn.disconnect(session_expiry_s=300, retain_aliases=True)),
    Vector("disconnect-taken-over", A, "07 18 0a 8e 64 75 70", sn.disconnect(0x8E, reason_string="dup")),
    Vector("wakeup", A, "02 19", sn.wakeup()),
    Vector("advertise", A, "05 01 07 03 84", sn.advertise(7, 900)),
    Vector("searchgw", A, "03 02 01", sn.searchgw(1)),
    Vector("gwinfo", A, "03 03 07", sn.gwinfo(7)),
]
# fmt: on

# fmt: off
VECTORS_B = [
    Vector("connect-clean", B, "0e 01 01 00 01 02 00 3c 00 00 64 65 76 31", sn.connect("dev1", packet_id=1)),
    Vector(
        "connect-resume",
        B,
        "13 01 18 00 02 02 00 3c 00 80 02 00 00 0e 10 64 65 76 31",
        sn.connect("dev1", False, packet_id=2, session_expiry_s=3600, awake_messages=2, packet_bytes_max=128),
    ),
    Vector("connect-will", B, "19 01 03 17 00 03 02 00 3c 00 00 00 03 77 2f 74 00 03 62 79 65 64 65 76 31", sn.connect("dev1", packet_id=3, will=WILL)),
    Vector("connect-permissions", B, "0e 01 61 00 01 02 00 3c 00 00 64 65 76 31", sn.connect("dev1", packet_id=1, suggestions=True, address_change=True)),
    Vector("connect-minimum", B, "0a 01 01 00 04 02 00 3c 00 00", sn.connect("", packet_id=4)),
    Vector("connack", B, "06 02 00 00 01 00", sn.connack(0, 1)),
    Vector("connack-present", B, "06 02 01 00 02 00", sn.connack(0, 2, True)),
    Vector("connack-suggestions", B, "0c 02 06 00 02 00 00 00 00 3c 00 1e", sn.full_connack(0, 2, session_expiry_s=60, server_keep_alive_s=30)),
    Vector("connack-assigned", B, "08 02 00 00 04 00 67 31", sn.connack(0, 4, client_id="g1")),
    Vector("connack-bad-version", B, "06 02 00 00 05 84", sn.connack(0x84, 5)),
    Vector("auth", B, "0e 0f 00 03 18 05 50 4c 41 49 4e 01 02 03", sn.auth(3, 0x18, "PLAIN", b"\1\2\3")),
    Vector("register-client", B, "08 10 00 00 06 61 2f 62", sn.register(6, "a/b")),
    Vector("register-server", B, "0a 10 01 00 07 00 05 61 2f 62", sn.register(7, "a/b", 5)),
    Vector("regack-server", B, "07 11 04 00 06 00 05", sn.regack(6, 5)),
    Vector("regack-client", B, "05 11 00 00 07", sn.regack(7)),
    Vector("regack-exists", B, "08 11 05 00 06 00 01 1a", sn.regack(6, 1, 0x1A, PREDEFINED_ALIAS)),
    Vector("pubwos-name", B, "09 12 03 00 03 61 2f 62 78", sn.pubwos(AB, b"x")),
    Vector("pubwos-predefined", B, "07 12 11 00 01 68 69", sn.pubwos(sn.predefined_alias(1), b"hi", True)),
    Vector("pubwos-delete", B, "08 12 13 00 03 61 2f 62", sn.pubwos(AB, b"", True)),
    Vector("publish-qos0-name", B, "09 03 03 00 03 61 2f 62 78", sn.publish(AB, b"x")),
    Vector("publish-qos0", B, "07 03 00 00 05 68 69", sn.publish(sn.session_alias(5), b"hi")),
    Vector("publish-qos1", B, "09 03 30 00 07 00 05 68 69", sn.publish(sn.session_alias(5), b"hi", 1, True, packet_id=7)),
    Vector("publish-qos2-dup", B, "0c 03 c3 00 09 00 03 61 2f 62 68 69", sn.publish(AB, b"hi", 2, dup=True, packet_id=9)),
    Vector("puback", B, "04 04 00 07", sn.acknowledgement(sn.PUBACK, 7)),
    Vector("puback-unknown-alias", B, "05 04 00 07 f0", sn.acknowledgement(sn.PUBACK, 7, 0xF0)),
    Vector("pubrec", B, "04 05 00 09", sn.acknowledgement(sn.PUBREC, 9)),
    Vector("pubrel", B, "04 06 00 09", sn.acknowledgement(sn.PUBREL, 9)),
    Vector("pubcomp", B, "04 07 00 09", sn.acknowledgement(sn.PUBCOMP, 9)),
    Vector("subscribe", B, "08 08 23 00 0a 61 2f 2b", sn.subscribe(10, PLUS, 1)),
    Vector("subscribe-all", B, "07 08 d9 12 34 00 09", sn.subscribe(0x1234, sn.predefined_alias(9), 2, True, True, 2)),
    Vector("suback-no-alias", B, "06 09 01 00 0a 01", sn.suback(10, 1, 0, PREDEFINED_ALIAS)),
    Vector("suback-alias", B, "08 09 04 00 0a 00 05 01", sn.suback(10, 1, 5)),
    Vector("suback-alias-qos0", B, "08 09 04 12 34 00 2a 00", sn.suback(0x1234, 0, 42)),
    Vector("unsubscribe", B, "08 0a 03 00 12 61 2f 2b", sn.unsubscribe(18, PLUS)),
    Vector("unsuback", B, "04 0b 00 12", sn.acknowledgement(sn.UNSUBACK, 18)),
    Vector("unsuback-none", B, "05 0b 00 12 11", sn.acknowledgement(sn.UNSUBACK, 18, 0x11)),
    Vector("pingreq", B, "04 0c 12 34", sn.pingreq(0x1234)),
    Vector("pingresp", B, "05 0d 12 34 07", sn.pingresp(0x1234, 7)),
    Vector("disconnect", B, "03 0e 00", sn.disconnect()),
    Vector("disconnect-will", B, "04 0e 04 04", sn.disconnect(4)),
    Vector("disconnect-no-connection", B, "06 0e 05 00 13 f4", sn.disconnect(0xF4, packet_id=19)),
    Vector("disconnect-expiry-rc0", B, "08 0e 06 00 00 01 2c 00", sn.disconnect(session_expiry_s=300), canonical=False),
    Vector("disconnect-expiry", B, "07 0e 02 00 00 01 2c", sn.disconnect(session_expiry_s=300)),
    Vector("sleepreq", B, "09 13 01 12 34 00 00 00 3c", sn.sleepreq(0x1234, 60, True)),
    Vector("sleepresp", B, "05 14 00 12 34", sn.sleepresp(0x1234)),
    Vector("sleepresp-rc0", B, "0a 14 01 12 34 00 00 00 3c 00", sn.sleepresp(0x1234, 60), canonical=False),
    Vector("sleepresp-duration", B, "09 14 01 12 34 00 00 00 3c", sn.sleepresp(0x1234, 60)),
    Vector("wakeup", B, "02 15", sn.wakeup()),
    Vector("advertise", B, "05 16 07 00 3c", sn.advertise(7, 60)),
    Vector("searchgw", B, "02 17", sn.searchgw()),
    Vector("gwinfo", B, "03 18 07", sn.gwinfo(7)),
]
# fmt: on

VECTORS = VECTORS_12 + VECTORS_W + VECTORS_A + VECTORS_B

# fmt: off
REJECTED = [
    *(
        Rejected(f"{name}-{profile.name}", profile, data, MalformedPacket)
        for profile in (V12, W, A, B)
        for name, data in (
            ("nothing", ""),
            ("one-byte-0", "00"),
            ("one-byte-1", "01"),
            ("length-0", "00 0c"),
            ("long-form-cut", "01 00"),
            ("long-form-cut-3", "01 00 04"),
            ("long-form-below-its-header", "01 00 03 0c"),
            ("length-beyond-datagram", "03 16"),
            ("length-before-datagram", "02 16 00"),
            ("reserved-type", "02 fd"),
        )
    ),
    Rejected("reserved-03", V12, "02 03", MalformedPacket),
    Rejected("reserved-11", V12, "07 11 11 00 01 68 69", MalformedPacket),
    Rejected("reserved-topic-type", V12, "09 0c 03 00 05 00 00 68 69", MalformedPacket),
    Rejected("short-name-not-utf8", V12, "09 0c 02 ff fe 00 00 68 69", MalformedPacket),
    Rejected("short-name-wildcard", V12, "09 0c 02 61 2b 00 00 68 69", MalformedPacket),
    Rejected("short-name-nul", V12, "09 0c 02 61 00 00 00 68 69", MalformedPacket),
    Rejected("subscribe-qos3", V12, "08 12 60 00 02 61 2f 2b", ProtocolError),
    Rejected("subscribe-predefined-cut", V12, "06 12 01 00 03 01", MalformedPacket),
    Rejected("subscribe-predefined-long", V12, "08 12 01 00 03 00 01 02", MalformedPacket),
    Rejected("publish-qos1-id0", V12, "09 0c 20 00 05 00 00 68 69", MalformedPacket),
    Rejected("will-qos3", V12, "06 07 60 77 2f 74", MalformedPacket),
    Rejected("will-wildcard", V12, "06 07 00 77 2f 23", MalformedPacket),
    Rejected("bytes-after-the-end", V12, "05 10 00 08 00", MalformedPacket),
    Rejected("sessionless-name-beyond", V12, "0c 0c 60 00 09 00 00 61 2f 62 68 69", MalformedPacket),
    Rejected("connect-bit-7", A, "12 05 81 00 01 02 00 3c 00 00 00 00 00 00 64 65 76 31", MalformedPacket),
    Rejected("connect-keep-alive-0", A, "12 05 01 00 01 02 00 00 00 00 00 00 00 00 64 65 76 31", ProtocolError),
    Rejected("connect-version-3", A, "12 05 01 00 01 03 00 3c 00 00 00 00 00 00 64 65 76 31", ProtocolError),
    Rejected("connect-will-qos3", A, "1d 05 03 1f 00 03 02 00 3c 00 00 00 00 00 00 00 03 00 03 77 2f 74 62 79 65 64 65 76 31", MalformedPacket),
    Rejected("connect-will-reserved-bit", A, "1d 05 03 37 00 03 02 00 3c 00 00 00 00 00 00 00 03 00 03 77 2f 74 62 79 65 64 65 76 31", MalformedPacket),
    Rejected("subscribe-rh3", A, "08 12 2f 00 0f 61 2f 2b", ProtocolError),
    Rejected("subscribe-qos3", A, "08 12 63 00 10 61 2f 2b", ProtocolError),
    Rejected("pubwos-session-alias", A, "07 11 00 00 05 68 69", MalformedPacket),
    Rejected("publish-qos3", A, "09 0c 60 00 07 00 05 68 69", MalformedPacket),
    Rejected("publish-qos0-dup", A, "07 0c 80 00 05 68 69", MalformedPacket),
    Rejected("publish-reserved-bit", A, "07 0c 04 00 05 68 69", MalformedPacket),
    Rejected("publish-wildcard", A, "08 0c 03 00 03 61 2f 2b", MalformedPacket),
    Rejected("publish-nul", A, "08 0c 03 00 03 61 00 62", MalformedPacket),
    Rejected("publish-name-beyond", A, "08 0c 03 00 09 61 2f 62", MalformedPacket),
    Rejected("publish-empty-name", A, "05 0c 03 00 00", MalformedPacket),
    Rejected("disconnect-reserved-bit", A, "03 18 10", MalformedPacket),
    Rejected("client-id-surrogate", A, "07 16 00 14 ed a0 80", MalformedPacket),
    Rejected("reserved-07", A, "02 07", MalformedPacket),
    Rejected("reserved-19", B, "02 19", MalformedPacket),
    Rejected("publish-reserved-bit", B, "06 03 04 00 01 00", MalformedPacket),
    Rejected("publish-alias-0", B, "05 03 00 00 00", MalformedPacket),
    Rejected("publish-short-name", B, "07 03 02 61 62 68 69", MalformedPacket),
    Rejected("subscribe-short-name", B, "07 08 02 00 0a 61 62", MalformedPacket),
    Rejected("connect-keep-alive-0", B, "0e 01 01 00 01 02 00 00 00 00 64 65 76 31", ProtocolError),
    Rejected("connect-max-packet-9", B, "0e 01 01 00 01 02 00 3c 00 09 64 65 76 31", ProtocolError),
    Rejected("connect-bit-7", B, "0e 01 81 00 01 02 00 3c 00 00 64 65 76 31", MalformedPacket),
    Rejected("sleepreq-0", B, "09 13 01 12 34 00 00 00 00", ProtocolError),
]
# fmt: on

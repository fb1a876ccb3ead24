"""The wire profiles as tables: 1.2, early 2.0 (W), the 2.0 draft of 2024 (A), the 2.0 committee draft of 2026 (B).

Owns: every type code and every layout (1.2: section 5.4; 2.0: section 3). docs/mqtt-sn.md, "Wire profiles", tells where
each profile comes from.
Never: code that reads or writes a byte; `decode` and `encode` go through these tables.
"""

from typing import Final

from embermq.protocol.sn.wire import fields as f
from embermq.protocol.sn.wire import layouts as w
from embermq.protocol.sn.wire import packets as k
from embermq.protocol.sn.wire.layouts import Bits, Layout, Profile, Rules, Step, flags

_PACKET_ID: Final = Step(w.U16, f.PACKET_ID)
_ALIAS: Final = Step(w.U16, f.TOPIC_ALIAS)
_REASON: Final = Step(w.U8, f.REASON)
_REASON_OPTIONAL: Final = Step(w.U8, f.REASON, optional=True)
_RETURN_CODE: Final = Step(w.RETURN_CODE, f.REASON)
_KEEP_ALIVE: Final = Step(w.U16, f.KEEP_ALIVE)
_VERSION: Final = Step(w.U8, f.VERSION)
_EXPIRY: Final = Step(w.U32, f.SESSION_EXPIRY)
_MAX_PACKET: Final = Step(w.U16, f.MAX_PACKET)
_CLIENT_ID: Final = Step(w.REST, f.CLIENT_ID)
_PAYLOAD: Final = Step(w.REST, f.PAYLOAD)
_NAME_REST: Final = Step(w.REST, f.NAME)
_TOPIC: Final = Step(w.TOPIC, f.TOPIC_ALIAS)
_NAME_SIZED: Final = Step(w.SIZED, f.NAME, pair=f.NAME_LENGTH, when_full=f.TOPIC_TYPE)
_TOPIC_REST: Final = Step(w.TOPIC_REST, f.TOPIC_ALIAS)
_GATEWAY: Final = Step(w.U8, f.GATEWAY_ID)
_DURATION: Final = Step(w.U16, f.DURATION)
_RADIUS: Final = Step(w.U8, f.RADIUS)
_ADDRESS: Final = Step(w.REST, f.ADDRESS)
_REMAINING: Final = Step(w.U8, f.REMAINING, optional=True)
_AUTH: Final = (Step(w.LEN8, f.AUTH_METHOD, when=f.AUTH), Step(w.LEN16, f.AUTH_DATA, when=f.AUTH))
_AUTH_REST: Final = (Step(w.LEN8, f.AUTH_METHOD), Step(w.REST, f.AUTH_DATA))
_PACKET_ID_IF_QOS: Final = Step(w.U16, f.PACKET_ID, when=f.QOS)

_B_DUP: Final = Bits(f.DUP, 7)
_B_QOS: Final = Bits(f.QOS, 5, 2)
_B_RETAIN: Final = Bits(f.RETAIN, 4)
_B_NO_LOCAL: Final = Bits(f.NO_LOCAL, 7)
_B_AS_PUBLISHED: Final = Bits(f.RETAIN_AS_PUBLISHED, 4)
_B_HANDLING: Final = Bits(f.RETAIN_HANDLING, 2, 2)
_SUBSCRIBE_BITS: Final = (_B_NO_LOCAL, _B_QOS, _B_AS_PUBLISHED, _B_HANDLING)


def _announces(field: int, shift: int) -> Bits:
    return Bits(field, shift, announces=True)


_NONE: Final = -1
_TYPES_2: Final = (f.SESSION_ALIAS, f.PREDEFINED_ALIAS, f.SHORT_NAME, f.FULL_NAME)
_TYPES_B: Final = (f.SESSION_ALIAS, f.PREDEFINED_ALIAS, _NONE, f.FULL_NAME)
_B_TYPE_PUBLISH_12: Final = Bits(f.TOPIC_TYPE, 0, 2, (f.SESSION_ALIAS, f.PREDEFINED_ALIAS, f.SHORT_NAME, _NONE))
# Also 1.2's QoS -1 with a "normal" topic id: the id is the length of a name that follows (some senders use that).
_B_TYPE_NAME_12: Final = Bits(f.TOPIC_TYPE, 0, 2, (f.FULL_NAME, f.PREDEFINED_ALIAS, f.SHORT_NAME, _NONE))
_B_TYPE_A: Final = Bits(f.TOPIC_TYPE, 0, 2, _TYPES_2)
_B_TYPE_PUBWOS_A: Final = Bits(f.TOPIC_TYPE, 0, 2, (_NONE, f.PREDEFINED_ALIAS, f.SHORT_NAME, f.FULL_NAME))
_B_TYPE_B: Final = Bits(f.TOPIC_TYPE, 0, 2, _TYPES_B)
_B_TYPE_PUBWOS_B: Final = Bits(f.TOPIC_TYPE, 0, 2, (_NONE, f.PREDEFINED_ALIAS, _NONE, f.FULL_NAME))
_B_TYPE_ACK_B: Final = Bits(f.TOPIC_TYPE, 0, 2, (f.SESSION_ALIAS, f.PREDEFINED_ALIAS, _NONE, _NONE))

# What 1.2 and W write alike.
_SHARED_12: Final = (
    Layout(k.ADVERTISE, 0x00, (_GATEWAY, _DURATION)),
    Layout(k.SEARCHGW, 0x01, (_RADIUS,)),
    Layout(k.GWINFO, 0x02, (_GATEWAY, _ADDRESS)),
    Layout(k.REGISTER, 0x0A, (_ALIAS, _PACKET_ID, _NAME_REST)),
    Layout(k.PUBCOMP, 0x0E, (_PACKET_ID,)),
    Layout(k.PUBREC, 0x0F, (_PACKET_ID,)),
    Layout(k.PUBREL, 0x10, (_PACKET_ID,)),
    Layout(k.WILLTOPICREQ, 0x06),
    Layout(k.WILLTOPIC, 0x07, (flags(_B_QOS, _B_RETAIN, strict=False, optional_with=f.NAME), _NAME_REST)),
    Layout(k.WILLMSGREQ, 0x08),
    Layout(k.WILLMSG, 0x09, (_PAYLOAD,)),
    Layout(k.WILLTOPICUPD, 0x1A, (flags(_B_QOS, _B_RETAIN, strict=False, optional_with=f.NAME), _NAME_REST)),
    Layout(k.WILLTOPICRESP, 0x1B, (_RETURN_CODE,)),
    Layout(k.WILLMSGUPD, 0x1C, (_PAYLOAD,)),
    Layout(k.WILLMSGRESP, 0x1D, (_RETURN_CODE,)),
)

_CONNECT_12: Final = (
    flags(Bits(f.WILL, 3), Bits(f.CLEAN_START, 2), strict=False),
    _VERSION,
    _KEEP_ALIVE,
    _CLIENT_ID,
)

V12: Final = Profile(
    "1.2",
    12,
    (1, 0),  # some clients leave the version 0
    (
        Layout(k.CONNECT, 0x04, _CONNECT_12),
        Layout(k.CONNACK, 0x05, (_RETURN_CODE,)),
        *_SHARED_12,
        Layout(k.REGACK, 0x0B, (_ALIAS, _PACKET_ID, _RETURN_CODE)),
        Layout(
            k.PUBLISH,
            0x0C,
            (flags(_B_DUP, _B_QOS, _B_RETAIN, _B_TYPE_PUBLISH_12, strict=False), _TOPIC, _PACKET_ID, _PAYLOAD),
            sessionless=Layout(
                k.PUBWOS,
                0x0C,
                (flags(_B_QOS, _B_RETAIN, _B_TYPE_NAME_12, strict=False), _TOPIC, _PACKET_ID, _NAME_SIZED, _PAYLOAD),
            ),
        ),
        Layout(k.PUBACK, 0x0D, (_ALIAS, _PACKET_ID, _RETURN_CODE)),
        Layout(
            k.SUBSCRIBE,
            0x12,
            (flags(_B_DUP, _B_QOS, _B_TYPE_NAME_12, strict=False), _PACKET_ID, _TOPIC_REST),
        ),
        Layout(k.SUBACK, 0x13, (flags(_B_QOS, strict=False), _ALIAS, _PACKET_ID, _RETURN_CODE)),
        Layout(k.UNSUBSCRIBE, 0x14, (flags(_B_TYPE_NAME_12, strict=False), _PACKET_ID, _TOPIC_REST)),
        Layout(k.UNSUBACK, 0x15, (_PACKET_ID,)),
        Layout(k.PINGREQ, 0x16, (_CLIENT_ID,)),
        Layout(k.PINGRESP, 0x17),
        Layout(k.DISCONNECT, 0x18, (Step(w.U16, f.SESSION_EXPIRY, optional=True),)),
    ),
    Rules(
        strict=False,
        long_keep_alive_percent=110,
        backs_off=False,
        aliases_belong_to_session=False,
        tells_lost_connection=True,
    ),
)

_CONNECT_BITS_A: Final = (
    Bits(f.AWAKE_MESSAGES, 3, 4),
    Bits(f.AUTH, 2),
    Bits(f.WILL, 1),
    Bits(f.CLEAN_START, 0),
)
_DISCONNECT_BITS_A: Final = (
    _announces(f.REASON, 3),
    _announces(f.SESSION_EXPIRY, 2),
    _announces(f.REASON_STRING, 1),
    Bits(f.RETAIN_ALIASES, 0),
)
_DISCONNECT_REST_A: Final = (
    Step(w.U8, f.REASON, announced=True),
    Step(w.U32, f.SESSION_EXPIRY, announced=True),
    Step(w.REST, f.REASON_STRING, announced=True),
)
_PUBLISH_2: Final = (_PACKET_ID_IF_QOS, _TOPIC, _NAME_SIZED, _PAYLOAD)

W: Final = Profile(
    "2.0-w",
    19,
    (2,),
    (
        Layout(k.AUTH, 0x03, (_REASON, *_AUTH_REST)),
        Layout(
            k.CONNECT,
            0x04,
            # The auth bit announces AUTH packets; nothing about it is inside this CONNECT.
            (
                flags(Bits(f.AWAKE_MESSAGES, 3, 4), Bits(f.WILL, 1), Bits(f.CLEAN_START, 0), strict=False),
                _VERSION,
                _KEEP_ALIVE,
                _EXPIRY,
                _MAX_PACKET,
                _CLIENT_ID,
            ),
        ),
        Layout(k.CONNACK, 0x05, (_REASON, Step(w.U8, f.SESSION_PRESENT), _EXPIRY, _CLIENT_ID)),
        *_SHARED_12,
        Layout(k.REGACK, 0x0B, (flags(_B_TYPE_A, strict=False), _ALIAS, _PACKET_ID, _REASON)),
        Layout(k.PUBLISH, 0x0C, (flags(_B_DUP, _B_QOS, _B_RETAIN, _B_TYPE_A, strict=False), *_PUBLISH_2)),
        Layout(k.PUBACK, 0x0D, (_PACKET_ID, _REASON)),
        Layout(
            k.PUBWOS,
            0x11,
            (_VERSION, flags(_B_QOS, _B_RETAIN, _B_TYPE_PUBWOS_A, strict=False), _TOPIC, _NAME_SIZED, _PAYLOAD),
        ),
        Layout(k.SUBSCRIBE, 0x12, (flags(*_SUBSCRIBE_BITS, _B_TYPE_A, strict=False), _PACKET_ID, _TOPIC_REST)),
        Layout(
            k.SUBACK,
            0x13,
            (flags(_B_QOS, _B_TYPE_A, strict=False), _ALIAS, _PACKET_ID, Step(w.ERROR_CODE, f.REASON)),
        ),
        Layout(k.UNSUBSCRIBE, 0x14, (flags(_B_TYPE_A, strict=False), _PACKET_ID, _TOPIC_REST)),
        Layout(k.UNSUBACK, 0x15, (_PACKET_ID, _REASON)),
        Layout(k.PINGREQ, 0x16, (Step(w.U8, f.AWAKE_MESSAGES, optional=True), _CLIENT_ID)),
        Layout(k.PINGRESP, 0x17, (_REMAINING,)),
        Layout(
            k.DISCONNECT,
            0x18,
            (
                Step(w.FLAGS, f.RETAIN_ALIASES, optional=True, bits=_DISCONNECT_BITS_A),
                *_DISCONNECT_REST_A,
            ),
        ),
    ),
    Rules(
        strict=False,
        long_keep_alive_percent=110,
        backs_off=False,
        aliases_belong_to_session=False,
    ),
)


def _will_flags(types: tuple[int, ...]) -> Step:
    bits = (Bits(f.WILL_RETAIN, 4), Bits(f.WILL_QOS, 2, 2), Bits(f.WILL_TOPIC_TYPE, 0, 2, types))
    return Step(w.FLAGS, f.WILL, when=f.WILL, bits=bits, reserved=0b1110_0000)


_WILL_TOPIC: Final = Step(w.TOPIC, f.WILL_ALIAS, when=f.WILL)
_WILL_LENGTH: Final = Step(w.LENGTH, f.WILL_PAYLOAD_LENGTH, when=f.WILL, pair=f.WILL_PAYLOAD)
_WILL_NAME: Final = Step(w.SIZED, f.WILL_NAME, when=f.WILL, pair=f.WILL_NAME_LENGTH, when_full=f.WILL_TOPIC_TYPE)
_WILL_PAYLOAD: Final = Step(w.SIZED, f.WILL_PAYLOAD, when=f.WILL, pair=f.WILL_PAYLOAD_LENGTH)
_TYPE_FLAGS_A: Final = flags(_B_TYPE_A, strict=True)

A: Final = Profile(
    "2.0-a",
    20,
    (2,),
    (
        Layout(k.ADVERTISE, 0x01, (_GATEWAY, _DURATION)),
        Layout(k.SEARCHGW, 0x02, (_RADIUS,)),
        Layout(k.GWINFO, 0x03, (_GATEWAY, _ADDRESS)),
        Layout(k.AUTH, 0x04, (_PACKET_ID, _REASON, *_AUTH_REST)),
        Layout(
            k.CONNECT,
            0x05,
            (
                flags(*_CONNECT_BITS_A, strict=True),
                _will_flags(_TYPES_2),
                _PACKET_ID,
                _VERSION,
                _KEEP_ALIVE,
                _EXPIRY,
                _MAX_PACKET,
                _WILL_TOPIC,
                _WILL_LENGTH,
                _WILL_NAME,
                _WILL_PAYLOAD,
                *_AUTH,
                _CLIENT_ID,
            ),
        ),
        Layout(
            k.CONNACK,
            0x06,
            (
                flags(Bits(f.AUTH, 1), Bits(f.SESSION_PRESENT, 0), strict=True),
                _PACKET_ID,
                _REASON,
                _EXPIRY,
                *_AUTH,
                _CLIENT_ID,
            ),
        ),
        Layout(k.REGISTER, 0x0A, (_PACKET_ID, _ALIAS, _NAME_REST)),
        Layout(k.REGACK, 0x0B, (_TYPE_FLAGS_A, _PACKET_ID, _ALIAS, _REASON)),
        Layout(k.PUBLISH, 0x0C, (flags(_B_DUP, _B_QOS, _B_RETAIN, _B_TYPE_A, strict=True), *_PUBLISH_2)),
        Layout(k.PUBACK, 0x0D, (_PACKET_ID, _REASON)),
        Layout(k.PUBCOMP, 0x0E, (_PACKET_ID, _REASON)),
        Layout(k.PUBREC, 0x0F, (_PACKET_ID, _REASON)),
        Layout(k.PUBREL, 0x10, (_PACKET_ID, _REASON)),
        Layout(k.PUBWOS, 0x11, (flags(_B_RETAIN, _B_TYPE_PUBWOS_A, strict=True), _TOPIC, _NAME_SIZED, _PAYLOAD)),
        Layout(k.SUBSCRIBE, 0x12, (flags(*_SUBSCRIBE_BITS, _B_TYPE_A, strict=True), _PACKET_ID, _TOPIC_REST)),
        # The alias stands before the packet identifier here, and only here.
        Layout(k.SUBACK, 0x13, (_TYPE_FLAGS_A, _ALIAS, _PACKET_ID, _REASON)),
        Layout(k.UNSUBSCRIBE, 0x14, (_TYPE_FLAGS_A, _PACKET_ID, _TOPIC_REST)),
        Layout(k.UNSUBACK, 0x15, (_PACKET_ID, _REASON)),
        Layout(k.PINGREQ, 0x16, (_PACKET_ID, _CLIENT_ID)),
        Layout(k.PINGRESP, 0x17, (_PACKET_ID, _REMAINING)),
        Layout(k.DISCONNECT, 0x18, (flags(*_DISCONNECT_BITS_A, strict=True), *_DISCONNECT_REST_A)),
        Layout(k.WAKEUP, 0x19),
    ),
    Rules(
        strict=True,
        long_keep_alive_percent=150,
        backs_off=True,
        aliases_belong_to_session=True,
        sleep_is_session_expiry=True,
    ),
)

_ALIAS_ANNOUNCED: Final = Step(w.U16, f.TOPIC_ALIAS, announced=True)
_ACK_B: Final = (_PACKET_ID, _REASON_OPTIONAL)
_ALIAS_ACK_FLAGS_B: Final = flags(_announces(f.TOPIC_ALIAS, 2), _B_TYPE_ACK_B, strict=True)

B: Final = Profile(
    "2.0-b",
    21,
    (2,),
    (
        Layout(
            k.CONNECT,
            0x01,
            (
                flags(
                    Bits(f.SUGGESTIONS, 6),
                    Bits(f.ADDRESS_CHANGE, 5),
                    _announces(f.AWAKE_MESSAGES, 4),
                    _announces(f.SESSION_EXPIRY, 3),
                    Bits(f.AUTH, 2),
                    Bits(f.WILL, 1),
                    Bits(f.CLEAN_START, 0),
                    strict=True,
                ),
                _will_flags(_TYPES_B),
                _PACKET_ID,
                _VERSION,
                _KEEP_ALIVE,
                _MAX_PACKET,
                Step(w.U8, f.AWAKE_MESSAGES, announced=True),
                Step(w.U32, f.SESSION_EXPIRY, announced=True),
                # The will's payload length stands after the name here, before it in A.
                _WILL_TOPIC,
                _WILL_NAME,
                _WILL_LENGTH,
                _WILL_PAYLOAD,
                *_AUTH,
                _CLIENT_ID,
            ),
        ),
        Layout(
            k.CONNACK,
            0x02,
            (
                flags(
                    Bits(f.AUTH, 3),
                    _announces(f.SERVER_KEEP_ALIVE, 2),
                    _announces(f.SESSION_EXPIRY, 1),
                    Bits(f.SESSION_PRESENT, 0),
                    strict=True,
                ),
                _PACKET_ID,
                _REASON,
                Step(w.U32, f.SESSION_EXPIRY, announced=True),
                Step(w.U16, f.SERVER_KEEP_ALIVE, announced=True),
                *_AUTH,
                _CLIENT_ID,
            ),
        ),
        Layout(k.PUBLISH, 0x03, (flags(_B_DUP, _B_QOS, _B_RETAIN, _B_TYPE_B, strict=True), *_PUBLISH_2)),
        Layout(k.PUBACK, 0x04, _ACK_B),
        Layout(k.PUBREC, 0x05, _ACK_B),
        Layout(k.PUBREL, 0x06, _ACK_B),
        Layout(k.PUBCOMP, 0x07, _ACK_B),
        Layout(k.SUBSCRIBE, 0x08, (flags(*_SUBSCRIBE_BITS, _B_TYPE_B, strict=True), _PACKET_ID, _TOPIC_REST)),
        # The format lets the reason be absent (granted QoS 0), but 3.7.6-5 wants it, so it is always written.
        Layout(k.SUBACK, 0x09, (_ALIAS_ACK_FLAGS_B, _PACKET_ID, _ALIAS_ANNOUNCED, _REASON)),
        Layout(k.UNSUBSCRIBE, 0x0A, (flags(_B_TYPE_B, strict=True), _PACKET_ID, _TOPIC_REST)),
        Layout(k.UNSUBACK, 0x0B, _ACK_B),
        Layout(k.PINGREQ, 0x0C, (_PACKET_ID,)),
        Layout(k.PINGRESP, 0x0D, (_PACKET_ID, _REMAINING)),
        Layout(
            k.DISCONNECT,
            0x0E,
            (
                flags(
                    _announces(f.REASON, 2), _announces(f.SESSION_EXPIRY, 1), _announces(f.PACKET_ID, 0), strict=True
                ),
                Step(w.U16, f.PACKET_ID, announced=True),
                Step(w.U32, f.SESSION_EXPIRY, announced=True),
                Step(w.U8, f.REASON, announced=True),
                Step(w.REST, f.REASON_STRING),
            ),
        ),
        Layout(k.AUTH, 0x0F, (_PACKET_ID, _REASON, *_AUTH_REST)),
        Layout(
            k.REGISTER,
            0x10,
            (flags(_announces(f.TOPIC_ALIAS, 0), strict=True), _PACKET_ID, _ALIAS_ANNOUNCED, _NAME_REST),
        ),
        Layout(k.REGACK, 0x11, (_ALIAS_ACK_FLAGS_B, _PACKET_ID, _ALIAS_ANNOUNCED, _REASON_OPTIONAL)),
        Layout(k.PUBWOS, 0x12, (flags(_B_RETAIN, _B_TYPE_PUBWOS_B, strict=True), _TOPIC, _NAME_SIZED, _PAYLOAD)),
        Layout(k.SLEEPREQ, 0x13, (flags(Bits(f.RETAIN_ALIASES, 0), strict=True), _PACKET_ID, Step(w.U32, f.SLEEP))),
        Layout(
            k.SLEEPRESP,
            0x14,
            (
                flags(_announces(f.SLEEP, 0), strict=True),
                _PACKET_ID,
                Step(w.U32, f.SLEEP, announced=True),
                _REASON_OPTIONAL,
            ),
        ),
        Layout(k.WAKEUP, 0x15),
        Layout(k.ADVERTISE, 0x16, (_GATEWAY, _DURATION)),
        Layout(k.SEARCHGW, 0x17, (_ADDRESS,)),
        Layout(k.GWINFO, 0x18, (_GATEWAY, _ADDRESS)),
    ),
    Rules(
        strict=True,
        long_keep_alive_percent=150,
        backs_off=True,
        aliases_belong_to_session=True,
        connect_repeated=False,
        disconnect_answered=False,
        dup_at_qos_1=False,
        tells_lost_connection=True,
        alias_0_malformed=True,
        unknown_predefined_fatal=True,
        has_alias_exists=True,
        has_connection_encapsulation=True,
        packet_bytes_max_least=10,
    ),
)

PROFILES: Final = (V12, W, A, B)

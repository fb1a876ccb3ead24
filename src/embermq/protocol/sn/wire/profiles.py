"""The wire profiles as tables: 1.2, early 2.0 (W), the 2.0 draft of 2024 (A), the 2.0 committee draft of 2026 (B).

Owns: every type code and every layout (1.2: section 5.4; 2.0: section 3). docs/mqtt-sn.md, "Wire profiles", tells where
each profile comes from.
Never: code that reads or writes a byte; `decode` and `encode` go through these tables.
"""

from typing import Final

from embermq.protocol.sn.wire import fields as f
from embermq.protocol.sn.wire import kinds as k
from embermq.protocol.sn.wire.fields import Bits, Step
from embermq.protocol.sn.wire.layouts import Layout, Profile, Rules, flags

_PACKET_ID: Final = Step(f.U16, f.PACKET_ID)
_ALIAS: Final = Step(f.U16, f.TOPIC_ALIAS)
_REASON: Final = Step(f.U8, f.REASON)
_REASON_OPTIONAL: Final = Step(f.U8, f.REASON, optional=True)
_RETURN_CODE: Final = Step(f.RETURN_CODE, f.REASON)
_KEEP_ALIVE: Final = Step(f.U16, f.KEEP_ALIVE)
_VERSION: Final = Step(f.U8, f.VERSION)
_EXPIRY: Final = Step(f.U32, f.SESSION_EXPIRY)
_MAX_PACKET: Final = Step(f.U16, f.MAX_PACKET)
_CLIENT_ID: Final = Step(f.REST, f.CLIENT_ID)
_PAYLOAD: Final = Step(f.REST, f.PAYLOAD)
_NAME_REST: Final = Step(f.REST, f.NAME)
_NAME_SIZED: Final = Step(f.SIZED, f.NAME, length=f.TOPIC_ALIAS, when_full=f.TOPIC_TYPE)
_TOPIC_REST: Final = Step(f.TOPIC_REST, f.TOPIC_ALIAS)
_GATEWAY: Final = Step(f.U8, f.GATEWAY_ID)
_DURATION: Final = Step(f.U16, f.DURATION)
_RADIUS: Final = Step(f.U8, f.RADIUS)
_ADDRESS: Final = Step(f.REST, f.ADDRESS)
_REMAINING: Final = Step(f.U8, f.REMAINING, optional=True)
_AUTH: Final = (Step(f.LEN8, f.AUTH_METHOD, when=f.AUTH), Step(f.LEN16, f.AUTH_DATA, when=f.AUTH))
_AUTH_REST: Final = (Step(f.LEN8, f.AUTH_METHOD), Step(f.REST, f.AUTH_DATA))
_PACKET_ID_IF_QOS: Final = Step(f.U16, f.PACKET_ID, when=f.QOS)

_B_DUP: Final = Bits(f.DUP, 7)
_B_QOS: Final = Bits(f.QOS, 5, 2)
_B_RETAIN: Final = Bits(f.RETAIN, 4)
_B_TYPE: Final = Bits(f.TOPIC_TYPE, 0, 2)
_B_NO_LOCAL: Final = Bits(f.NO_LOCAL, 7)
_B_AS_PUBLISHED: Final = Bits(f.RETAIN_AS_PUBLISHED, 4)
_B_HANDLING: Final = Bits(f.RETAIN_HANDLING, 2, 2)
_SUBSCRIBE_BITS: Final = (_B_NO_LOCAL, _B_QOS, _B_AS_PUBLISHED, _B_HANDLING, _B_TYPE)

_NONE: Final = -1
_TYPES_PUBLISH_12: Final = (f.SESSION_ALIAS, f.PREDEFINED_ALIAS, f.SHORT_NAME, _NONE)
# 1.2's QoS -1 with a "normal" topic id: the id is the length of a name that follows (an extension some senders use).
_TYPES_SESSIONLESS_12: Final = (f.FULL_NAME, f.PREDEFINED_ALIAS, f.SHORT_NAME, _NONE)
_TYPES_SUBSCRIBE_12: Final = (f.FULL_NAME, f.PREDEFINED_ALIAS, f.SHORT_NAME, _NONE)
_TYPES_A: Final = (f.SESSION_ALIAS, f.PREDEFINED_ALIAS, f.SHORT_NAME, f.FULL_NAME)
_TYPES_PUBWOS_A: Final = (_NONE, f.PREDEFINED_ALIAS, f.SHORT_NAME, f.FULL_NAME)
_TYPES_B: Final = (f.SESSION_ALIAS, f.PREDEFINED_ALIAS, _NONE, f.FULL_NAME)
_TYPES_PUBWOS_B: Final = (_NONE, f.PREDEFINED_ALIAS, _NONE, f.FULL_NAME)
_TYPES_ACK_B: Final = (f.SESSION_ALIAS, f.PREDEFINED_ALIAS, _NONE, _NONE)

_WILL_PARTS_12: Final = (
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
_PUBLISH_FLAGS_12: Final = flags(_B_DUP, _B_QOS, _B_RETAIN, _B_TYPE, strict=False)

V12: Final = Profile(
    "1.2",
    12,
    1,
    (
        Layout(k.ADVERTISE, 0x00, (_GATEWAY, _DURATION)),
        Layout(k.SEARCHGW, 0x01, (_RADIUS,)),
        Layout(k.GWINFO, 0x02, (_GATEWAY, _ADDRESS)),
        Layout(k.CONNECT, 0x04, _CONNECT_12),
        Layout(k.CONNACK, 0x05, (_RETURN_CODE,)),
        *_WILL_PARTS_12,
        Layout(k.REGISTER, 0x0A, (_ALIAS, _PACKET_ID, _NAME_REST)),
        Layout(k.REGACK, 0x0B, (_ALIAS, _PACKET_ID, _RETURN_CODE)),
        Layout(
            k.PUBLISH,
            0x0C,
            (_PUBLISH_FLAGS_12, _ALIAS, _PACKET_ID, _PAYLOAD),
            _TYPES_PUBLISH_12,
            sessionless=Layout(
                k.PUBWOS,
                0x0C,
                (_PUBLISH_FLAGS_12, _ALIAS, _PACKET_ID, _NAME_SIZED, _PAYLOAD),
                _TYPES_SESSIONLESS_12,
            ),
        ),
        Layout(k.PUBACK, 0x0D, (_ALIAS, _PACKET_ID, _RETURN_CODE)),
        Layout(k.PUBCOMP, 0x0E, (_PACKET_ID,)),
        Layout(k.PUBREC, 0x0F, (_PACKET_ID,)),
        Layout(k.PUBREL, 0x10, (_PACKET_ID,)),
        Layout(
            k.SUBSCRIBE,
            0x12,
            (flags(_B_DUP, _B_QOS, _B_TYPE, strict=False), _PACKET_ID, _TOPIC_REST),
            _TYPES_SUBSCRIBE_12,
        ),
        Layout(k.SUBACK, 0x13, (flags(_B_QOS, strict=False), _ALIAS, _PACKET_ID, _RETURN_CODE)),
        Layout(k.UNSUBSCRIBE, 0x14, (flags(_B_TYPE, strict=False), _PACKET_ID, _TOPIC_REST), _TYPES_SUBSCRIBE_12),
        Layout(k.UNSUBACK, 0x15, (_PACKET_ID,)),
        Layout(k.PINGREQ, 0x16, (_CLIENT_ID,)),
        Layout(k.PINGRESP, 0x17),
        Layout(k.DISCONNECT, 0x18, (Step(f.U16, f.SESSION_EXPIRY, optional=True),)),
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
    Bits(f.HAS_REASON, 3),
    Bits(f.HAS_EXPIRY, 2),
    Bits(f.HAS_REASON_STRING, 1),
    Bits(f.RETAIN_ALIASES, 0),
)
_DISCONNECT_REST_A: Final = (
    Step(f.U8, f.REASON, when=f.HAS_REASON),
    Step(f.U32, f.SESSION_EXPIRY, when=f.HAS_EXPIRY),
    Step(f.REST, f.REASON_STRING, when=f.HAS_REASON_STRING),
)
_PUBLISH_2: Final = (_PACKET_ID_IF_QOS, _ALIAS, _NAME_SIZED, _PAYLOAD)

W: Final = Profile(
    "2.0-w",
    19,
    2,
    (
        Layout(k.ADVERTISE, 0x00, (_GATEWAY, _DURATION)),
        Layout(k.SEARCHGW, 0x01, (_RADIUS,)),
        Layout(k.GWINFO, 0x02, (_GATEWAY, _ADDRESS)),
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
        Layout(k.CONNACK, 0x05, (_REASON, Step(f.U8, f.SESSION_PRESENT), _EXPIRY, _CLIENT_ID)),
        *_WILL_PARTS_12,
        Layout(k.REGISTER, 0x0A, (_ALIAS, _PACKET_ID, _NAME_REST)),
        Layout(k.REGACK, 0x0B, (flags(_B_TYPE, strict=False), _ALIAS, _PACKET_ID, _REASON), _TYPES_A),
        Layout(k.PUBLISH, 0x0C, (flags(_B_DUP, _B_QOS, _B_RETAIN, _B_TYPE, strict=False), *_PUBLISH_2), _TYPES_A),
        Layout(k.PUBACK, 0x0D, (_PACKET_ID, _REASON)),
        Layout(k.PUBCOMP, 0x0E, (_PACKET_ID,)),
        Layout(k.PUBREC, 0x0F, (_PACKET_ID,)),
        Layout(k.PUBREL, 0x10, (_PACKET_ID,)),
        Layout(
            k.PUBWOS,
            0x11,
            (_VERSION, flags(_B_QOS, _B_RETAIN, _B_TYPE, strict=False), _ALIAS, _NAME_SIZED, _PAYLOAD),
            _TYPES_PUBWOS_A,
        ),
        Layout(k.SUBSCRIBE, 0x12, (flags(*_SUBSCRIBE_BITS, strict=False), _PACKET_ID, _TOPIC_REST), _TYPES_A),
        Layout(
            k.SUBACK,
            0x13,
            (flags(_B_QOS, _B_TYPE, strict=False), _ALIAS, _PACKET_ID, Step(f.ERROR_CODE, f.REASON)),
            _TYPES_A,
        ),
        Layout(k.UNSUBSCRIBE, 0x14, (flags(_B_TYPE, strict=False), _PACKET_ID, _TOPIC_REST), _TYPES_A),
        Layout(k.UNSUBACK, 0x15, (_PACKET_ID, _REASON)),
        Layout(k.PINGREQ, 0x16, (Step(f.U8, f.AWAKE_MESSAGES, optional=True), _CLIENT_ID)),
        Layout(k.PINGRESP, 0x17, (_REMAINING,)),
        Layout(
            k.DISCONNECT,
            0x18,
            (
                Step(f.FLAGS, f.RETAIN_ALIASES, optional=True, bits=_DISCONNECT_BITS_A),
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

_WILL_FLAGS_2: Final = Step(
    f.FLAGS,
    f.WILL,
    when=f.WILL,
    bits=(Bits(f.WILL_RETAIN, 4), Bits(f.WILL_QOS, 2, 2), Bits(f.WILL_TOPIC_TYPE, 0, 2)),
    reserved=0b1110_0000,
)
_WILL_TOPIC: Final = Step(f.U16, f.WILL_ALIAS, when=f.WILL)
_WILL_LENGTH: Final = Step(f.U16, f.WILL_LENGTH, when=f.WILL)
_WILL_NAME: Final = Step(f.SIZED, f.WILL_NAME, when=f.WILL, length=f.WILL_ALIAS, when_full=f.WILL_TOPIC_TYPE)
_WILL_PAYLOAD: Final = Step(f.SIZED, f.WILL_PAYLOAD, when=f.WILL, length=f.WILL_LENGTH)
_PUBLISH_FLAGS_2: Final = flags(_B_DUP, _B_QOS, _B_RETAIN, _B_TYPE, strict=True)
_PUBWOS_FLAGS_2: Final = flags(_B_RETAIN, _B_TYPE, strict=True)
_TYPE_FLAGS_2: Final = flags(_B_TYPE, strict=True)

A: Final = Profile(
    "2.0-a",
    20,
    2,
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
                _WILL_FLAGS_2,
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
            will_topic_types=_TYPES_A,
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
        Layout(k.REGACK, 0x0B, (_TYPE_FLAGS_2, _PACKET_ID, _ALIAS, _REASON), _TYPES_A),
        Layout(k.PUBLISH, 0x0C, (_PUBLISH_FLAGS_2, *_PUBLISH_2), _TYPES_A),
        Layout(k.PUBACK, 0x0D, (_PACKET_ID, _REASON)),
        Layout(k.PUBCOMP, 0x0E, (_PACKET_ID, _REASON)),
        Layout(k.PUBREC, 0x0F, (_PACKET_ID, _REASON)),
        Layout(k.PUBREL, 0x10, (_PACKET_ID, _REASON)),
        Layout(k.PUBWOS, 0x11, (_PUBWOS_FLAGS_2, _ALIAS, _NAME_SIZED, _PAYLOAD), _TYPES_PUBWOS_A),
        Layout(k.SUBSCRIBE, 0x12, (flags(*_SUBSCRIBE_BITS, strict=True), _PACKET_ID, _TOPIC_REST), _TYPES_A),
        # The alias stands before the packet identifier here, and only here.
        Layout(k.SUBACK, 0x13, (_TYPE_FLAGS_2, _ALIAS, _PACKET_ID, _REASON), _TYPES_A),
        Layout(k.UNSUBSCRIBE, 0x14, (_TYPE_FLAGS_2, _PACKET_ID, _TOPIC_REST), _TYPES_A),
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

_ALIAS_IF_FLAG: Final = Step(f.U16, f.TOPIC_ALIAS, when=f.HAS_ALIAS)
_ACK_B: Final = (_PACKET_ID, _REASON_OPTIONAL)
_ALIAS_ACK_FLAGS_B: Final = flags(Bits(f.HAS_ALIAS, 2), _B_TYPE, strict=True)

B: Final = Profile(
    "2.0-b",
    21,
    2,
    (
        Layout(
            k.CONNECT,
            0x01,
            (
                flags(
                    Bits(f.SUGGESTIONS, 6),
                    Bits(f.ADDRESS_CHANGE, 5),
                    Bits(f.HAS_AWAKE, 4),
                    Bits(f.HAS_EXPIRY, 3),
                    Bits(f.AUTH, 2),
                    Bits(f.WILL, 1),
                    Bits(f.CLEAN_START, 0),
                    strict=True,
                ),
                _WILL_FLAGS_2,
                _PACKET_ID,
                _VERSION,
                _KEEP_ALIVE,
                _MAX_PACKET,
                Step(f.U8, f.AWAKE_MESSAGES, when=f.HAS_AWAKE),
                Step(f.U32, f.SESSION_EXPIRY, when=f.HAS_EXPIRY),
                # The will's payload length stands after the name here, before it in A.
                _WILL_TOPIC,
                _WILL_NAME,
                _WILL_LENGTH,
                _WILL_PAYLOAD,
                *_AUTH,
                _CLIENT_ID,
            ),
            will_topic_types=_TYPES_B,
        ),
        Layout(
            k.CONNACK,
            0x02,
            (
                flags(
                    Bits(f.AUTH, 3),
                    Bits(f.HAS_KEEP_ALIVE, 2),
                    Bits(f.HAS_EXPIRY, 1),
                    Bits(f.SESSION_PRESENT, 0),
                    strict=True,
                ),
                _PACKET_ID,
                _REASON,
                Step(f.U32, f.SESSION_EXPIRY, when=f.HAS_EXPIRY),
                Step(f.U16, f.SERVER_KEEP_ALIVE, when=f.HAS_KEEP_ALIVE),
                *_AUTH,
                _CLIENT_ID,
            ),
        ),
        Layout(k.PUBLISH, 0x03, (_PUBLISH_FLAGS_2, *_PUBLISH_2), _TYPES_B),
        Layout(k.PUBACK, 0x04, _ACK_B),
        Layout(k.PUBREC, 0x05, _ACK_B),
        Layout(k.PUBREL, 0x06, _ACK_B),
        Layout(k.PUBCOMP, 0x07, _ACK_B),
        Layout(k.SUBSCRIBE, 0x08, (flags(*_SUBSCRIBE_BITS, strict=True), _PACKET_ID, _TOPIC_REST), _TYPES_B),
        # The format lets the reason be absent (granted QoS 0), but 3.7.6-5 wants it, so it is always written.
        Layout(k.SUBACK, 0x09, (_ALIAS_ACK_FLAGS_B, _PACKET_ID, _ALIAS_IF_FLAG, _REASON), _TYPES_ACK_B),
        Layout(k.UNSUBSCRIBE, 0x0A, (_TYPE_FLAGS_2, _PACKET_ID, _TOPIC_REST), _TYPES_B),
        Layout(k.UNSUBACK, 0x0B, _ACK_B),
        Layout(k.PINGREQ, 0x0C, (_PACKET_ID,)),
        Layout(k.PINGRESP, 0x0D, (_PACKET_ID, _REMAINING)),
        Layout(
            k.DISCONNECT,
            0x0E,
            (
                flags(Bits(f.HAS_REASON, 2), Bits(f.HAS_EXPIRY, 1), Bits(f.HAS_PACKET_ID, 0), strict=True),
                Step(f.U16, f.PACKET_ID, when=f.HAS_PACKET_ID),
                Step(f.U32, f.SESSION_EXPIRY, when=f.HAS_EXPIRY),
                Step(f.U8, f.REASON, when=f.HAS_REASON),
                Step(f.REST, f.REASON_STRING),
            ),
        ),
        Layout(k.AUTH, 0x0F, (_PACKET_ID, _REASON, *_AUTH_REST)),
        Layout(k.REGISTER, 0x10, (flags(Bits(f.HAS_ALIAS, 0), strict=True), _PACKET_ID, _ALIAS_IF_FLAG, _NAME_REST)),
        Layout(k.REGACK, 0x11, (_ALIAS_ACK_FLAGS_B, _PACKET_ID, _ALIAS_IF_FLAG, _REASON_OPTIONAL), _TYPES_ACK_B),
        Layout(k.PUBWOS, 0x12, (_PUBWOS_FLAGS_2, _ALIAS, _NAME_SIZED, _PAYLOAD), _TYPES_PUBWOS_B),
        Layout(k.SLEEPREQ, 0x13, (flags(Bits(f.RETAIN_ALIASES, 0), strict=True), _PACKET_ID, Step(f.U32, f.SLEEP))),
        Layout(
            k.SLEEPRESP,
            0x14,
            (
                flags(Bits(f.HAS_SLEEP, 0), strict=True),
                _PACKET_ID,
                Step(f.U32, f.SLEEP, when=f.HAS_SLEEP),
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

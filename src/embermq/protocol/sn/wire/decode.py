"""Decoding: the bytes of one packet to its class, by the table of its wire profile.

Owns: reading a body by the steps of a layout, and the checks that hold for any packet of a strict profile.
Never: raises anything but `MalformedPacket` or `ProtocolError`, whatever the bytes are.
"""

from collections.abc import Callable
from typing import Final

from embermq.protocol.errors import MalformedPacket, ProtocolError
from embermq.protocol.reasons import ReasonCode
from embermq.protocol.sn.wire import connect_packets as connection
from embermq.protocol.sn.wire import discovery_packets as discovery
from embermq.protocol.sn.wire import kinds
from embermq.protocol.sn.wire import message_packets as messages
from embermq.protocol.sn.wire import ping_sleep_packets as pings
from embermq.protocol.sn.wire import will_packets as wills
from embermq.protocol.sn.wire.fields import (
    BLOB,
    DUP,
    ERROR_CODE,
    FLAGS,
    FULL_NAME,
    KEEP_ALIVE,
    LEN8,
    LEN16,
    MAX_PACKET,
    NAME,
    PREDEFINED_ALIAS,
    QOS,
    REST,
    RETURN_CODE,
    SHORT_NAME,
    SIZED,
    TOPIC_ALIAS,
    TOPIC_REST,
    TOPIC_TYPE,
    U8,
    U16,
    U32,
    VERSION,
    WILL_TOPIC_TYPE,
    Step,
    Values,
)
from embermq.protocol.sn.wire.framing import Frame, read_frame
from embermq.protocol.sn.wire.kinds import SnPacket
from embermq.protocol.sn.wire.layouts import REASON_OF_RETURN_CODE, UNSPECIFIED, Layout, Profile

READERS: Final[dict[int, Callable[[Values], SnPacket]]] = {
    kinds.ADVERTISE: discovery.read_advertise,
    kinds.SEARCHGW: discovery.read_searchgw,
    kinds.GWINFO: discovery.read_gwinfo,
    kinds.AUTH: connection.read_auth,
    kinds.CONNECT: connection.read_connect,
    kinds.CONNACK: connection.read_connack,
    kinds.WILLTOPICREQ: wills.read_willtopicreq,
    kinds.WILLTOPIC: wills.read_willtopic,
    kinds.WILLMSGREQ: wills.read_willmsgreq,
    kinds.WILLMSG: wills.read_willmsg,
    kinds.REGISTER: messages.read_register,
    kinds.REGACK: messages.read_regack,
    kinds.PUBLISH: messages.read_publish,
    kinds.PUBACK: messages.read_puback,
    kinds.PUBCOMP: messages.read_pubcomp,
    kinds.PUBREC: messages.read_pubrec,
    kinds.PUBREL: messages.read_pubrel,
    kinds.PUBWOS: messages.read_pubwos,
    kinds.SUBSCRIBE: messages.read_subscribe,
    kinds.SUBACK: messages.read_suback,
    kinds.UNSUBSCRIBE: messages.read_unsubscribe,
    kinds.UNSUBACK: messages.read_unsuback,
    kinds.PINGREQ: pings.read_pingreq,
    kinds.PINGRESP: pings.read_pingresp,
    kinds.DISCONNECT: connection.read_disconnect,
    kinds.WAKEUP: pings.read_wakeup,
    kinds.WILLTOPICUPD: wills.read_willtopicupd,
    kinds.WILLTOPICRESP: wills.read_willtopicresp,
    kinds.WILLMSGUPD: wills.read_willmsgupd,
    kinds.WILLMSGRESP: wills.read_willmsgresp,
    kinds.SLEEPREQ: pings.read_sleepreq,
    kinds.SLEEPRESP: pings.read_sleepresp,
}


def decode(packet: bytes, profile: Profile) -> SnPacket:
    """The packet that fills `packet`, read by a profile."""
    return decode_frame(read_frame(packet), profile)


def decode_frame(frame: Frame, profile: Profile) -> SnPacket:
    """The packet in a frame, read by a profile."""
    layout = profile.by_code[frame.code]
    if layout is None:
        raise MalformedPacket(f"type {frame.code:#04x} is reserved in {profile.name}")
    body = frame.body
    if layout.sessionless is not None and body and (body[0] >> 5) & 3 == 3:
        layout = layout.sessionless
    values = _read_body(body, layout)
    if profile.rules.strict:
        _check_strict(values, layout, profile)
    return READERS[layout.kind](values)


def _read_body(body: bytes, layout: Layout) -> Values:
    """Read a body step by step; it has to end where the layout ends."""
    values = Values()
    numbers = values.numbers
    at = 0
    for step in layout.steps:
        if step.when >= 0 and not numbers[step.when]:
            continue
        if step.when_full >= 0 and numbers[step.when_full] != FULL_NAME:
            continue
        if step.optional and at >= len(body):
            continue
        kind = step.kind
        if kind == U16:
            numbers[step.field] = _number(body, at, 2)
            at += 2
        elif kind == FLAGS:
            _spread(_number(body, at, 1), step, numbers)
            _map_topic_types(layout, numbers)
            at += 1
        elif kind == REST:
            values.blobs[step.field - BLOB] = body[at:]
            at = len(body)
        elif kind == TOPIC_REST:
            _read_topic(body, at, values)
            at = len(body)
        elif kind == U8:
            numbers[step.field] = _number(body, at, 1)
            at += 1
        elif kind == U32:
            numbers[step.field] = _number(body, at, 4)
            at += 4
        elif kind in (RETURN_CODE, ERROR_CODE):
            code = _number(body, at, 1)
            if kind == RETURN_CODE:
                code = REASON_OF_RETURN_CODE[code] if code < len(REASON_OF_RETURN_CODE) else UNSPECIFIED
            numbers[step.field] = code
            at += 1
        else:
            at = _read_blob(body, at, step, values)
    if at != len(body):
        raise MalformedPacket(f"{len(body) - at} bytes after the last field")
    return values


def _number(body: bytes, at: int, size: int) -> int:
    if at + size > len(body):
        raise MalformedPacket("cut short")
    return int.from_bytes(body[at : at + size], "big")


def _spread(flags: int, step: Step, numbers: list[int]) -> None:
    if flags & step.reserved:
        raise MalformedPacket("a reserved flag is set")
    for bit in step.bits:
        numbers[bit.field] = (flags >> bit.shift) & bit.mask


def _map_topic_types(layout: Layout, numbers: list[int]) -> None:
    """Wire bits to the model's topic types. The will's bits are mapped when its own flags have been read."""
    if layout.topic_types:
        numbers[TOPIC_TYPE] = layout.topic_types[numbers[TOPIC_TYPE]]
        if numbers[TOPIC_TYPE] < 0:
            raise MalformedPacket("a reserved topic type")
    if layout.will_topic_types and layout.will_topic_types[numbers[WILL_TOPIC_TYPE]] < 0:
        raise MalformedPacket("a reserved will topic type")


def _read_blob(body: bytes, at: int, step: Step, values: Values) -> int:
    if step.kind == SIZED:
        size = values.numbers[step.length]
    else:
        assert step.kind in (LEN8, LEN16)
        prefix = 1 if step.kind == LEN8 else 2
        size = _number(body, at, prefix)
        at += prefix
    if at + size > len(body):
        raise MalformedPacket("a length beyond the end of the packet")
    values.blobs[step.field - BLOB] = body[at : at + size]
    return at + size


def _read_topic(body: bytes, at: int, values: Values) -> None:
    """A subscription's topic: it takes what is left of the packet."""
    topic_type = values.numbers[TOPIC_TYPE]
    if topic_type == FULL_NAME:
        values.set_blob(NAME, body[at:])
    elif len(body) - at != 2:
        raise MalformedPacket("an alias or a short name is two bytes")
    elif topic_type == SHORT_NAME:
        values.set_blob(NAME, body[at:])
    else:
        values.numbers[TOPIC_ALIAS] = _number(body, at, 2)


def _check_strict(values: Values, layout: Layout, profile: Profile) -> None:
    """Errors of 2.0 that 1.2 and W allow."""
    numbers = values.numbers
    if layout.kind == kinds.CONNECT:
        if numbers[VERSION] != profile.version:
            raise ProtocolError(
                "the version is not the one of its profile", reason=ReasonCode.UNSUPPORTED_PROTOCOL_VERSION
            )
        if numbers[KEEP_ALIVE] == 0:
            raise ProtocolError("a keep alive of 0")
        if 0 < numbers[MAX_PACKET] < profile.rules.packet_bytes_max_least:
            raise ProtocolError("a maximum packet size below the least")
    elif layout.kind == kinds.PUBLISH and numbers[DUP] and numbers[QOS] == 0:
        raise MalformedPacket("DUP at QoS 0")
    if (
        profile.rules.alias_0_malformed
        and layout.kind in (kinds.PUBLISH, kinds.PUBWOS, kinds.SUBSCRIBE, kinds.UNSUBSCRIBE)
        and numbers[TOPIC_TYPE] <= PREDEFINED_ALIAS
        and numbers[TOPIC_ALIAS] == 0
    ):
        raise MalformedPacket("topic alias 0")

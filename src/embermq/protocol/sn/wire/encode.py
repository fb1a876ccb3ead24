"""Encoding: a packet's class to its bytes, by the table of its wire profile.

Owns: writing a body by the steps of a layout.
A packet that the profile has no layout for, or a value that it cannot express, is a fault of ours: ValueError.
"""

from embermq.protocol.sn.wire.fields import (
    BLOB,
    ERROR_CODE,
    FLAGS,
    FULL_NAME,
    LEN8,
    LEN16,
    NAME,
    RETURN_CODE,
    SHORT_NAME,
    TOPIC_ALIAS,
    TOPIC_REST,
    TOPIC_TYPE,
    U8,
    U16,
    U32,
    WILL_TOPIC_TYPE,
    Step,
    Values,
)
from embermq.protocol.sn.wire.framing import write_frame
from embermq.protocol.sn.wire.kinds import SnPacket
from embermq.protocol.sn.wire.layouts import UNSPECIFIED, Layout, Profile, return_code


def encode(packet: SnPacket, profile: Profile) -> bytes:
    """The bytes of a packet, with the shorter length form that fits."""
    layout = profile.by_kind[packet.kind()]
    if layout is None:
        raise ValueError(f"{profile.name} has no {type(packet).__name__}")
    values = Values()
    packet.fill(values)
    body = bytearray()
    for at, step in enumerate(layout.steps):
        if _present(step, values) and (not step.optional or _has_more(layout, at, values)):
            _write(body, step, layout, values)
    return write_frame(layout.code, bytes(body))


def _present(step: Step, values: Values) -> bool:
    """Whether the flags say that the step is there."""
    if step.when_full >= 0 and values.numbers[step.when_full] != FULL_NAME:
        return False
    return step.when < 0 or values.numbers[step.when] != 0


def _has_more(layout: Layout, at: int, values: Values) -> bool:
    """Whether an optional step, or one after it, has a value: a field is known by its place only."""
    return any(_present(step, values) and values.holds(step.field) for step in layout.steps[at:])


def _write(body: bytearray, step: Step, layout: Layout, values: Values) -> None:
    kind = step.kind
    if kind == FLAGS:
        body.append(_flags_of(step, layout, values))
    elif kind == TOPIC_REST:
        if values.numbers[TOPIC_TYPE] >= SHORT_NAME:
            body += values.blob(NAME)
        else:
            body += values.numbers[TOPIC_ALIAS].to_bytes(2, "big")
    elif step.field >= BLOB:
        blob = values.blobs[step.field - BLOB]
        if kind == LEN8:
            body += len(blob).to_bytes(1, "big")
        elif kind == LEN16:
            body += len(blob).to_bytes(2, "big")
        body += blob
    else:
        number = values.numbers[step.field]
        if kind == U16:
            body += number.to_bytes(2, "big")
        elif kind == U8:
            body.append(number)
        elif kind == U32:
            body += number.to_bytes(4, "big")
        elif kind == RETURN_CODE:
            body.append(return_code(number))
        elif kind == ERROR_CODE:
            body.append(number if number >= UNSPECIFIED else 0)
        else:
            raise ValueError("a step of an unknown kind")


def _flags_of(step: Step, layout: Layout, values: Values) -> int:
    flags = 0
    for bit in step.bits:
        number = values.numbers[bit.field]
        if bit.field == TOPIC_TYPE:
            number = _topic_bits(layout.topic_bits, number)
        elif bit.field == WILL_TOPIC_TYPE:
            number = _topic_bits(layout.will_topic_bits, number)
        flags |= (number & bit.mask) << bit.shift
    return flags


def _topic_bits(bits: tuple[int, ...], topic_type: int) -> int:
    if not bits:
        return topic_type
    if bits[topic_type] < 0:
        raise ValueError("a topic type that this packet cannot have on this wire")
    return bits[topic_type]

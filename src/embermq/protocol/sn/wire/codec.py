"""The bytes of one packet to its fields and back, by the table of its wire profile.

Owns: reading and writing a body by the steps of a layout, and the checks of what a layout cannot say.
Never: raises anything but `MalformedPacket` or `ProtocolError` while reading, whatever the bytes are. To write a packet
that the profile has no layout for, or a value that it cannot express, is a fault of ours: ValueError.
"""

from embermq.protocol.errors import MalformedPacket, ProtocolError
from embermq.protocol.reasons import ReasonCode
from embermq.protocol.sn.wire import fields as f
from embermq.protocol.sn.wire import layouts as w
from embermq.protocol.sn.wire import packets as sn
from embermq.protocol.sn.wire.framing import Frame, read_frame, write_frame
from embermq.protocol.sn.wire.layouts import (
    REASON_OF_RETURN_CODE,
    UNSPECIFIED,
    Layout,
    Profile,
    Step,
    return_code,
)
from embermq.protocol.sn.wire.packets import SnPacket
from embermq.protocol.topics import check_topic_name


def decode(packet: bytes, profile: Profile) -> SnPacket:
    """The packet that fills `packet`, read by a profile."""
    return decode_frame(read_frame(packet), profile)


def decode_frame(frame: Frame, profile: Profile) -> SnPacket:
    """The packet in a frame, read by a profile."""
    layout = profile.by_code[frame.code]
    if layout is None:
        raise MalformedPacket(f"type {frame.code:#04x} is reserved in {profile.name}")
    packet = _read_body(frame.body, layout.of(frame.body))
    if profile.rules.strict:
        _check_strict(packet, profile)
    _check(packet)
    return packet


# -- reading ----------------------------------------------------------------------------------------------------------


def _read_body(body: bytes, layout: Layout) -> SnPacket:
    """Read a body step by step; it has to end where the layout ends."""
    packet = SnPacket(layout.kind)
    numbers = packet.numbers
    announced = 0  # the fields that flags have announced, as bits
    at = 0
    end = len(body)
    for step in layout.steps:
        if not step.is_certain and not _is_there(step, packet, announced, at < end):
            continue
        kind = step.kind
        if kind == w.U16 or kind == w.LENGTH:  # one comparison each: a tuple would be searched
            numbers[step.field] = _two_bytes(body, at)
            at += 2
        elif kind == w.FLAGS:
            announced |= _spread(_byte(body, at), step, numbers)
            at += 1
        elif kind == w.TOPIC:
            _read_topic(_two_bytes(body, at), step.field, packet)
            at += 2
        elif kind == w.REST:
            _set(packet, step.field, body[at:])
            at = end
        elif kind == w.TOPIC_REST:
            _read_topic_rest(body[at:], packet)
            at = end
        elif kind == w.U8 or kind == w.ERROR_CODE:
            numbers[step.field] = _byte(body, at)
            at += 1
        elif kind == w.RETURN_CODE:
            code = _byte(body, at)
            numbers[step.field] = REASON_OF_RETURN_CODE[code] if code < len(REASON_OF_RETURN_CODE) else UNSPECIFIED
            at += 1
        elif kind == w.U32:
            numbers[step.field] = (_two_bytes(body, at) << 16) | _two_bytes(body, at + 2)
            at += 4
        else:
            at = _read_sized(body, at, step, packet)
    if at != end:
        raise MalformedPacket(f"{end - at} bytes after the last field")
    return packet


def _is_there(step: Step, packet: SnPacket, announced: int, has_more: bool) -> bool:
    """Whether the packet has a field that not every packet of its kind has."""
    if step.when >= 0 and not packet.numbers[step.when]:
        return False
    if step.when_full >= 0 and packet.numbers[step.when_full] != f.FULL_NAME:
        return False
    if step.announced and not (announced >> step.field) & 1:
        return False
    return has_more or not step.optional


def _byte(body: bytes, at: int) -> int:
    if at >= len(body):
        raise MalformedPacket("cut short")
    return body[at]


def _two_bytes(body: bytes, at: int) -> int:
    if at + 2 > len(body):
        raise MalformedPacket("cut short")
    return (body[at] << 8) | body[at + 1]


def _spread(flags: int, step: Step, numbers: list[int]) -> int:
    """Set the fields of a flags byte; returns the fields that it announces, as bits."""
    if flags & step.reserved:
        raise MalformedPacket("a reserved flag is set")
    announced = 0
    for bit in step.bits:
        value = (flags >> bit.shift) & bit.mask
        if bit.announces:
            announced |= value << bit.field
            continue
        if bit.values:
            value = bit.values[value]
            if value < 0:
                raise MalformedPacket("a reserved topic type")
        numbers[bit.field] = value
    return announced


def _set(packet: SnPacket, field: int, data: bytes) -> None:
    if field >= f.BLOB:
        packet.blobs[field - f.BLOB] = data
    else:
        packet.texts[field - f.TEXT] = f.text_of(data)


def _read_sized(body: bytes, at: int, step: Step, packet: SnPacket) -> int:
    """Read a text or a blob that has a length; returns where it ends."""
    if step.kind == w.SIZED:
        size = packet.numbers[step.pair]
        packet.numbers[step.pair] = 0
    elif step.kind == w.LEN8:
        size = _byte(body, at)
        at += 1
    else:
        assert step.kind == w.LEN16
        size = _two_bytes(body, at)
        at += 2
    if at + size > len(body):
        raise MalformedPacket("a length beyond the end of the packet")
    _set(packet, step.field, body[at : at + size])
    return at + size


def _read_topic(value: int, field: int, packet: SnPacket) -> None:
    """The two bytes of a message's topic, or of the topic of a will."""
    numbers = packet.numbers
    is_will = field == f.WILL_ALIAS
    topic_type = numbers[f.WILL_TOPIC_TYPE if is_will else f.TOPIC_TYPE]
    if topic_type < f.SHORT_NAME:
        numbers[field] = value
        return
    numbers[field] = 0
    if topic_type == f.SHORT_NAME:
        _set(packet, f.WILL_NAME if is_will else f.NAME, value.to_bytes(2, "big"))
    else:
        numbers[f.WILL_NAME_LENGTH if is_will else f.NAME_LENGTH] = value


def _read_topic_rest(data: bytes, packet: SnPacket) -> None:
    """A subscription's topic: it takes what is left of the packet."""
    topic_type = packet.numbers[f.TOPIC_TYPE]
    if topic_type != f.FULL_NAME and len(data) != 2:
        raise MalformedPacket("an alias or a short name is two bytes")
    if topic_type >= f.SHORT_NAME:
        _set(packet, f.NAME, data)
    else:
        packet.numbers[f.TOPIC_ALIAS] = (data[0] << 8) | data[1]


# -- checks -----------------------------------------------------------------------------------------------------------


def _check(packet: SnPacket) -> None:
    """Check what a layout cannot say, and set aside what a wire has but the packet does not mean."""
    kind = packet.kind
    if kind == sn.PUBLISH:
        _check_publish(packet)
    elif kind == sn.SUBSCRIBE:
        # Whether the filter is valid is answered by a SUBACK.
        if packet.qos > 2:
            raise ProtocolError("a subscription at QoS 3", "MQTT-SN-3.1.17.2")
        if packet.retain_handling > 2:
            raise ProtocolError("Retain Handling 3", "MQTT-SN-3.1.17.2")
    elif kind == sn.PUBWOS:
        packet.set_sessionless()
        _check_name(packet.topic_type, packet.topic_name)
    elif kind == sn.SUBACK:
        packet.set_granted(packet.reason or packet.qos)
    elif kind == sn.CONNECT:
        will = packet.will
        if will is not None:
            if will.qos > 2:
                raise MalformedPacket("a will at QoS 3", "MQTT-SN-3.1.4.9-3")
            _check_name(will.reference.topic_type, will.reference.name)
    elif kind == sn.WILLTOPIC or kind == sn.WILLTOPICUPD:
        _check_will_topic(packet)
    elif kind == sn.SLEEPREQ and packet.sleep_s == 0:
        raise ProtocolError("a sleep of 0 seconds")


def _check_publish(packet: SnPacket) -> None:
    numbers = packet.numbers
    qos = numbers[f.QOS]
    if qos > 2:
        raise MalformedPacket("QoS 3")
    if qos == 0:
        # 1.2 writes a MsgId of 0 here and 2.0 none; whatever it says, there is nothing to acknowledge.
        numbers[f.PACKET_ID] = 0
        numbers[f.DUP] = 0
    elif numbers[f.PACKET_ID] == 0:
        raise MalformedPacket("packet identifier 0 at QoS 1 or 2")
    _check_name(numbers[f.TOPIC_TYPE], packet.topic_name)


def _check_name(topic_type: int, name: str) -> None:
    """A message's topic name may not have wildcards."""
    if topic_type >= f.SHORT_NAME:
        problem = check_topic_name(name)
        if problem is not None:
            raise MalformedPacket(problem, "MQTT-SN-4.7.1-1", ReasonCode.TOPIC_NAME_INVALID)


def _check_will_topic(packet: SnPacket) -> None:
    if not packet.topic_name:
        packet.numbers[f.QOS] = 0
        packet.numbers[f.RETAIN] = 0
        return
    _check_name(f.FULL_NAME, packet.topic_name)
    if packet.qos > 2:
        raise MalformedPacket("a will at QoS 3")


def _check_strict(packet: SnPacket, profile: Profile) -> None:
    """Errors of 2.0 that 1.2 and W allow."""
    kind = packet.kind
    if kind == sn.CONNECT:
        if packet.version not in profile.versions:
            raise ProtocolError(
                "the version is not the one of its profile", reason=ReasonCode.UNSUPPORTED_PROTOCOL_VERSION
            )
        if packet.keep_alive_s == 0:
            raise ProtocolError("a keep alive of 0")
        if 0 < packet.packet_bytes_max < profile.rules.packet_bytes_max_least:
            raise ProtocolError("a maximum packet size below the least")
    elif kind == sn.PUBLISH and packet.dup and packet.qos == 0:
        raise MalformedPacket("DUP at QoS 0")
    if (
        profile.rules.alias_0_malformed
        and kind in (sn.PUBLISH, sn.PUBWOS, sn.SUBSCRIBE, sn.UNSUBSCRIBE)
        and packet.topic_type <= f.PREDEFINED_ALIAS
        and packet.topic_alias == 0
    ):
        raise MalformedPacket("topic alias 0")


# -- writing ----------------------------------------------------------------------------------------------------------


def encode(packet: SnPacket, profile: Profile) -> bytes:
    """The bytes of a packet, with the shorter length form that fits."""
    layout = profile.layout(packet.kind)
    body = bytearray()
    for at, step in enumerate(layout.steps):
        if step.is_certain or (_is_written(step, packet) and (not step.optional or _has_more(layout, at, packet))):
            _write(body, step, packet)
    return write_frame(layout.code, bytes(body))


def _is_written(step: Step, packet: SnPacket) -> bool:
    """Whether the packet has the field of a step; an optional one may have to be written even so."""
    if step.when_full >= 0 and packet.numbers[step.when_full] != f.FULL_NAME:
        return False
    if step.announced and not packet.holds(step.field):
        return False
    return step.when < 0 or packet.numbers[step.when] != 0


def _has_more(layout: Layout, at: int, packet: SnPacket) -> bool:
    """Whether an optional step, or one after it, has a value: a field is known by its place only."""
    return any(_is_written(step, packet) and packet.holds(step.field) for step in layout.steps[at:])


def _write(body: bytearray, step: Step, packet: SnPacket) -> None:
    kind = step.kind
    if kind == w.FLAGS:
        body.append(_flags_of(step, packet))
    elif kind == w.TOPIC:
        body += _topic_of(step.field, packet)
    elif kind == w.TOPIC_REST:
        topic_type = packet.numbers[f.TOPIC_TYPE]
        body += _bytes_of(f.NAME, packet) if topic_type == f.FULL_NAME else _topic_of(f.TOPIC_ALIAS, packet)
    elif kind == w.LENGTH:
        body += len(_bytes_of(step.pair, packet)).to_bytes(2, "big")
    elif step.field >= f.TEXT:
        data = _bytes_of(step.field, packet)
        if kind == w.LEN8:
            body += len(data).to_bytes(1, "big")
        elif kind == w.LEN16:
            body += len(data).to_bytes(2, "big")
        body += data
    else:
        # A layout may have a place for a number that the packet does not have: 0 is written there, not -1.
        number = max(packet.numbers[step.field], 0)
        if kind == w.U16:
            body += number.to_bytes(2, "big")
        elif kind == w.U8:
            body.append(number)
        elif kind == w.U32:
            body += number.to_bytes(4, "big")
        elif kind == w.RETURN_CODE:
            body.append(return_code(number))
        else:
            assert kind == w.ERROR_CODE
            body.append(number if number >= UNSPECIFIED else 0)


def _bytes_of(field: int, packet: SnPacket) -> bytes:
    return packet.blobs[field - f.BLOB] if field >= f.BLOB else packet.texts[field - f.TEXT].encode()


def _flags_of(step: Step, packet: SnPacket) -> int:
    flags = 0
    for bit in step.bits:
        value = int(packet.holds(bit.field)) if bit.announces else bit.bits_of(packet.numbers[bit.field])
        flags |= value << bit.shift
    return flags


def _topic_of(field: int, packet: SnPacket) -> bytes:
    """The two bytes of a topic: its alias, its short name, or the length of its full name."""
    is_will = field == f.WILL_ALIAS
    topic_type = packet.numbers[f.WILL_TOPIC_TYPE if is_will else f.TOPIC_TYPE]
    if topic_type < f.SHORT_NAME:
        return packet.numbers[field].to_bytes(2, "big")
    name = _bytes_of(f.WILL_NAME if is_will else f.NAME, packet)
    if topic_type == f.FULL_NAME:
        return len(name).to_bytes(2, "big")
    if len(name) != 2:
        raise ValueError("a short topic name is two bytes")
    return name

"""What follows the fixed header, packet by packet, and which first bytes may come from which side (3.1 to 3.14).

Owns: the meaning of each body except PUBLISH, which `decode` reads in its own loop.
Never: a stream or a remainder of one; a body handed in here is complete.
A first byte is type and flags together, so a table that is keyed by it checks the reserved flags by lookup alone.
"""

from collections.abc import Callable
from typing import Final

from embermq.protocol.errors import MalformedPacket, PeerError, ProtocolError
from embermq.protocol.mqtt.fields import VIOLATION, Fields
from embermq.protocol.packets import (
    SESSION_NEVER_EXPIRES,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
    Will,
)
from embermq.protocol.reasons import ReasonCode

# Protocol name -> the one level that goes with it (3.1.2.1, 3.1.2.2).
LEVEL_OF_NAME: Final[dict[bytes, int]] = {b"MQTT": 4, b"MQIsdp": 3}

# 3.1.1 CONNACK return code -> MQTT 5 reason (3.2.2.3).
REASON_OF_RETURN_CODE: Final[list[ReasonCode]] = [
    ReasonCode.SUCCESS,
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
    ReasonCode.SERVER_UNAVAILABLE,
    ReasonCode.BAD_USER_NAME_OR_PASSWORD,
    ReasonCode.NOT_AUTHORIZED,
]


def _connect(fields: Fields) -> Packet:
    level = _protocol_level(fields)
    flags = fields.byte()
    _check_connect_flags(flags, level)
    keep_alive_s = fields.integer()
    client_id = fields.text()
    will: Will | None = None
    if flags & 0x04:
        will_topic_name = fields.topic_name()
        will = Will(will_topic_name, fields.binary(), flags >> 3 & 3, flags & 0x20 != 0)
    user_name: str | None = None
    password: bytes | None = None
    # 3.1 lets its oldest clients set these two flags and end the packet without the field; 3.1.1 does not.
    if flags & 0x80 and (level != 3 or fields.more()):
        user_name = fields.text()
    if flags & 0x40 and (level != 3 or fields.more()):
        password = fields.binary()
    fields.end()
    clean = flags & 0x02 != 0
    session_expiry_s = 0 if clean else SESSION_NEVER_EXPIRES
    return Connect(client_id, clean, keep_alive_s, will, user_name, password, session_expiry_s, protocol_level=level)


def _protocol_level(fields: Fields) -> int:
    name = fields.binary()
    level = LEVEL_OF_NAME.get(name)
    if level is None:
        raise ProtocolError(f"protocol name {name[:16]!r}", "MQTT-3.1.2-1")
    asked = fields.byte()
    if asked != level:
        reason = ReasonCode.UNSUPPORTED_PROTOCOL_VERSION
        detail = f"protocol {name.decode()} level {asked} is not spoken here, level {level} is"
        raise ProtocolError(detail, "MQTT-3.1.2-2", reason)
    return level


def _check_connect_flags(flags: int, level: int) -> None:
    # 3.1 calls bit 0 unused without asking for a value.
    if flags & 0x01 and level != 3:
        raise MalformedPacket("reserved CONNECT flag is set", "MQTT-3.1.2-3")
    if flags & 0x04:
        if flags & 0x18 == 0x18:
            raise MalformedPacket("will QoS 3", "MQTT-3.1.2-14")
    elif flags & 0x18:
        raise MalformedPacket("will QoS without a will", "MQTT-3.1.2-13")
    elif flags & 0x20:
        raise MalformedPacket("will retain without a will", "MQTT-3.1.2-15")
    if flags & 0xC0 == 0x40:
        raise MalformedPacket("password without a user name", "MQTT-3.1.2-22")


def _connack(fields: Fields) -> Packet:
    flags = fields.byte()
    return_code = fields.byte()
    fields.end()
    if flags > 1:
        raise MalformedPacket("reserved CONNACK flag is set", VIOLATION)
    if return_code >= len(REASON_OF_RETURN_CODE):
        raise MalformedPacket(f"CONNACK return code {return_code}", VIOLATION)
    if flags and return_code:
        raise ProtocolError("a refusal with a session", "MQTT-3.2.2-4")
    return Connack(flags == 1, REASON_OF_RETURN_CODE[return_code])


def _puback(fields: Fields) -> Packet:
    packet = Puback(fields.packet_id())
    fields.end()
    return packet


def _pubrec(fields: Fields) -> Packet:
    packet = Pubrec(fields.packet_id())
    fields.end()
    return packet


def _pubrel(fields: Fields) -> Packet:
    packet = Pubrel(fields.packet_id())
    fields.end()
    return packet


def _pubcomp(fields: Fields) -> Packet:
    packet = Pubcomp(fields.packet_id())
    fields.end()
    return packet


def _subscribe(fields: Fields) -> Packet:
    packet_id = fields.packet_id()
    if not fields.more():
        raise ProtocolError("SUBSCRIBE without a topic filter", "MQTT-3.8.3-3")
    requests: list[SubscriptionRequest] = []
    while fields.more():
        topic_filter = fields.topic_filter()
        qos = fields.byte()
        if qos > 2:
            raise MalformedPacket(f"requested QoS byte {qos:#04x}", "MQTT-3.8.3-4")
        requests.append(SubscriptionRequest(topic_filter, qos))
    return Subscribe(packet_id, requests)


def _suback(fields: Fields) -> Packet:
    packet_id = fields.packet_id()
    if not fields.more():
        raise ProtocolError("SUBACK without a return code", "MQTT-3.8.4-5")
    reasons: list[int] = []
    while fields.more():
        return_code = fields.byte()
        if return_code > 2 and return_code != 0x80:
            raise MalformedPacket(f"SUBACK return code {return_code:#04x}", "MQTT-3.9.3-2")
        reasons.append(return_code)
    return Suback(packet_id, reasons)


def _unsubscribe(fields: Fields) -> Packet:
    packet_id = fields.packet_id()
    if not fields.more():
        raise ProtocolError("UNSUBSCRIBE without a topic filter", "MQTT-3.10.3-2")
    topic_filters: list[str] = []
    while fields.more():
        topic_filters.append(fields.topic_filter())
    return Unsubscribe(packet_id, topic_filters)


def _unsuback(fields: Fields) -> Packet:
    packet = Unsuback(fields.packet_id())
    fields.end()
    return packet


def _pingreq(fields: Fields) -> Packet:
    fields.end()
    return Pingreq()


def _pingresp(fields: Fields) -> Packet:
    fields.end()
    return Pingresp()


def _disconnect(fields: Fields) -> Packet:
    fields.end()
    return Disconnect()


# First byte -> who reads the body. PUBLISH is in neither: its low bits are not reserved.
READERS_BOTH: Final[dict[int, Callable[[Fields], Packet]]] = {
    0x40: _puback,
    0x50: _pubrec,
    0x62: _pubrel,
    0x70: _pubcomp,
}
READERS_FROM_CLIENT: Final[dict[int, Callable[[Fields], Packet]]] = {
    **READERS_BOTH,
    0x10: _connect,
    0x82: _subscribe,
    0xA2: _unsubscribe,
    0xC0: _pingreq,
    0xE0: _disconnect,
}
READERS_FROM_SERVER: Final[dict[int, Callable[[Fields], Packet]]] = {
    **READERS_BOTH,
    0x20: _connack,
    0x90: _suback,
    0xB0: _unsuback,
    0xD0: _pingresp,
}

# Packet type -> the statement about its flags, where it has one of its own.
FLAGS_CLAUSE: Final[dict[int, str]] = {6: "MQTT-3.6.1-1", 8: "MQTT-3.8.1-1", 10: "MQTT-3.10.1-1", 14: "MQTT-3.14.1-1"}
# 3.1 gave these three a DUP flag for a packet sent again; 3.1.1 reserves the bit.
SENT_AGAIN_31: Final = (0x6A, 0x8A, 0xAA)


def unwanted(first: int, readers: dict[int, Callable[[Fields], Packet]]) -> PeerError:
    """Why no packet from this peer may begin with this byte."""
    packet_type = first >> 4
    if packet_type in (0, 15):
        return MalformedPacket(f"packet type {packet_type}", VIOLATION)
    if packet_type in [known >> 4 for known in readers]:
        clause = FLAGS_CLAUSE.get(packet_type, "MQTT-2.2.2-2")
        return MalformedPacket(f"reserved flags {first & 15:#03x} of packet type {packet_type}", clause)
    return ProtocolError(f"packet type {packet_type} from the wrong side", VIOLATION)

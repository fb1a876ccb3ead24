"""What follows the fixed header, packet by packet (3.1 to 3.14): bytes to packets.

Owns: the meaning of each body. Where levels differ, the dialect's traits decide.
Never: a stream or a remainder of one; a body handed in here is complete. Which of these readers a dialect has, and by
which first byte, is its table in `dialect`.
"""

from typing import TYPE_CHECKING, Final

from embermq.protocol.errors import MalformedPacket, ProtocolError
from embermq.protocol.mqtt.fields import SHARE_PREFIX, VIOLATION, Fields, check_filter_count
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
    Publish,
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

if TYPE_CHECKING:
    from embermq.protocol.mqtt.dialect import Dialect

# 3.1.1 CONNACK return code -> MQTT 5 reason (3.2.2.3).
REASON_OF_RETURN_CODE: Final[list[ReasonCode]] = [
    ReasonCode.SUCCESS,
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
    ReasonCode.SERVER_UNAVAILABLE,
    ReasonCode.BAD_USER_NAME_OR_PASSWORD,
    ReasonCode.NOT_AUTHORIZED,
]


def read_connect(fields: Fields, dialect: "Dialect") -> Connect:
    """CONNECT behind its protocol name and level, which have decided the dialect."""
    flags = fields.byte()
    _check_connect_flags(flags, dialect)
    keep_alive_s = fields.integer()
    client_id = fields.text()
    will: Will | None = None
    if flags & 0x04:
        will_topic_name = fields.topic_name()
        will = Will(will_topic_name, fields.binary(), flags >> 3 & 3, flags & 0x20 != 0)
    user_name: str | None = None
    password: bytes | None = None
    if flags & 0x80 and (not dialect.may_omit_credentials or fields.more()):
        user_name = fields.text()
    if flags & 0x40 and (not dialect.may_omit_credentials or fields.more()):
        password = fields.binary()
    fields.end()
    clean = flags & 0x02 != 0
    session_expiry_s = 0 if clean else SESSION_NEVER_EXPIRES
    return Connect(
        client_id, clean, keep_alive_s, will, user_name, password, session_expiry_s, protocol_level=dialect.level
    )


def _check_connect_flags(flags: int, dialect: "Dialect") -> None:
    if flags & 0x01 and dialect.has_reserved_connect_flag:
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


def read_connack(fields: Fields, dialect: "Dialect") -> Packet:
    """CONNACK (3.2)."""
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


def read_publish(fields: Fields, dialect: "Dialect") -> Packet:
    """PUBLISH (3.3)."""
    flags = fields.flags
    qos = flags >> 1 & 3
    if qos == 3:
        raise MalformedPacket("QoS 3", "MQTT-3.3.1-4")
    if flags & 8 and qos == 0:
        raise MalformedPacket("DUP at QoS 0", "MQTT-3.3.1-2")
    topic_name = fields.topic_name()
    packet_id = fields.packet_id() if qos else 0
    return Publish(topic_name, fields.rest(), qos, flags & 1 == 1, flags & 8 == 8, packet_id)


def read_puback(fields: Fields, dialect: "Dialect") -> Packet:
    """PUBACK (3.4)."""
    packet = Puback(fields.packet_id())
    fields.end()
    return packet


def read_pubrec(fields: Fields, dialect: "Dialect") -> Packet:
    """PUBREC (3.5)."""
    packet = Pubrec(fields.packet_id())
    fields.end()
    return packet


def read_pubrel(fields: Fields, dialect: "Dialect") -> Packet:
    """PUBREL (3.6)."""
    packet = Pubrel(fields.packet_id())
    fields.end()
    return packet


def read_pubcomp(fields: Fields, dialect: "Dialect") -> Packet:
    """PUBCOMP (3.7)."""
    packet = Pubcomp(fields.packet_id())
    fields.end()
    return packet


def read_subscribe(fields: Fields, dialect: "Dialect") -> Packet:
    """SUBSCRIBE (3.8)."""
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
        check_filter_count(len(requests))
    return Subscribe(packet_id, requests)


def read_subscribe_of_bridge(fields: Fields, dialect: "Dialect") -> Packet:
    """SUBSCRIBE of a bridge: what is retained stays so, and what it has published does not come back to it."""
    packet = read_subscribe(fields, dialect)
    assert isinstance(packet, Subscribe)
    requests = [
        SubscriptionRequest(
            request.topic_filter,
            request.qos,
            no_local=not request.topic_filter.startswith(SHARE_PREFIX),
            retain_as_published=True,
        )
        for request in packet.requests
    ]
    return Subscribe(packet.packet_id, requests)


def read_suback(fields: Fields, dialect: "Dialect") -> Packet:
    """SUBACK (3.9)."""
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


def read_unsubscribe(fields: Fields, dialect: "Dialect") -> Packet:
    """UNSUBSCRIBE (3.10)."""
    packet_id = fields.packet_id()
    if not fields.more():
        raise ProtocolError("UNSUBSCRIBE without a topic filter", "MQTT-3.10.3-2")
    topic_filters: list[str] = []
    while fields.more():
        topic_filters.append(fields.topic_filter())
        check_filter_count(len(topic_filters))
    return Unsubscribe(packet_id, topic_filters)


def read_unsuback(fields: Fields, dialect: "Dialect") -> Packet:
    """UNSUBACK (3.11)."""
    packet = Unsuback(fields.packet_id())
    fields.end()
    return packet


def read_pingreq(fields: Fields, dialect: "Dialect") -> Packet:
    """PINGREQ (3.12)."""
    fields.end()
    return Pingreq()


def read_pingresp(fields: Fields, dialect: "Dialect") -> Packet:
    """PINGRESP (3.13)."""
    fields.end()
    return Pingresp()


def read_disconnect(fields: Fields, dialect: "Dialect") -> Packet:
    """DISCONNECT (3.14)."""
    fields.end()
    return Disconnect()

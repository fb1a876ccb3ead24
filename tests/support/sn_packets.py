"""The MQTT-SN packets that clients send, made as `wire.packets` makes those of a server, and those as well."""

from embermq.protocol.sn.wire import fields as f
from embermq.protocol.sn.wire.framing import CONNECTION_B, write_frame
from embermq.protocol.sn.wire.packets import *  # noqa: F403  # one name for the packets of both sides
from embermq.protocol.sn.wire.packets import (
    AUTH,
    CONNECT,
    PINGREQ,
    PUBWOS,
    SEARCHGW,
    SLEEPREQ,
    SUBSCRIBE,
    UNSUBSCRIBE,
    WAKEUP,
    WILLMSG,
    WILLMSGUPD,
    WILLTOPIC,
    WILLTOPICUPD,
    ConnectWill,
    SnPacket,
    TopicReference,
    acknowledgement,
    connack,
)


def _set_authentication(packet: SnPacket, auth_method: str | None, auth_data: bytes) -> None:
    if auth_method is not None:
        packet.numbers[f.AUTH] = 1
        packet.texts[f.AUTH_METHOD - f.TEXT] = auth_method
        packet.blobs[f.AUTH_DATA - f.BLOB] = auth_data


def full_connack(
    reason: int = 0,
    packet_id: int = 0,
    session_present: bool = False,
    session_expiry_s: int = -1,
    server_keep_alive_s: int = -1,
    client_id: str = "",
    auth_method: str | None = None,
    auth_data: bytes = b"",
) -> SnPacket:
    """The server's answer to CONNECT, with fields that this server does not send."""
    packet = connack(reason, packet_id, session_present, session_expiry_s, client_id)
    packet.numbers[f.SERVER_KEEP_ALIVE] = server_keep_alive_s
    _set_authentication(packet, auth_method, auth_data)
    return packet


def pubwos(reference: TopicReference, payload: bytes, retain: bool = False) -> SnPacket:
    """A message without a session: 2.0's PUBWOS, 1.2's PUBLISH with QoS -1. It is never answered."""
    packet = SnPacket(PUBWOS)
    packet.set_topic(reference)
    packet.numbers[f.RETAIN] = int(retain)
    packet.blobs[f.PAYLOAD - f.BLOB] = payload
    packet.set_sessionless()
    return packet


def subscribe(
    packet_id: int,
    reference: TopicReference,
    qos: int = 0,
    no_local: bool = False,
    retain_as_published: bool = False,
    retain_handling: int = 0,
    dup: bool = False,
) -> SnPacket:
    """Ask for one subscription (3.1.17). 1.2 has only the QoS and a DUP; the options are 0 there."""
    packet = SnPacket(SUBSCRIBE)
    packet.set_topic(reference)
    numbers = packet.numbers
    numbers[f.PACKET_ID] = packet_id
    numbers[f.QOS] = qos
    numbers[f.NO_LOCAL] = int(no_local)
    numbers[f.RETAIN_AS_PUBLISHED] = int(retain_as_published)
    numbers[f.RETAIN_HANDLING] = retain_handling
    numbers[f.DUP] = int(dup)
    return packet


def unsubscribe(packet_id: int, reference: TopicReference) -> SnPacket:
    """Give up one subscription."""
    packet = SnPacket(UNSUBSCRIBE)
    packet.set_topic(reference)
    packet.numbers[f.PACKET_ID] = packet_id
    return packet


def connect(
    client_id: str,
    clean_start: bool = True,
    keep_alive_s: int = 60,
    packet_id: int = 0,
    will_flag: bool = False,
    will: ConnectWill | None = None,
    session_expiry_s: int = -1,
    packet_bytes_max: int = 0,
    awake_messages: int = 0,
    auth_method: str | None = None,
    auth_data: bytes = b"",
    suggestions: bool = False,
    address_change: bool = False,
    version: int = 2,
) -> SnPacket:
    """A client asks for a virtual connection."""
    packet = SnPacket(CONNECT)
    numbers = packet.numbers
    packet.texts[f.CLIENT_ID - f.TEXT] = client_id
    numbers[f.CLEAN_START] = int(clean_start)
    numbers[f.KEEP_ALIVE] = keep_alive_s
    numbers[f.PACKET_ID] = packet_id
    numbers[f.WILL] = int(will_flag or will is not None)
    numbers[f.SESSION_EXPIRY] = session_expiry_s
    numbers[f.MAX_PACKET] = packet_bytes_max
    numbers[f.AWAKE_MESSAGES] = awake_messages
    numbers[f.SUGGESTIONS] = int(suggestions)
    numbers[f.ADDRESS_CHANGE] = int(address_change)
    numbers[f.VERSION] = version
    if will is not None:
        numbers[f.WILL_TOPIC_TYPE] = will.reference.topic_type
        numbers[f.WILL_ALIAS] = will.reference.topic_alias
        numbers[f.WILL_QOS] = will.qos
        numbers[f.WILL_RETAIN] = int(will.retain)
        packet.texts[f.WILL_NAME - f.TEXT] = will.reference.name
        packet.blobs[f.WILL_PAYLOAD - f.BLOB] = will.payload
    _set_authentication(packet, auth_method, auth_data)
    return packet


def auth(packet_id: int, reason: int, auth_method: str, auth_data: bytes = b"") -> SnPacket:
    """A step of an authentication exchange."""
    packet = acknowledgement(AUTH, packet_id, reason)
    packet.texts[f.AUTH_METHOD - f.TEXT] = auth_method
    packet.blobs[f.AUTH_DATA - f.BLOB] = auth_data
    return packet


def will_topic(topic_name: str, qos: int = 0, retain: bool = False, update: bool = False) -> SnPacket:
    """The will's topic, in the dialogue or as an update. An empty name deletes the stored will."""
    packet = SnPacket(WILLTOPICUPD if update else WILLTOPIC)
    packet.texts[f.NAME - f.TEXT] = topic_name
    packet.numbers[f.QOS] = qos
    packet.numbers[f.RETAIN] = int(retain)
    return packet


def will_message(payload: bytes, update: bool = False) -> SnPacket:
    """The will's message, in the dialogue or as an update."""
    packet = SnPacket(WILLMSGUPD if update else WILLMSG)
    packet.blobs[f.PAYLOAD - f.BLOB] = payload
    return packet


def pingreq(packet_id: int = 0, client_id: str = "", awake_messages: int = 0) -> SnPacket:
    """A sign of life; with a ClientID (1.2, W, A): a sleeping client wakes and asks for its buffered messages."""
    packet = SnPacket(PINGREQ)
    packet.numbers[f.PACKET_ID] = packet_id
    packet.numbers[f.AWAKE_MESSAGES] = awake_messages
    packet.texts[f.CLIENT_ID - f.TEXT] = client_id
    return packet


def sleepreq(packet_id: int, sleep_s: int, retain_aliases: bool = False) -> SnPacket:
    """B: a client is going to sleep for `sleep_s`."""
    packet = SnPacket(SLEEPREQ)
    packet.numbers[f.PACKET_ID] = packet_id
    packet.numbers[f.SLEEP] = sleep_s
    packet.numbers[f.RETAIN_ALIASES] = int(retain_aliases)
    return packet


def searchgw(radius: int = 0, network_information: bytes = b"") -> SnPacket:
    """A client searches for a server. `radius` in 1.2, W and A; B has opaque `network_information` instead."""
    packet = SnPacket(SEARCHGW)
    packet.numbers[f.RADIUS] = radius
    packet.blobs[f.ADDRESS - f.BLOB] = network_information
    return packet


def wakeup() -> SnPacket:
    """A hint to a sleeping client that messages are buffered for it."""
    return SnPacket(WAKEUP)


def wrap_connection(client_id: str, packet: bytes) -> bytes:
    """B's connection encapsulation, by which a client whose address changed names itself. A server never sends it."""
    name = client_id.encode()
    return write_frame(CONNECTION_B, len(name).to_bytes(2, "big") + name + packet)

"""MQTT-SN packets: one class for all of them, in 2.0's words.

Owns: the kinds of packets, `SnPacket`, and a function for each packet that a server sends.
Never: the place of a field on a wire (`profiles`), or what a session does about it (`session`).
`decode` and `encode` read and write a packet's fields as the layouts say, so a field is described once. A field that a
packet does not have is absent: 0, -1 or empty. 1.2's TopicId is a topic alias, its MsgId a packet identifier, its
CleanSession `clean_start`. The tables number the kinds apart from the type code that each wire profile has for them.
`from embermq.protocol.sn.wire import packets as sn` keeps these names apart from those of the core's packets.
"""

from dataclasses import dataclass
from typing import Final, final

from embermq.protocol.packets import Packet
from embermq.protocol.sn.wire import fields as f

ADVERTISE: Final = 0
SEARCHGW: Final = 1
GWINFO: Final = 2
AUTH: Final = 3
CONNECT: Final = 4
CONNACK: Final = 5
WILLTOPICREQ: Final = 6
WILLTOPIC: Final = 7
WILLMSGREQ: Final = 8
WILLMSG: Final = 9
REGISTER: Final = 10
REGACK: Final = 11
PUBLISH: Final = 12
PUBACK: Final = 13
PUBCOMP: Final = 14
PUBREC: Final = 15
PUBREL: Final = 16
PUBWOS: Final = 17
SUBSCRIBE: Final = 18
SUBACK: Final = 19
UNSUBSCRIBE: Final = 20
UNSUBACK: Final = 21
PINGREQ: Final = 22
PINGRESP: Final = 23
DISCONNECT: Final = 24
WAKEUP: Final = 25
WILLTOPICUPD: Final = 26
WILLTOPICRESP: Final = 27
WILLMSGUPD: Final = 28
WILLMSGRESP: Final = 29
SLEEPREQ: Final = 30
SLEEPRESP: Final = 31

_KINDS: Final = (
    "ADVERTISE SEARCHGW GWINFO AUTH CONNECT CONNACK WILLTOPICREQ WILLTOPIC WILLMSGREQ WILLMSG REGISTER REGACK "
    "PUBLISH PUBACK PUBCOMP PUBREC PUBREL PUBWOS SUBSCRIBE SUBACK UNSUBSCRIBE UNSUBACK PINGREQ PINGRESP DISCONNECT "
    "WAKEUP WILLTOPICUPD WILLTOPICRESP WILLMSGUPD WILLMSGRESP SLEEPREQ SLEEPRESP"
)
NAMES: Final = _KINDS.split()
"""The standard's names of the kinds, in the order of their numbers."""

# What `SnPacket.__repr__` shows. Without the authentication data: a packet may end up in a log line.
_SHOWN: Final = (
    "packet_id reason reference payload qos retain dup client_id clean_start keep_alive_s session_expiry_s version "
    "will will_flag auth_method packet_bytes_max awake_messages address_change session_present no_local "
    "retain_as_published retain_handling retain_aliases sleep_s address"
)


@final
class TopicReference(Packet):
    """One topic as a packet names it (1.2: sections 6.5 and 6.7; 2.0: section 4.7).

    `topic_alias` for the two alias types, `name` for the others. Which name an alias means is known to the session.
    """

    __slots__ = ("topic_type", "topic_alias", "name")

    def __init__(self, topic_type: int, topic_alias: int = 0, name: str = "") -> None:
        self.topic_type: Final = topic_type
        self.topic_alias: Final = topic_alias
        self.name: Final = name


def session_alias(topic_alias: int) -> TopicReference:
    """An alias that the server assigned in this session."""
    return TopicReference(f.SESSION_ALIAS, topic_alias)


def predefined_alias(topic_alias: int) -> TopicReference:
    """An alias of the table that server and clients were configured with."""
    return TopicReference(f.PREDEFINED_ALIAS, topic_alias)


def short_name(name: str) -> TopicReference:
    """A topic name of two bytes, sent instead of an alias (not in B)."""
    return TopicReference(f.SHORT_NAME, 0, name)


def full_name(name: str) -> TopicReference:
    """The topic name or topic filter itself."""
    return TopicReference(f.FULL_NAME, 0, name)


@final
@dataclass
class ConnectWill(Packet):
    """2.0's will, inside CONNECT."""

    reference: TopicReference
    payload: bytes
    qos: int = 0
    retain: bool = False


@final
class SnPacket(Packet):
    """One packet of any kind: its fields as the layouts name them, and the same fields by name and type.

    `numbers`, `texts` and `blobs` are written only while a packet is made: below, and by `decode`.
    """

    __slots__ = ("kind", "numbers", "texts", "blobs")

    def __init__(self, kind: int) -> None:
        self.kind: Final = kind
        self.numbers: Final[list[int]] = f.ABSENT.copy()
        self.texts: Final[list[str]] = [""] * f.TEXTS
        self.blobs: Final[list[bytes]] = [b""] * f.BLOBS

    def holds(self, field: int) -> bool:
        """Whether a field has another value than an absent field has."""
        if field >= f.BLOB:
            return len(self.blobs[field - f.BLOB]) > 0
        if field >= f.TEXT:
            return len(self.texts[field - f.TEXT]) > 0
        return self.numbers[field] != f.ABSENT[field]

    def name(self) -> str:
        """The standard's name of the packet."""
        return NAMES[self.kind]

    def __repr__(self) -> str:
        absent = SnPacket(self.kind)
        values = [(name, getattr(self, name)) for name in _SHOWN.split()]
        shown = ", ".join(f"{name}={value!r}" for name, value in values if value != getattr(absent, name))
        return f"{self.name()}({shown})"

    def set_topic(self, reference: TopicReference) -> None:
        """Set the topic of a PUBLISH, SUBSCRIBE or UNSUBSCRIBE."""
        self.numbers[f.TOPIC_TYPE] = reference.topic_type
        self.numbers[f.TOPIC_ALIAS] = reference.topic_alias
        self.texts[f.NAME - f.TEXT] = reference.name

    def set_sessionless(self) -> None:
        """Set what is the same in every PUBWOS, whatever a wire has in that place."""
        self.numbers[f.QOS] = 3
        self.numbers[f.VERSION] = 2
        self.numbers[f.DUP] = 0
        self.numbers[f.PACKET_ID] = 0

    def set_granted(self, reason: int) -> None:
        """Set the reason of a SUBACK, and the granted QoS, which 1.2 and W write into the flags instead."""
        self.numbers[f.REASON] = reason
        self.numbers[f.QOS] = reason if reason <= 2 else 0

    @property
    def packet_id(self) -> int:
        return self.numbers[f.PACKET_ID]

    @property
    def reason(self) -> int:
        """Of SUBACK: the granted QoS or a refusal."""
        return self.numbers[f.REASON]

    # -- topics and messages -----------------------------------------------------------------------------------------

    @property
    def reference(self) -> TopicReference:
        """The topic of a PUBLISH, SUBSCRIBE or UNSUBSCRIBE."""
        return TopicReference(self.numbers[f.TOPIC_TYPE], self.numbers[f.TOPIC_ALIAS], self.texts[f.NAME - f.TEXT])

    @property
    def topic_alias(self) -> int:
        return self.numbers[f.TOPIC_ALIAS]

    @property
    def topic_type(self) -> int:
        return self.numbers[f.TOPIC_TYPE]

    @property
    def topic_name(self) -> str:
        """Of a REGISTER, or of 1.2's will."""
        return self.texts[f.NAME - f.TEXT]

    @property
    def payload(self) -> bytes:
        return self.blobs[f.PAYLOAD - f.BLOB]

    @property
    def qos(self) -> int:
        return self.numbers[f.QOS]

    @property
    def retain(self) -> bool:
        return self.numbers[f.RETAIN] != 0

    @property
    def dup(self) -> bool:
        return self.numbers[f.DUP] != 0

    @property
    def no_local(self) -> bool:
        return self.numbers[f.NO_LOCAL] != 0

    @property
    def retain_as_published(self) -> bool:
        return self.numbers[f.RETAIN_AS_PUBLISHED] != 0

    @property
    def retain_handling(self) -> int:
        return self.numbers[f.RETAIN_HANDLING]

    # -- connections -------------------------------------------------------------------------------------------------

    @property
    def client_id(self) -> str:
        """Of CONNACK: the one that the server assigns."""
        return self.texts[f.CLIENT_ID - f.TEXT]

    @property
    def clean_start(self) -> bool:
        return self.numbers[f.CLEAN_START] != 0

    @property
    def keep_alive_s(self) -> int:
        return self.numbers[f.KEEP_ALIVE]

    @property
    def session_expiry_s(self) -> int:
        """Of DISCONNECT: 1.2's Duration as well. Below 0: absent."""
        return self.numbers[f.SESSION_EXPIRY]

    @property
    def session_present(self) -> bool:
        return self.numbers[f.SESSION_PRESENT] != 0

    @property
    def version(self) -> int:
        return self.numbers[f.VERSION]

    @property
    def will_flag(self) -> bool:
        """Without `will`, the server has to ask for it (1.2's dialogue)."""
        return self.numbers[f.WILL] != 0

    @property
    def will(self) -> ConnectWill | None:
        """The will inside a CONNECT of 2.0."""
        numbers = self.numbers
        if numbers[f.WILL_ALIAS] < 0:
            return None
        name = self.texts[f.WILL_NAME - f.TEXT]
        reference = TopicReference(numbers[f.WILL_TOPIC_TYPE], numbers[f.WILL_ALIAS], name)
        payload = self.blobs[f.WILL_PAYLOAD - f.BLOB]
        return ConnectWill(reference, payload, numbers[f.WILL_QOS], numbers[f.WILL_RETAIN] != 0)

    @property
    def auth_method(self) -> str | None:
        return self.texts[f.AUTH_METHOD - f.TEXT] if self.kind == AUTH or self.numbers[f.AUTH] else None

    @property
    def auth_data(self) -> bytes:
        return self.blobs[f.AUTH_DATA - f.BLOB]

    @property
    def packet_bytes_max(self) -> int:
        return self.numbers[f.MAX_PACKET]

    @property
    def address_change(self) -> bool:
        """B: the client may name itself from another address."""
        return self.numbers[f.ADDRESS_CHANGE] != 0

    # -- sleep and discovery -----------------------------------------------------------------------------------------

    @property
    def awake_messages(self) -> int:
        """How many messages a client takes each time it is awake; 0 for all."""
        return self.numbers[f.AWAKE_MESSAGES]

    @property
    def sleep_s(self) -> int:
        return self.numbers[f.SLEEP]

    @property
    def retain_aliases(self) -> bool:
        return self.numbers[f.RETAIN_ALIASES] != 0

    @property
    def address(self) -> bytes:
        """Of a GWINFO: the server's. Of B's SEARCHGW: network information."""
        return self.blobs[f.ADDRESS - f.BLOB]


# -- the packets that a server sends -----------------------------------------------------------------------------------


def publish(
    reference: TopicReference,
    payload: bytes,
    qos: int = 0,
    retain: bool = False,
    dup: bool = False,
    packet_id: int = 0,
) -> SnPacket:
    """An application message inside a virtual connection."""
    packet = SnPacket(PUBLISH)
    packet.set_topic(reference)
    numbers = packet.numbers
    numbers[f.QOS] = qos
    numbers[f.RETAIN] = int(retain)
    numbers[f.DUP] = int(dup)
    numbers[f.PACKET_ID] = packet_id
    packet.blobs[f.PAYLOAD - f.BLOB] = payload
    return packet


def acknowledgement(kind: int, packet_id: int, reason: int = 0, topic_alias: int = 0) -> SnPacket:
    """PUBACK, PUBREC, PUBREL, PUBCOMP or UNSUBACK. Only 1.2's PUBACK has an alias: of a PUBLISH that it refuses."""
    packet = SnPacket(kind)
    packet.numbers[f.PACKET_ID] = packet_id
    packet.numbers[f.REASON] = reason
    packet.numbers[f.TOPIC_ALIAS] = topic_alias
    return packet


def register(packet_id: int, topic_name: str, topic_alias: int = 0) -> SnPacket:
    """Give a topic name an alias. From a client the alias is 0: only the server assigns aliases."""
    packet = SnPacket(REGISTER)
    packet.numbers[f.PACKET_ID] = packet_id
    packet.numbers[f.TOPIC_ALIAS] = topic_alias
    packet.texts[f.NAME - f.TEXT] = topic_name
    return packet


def regack(packet_id: int, topic_alias: int = 0, reason: int = 0, topic_type: int = f.SESSION_ALIAS) -> SnPacket:
    """The answer to REGISTER. `topic_type` is SESSION_ALIAS, or PREDEFINED_ALIAS for a name of that table."""
    packet = acknowledgement(REGACK, packet_id, reason, topic_alias)
    packet.numbers[f.TOPIC_TYPE] = topic_type
    return packet


def suback(packet_id: int, reason: int, topic_alias: int = 0, topic_type: int = f.SESSION_ALIAS) -> SnPacket:
    """The answer to SUBSCRIBE: `reason` is the granted QoS or a refusal; the alias is for an exact topic name."""
    packet = acknowledgement(SUBACK, packet_id, reason, topic_alias)
    packet.numbers[f.TOPIC_TYPE] = topic_type
    packet.set_granted(reason)
    return packet


def connack(
    reason: int = 0,
    packet_id: int = 0,
    session_present: bool = False,
    session_expiry_s: int = -1,
    client_id: str = "",
) -> SnPacket:
    """The server's answer to CONNECT; 1.2 has only the reason. `client_id`: the one that the server assigns."""
    packet = acknowledgement(CONNACK, packet_id, reason)
    packet.numbers[f.SESSION_PRESENT] = int(session_present)
    packet.numbers[f.SESSION_EXPIRY] = session_expiry_s
    packet.texts[f.CLIENT_ID - f.TEXT] = client_id
    return packet


def disconnect(
    reason: int = 0,
    session_expiry_s: int = -1,
    reason_string: str = "",
    retain_aliases: bool = False,
    packet_id: int = 0,
) -> SnPacket:
    """The orderly end, or (1.2, W, A: with an expiry above 0) the start of a sleep.

    `packet_id`: B, of the refused packet.
    """
    packet = acknowledgement(DISCONNECT, packet_id, reason)
    packet.numbers[f.SESSION_EXPIRY] = session_expiry_s
    packet.numbers[f.RETAIN_ALIASES] = int(retain_aliases)
    packet.texts[f.REASON_STRING - f.TEXT] = reason_string
    return packet


def will_request(for_topic: bool) -> SnPacket:
    """The server asks for the will's topic (`for_topic`) or for its message."""
    return SnPacket(WILLTOPICREQ if for_topic else WILLMSGREQ)


def will_response(for_topic: bool, reason: int = 0) -> SnPacket:
    """The answer to an update of the will's topic (`for_topic`) or of its message."""
    return acknowledgement(WILLTOPICRESP if for_topic else WILLMSGRESP, 0, reason)


def pingresp(packet_id: int = 0, messages_remaining: int = -1) -> SnPacket:
    """The answer to PINGREQ; it sends an awake client back to sleep."""
    packet = SnPacket(PINGRESP)
    packet.numbers[f.PACKET_ID] = packet_id
    packet.numbers[f.REMAINING] = messages_remaining
    return packet


def sleepresp(packet_id: int, sleep_s: int = -1, reason: int = 0) -> SnPacket:
    """B: the answer to SLEEPREQ; with `sleep_s` below 0 the client's value holds."""
    packet = acknowledgement(SLEEPRESP, packet_id, reason)
    packet.numbers[f.SLEEP] = sleep_s
    return packet


def advertise(gateway_id: int, duration_s: int) -> SnPacket:
    """A server announces itself; the next ADVERTISE follows in `duration_s`."""
    packet = SnPacket(ADVERTISE)
    packet.numbers[f.GATEWAY_ID] = gateway_id
    packet.numbers[f.DURATION] = duration_s
    return packet


def gwinfo(gateway_id: int, gateway_address: bytes = b"") -> SnPacket:
    """The answer to SEARCHGW; the address is there only when a client answers for the server."""
    packet = SnPacket(GWINFO)
    packet.numbers[f.GATEWAY_ID] = gateway_id
    packet.blobs[f.ADDRESS - f.BLOB] = gateway_address
    return packet

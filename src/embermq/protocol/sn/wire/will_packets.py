"""The packets of the will: inside CONNECT (2.0), or asked for and updated one part at a time (1.2).

Owns: their fields. When a will is published is decided by the broker.
"""

from typing import Final, final

from embermq.protocol.errors import MalformedPacket
from embermq.protocol.packets import Packet
from embermq.protocol.reasons import ReasonCode
from embermq.protocol.sn.wire import kinds
from embermq.protocol.sn.wire.fields import (
    FULL_NAME,
    NAME,
    PAYLOAD,
    QOS,
    REASON,
    RETAIN,
    SHORT_NAME,
    WILL,
    WILL_ALIAS,
    WILL_LENGTH,
    WILL_NAME,
    WILL_PAYLOAD,
    WILL_QOS,
    WILL_RETAIN,
    WILL_TOPIC_TYPE,
    Values,
    text_of,
)
from embermq.protocol.sn.wire.kinds import SnPacket
from embermq.protocol.sn.wire.references import TopicReference
from embermq.protocol.topics import check_topic_name


@final
class ConnectWill(Packet):
    """2.0's will, inside CONNECT."""

    __slots__ = ("reference", "payload", "qos", "retain")

    def __init__(self, reference: TopicReference, payload: bytes, qos: int = 0, retain: bool = False) -> None:
        self.reference: Final = reference
        self.payload: Final = payload
        self.qos: Final = qos
        self.retain: Final = retain


def fill_will(values: Values, will: ConnectWill) -> None:
    numbers = values.numbers
    name = will.reference.name.encode()
    numbers[WILL_QOS] = will.qos
    numbers[WILL_RETAIN] = 1 if will.retain else 0
    numbers[WILL_TOPIC_TYPE] = will.reference.topic_type
    if will.reference.topic_type == SHORT_NAME:
        numbers[WILL_ALIAS] = int.from_bytes(name, "big")
    elif will.reference.topic_type == FULL_NAME:
        numbers[WILL_ALIAS] = len(name)
        values.set_blob(WILL_NAME, name)
    else:
        numbers[WILL_ALIAS] = will.reference.topic_alias
    numbers[WILL_LENGTH] = len(will.payload)
    values.set_blob(WILL_PAYLOAD, will.payload)


def read_will(values: Values) -> ConnectWill | None:
    numbers = values.numbers
    if not numbers[WILL] or numbers[WILL_ALIAS] < 0:
        return None
    if numbers[WILL_QOS] > 2:
        raise MalformedPacket("a will at QoS 3", "MQTT-SN-3.1.4.9-3")
    topic_type = numbers[WILL_TOPIC_TYPE]
    if topic_type < SHORT_NAME:
        reference = TopicReference(topic_type, numbers[WILL_ALIAS])
    else:
        short = topic_type == SHORT_NAME
        name = text_of(numbers[WILL_ALIAS].to_bytes(2, "big")) if short else values.text(WILL_NAME)
        _check_will_name(name)
        reference = TopicReference(topic_type, 0, name)
    return ConnectWill(reference, values.blob(WILL_PAYLOAD), numbers[WILL_QOS], values.flag(WILL_RETAIN))


def _check_will_name(name: str) -> None:
    problem = check_topic_name(name)
    if problem is not None:
        raise MalformedPacket(problem, "MQTT-SN-4.7.1-1", ReasonCode.TOPIC_NAME_INVALID)


@final
class WillTopic(SnPacket):
    """1.2's will topic, in the dialogue or as an update. An empty name deletes the stored will."""

    __slots__ = ("topic_name", "qos", "retain", "update")

    def __init__(self, topic_name: str, qos: int = 0, retain: bool = False, update: bool = False) -> None:
        self.topic_name: Final = topic_name
        self.qos: Final = qos
        self.retain: Final = retain
        self.update: Final = update

    def kind(self) -> int:
        return kinds.WILLTOPICUPD if self.update else kinds.WILLTOPIC

    def fill(self, values: Values) -> None:
        values.set_blob(NAME, self.topic_name.encode())
        values.numbers[QOS] = self.qos
        values.numbers[RETAIN] = 1 if self.retain else 0


def _read_will_topic(values: Values, update: bool) -> SnPacket:
    name = values.text(NAME)
    if not name:
        return WillTopic("", update=update)
    _check_will_name(name)
    if values.numbers[QOS] > 2:
        raise MalformedPacket("a will at QoS 3")
    return WillTopic(name, values.numbers[QOS], values.flag(RETAIN), update)


def read_willtopic(values: Values) -> SnPacket:
    return _read_will_topic(values, False)


def read_willtopicupd(values: Values) -> SnPacket:
    return _read_will_topic(values, True)


@final
class WillMsg(SnPacket):
    """1.2's will message, in the dialogue or as an update."""

    __slots__ = ("payload", "update")

    def __init__(self, payload: bytes, update: bool = False) -> None:
        self.payload: Final = payload
        self.update: Final = update

    def kind(self) -> int:
        return kinds.WILLMSGUPD if self.update else kinds.WILLMSG

    def fill(self, values: Values) -> None:
        values.set_blob(PAYLOAD, self.payload)


def read_willmsg(values: Values) -> SnPacket:
    return WillMsg(values.blob(PAYLOAD))


def read_willmsgupd(values: Values) -> SnPacket:
    return WillMsg(values.blob(PAYLOAD), True)


@final
class WillRequest(SnPacket):
    """The server asks for the will's topic (`for_topic`) or for its message."""

    __slots__ = ("for_topic",)

    def __init__(self, for_topic: bool) -> None:
        self.for_topic: Final = for_topic

    def kind(self) -> int:
        return kinds.WILLTOPICREQ if self.for_topic else kinds.WILLMSGREQ


def read_willtopicreq(values: Values) -> SnPacket:
    return WillRequest(True)


def read_willmsgreq(values: Values) -> SnPacket:
    return WillRequest(False)


@final
class WillResponse(SnPacket):
    """The answer to an update of the will's topic (`for_topic`) or of its message."""

    __slots__ = ("for_topic", "reason")

    def __init__(self, for_topic: bool, reason: int = 0) -> None:
        self.for_topic: Final = for_topic
        self.reason: Final = reason

    def kind(self) -> int:
        return kinds.WILLTOPICRESP if self.for_topic else kinds.WILLMSGRESP

    def fill(self, values: Values) -> None:
        values.numbers[REASON] = self.reason


def read_willtopicresp(values: Values) -> SnPacket:
    return WillResponse(True, values.numbers[REASON])


def read_willmsgresp(values: Values) -> SnPacket:
    return WillResponse(False, values.numbers[REASON])

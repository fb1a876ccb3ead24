"""The packets that carry messages and their topics: REGISTER, PUBLISH, SUBSCRIBE and their answers.

Owns: their fields, in 2.0's words; 1.2's TopicId is a topic alias, its MsgId a packet identifier.
Never: the place of a field on a wire (`profiles`), or what a session does about it (`session`).
`fill` puts a packet into the flat values that an encoder writes, `read_...` makes a packet of such values.
"""

from typing import Final, final

from embermq.protocol.errors import MalformedPacket, ProtocolError
from embermq.protocol.sn.wire import kinds
from embermq.protocol.sn.wire.fields import (
    DUP,
    HAS_ALIAS,
    NAME,
    NO_LOCAL,
    PACKET_ID,
    PAYLOAD,
    QOS,
    REASON,
    RETAIN,
    RETAIN_AS_PUBLISHED,
    RETAIN_HANDLING,
    SESSION_ALIAS,
    TOPIC_ALIAS,
    TOPIC_TYPE,
    Values,
)
from embermq.protocol.sn.wire.kinds import SnPacket
from embermq.protocol.sn.wire.references import TopicReference, fill_reference, read_filter, read_name


@final
class Register(SnPacket):
    """Give a topic name an alias. From a client the alias is 0: only the server assigns aliases."""

    __slots__ = ("packet_id", "topic_alias", "topic_name")

    def __init__(self, packet_id: int, topic_name: str, topic_alias: int = 0) -> None:
        self.packet_id: Final = packet_id
        self.topic_name: Final = topic_name
        self.topic_alias: Final = topic_alias

    def kind(self) -> int:
        return kinds.REGISTER

    def fill(self, values: Values) -> None:
        values.numbers[PACKET_ID] = self.packet_id
        values.numbers[TOPIC_ALIAS] = self.topic_alias
        values.numbers[HAS_ALIAS] = 1 if self.topic_alias else 0
        values.set_blob(NAME, self.topic_name.encode())


def read_register(values: Values) -> SnPacket:
    return Register(values.numbers[PACKET_ID], values.text(NAME), values.numbers[TOPIC_ALIAS])


@final
class Regack(SnPacket):
    """The answer to REGISTER. `topic_type` is SESSION_ALIAS, or PREDEFINED_ALIAS for a name of that table."""

    __slots__ = ("packet_id", "topic_alias", "reason", "topic_type")

    def __init__(self, packet_id: int, topic_alias: int = 0, reason: int = 0, topic_type: int = SESSION_ALIAS) -> None:
        self.packet_id: Final = packet_id
        self.topic_alias: Final = topic_alias
        self.reason: Final = reason
        self.topic_type: Final = topic_type

    def kind(self) -> int:
        return kinds.REGACK

    def fill(self, values: Values) -> None:
        values.numbers[PACKET_ID] = self.packet_id
        values.numbers[TOPIC_ALIAS] = self.topic_alias
        values.numbers[HAS_ALIAS] = 1 if self.topic_alias else 0
        values.numbers[REASON] = self.reason
        values.numbers[TOPIC_TYPE] = self.topic_type


def read_regack(values: Values) -> SnPacket:
    numbers = values.numbers
    return Regack(numbers[PACKET_ID], numbers[TOPIC_ALIAS], numbers[REASON], numbers[TOPIC_TYPE])


@final
class Publish(SnPacket):
    """An application message inside a virtual connection."""

    __slots__ = ("reference", "payload", "qos", "retain", "dup", "packet_id")

    def __init__(
        self,
        reference: TopicReference,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        packet_id: int = 0,
    ) -> None:
        self.reference: Final = reference
        self.payload: Final = payload
        self.qos: Final = qos
        self.retain: Final = retain
        self.dup: Final = dup
        self.packet_id: Final = packet_id

    def kind(self) -> int:
        return kinds.PUBLISH

    def fill(self, values: Values) -> None:
        numbers = values.numbers
        fill_reference(values, self.reference, True)
        numbers[QOS] = self.qos
        numbers[RETAIN] = 1 if self.retain else 0
        numbers[DUP] = 1 if self.dup else 0
        numbers[PACKET_ID] = self.packet_id
        values.set_blob(PAYLOAD, self.payload)


def read_publish(values: Values) -> SnPacket:
    numbers = values.numbers
    qos = numbers[QOS]
    if qos > 2:
        raise MalformedPacket("QoS 3")
    packet_id = numbers[PACKET_ID]
    if qos == 0:
        # 1.2 writes a MsgId of 0 here and 2.0 none; whatever it says, there is nothing to acknowledge.
        packet_id = 0
    elif packet_id == 0:
        raise MalformedPacket("packet identifier 0 at QoS 1 or 2")
    reference = read_name(values)
    dup = qos > 0 and numbers[DUP] != 0
    return Publish(reference, values.blob(PAYLOAD), qos, numbers[RETAIN] != 0, dup, packet_id)


@final
class Pubwos(SnPacket):
    """A message without a session: 2.0's PUBWOS, 1.2's PUBLISH with QoS -1. It is never answered."""

    __slots__ = ("reference", "payload", "retain")

    def __init__(self, reference: TopicReference, payload: bytes, retain: bool = False) -> None:
        self.reference: Final = reference
        self.payload: Final = payload
        self.retain: Final = retain

    def kind(self) -> int:
        return kinds.PUBWOS

    def fill(self, values: Values) -> None:
        fill_reference(values, self.reference, True)
        values.numbers[QOS] = 3
        values.numbers[RETAIN] = 1 if self.retain else 0
        values.set_blob(PAYLOAD, self.payload)


def read_pubwos(values: Values) -> SnPacket:
    return Pubwos(read_name(values), values.blob(PAYLOAD), values.flag(RETAIN))


@final
class Puback(SnPacket):
    """QoS 1, the answer; in 1.2 also the refusal of any PUBLISH, then with the refused alias."""

    __slots__ = ("packet_id", "reason", "topic_alias")

    def __init__(self, packet_id: int, reason: int = 0, topic_alias: int = 0) -> None:
        self.packet_id: Final = packet_id
        self.reason: Final = reason
        self.topic_alias: Final = topic_alias

    def kind(self) -> int:
        return kinds.PUBACK

    def fill(self, values: Values) -> None:
        values.numbers[PACKET_ID] = self.packet_id
        values.numbers[REASON] = self.reason
        values.numbers[TOPIC_ALIAS] = self.topic_alias


def read_puback(values: Values) -> SnPacket:
    return Puback(values.numbers[PACKET_ID], values.numbers[REASON], values.numbers[TOPIC_ALIAS])


@final
class Pubrec(SnPacket):
    """QoS 2, part 1."""

    __slots__ = ("packet_id", "reason")

    def __init__(self, packet_id: int, reason: int = 0) -> None:
        self.packet_id: Final = packet_id
        self.reason: Final = reason

    def kind(self) -> int:
        return kinds.PUBREC

    def fill(self, values: Values) -> None:
        _fill_answer(values, self.packet_id, self.reason)


def read_pubrec(values: Values) -> SnPacket:
    return Pubrec(values.numbers[PACKET_ID], values.numbers[REASON])


@final
class Pubrel(SnPacket):
    """QoS 2, part 2."""

    __slots__ = ("packet_id", "reason")

    def __init__(self, packet_id: int, reason: int = 0) -> None:
        self.packet_id: Final = packet_id
        self.reason: Final = reason

    def kind(self) -> int:
        return kinds.PUBREL

    def fill(self, values: Values) -> None:
        _fill_answer(values, self.packet_id, self.reason)


def read_pubrel(values: Values) -> SnPacket:
    return Pubrel(values.numbers[PACKET_ID], values.numbers[REASON])


@final
class Pubcomp(SnPacket):
    """QoS 2, part 3."""

    __slots__ = ("packet_id", "reason")

    def __init__(self, packet_id: int, reason: int = 0) -> None:
        self.packet_id: Final = packet_id
        self.reason: Final = reason

    def kind(self) -> int:
        return kinds.PUBCOMP

    def fill(self, values: Values) -> None:
        _fill_answer(values, self.packet_id, self.reason)


def read_pubcomp(values: Values) -> SnPacket:
    return Pubcomp(values.numbers[PACKET_ID], values.numbers[REASON])


@final
class Subscribe(SnPacket):
    """Ask for one subscription (3.1.17). 1.2 has only the QoS and a DUP; the options are 0 there."""

    __slots__ = ("packet_id", "reference", "qos", "no_local", "retain_as_published", "retain_handling", "dup")

    def __init__(
        self,
        packet_id: int,
        reference: TopicReference,
        qos: int = 0,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
        dup: bool = False,
    ) -> None:
        self.packet_id: Final = packet_id
        self.reference: Final = reference
        self.qos: Final = qos
        self.no_local: Final = no_local
        self.retain_as_published: Final = retain_as_published
        self.retain_handling: Final = retain_handling
        self.dup: Final = dup

    def kind(self) -> int:
        return kinds.SUBSCRIBE

    def fill(self, values: Values) -> None:
        numbers = values.numbers
        fill_reference(values, self.reference, False)
        numbers[PACKET_ID] = self.packet_id
        numbers[QOS] = self.qos
        numbers[NO_LOCAL] = 1 if self.no_local else 0
        numbers[RETAIN_AS_PUBLISHED] = 1 if self.retain_as_published else 0
        numbers[RETAIN_HANDLING] = self.retain_handling
        numbers[DUP] = 1 if self.dup else 0


def read_subscribe(values: Values) -> SnPacket:
    numbers = values.numbers
    if numbers[QOS] > 2:
        raise ProtocolError("a subscription at QoS 3", "MQTT-SN-3.1.17.2")
    if numbers[RETAIN_HANDLING] > 2:
        raise ProtocolError("Retain Handling 3", "MQTT-SN-3.1.17.2")
    return Subscribe(
        numbers[PACKET_ID],
        read_filter(values),
        numbers[QOS],
        values.flag(NO_LOCAL),
        values.flag(RETAIN_AS_PUBLISHED),
        numbers[RETAIN_HANDLING],
        values.flag(DUP),
    )


@final
class Suback(SnPacket):
    """The answer to SUBSCRIBE: `reason` is the granted QoS or a refusal; the alias is for an exact topic name."""

    __slots__ = ("packet_id", "reason", "topic_alias", "topic_type")

    def __init__(self, packet_id: int, reason: int, topic_alias: int = 0, topic_type: int = SESSION_ALIAS) -> None:
        self.packet_id: Final = packet_id
        self.reason: Final = reason
        self.topic_alias: Final = topic_alias
        self.topic_type: Final = topic_type

    def kind(self) -> int:
        return kinds.SUBACK

    def fill(self, values: Values) -> None:
        numbers = values.numbers
        numbers[PACKET_ID] = self.packet_id
        numbers[REASON] = self.reason
        numbers[QOS] = self.reason if self.reason <= 2 else 0
        numbers[TOPIC_ALIAS] = self.topic_alias
        numbers[HAS_ALIAS] = 1 if self.topic_alias else 0
        numbers[TOPIC_TYPE] = self.topic_type


def read_suback(values: Values) -> SnPacket:
    numbers = values.numbers
    # 1.2 and W write the granted QoS into the flags; the others have no QoS bits there, so they stay 0.
    reason = numbers[REASON] if numbers[REASON] else numbers[QOS]
    return Suback(numbers[PACKET_ID], reason, numbers[TOPIC_ALIAS], numbers[TOPIC_TYPE])


@final
class Unsubscribe(SnPacket):
    """Give up one subscription."""

    __slots__ = ("packet_id", "reference")

    def __init__(self, packet_id: int, reference: TopicReference) -> None:
        self.packet_id: Final = packet_id
        self.reference: Final = reference

    def kind(self) -> int:
        return kinds.UNSUBSCRIBE

    def fill(self, values: Values) -> None:
        fill_reference(values, self.reference, False)
        values.numbers[PACKET_ID] = self.packet_id


def read_unsubscribe(values: Values) -> SnPacket:
    return Unsubscribe(values.numbers[PACKET_ID], read_filter(values))


@final
class Unsuback(SnPacket):
    """The answer to UNSUBSCRIBE; 1.2 writes no reason."""

    __slots__ = ("packet_id", "reason")

    def __init__(self, packet_id: int, reason: int = 0) -> None:
        self.packet_id: Final = packet_id
        self.reason: Final = reason

    def kind(self) -> int:
        return kinds.UNSUBACK

    def fill(self, values: Values) -> None:
        _fill_answer(values, self.packet_id, self.reason)


def read_unsuback(values: Values) -> SnPacket:
    return Unsuback(values.numbers[PACKET_ID], values.numbers[REASON])


def _fill_answer(values: Values, packet_id: int, reason: int) -> None:
    values.numbers[PACKET_ID] = packet_id
    values.numbers[REASON] = reason

"""How a packet names its topic: an alias of one of two number spaces, two characters, or the full name.

Owns: `TopicReference` and its place among a packet's values (1.2: sections 6.5 and 6.7; 2.0: section 4.7).
Never: which name an alias means (`session.aliases`).
"""

from typing import Final, final

from embermq.protocol.errors import MalformedPacket
from embermq.protocol.packets import Packet
from embermq.protocol.reasons import ReasonCode
from embermq.protocol.sn.wire.fields import (
    FULL_NAME,
    NAME,
    PREDEFINED_ALIAS,
    SESSION_ALIAS,
    SHORT_NAME,
    TOPIC_ALIAS,
    TOPIC_TYPE,
    Values,
    text_of,
)
from embermq.protocol.topics import check_topic_name


@final
class TopicReference(Packet):
    """One topic as a packet names it: `topic_alias` for the alias types, `name` for the others."""

    __slots__ = ("topic_type", "topic_alias", "name")

    def __init__(self, topic_type: int, topic_alias: int = 0, name: str = "") -> None:
        self.topic_type: Final = topic_type
        self.topic_alias: Final = topic_alias
        self.name: Final = name


def session_alias(topic_alias: int) -> TopicReference:
    """An alias that the server assigned in this session."""
    return TopicReference(SESSION_ALIAS, topic_alias)


def predefined_alias(topic_alias: int) -> TopicReference:
    """An alias of the table that server and clients were configured with."""
    return TopicReference(PREDEFINED_ALIAS, topic_alias)


def short_name(name: str) -> TopicReference:
    """A topic name of two bytes, sent instead of an alias (not in B)."""
    return TopicReference(SHORT_NAME, 0, name)


def full_name(name: str) -> TopicReference:
    """The topic name or topic filter itself."""
    return TopicReference(FULL_NAME, 0, name)


def fill_reference(values: Values, reference: TopicReference, in_publish: bool) -> None:
    values.numbers[TOPIC_TYPE] = reference.topic_type
    values.numbers[TOPIC_ALIAS] = reference.topic_alias
    if reference.topic_type >= SHORT_NAME:
        name = reference.name.encode()
        if reference.topic_type == SHORT_NAME and len(name) != 2:
            raise ValueError("a short topic name is two bytes")
        values.set_blob(NAME, name)
        if in_publish:
            # A PUBLISH has two bytes for every topic: the short name itself, or the length of the full one.
            short = reference.topic_type == SHORT_NAME
            values.numbers[TOPIC_ALIAS] = int.from_bytes(name, "big") if short else len(name)


def read_name(values: Values) -> TopicReference:
    """A PUBLISH's topic: it may not have wildcards."""
    topic_type = values.numbers[TOPIC_TYPE]
    if topic_type < SHORT_NAME:
        return TopicReference(topic_type, values.numbers[TOPIC_ALIAS])
    if topic_type == SHORT_NAME:
        name = text_of(values.numbers[TOPIC_ALIAS].to_bytes(2, "big"))
    else:
        name = values.text(NAME)
    problem = check_topic_name(name)
    if problem is not None:
        raise MalformedPacket(problem, "MQTT-SN-4.7.1-1", ReasonCode.TOPIC_NAME_INVALID)
    return TopicReference(topic_type, 0, name)


def read_filter(values: Values) -> TopicReference:
    """A subscription's topic: whether the filter is valid is answered by a SUBACK, so it is not checked here."""
    topic_type = values.numbers[TOPIC_TYPE]
    if topic_type < SHORT_NAME:
        return TopicReference(topic_type, values.numbers[TOPIC_ALIAS])
    return TopicReference(topic_type, 0, values.text(NAME))

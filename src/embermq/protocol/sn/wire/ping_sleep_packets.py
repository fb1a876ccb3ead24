"""The packets of keep alive and sleep: PINGREQ, SLEEPREQ, WAKEUP and their answers.

Owns: their fields. Which client sleeps, and what is buffered for it, belongs to the session (`session.client_state`).
"""

from typing import Final, final

from embermq.protocol.errors import ProtocolError
from embermq.protocol.sn.wire import kinds
from embermq.protocol.sn.wire.fields import (
    AWAKE_MESSAGES,
    CLIENT_ID,
    HAS_SLEEP,
    PACKET_ID,
    REASON,
    REMAINING,
    RETAIN_ALIASES,
    SLEEP,
    Values,
)
from embermq.protocol.sn.wire.kinds import SnPacket


@final
class Pingreq(SnPacket):
    """A sign of life; with a ClientID (1.2, W, A): a sleeping client wakes and asks for its buffered messages."""

    __slots__ = ("packet_id", "client_id", "awake_messages")

    def __init__(self, packet_id: int = 0, client_id: str = "", awake_messages: int = 0) -> None:
        self.packet_id: Final = packet_id
        self.client_id: Final = client_id
        self.awake_messages: Final = awake_messages

    def kind(self) -> int:
        return kinds.PINGREQ

    def fill(self, values: Values) -> None:
        values.numbers[PACKET_ID] = self.packet_id
        values.numbers[AWAKE_MESSAGES] = self.awake_messages
        values.set_blob(CLIENT_ID, self.client_id.encode())


def read_pingreq(values: Values) -> SnPacket:
    return Pingreq(values.numbers[PACKET_ID], values.text(CLIENT_ID), values.numbers[AWAKE_MESSAGES])


@final
class Pingresp(SnPacket):
    """The answer to PINGREQ; it sends an awake client back to sleep.

    `messages_remaining` below 0 is not written; 255 means 255 or more.
    """

    __slots__ = ("packet_id", "messages_remaining")

    def __init__(self, packet_id: int = 0, messages_remaining: int = -1) -> None:
        self.packet_id: Final = packet_id
        self.messages_remaining: Final = messages_remaining

    def kind(self) -> int:
        return kinds.PINGRESP

    def fill(self, values: Values) -> None:
        values.numbers[PACKET_ID] = self.packet_id
        values.numbers[REMAINING] = self.messages_remaining


def read_pingresp(values: Values) -> SnPacket:
    return Pingresp(values.numbers[PACKET_ID], values.numbers[REMAINING])


@final
class Sleepreq(SnPacket):
    """B: a client is going to sleep for `sleep_s`."""

    __slots__ = ("packet_id", "sleep_s", "retain_aliases")

    def __init__(self, packet_id: int, sleep_s: int, retain_aliases: bool = False) -> None:
        self.packet_id: Final = packet_id
        self.sleep_s: Final = sleep_s
        self.retain_aliases: Final = retain_aliases

    def kind(self) -> int:
        return kinds.SLEEPREQ

    def fill(self, values: Values) -> None:
        values.numbers[PACKET_ID] = self.packet_id
        values.numbers[SLEEP] = self.sleep_s
        values.numbers[RETAIN_ALIASES] = 1 if self.retain_aliases else 0


def read_sleepreq(values: Values) -> SnPacket:
    sleep_s = values.numbers[SLEEP]
    if sleep_s == 0:
        raise ProtocolError("a sleep of 0 seconds")
    return Sleepreq(values.numbers[PACKET_ID], sleep_s, values.flag(RETAIN_ALIASES))


@final
class Sleepresp(SnPacket):
    """B: the answer to SLEEPREQ; with `sleep_s` below 0 the client's value holds."""

    __slots__ = ("packet_id", "sleep_s", "reason")

    def __init__(self, packet_id: int, sleep_s: int = -1, reason: int = 0) -> None:
        self.packet_id: Final = packet_id
        self.sleep_s: Final = sleep_s
        self.reason: Final = reason

    def kind(self) -> int:
        return kinds.SLEEPRESP

    def fill(self, values: Values) -> None:
        values.numbers[PACKET_ID] = self.packet_id
        values.numbers[SLEEP] = self.sleep_s
        values.numbers[HAS_SLEEP] = 1 if self.sleep_s >= 0 else 0
        values.numbers[REASON] = self.reason


def read_sleepresp(values: Values) -> SnPacket:
    return Sleepresp(values.numbers[PACKET_ID], values.numbers[SLEEP], values.numbers[REASON])


@final
class Wakeup(SnPacket):
    """A hint to a sleeping client that messages are buffered for it."""

    __slots__ = ()

    def kind(self) -> int:
        return kinds.WAKEUP


def read_wakeup(values: Values) -> SnPacket:
    return Wakeup()

"""The wall clock of the turn, by which messages expire (5.0, section 3.3.2.3.3)."""

from typing import final

from embermq.protocol.packets import Publish

_NO_INTERVAL = b"\x02\x00\x00\x00\x00"
"""How the properties of a message with a Message Expiry Interval of 0 begin."""


@final
class Clock:
    """`now_us` is set by the core; 0 while there is no time, and nothing expires then."""

    __slots__ = ("now_us",)

    def __init__(self) -> None:
        self.now_us = 0

    def has_expired(self, message: Publish) -> bool:
        """Whether a message that waited may not be sent any more (5.0, MQTT-3.3.2-5)."""
        return 0 < message.expires_us <= self.now_us

    def has_expired_live(self, message: Publish) -> bool:
        """As `has_expired`, for a message that has just become durable: with an interval of 0 it may be sent now."""
        return 0 < message.expires_us <= self.now_us and not message.properties.startswith(_NO_INTERVAL)

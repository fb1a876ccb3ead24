"""The instant of the turn: what deadlines are compared with, and what messages expire by (5.0, section 3.3.2.3.3).

Owns: the instant that the shell has handed in last. Every part of the core asks here, none has an instant of its own.
"""

from typing import final

from embermq.protocol.packets import Publish

_NO_INTERVAL = b"\x02\x00\x00\x00\x00"
"""How the properties of a message with a Message Expiry Interval of 0 begin."""


@final
class Clock:
    """`now_ms` counts from any moment on. `now_us()` is the time of day; 0 while there is none, and nothing expires."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._ahead_us = 0  # of the time of day

    def move(self, now_ms: int) -> None:
        """Time has passed."""
        self.now_ms = now_ms

    def set(self, now_ms: int, now_us: int) -> None:
        """The same with the time of day, which may have been changed."""
        self.now_ms = now_ms
        self._ahead_us = now_us - now_ms * 1000

    def now_us(self) -> int:
        """The time of day, in microseconds since 1970."""
        return self.now_ms * 1000 + self._ahead_us

    def has_expired(self, message: Publish) -> bool:
        """Whether a message that waited may not be sent any more (5.0, MQTT-3.3.2-5)."""
        return 0 < message.expires_us <= self.now_us()

    def has_expired_live(self, message: Publish) -> bool:
        """As `has_expired`, for a message that has just become durable: with an interval of 0 it may be sent now."""
        return self.has_expired(message) and not message.properties.startswith(_NO_INTERVAL)

"""Presence: whether a client is active, asleep or awake, and when its silence has lasted too long (digest 15, 16).

Owns: the state, the two timers that supervise it, and the QoS 0 messages kept for a sleeper.
Never: QoS 1 and 2 messages; the core keeps those while a sleeper has no room.
"""

from typing import Final, final

from embermq.protocol import packets as core
from embermq.protocol.sn.session.outgoing_queue import Waiting

CONNECTING: Final = 0  # CONNACK has not left
ACTIVE: Final = 1
ASLEEP: Final = 2
AWAKE: Final = 3  # a sleeper fetches what waits for it
CLOSED: Final = 4

LONG_S: Final = 60
MANY: Final = 255


@final
class Presence:
    """One client's state and supervision."""

    __slots__ = (
        "state",
        "heard_ms",
        "keep_alive_s",
        "sleep_s",
        "ping_id",
        "kept",
        "awake_left",
        "awake_limited",
        "_strict",
        "_kept_max",
    )

    def __init__(self, keep_alive_s: int, strict: bool, kept_max: int, now_ms: int) -> None:
        """`strict`: 2.0's one and a half times; 1.2 allows ten per cent above a minute."""
        self.state = CONNECTING
        self.heard_ms = now_ms
        self.keep_alive_s = keep_alive_s  # 0: never supervised
        self.sleep_s = 0
        self.ping_id = 0  # of the PINGREQ that an awake client waits for the answer to
        self.kept: Final = Waiting()
        self.awake_left = 0
        self.awake_limited = False
        self._strict: Final = strict
        self._kept_max: Final = kept_max

    def due_ms(self) -> int:
        """When silence has lasted too long; 0 for never."""
        if self.state == ACTIVE:
            seconds = self.keep_alive_s
        elif self.state in (ASLEEP, AWAKE):
            seconds = self.sleep_s
        else:
            return 0
        if seconds == 0:
            return 0
        if self._strict or seconds <= LONG_S:
            return self.heard_ms + seconds * 1500
        return self.heard_ms + seconds * 1100

    def sleep(self, sleep_s: int) -> None:
        """The client goes to sleep, or changes for how long."""
        self.state = ASLEEP
        self.sleep_s = sleep_s
        self.ping_id = 0

    def wake(self, ping_id: int, messages_max: int) -> None:
        """A sleeper asks for what waits: at most so many messages, 0 for all."""
        self.state = AWAKE
        self.ping_id = ping_id
        self.awake_limited = messages_max > 0
        self.awake_left = messages_max

    def may_deliver(self) -> bool:
        """Whether messages go out now at all."""
        if self.state == AWAKE:
            return not self.awake_limited or self.awake_left > 0
        return self.state == ACTIVE

    def delivered(self) -> None:
        """A message was handed over to an awake client."""
        if self.state == AWAKE and self.awake_limited:
            self.awake_left -= 1

    def keep(self, message: core.Publish) -> bool:
        """Keep a QoS 0 message for a sleeper. False: there is no room."""
        if not self.kept.fits(message, self._kept_max):
            return False
        self.kept.put(message)
        return True

    def remaining(self, owed: int) -> int:
        """What PINGRESP says is left: the sleeper's QoS 0 messages and what the core still owes."""
        return min(len(self.kept) + owed, MANY)

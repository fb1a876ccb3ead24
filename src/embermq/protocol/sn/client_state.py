"""The state of one client: connecting, active, asleep, awake or closed, and when its silence has lasted too long.

Owns: the state (1.2: section 6.14; 2.0: section 4.25), the two timers that supervise it, and the QoS 0 messages that
are buffered for a sleeping client.
Never: QoS 1 and 2 messages; the core keeps those while a sleeping client takes none.
"""

from typing import Final, final

from embermq.protocol import packets as core
from embermq.protocol.sn.outgoing import OutgoingQueue

CONNECTING: Final = 0  # CONNACK has not left
ACTIVE: Final = 1
ASLEEP: Final = 2
AWAKE: Final = 3  # a sleeping client fetches its messages
CLOSED: Final = 4

LONG_S: Final = 60
"""A longer keep alive or sleep has its profile's own tolerance, a shorter one half as much again."""
REMAINING_MAX: Final = 255


@final
class ClientState:
    """One client's state and supervision."""

    def __init__(self, keep_alive_s: int, long_keep_alive_percent: int, buffered_max: int, now_ms: int) -> None:
        self.state = CONNECTING
        self.heard_ms = now_ms
        self.keep_alive_s = keep_alive_s  # 0: not supervised
        self.sleep_s = 0
        self.ping_id = 0  # of the PINGREQ that PINGRESP answers when an awake client sleeps again
        self.buffered: Final = OutgoingQueue()
        self._awake_left = 0
        self._awake_limited = False
        self._long_percent: Final = long_keep_alive_percent
        self._buffered_max: Final = buffered_max

    def sleeps(self) -> bool:
        """Whether the client is asleep, or awake only until it has fetched its messages."""
        return self.state in (ASLEEP, AWAKE)

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
        return self.heard_ms + seconds * 10 * (self._long_percent if seconds > LONG_S else 150)

    def heard(self, now_ms: int) -> None:
        """A packet of the client has come."""
        self.heard_ms = now_ms

    def activate(self) -> None:
        """CONNACK leaves."""
        self.state = ACTIVE

    def reactivate(self, keep_alive_s: int, now_ms: int) -> None:
        """A sleeping client has sent another CONNECT."""
        self.state = ACTIVE
        self.keep_alive_s = keep_alive_s
        self.heard_ms = now_ms

    def close(self) -> bool:
        """The connection has ended. False: it had ended before."""
        was_open = self.state != CLOSED
        self.state = CLOSED
        return was_open

    def sleep(self, sleep_s: int) -> None:
        """The client falls asleep, or changes for how long."""
        self.state = ASLEEP
        self.sleep_s = sleep_s
        self.ping_id = 0

    def wake(self, ping_id: int, messages_max: int) -> None:
        """A sleeping client fetches its messages, at most `messages_max` of them; 0 for all."""
        self.state = AWAKE
        self.ping_id = ping_id
        self._awake_limited = messages_max > 0
        self._awake_left = messages_max

    def ping_again(self, ping_id: int) -> None:
        """A duplicate of the PINGREQ came while messages are fetched: nothing begins again, but it is answered."""
        self.ping_id = ping_id

    def may_deliver(self) -> bool:
        """Whether messages may be sent now."""
        if self.state == AWAKE:
            return not self._awake_limited or self._awake_left > 0
        return self.state == ACTIVE

    def delivered(self) -> None:
        """A message was handed over; an awake client may have a limit for these."""
        if self.state == AWAKE and self._awake_limited:
            self._awake_left -= 1

    def buffer(self, message: core.Publish) -> bool:
        """Keep a QoS 0 message for a sleeping client. False: the buffer is full."""
        if not self.buffered.fits(message, self._buffered_max):
            return False
        self.buffered.put(message)
        return True

    def remaining(self, owed: int) -> int:
        """What PINGRESP says is left: the buffered messages and those that the core still owes."""
        return min(len(self.buffered) + owed, REMAINING_MAX)

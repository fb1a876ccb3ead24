"""The time of turns: how much of it clients that bring much have, and how long a commit group waits.

Owns: how the share of a connection adapts to the time that processing takes. 32 KiB may be a hundred messages
or 16,384 packets, and one packet may have thousands of receivers; so the share is judged by the CPU time that it took,
and by the work that waits for the next turns because of it.
Most reads are small, and looking at the clock costs time: they are timed only after a turn that was long.
Also, how long a commit group waits for more records: not at all while the processor has time to spare. A sync for each
message costs more CPU than the rest of the message, and a group that waits costs each of its messages time. So the wait
grows, step by step, while this process uses more of a core than `BUSY`, up to `GATHER_US_MAX`, and it shrinks again
below `SPARE`. Between the two it stays, so that it does not swing.
"""

import time
from typing import Final, final

SHARE_BYTES: Final = 32 * 1024
"""The share of a client that nothing is known about: as many of the smallest packets as take about `LONG_S`."""
SHARE_BYTES_MIN: Final = 64
SHARE_BYTES_MAX: Final = 256 * 1024
QUICK_S: Final = 0.002
LONG_S: Final = 0.006
"""A share that took less than the first time is doubled; one that took more than the second is halved, or quartered."""

TURN_S: Final = 0.02
"""When shares have taken this much CPU time in a turn, the clients that have brought more wait for the next turns."""
LONG_TURN_S: Final = 0.01
"""After a turn that took this long, small reads are timed too, for a second or two."""
LIGHT_S: Final = 0.0005
"""A client whose last small read took less never waits for a turn of its own."""
SHARE_TIMED_BYTES: Final = 2 * 1024
"""A read of fewer bytes is small."""


@final
class TurnTime:
    """The time of the turns of one server. A read of `timed_bytes` or more is timed."""

    __slots__ = ("shares_s", "timed_bytes", "_usual_bytes", "_long_turn_s", "_was_long")

    def __init__(self, usual_bytes: int = SHARE_TIMED_BYTES, long_turn_s: float = LONG_TURN_S) -> None:
        """`usual_bytes`: from which size on reads are timed when no turn was long."""
        self.shares_s = 0.0  # CPU time that shares of clients took in this turn
        self.timed_bytes = usual_bytes
        self._usual_bytes: Final = usual_bytes
        self._long_turn_s: Final = long_turn_s
        self._was_long = False

    def ended(self, took_s: float) -> None:
        """A turn is over."""
        self.shares_s = 0.0
        if took_s > self._long_turn_s:
            self.timed_bytes = 0
            self._was_long = True

    def spent(self, took_s: float) -> None:
        """A share of a client took this CPU time."""
        self.shares_s += took_s

    def tick(self) -> None:
        """Once a second: if no turn was long since the last time, small reads are no longer timed."""
        if not self._was_long:
            self.timed_bytes = self._usual_bytes
        self._was_long = False

    def is_used_up(self) -> bool:
        """Whether the clients that have brought more wait."""
        return self.shares_s > TURN_S

    def must_wait(self, took_s: float, size_bytes: int) -> bool:
        """Whether a read waits because others have used the time of this turn. `took_s`: of its client's last read."""
        return self.shares_s > TURN_S and (took_s > LIGHT_S or size_bytes >= SHARE_TIMED_BYTES)


def adapted_share(share_bytes: int, took_s: float, was_whole: bool, is_behind: bool = False) -> int:
    """The next share after one that was processed.

    `was_whole`: there was as much to process as it allowed. `is_behind`: much work waits now, and the share is a cause.
    """
    if took_s > 4 * LONG_S:
        return max(SHARE_BYTES_MIN, share_bytes // 4)
    if took_s > LONG_S or is_behind:
        return max(SHARE_BYTES_MIN, share_bytes // 2)
    if took_s < QUICK_S and was_whole:
        return min(SHARE_BYTES_MAX, 2 * share_bytes)
    return share_bytes


LOOK_S: Final = 0.1
"""How often the CPU time is looked at, in a turn."""
BUSY: Final = 0.33
SPARE: Final = 0.28
GATHER_US_MIN: Final = 200
"""The first step. A shorter wait would be over before a message more has come."""
GATHER_US_MAX: Final = 2_000


@final
class CommitPace:
    """The wait of one server."""

    def __init__(self) -> None:
        self.gather_us = 0
        self._looked_s = 0.0
        self._used_s = 0.0

    def look(self, now_s: float) -> bool:
        """A turn is over. True: it was time to look, and `gather_us` may have changed."""
        if now_s - self._looked_s < LOOK_S:
            return False
        used_s = time.process_time()
        self.adapt((used_s - self._used_s) / (now_s - self._looked_s))
        self._looked_s = now_s
        self._used_s = used_s
        return True

    def adapt(self, used: float) -> None:
        """`used`: of a core, by all threads of this process, since the last time."""
        if used > BUSY:
            self.gather_us = min(GATHER_US_MAX, max(GATHER_US_MIN, self.gather_us * 5 // 4))
        elif used < SPARE:
            shorter = self.gather_us * 4 // 5
            self.gather_us = shorter if shorter >= GATHER_US_MIN else 0

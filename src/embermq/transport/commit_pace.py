"""How long a commit group waits for more records: not at all while the processor has time to spare.

Owns: that wait. A sync for each message costs more CPU than the rest of the message, and a group that waits costs each
of its messages time. So the wait grows, step by step, while this process uses more of a core than `BUSY`, up to
`GATHER_US_MAX`, and it shrinks again below `SPARE`. Between the two it stays, so that it does not swing.
"""

import time
from typing import Final, final

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

    __slots__ = ("gather_us", "_looked_s", "_used_s")

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

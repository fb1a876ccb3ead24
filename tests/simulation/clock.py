"""The clock of the simulated world. It stands still unless the world moves it.

Owns: what `time.monotonic`, `time.time` and their relatives say in this process.
"""

import time
from typing import Final

real_s: Final = time.perf_counter
"""The clock outside, for how long a run takes."""

BEGINNING_US: Final = 1_700_000_000_000_000


class Clock:
    """Microseconds since the world began, and how far the time of day is ahead of them."""

    def __init__(self) -> None:
        self.now_us = 1_000_000_000
        self.wall_ahead_us = BEGINNING_US

    def reset(self) -> None:
        self.__init__()  # type: ignore[misc]  # one world after the other in one process

    def move(self, to_us: int) -> None:
        """Time passes; it never runs backwards."""
        self.now_us = max(self.now_us, to_us)

    def set_wall(self, ahead_us: int) -> None:
        """Somebody sets the time of day."""
        self.wall_ahead_us = ahead_us


CLOCK: Final = Clock()


def monotonic_s() -> float:
    return CLOCK.now_us / 1_000_000


def now_s() -> float:
    return (CLOCK.now_us + CLOCK.wall_ahead_us) / 1_000_000


def now_ns() -> int:
    return (CLOCK.now_us + CLOCK.wall_ahead_us) * 1_000

"""Held times: how long publishers were held back lately, for each publisher, and for each owner of slow receivers.

Owns: one duration for each of a bounded number of names, which is forgotten as time passes.
Never: a clock. Time comes in as `now_ms`.
"""

from collections import OrderedDict
from typing import Final, final

HOLD_BACK_MAX_MS: Final = 10_000
"""How long a publisher is held back at a time, and how long publishers wait for the receivers of one owner."""
FORGET_PART: Final = 6
"""In this many milliseconds one is forgotten: in the long run a publisher is held back for a sixth of the time."""
NAMES_MAX: Final = 10_000
"""How many names are remembered; the one whose time was changed longest ago is forgotten first."""


@final
class HeldTimes:
    """The times of one kind of name."""

    __slots__ = ("_times", "_names_max")

    def __init__(self, names_max: int = NAMES_MAX) -> None:
        self._times: Final[OrderedDict[str, tuple[int, int]]] = OrderedDict()  # a duration, and the instant it is of
        self._names_max: Final = names_max

    def __len__(self) -> int:
        return len(self._times)

    def held_ms(self, name: str, now_ms: int) -> int:
        """What is remembered now."""
        time = self._times.get(name)
        return 0 if time is None else max(0, time[0] - (now_ms - time[1]) // FORGET_PART)

    def is_used_up(self, name: str, now_ms: int, more_ms: int = 0) -> bool:
        """Whether nobody is to be held back for a name any more; `more_ms` has passed that was not added yet."""
        return self.held_ms(name, now_ms) + more_ms >= HOLD_BACK_MAX_MS

    def add(self, name: str, passed_ms: int, now_ms: int) -> None:
        """Somebody was held back for this long, until now."""
        total_ms = min(2 * HOLD_BACK_MAX_MS, self.held_ms(name, now_ms) + passed_ms)
        self._times[name] = (total_ms, now_ms)
        self._times.move_to_end(name)
        if len(self._times) > self._names_max:
            self._times.popitem(last=False)

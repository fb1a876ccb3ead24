"""Commit times: how many commit groups became durable, and how long each took, for the operator.

Owns: a histogram that the committer's thread fills. Readers on other threads see numbers that may be one group apart.
"""

from bisect import bisect_left
from typing import Final, final

BOUNDS_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


@final
class CommitTimes:
    """The groups since the start."""

    __slots__ = ("groups", "records", "sum_s", "_counts")

    def __init__(self) -> None:
        self.groups = 0
        self.records = 0
        self.sum_s = 0.0
        self._counts: Final = [0] * (len(BOUNDS_S) + 1)

    def add(self, records: int, took_s: float) -> None:
        """A group of so many records is durable, so long after it was closed."""
        self.groups += 1
        self.records += records
        self.sum_s += took_s
        self._counts[bisect_left(BOUNDS_S, took_s)] += 1

    def buckets(self) -> list[tuple[str, float]]:
        """Upper bounds as text, each with how many groups took no longer; the last one is "+Inf"."""
        found: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), self._counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found

"""The schedule: which jobs take part in the next batch, and when.

Owns: how long a job waits, and the choice between jobs that are at different offsets.
Never: a clock, Spark, the log. Time comes in as `now_s`, in seconds of a clock that never goes back.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

APPEND_SHARE: Final = 0.25
MERGE_SHARE: Final = 0.08
"""The most time that batches of a job may take, as a share of all time. A merge takes about a second whatever its size,
so on a small or busy machine merged tables get larger and rarer batches."""


@dataclass
class Turn:
    """A job in the schedule."""

    name: str
    is_merged: bool
    position: int
    """The next offset that it reads."""
    began_s: float = float("-inf")
    took_s: float = 0.0
    """When its last batch began, and how long that took."""

    def due_s(self, fresh_s: float) -> float:
        """When its next batch should begin, if there are records for it."""
        share = MERGE_SHARE if self.is_merged else APPEND_SHARE
        return self.began_s + max(fresh_s, self.took_s / share)


@dataclass(frozen=True)
class Plan:
    """One batch: the offsets from `start` up to, not including, `end`, and who takes part in it."""

    start: int
    end: int
    jobs: tuple[str, ...]


def next_plan(turns: Iterable[Turn], log_end: int, records_max: int, fresh_s: float, now_s: float) -> Plan | None:
    """The next batch; None if nobody is due.

    A job with more than a batch to read is due at once. Among those that are due, the one whose last batch is the
    oldest decides where the batch begins: a new table that reads all of the log takes turns with the others.
    """
    due = [
        turn
        for turn in turns
        if turn.position < log_end and (log_end - turn.position >= records_max or turn.due_s(fresh_s) <= now_s)
    ]
    if not due:
        return None
    first = min(due, key=lambda turn: (turn.began_s, turn.position))
    end = min(log_end, first.position + records_max)
    jobs = tuple(turn.name for turn in due if first.position <= turn.position < end)
    return Plan(first.position, end, jobs)


def next_due_s(turns: Sequence[Turn], log_end: int, fresh_s: float) -> float | None:
    """When somebody is due; None if all have read everything."""
    return min((turn.due_s(fresh_s) for turn in turns if turn.position < log_end), default=None)

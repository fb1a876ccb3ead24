"""The schedule: which jobs take part in the next batch, and when.

Owns: how long a job waits, and the choice between jobs that are at different offsets.
Never: a clock, Spark, the log. Time comes in as `now_s`, in seconds of a clock that never goes back.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

APPEND_SHARE: Final = 0.05
MERGE_SHARE: Final = 0.05
"""The most time that batches may take, as a share of all time: of all jobs that only append, and of all that merge. A
merge takes some seconds whatever its size, so merged tables get larger and rarer batches on a small or busy machine.
"""
WAIT_MAX: Final = 18.0
"""However much batches cost, none waits longer than this many times the wanted freshness."""


@dataclass
class Turn:
    """A job in the schedule."""

    name: str
    is_merged: bool
    position: int
    """The next offset that it reads."""
    began_s: float = float("-inf")
    took_s: float = 0.0
    """When its last batch began, and how long its own part of that took; 0 for the first one, which compiles much."""


@dataclass(frozen=True)
class Plan:
    """One batch: the offsets from `start` up to, not including, `end`, and who takes part in it."""

    start: int
    end: int
    jobs: tuple[str, ...]


def next_plan(turns: Iterable[Turn], log_end: int, records_max: int, fresh_s: float, now_s: float) -> Plan | None:
    """The next batch; None if nobody is due.

    A job with more than a batch to read is due at once. Among those that are due, the one whose last batch is the
    oldest decides where the batch begins: a new table that reads all of the log takes turns with the others. Merges
    wait for the next append and come after it in the same batch: begun by themselves, they would keep it waiting.
    """
    behind: list[Turn] = []
    following: list[Turn] = []
    for turn in turns:
        (behind if log_end - turn.position >= records_max else following).append(turn)
    wait_s = {is_merged: _wait_s(following, is_merged, fresh_s) for is_merged in (False, True)}
    ready: list[Turn] = []
    waiting: list[Turn] = []
    for turn in following:
        if turn.position < log_end:
            (ready if turn.began_s + wait_s[turn.is_merged] <= now_s else waiting).append(turn)
    if any(not turn.is_merged for turn in waiting):
        ready = [turn for turn in ready if not turn.is_merged]
    due = ready + behind
    if not due:
        return None
    first = min(due, key=lambda turn: (turn.began_s, turn.position))
    end = min(log_end, first.position + records_max)
    jobs = tuple(turn.name for turn in due if first.position <= turn.position < end)
    return Plan(first.position, end, jobs)


def pause_s(turns: Iterable[Turn], fresh_s: float, now_s: float) -> float:
    """For how long no append that follows the log is due, whatever is new; 0 if one is."""
    appending = [turn for turn in turns if not turn.is_merged]
    due_s = min((turn.began_s for turn in appending), default=float("-inf")) + _wait_s(appending, False, fresh_s)
    return max(0.0, due_s - now_s)


def _wait_s(turns: Sequence[Turn], is_merged: bool, fresh_s: float) -> float:
    """The time between the beginnings of two batches, for all jobs of a sort: they then share one read of the log."""
    cost_s = sum(turn.took_s for turn in turns if turn.is_merged is is_merged)
    affordable_s = cost_s / (MERGE_SHARE if is_merged else APPEND_SHARE)
    return max(fresh_s - cost_s, min(affordable_s, WAIT_MAX * fresh_s))

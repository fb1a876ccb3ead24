"""Runs of seeds, and making the script of a failing one shorter.

Owns: what a seed means, and the search for fewer steps that still break a promise.
"""

import shutil
from pathlib import Path

from simulation.script import Step, script_of, setup_of
from simulation.world import Report, World

ATTEMPTS_MAX = 300


def run_seed(seed: int, directory: Path, kept: list[int] | None = None, is_told: bool = False) -> Report:
    """One world; `kept`: the numbers of the steps that are not left out."""
    steps = script_of(seed)
    chosen = steps if kept is None else [steps[number] for number in kept]
    return _run(seed, chosen, directory, is_told)


def _run(seed: int, steps: list[Step], directory: Path, is_told: bool = False) -> Report:
    place = directory / f"seed-{seed}"
    place.mkdir()
    try:
        return World(seed, setup_of(seed), place, is_told).run(steps)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def shortened(seed: int, directory: Path, violation: str) -> tuple[list[int], Report]:
    """The numbers of fewer steps with a violation of the same kind, and what that run says."""
    steps = script_of(seed)
    kept = list(range(len(steps)))
    best = _run(seed, steps, directory)
    size = len(kept) // 2
    attempts = 0
    while size and attempts < ATTEMPTS_MAX:
        position = 0
        while position < len(kept) and attempts < ATTEMPTS_MAX:
            attempts += 1
            fewer = kept[:position] + kept[position + size :]
            report = _run(seed, [steps[number] for number in fewer], directory)
            if report.violations and _kind(report.violations[0]) == _kind(violation):
                kept, best = fewer, report
            else:
                position += size
        size //= 2
    return kept, best


def _kind(violation: str) -> str:
    """A violation without its numbers and names."""
    return "".join(letter for letter in violation.split(":")[-1] if not letter.isdigit())

"""Trying the images of a recording: each is made, opened, and compared with what was promised before it.

Owns: which moments and subsets are tried, in as many processes as there are processors, and counting what was found.
Image k of n is made behind event k * events / n, with chances of its own: any image can be made again by its number.
"""

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from random import Random

from embermq.store.engines.opening import JournalSettings, rebuild
from embermq.store.errors import StoreError
from embermq.store.log.errors import LogCorrupt
from powercut.events import Event, read_events
from powercut.expected import Expected
from powercut.images import Images
from powercut.opened import Opened, opened
from powercut.recording import Durability

REBUILT_EVERY = 5
"""Of so many images one has its state made again from the log, and compared."""
VIOLATIONS_MAX = 20


@dataclass(frozen=True)
class Plan:
    """`promised`: the durability whose promises are asked for; `ignoring` as in `Images`."""

    events: Path
    root: Path
    count: int
    seed: int
    durability: Durability = "sync"
    promised: Durability = "sync"
    ignoring: str = ""
    is_unordered: bool = False
    only: int | None = None


@dataclass
class Outcome:
    images: int = 0
    events: int = 0
    syncs: int = 0
    promises: int = 0
    """The most that were asked of one image."""
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def add(self, other: "Outcome") -> None:
        self.images += other.images
        self.events = max(self.events, other.events)
        self.syncs = max(self.syncs, other.syncs)
        self.promises = max(self.promises, other.promises)
        self.counts += other.counts
        self.violations += other.violations

    def __str__(self) -> str:
        counts = "".join(f", {count} {name}" for name, count in sorted(self.counts.items()))
        return (
            f"{self.images} images of {self.events} events with {self.syncs} syncs, up to {self.promises} messages"
            f" promised: {len(self.violations)} violations{counts}"
        )


def try_images(plan: Plan, workers: int = 1) -> Outcome:
    outcome = Outcome()
    if workers == 1 or plan.only is not None:
        return _try_part(plan, 0, 1)
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        for part in pool.map(_try_part, *zip(*((plan, number, workers) for number in range(workers)), strict=True)):
            outcome.add(part)
    return outcome


def _try_part(plan: Plan, number: int, parts: int) -> Outcome:
    """Every image whose number leaves `number` when it is divided by `parts`."""
    events = list(read_events(plan.events))
    images, expected, outcome = Images(plan.root, plan.ignoring), Expected(), Outcome(events=len(events))
    wanted = range(number, plan.count, parts) if plan.only is None else (plan.only,)
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="power-cut-", dir=memory if memory.is_dir() else None) as directory:
        at = 0
        for image in wanted:
            end = image * len(events) // plan.count
            _follow(events[at:end], images, expected)
            at = end
            _try(plan, image, images, expected, Path(directory), outcome)
            if len(outcome.violations) >= VIOLATIONS_MAX:
                break
        _follow(events[at:], images, expected)
    outcome.syncs, outcome.promises = images.syncs, len(expected.promised)
    return outcome


def _follow(events: Iterable[Event], images: Images, expected: Expected) -> None:
    for event in events:
        images.follow(event)
        expected.follow(event)


def _try(plan: Plan, image: int, images: Images, expected: Expected, directory: Path, outcome: Outcome) -> None:
    rng = Random(f"{plan.seed} {image}")
    root = directory / f"image-{image}-{os.getpid()}"
    images.make(root, rng, plan.is_unordered)
    outcome.images += 1
    try:
        found = _opened(root / "data", plan, image % REBUILT_EVERY == 0, outcome)
    except LogCorrupt as damage:
        if plan.promised == "os":  # the page says that it may be so, and that it is told
            outcome.counts["refused as damaged"] += 1
        else:
            outcome.violations.append(f"image {image}: {damage}")
    except Exception as error:
        outcome.violations.append(f"image {image}: {error!r}")
    else:
        missing, wrong = expected.missing(found), expected.impossible(found)
        if not found.is_rebuilt_alike:
            wrong.append("the state is not the one that its log makes")
        if plan.promised == "os" and missing:
            outcome.counts["without the newest messages"] += 1
        elif missing:
            wrong += missing
        if wrong:
            outcome.violations.append(f"image {image}: {wrong[0]}" + f" (and {len(wrong) - 1} more)" * (len(wrong) > 1))
    shutil.rmtree(root)


def _opened(directory: Path, plan: Plan, is_rebuilt: bool, outcome: Outcome) -> Opened:
    """As `opened`, after `ember store rebuild` where that is asked for: RocksDB may refuse what a cut has torn."""
    try:
        return opened(directory, plan.durability, is_rebuilt)
    except StoreError as error:
        if "cannot be opened" not in str(error):
            raise
        outcome.counts["after `ember store rebuild`"] += 1
        rebuild(directory, JournalSettings(plan.durability))
        return opened(directory, plan.durability, is_rebuilt)

"""The shared log in memory, for tests: what an engine may do to blocks, on demand.

Owns: blocks that wait before they are stored (delay, another order between writers), that are stored twice, or whose
report is lost or a failure, and a writer that is cut off.
"""

from collections import deque
from collections.abc import Callable
from threading import Condition
from typing import Final, final

from embermq.cluster.sequencer import Sequencer, SequencerError, SharedLogLost

Done = Callable[[SequencerError | None], None]


def _ignore(error: SequencerError | None) -> None:
    """For a report that is lost."""


@final
class MemoryLog:
    """The log that several sequencers of one process share."""

    def __init__(self, identity: str = "memory") -> None:
        self.identity: Final = identity
        self.blocks: Final[list[bytes]] = []
        self.first = 0
        self.changed: Final = Condition()

    def store(self, block: bytes) -> None:
        with self.changed:
            self.blocks.append(block)
            self.changed.notify_all()

    def trim(self, first: int) -> None:
        """Keep nothing before a position, as a retention does."""
        self.first = first


@final
class MemorySequencer(Sequencer):
    """One writer and reader of a log. While it `holds`, blocks wait for `store_held`; cut off, none passes; while it
    `fails`, none is taken."""

    def __init__(self, log: MemoryLog) -> None:
        self.log: Final = log
        self.identity = log.identity
        self.holds = False
        self.is_cut_off = False
        self.loses_reports = False
        self.fails = False
        self.held: Final[deque[tuple[bytes, Done]]] = deque()

    def append(self, block: bytes, done: Done) -> None:
        if self.fails:
            done(SequencerError("the shared log does not answer"))
            return
        if self.loses_reports:
            done = _ignore
        if self.holds or self.is_cut_off:
            self.held.append((block, done))
        else:
            self.log.store(block)
            done(None)

    def store_held(self, count: int = 1, *, twice: bool = False) -> None:
        """Store blocks that wait, the oldest first, each once or twice."""
        for _ in range(min(count, len(self.held))):
            block, done = self.held.popleft()
            for _ in range(1 + twice):
                self.log.store(block)
            done(None)

    def fail_held(self, *, stored: bool = False) -> None:
        """Report the oldest block that waits as failed, although it was `stored`."""
        if self.held:
            block, done = self.held.popleft()
            if stored:
                self.log.store(block)
            done(SequencerError("the shared log does not answer"))

    def read(self, position: int, wait_s: float) -> list[tuple[int, bytes]]:
        if position < self.log.first:
            raise SharedLogLost(f"the shared log no longer has position {position}, it begins at {self.log.first}")
        with self.log.changed:
            self.log.changed.wait_for(lambda: len(self.log.blocks) > position and not self.is_cut_off, wait_s)
            if self.is_cut_off:
                return []
            return list(enumerate(self.log.blocks[position:], position))

    def first(self) -> int:
        return self.log.first

    def end(self) -> int:
        return len(self.log.blocks)

    def close(self) -> None:
        self.held.clear()

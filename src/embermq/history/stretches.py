"""What a log no longer has, as the replays read it: stretches of blocks of its archive, kept in memory up to a bound.

Owns: the stretches that were fetched last. Clients that replay the same time share them.
"""

from bisect import bisect_right, insort
from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import Final, final

from embermq.history.archived_blocks import READ_BYTES, ArchivedBlocks, BlockRun
from embermq.history.joined import JoinedLog
from embermq.history.rebuilt import CACHE, ArchivedPast, remove_leftovers
from embermq.store.history.trimmed import Fetched, TrimmedLog
from embermq.store.log.lookup import Stretch

MEMORY_BYTES: Final = 32 << 20


def archived_history(address: str, log_directory: Path) -> "ArchivedStretches":
    """What a log no longer has, from its archive. Nothing is opened before it is asked for."""
    cache = log_directory.parent / CACHE
    remove_leftovers(cache)
    past = ArchivedPast(address, cache, log_directory=log_directory)
    return ArchivedStretches(log_directory, ArchivedBlocks(address, log_directory), past)


@final
class ArchivedStretches(TrimmedLog):
    """The stretches of the archive of one log."""

    def __init__(
        self,
        log_directory: Path,
        blocks: ArchivedBlocks,
        past: ArchivedPast,
        memory_bytes: int = MEMORY_BYTES,
        read_bytes: int = READ_BYTES,
    ) -> None:
        self._log_directory: Final = log_directory
        self._blocks: Final = blocks
        self._past: Final = past
        self._memory_bytes: Final = memory_bytes
        self._read_bytes: Final = read_bytes
        self._lock: Final = Lock()  # of what follows; nobody waits for the archive with it
        self._kept: Final[OrderedDict[int, Stretch]] = OrderedDict()  # by first offset, least used first
        self._order: Final[list[int]] = []
        self._kept_bytes = 0
        self._fetched_bytes = 0

    def fetch(self, offset: int, from_us: int, log_begins: int) -> Fetched:
        blocks = self._blocks
        if offset:
            offset = blocks.goes_on_at(offset)
        else:
            offset = blocks.offset_at(from_us, log_begins) if from_us else blocks.first_offset(log_begins)
        known = self.in_memory(offset)
        if known is not None:
            return known
        run = blocks.run(offset, log_begins, self._read_bytes)
        if run is None:
            return Fetched(offset, None)
        stretch = _stretch(run)
        self._keep(stretch)
        return Fetched(offset, stretch)

    def in_memory(self, offset: int) -> Fetched | None:
        with self._lock:
            at = bisect_right(self._order, offset) - 1
            if at < 0:
                return None
            stretch = self._kept[self._order[at]]
            if offset >= stretch.next_offset:
                return None
            self._kept.move_to_end(stretch.first_offset)
            return Fetched(offset, stretch)

    def begins_us(self, log_begins: int) -> int:
        return self._blocks.begins_us(log_begins)

    def retained(self) -> ArchivedPast:
        return self._past

    def joined(self) -> JoinedLog:
        """The log with its archive."""
        return JoinedLog(self._log_directory, self._blocks)

    def fetched_bytes(self) -> int:
        return self._fetched_bytes

    def _keep(self, stretch: Stretch) -> None:
        with self._lock:
            self._fetched_bytes += len(stretch)
            self._kept_bytes += len(stretch)
            old = self._kept.pop(stretch.first_offset, None)  # another thread was quicker
            if old is None:
                insort(self._order, stretch.first_offset)
            else:
                self._kept_bytes -= len(old)
            self._kept[stretch.first_offset] = stretch
            while self._kept_bytes > self._memory_bytes and len(self._kept) > 1:
                first_offset, oldest = self._kept.popitem(last=False)
                self._order.remove(first_offset)
                self._kept_bytes -= len(oldest)


def _stretch(run: BlockRun) -> Stretch:
    return Stretch(Path(f"{run.segment.name}.log"), run.data, run.entries.offsets(), run.entries.positions())

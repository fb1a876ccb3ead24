"""Sizes: how large the retained message of a topic is and where in the log, known without reading it.

Owns: a table in memory of what was read or written in this process's life, and its bound.
Never: the truth. What it does not know, the database does; what it knows is what the database has.
A write needs of the message before it no more than this, and reading it among a million topics cost more than the
write. A topic stands for itself by the 64 bits of its hash, which has another key in each process: two among a million
topics are taken for one in one process of 37 million. Then the totals may be wrong by one message, and what depends on
the one before (its expiry, its place in the history of a trimmed log); never the message that is retained.
"""

from collections.abc import Callable, Iterable, Sequence
from mmap import mmap
from typing import Final, final

SLOTS: Final = 1 << 21  # of 16 bytes: 32 MiB, of which only the pages that are written to are ever there
TOPICS_MAX: Final = SLOTS * 5 // 8
"""Beyond this many topics the table is emptied: fuller, a search in it would take long."""

UNKNOWN: Final = 0  # the database must be asked
ABSENT: Final = -1  # nothing is retained
SIZE_BITS: Final = 24
SIZE_MASK: Final = (1 << SIZE_BITS) - 1

_OFFSET_END: Final = 1 << 63 - SIZE_BITS


def known(offset: int, size_bytes: int) -> int:
    """What is remembered of a message: the offset above its bytes; nothing where these are too large for it."""
    return offset << SIZE_BITS | size_bytes if size_bytes <= SIZE_MASK and offset < _OFFSET_END else UNKNOWN


@final
class Sizes:
    """Slots of two words, the hash and what is known, side by side so that both come with one line of the cache."""

    __slots__ = ("_count", "_hash_of", "_mask", "_slots", "_topics_max")

    def __init__(
        self, slots: int = SLOTS, topics_max: int = TOPICS_MAX, hash_of: Callable[[bytes], int] = hash
    ) -> None:
        """`slots` is a power of two, and `topics_max` is below it."""
        self._mask: Final = slots - 1
        self._topics_max: Final = topics_max
        self._hash_of: Final = hash_of
        self.forget()

    def forget(self) -> None:
        """Know nothing any more."""
        self._slots = memoryview(mmap(-1, (self._mask + 1) * 16)).cast("q")
        self._count = 0

    def look_up(self, keys: Iterable[bytes]) -> list[int]:
        """For each key what is known of it: `UNKNOWN`, `ABSENT`, or as made by `known`."""
        slots, mask, hash_of = self._slots, self._mask, self._hash_of
        found: list[int] = []
        for key in keys:
            wanted = hash_of(key) or 1  # 0 is a free slot
            at = wanted & mask
            there = slots[at << 1]
            while there != wanted and there:
                at = at + 1 & mask
                there = slots[at << 1]
            found.append(slots[at << 1 | 1])
        return found

    def remember(self, keys: Sequence[bytes], known: Sequence[int]) -> None:
        """From now on this is known of these keys."""
        if self._count + len(keys) > self._topics_max:
            self.forget()
            if len(keys) > self._topics_max:
                return
        slots, mask, hash_of = self._slots, self._mask, self._hash_of
        for key, value in zip(keys, known, strict=True):
            wanted = hash_of(key) or 1
            at = wanted & mask
            there = slots[at << 1]
            while there != wanted and there:
                at = at + 1 & mask
                there = slots[at << 1]
            if not there:
                slots[at << 1] = wanted
                self._count += 1
            slots[at << 1 | 1] = value

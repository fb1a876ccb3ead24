"""Lookup: blocks by offset, for a queue that holds offsets instead of payloads.

Owns: the recently read stretches of the log, bounded in bytes.
Never: writing, or what is durable; `log` says in which segment a durable offset lies.
Files are opened for each stretch: a segment may be trimmed at any time, and a server has better uses for descriptors.
"""

import os
from abc import ABC, abstractmethod
from bisect import bisect_right, insort
from collections import OrderedDict
from pathlib import Path
from typing import Final, final

from mypy_extensions import mypyc_attr

from embermq.store.log.blocks import Block
from embermq.store.log.errors import BadBlock, LogCorrupt
from embermq.store.log.segments import Index, index_path, log_path, rebuilt_index
from embermq.store.rows import LogRow
from embermq.store.segment import Segment

STRETCH_BYTES: Final = 64 << 10
"""What is read at once: a queue's offsets lie near one another, often one to a block."""
RUN_BYTES: Final = 512 << 10
"""What is read at once where the stretch before ended: a queue is read from its beginning to its end."""
STRETCH_BLOCKS: Final = 1024


@mypyc_attr(allow_interpreted_subclasses=True)
class Records(ABC):
    """Records by offset, for one thread."""

    @abstractmethod
    def read(self, offset: int) -> LogRow | None:
        """The record at an offset; None if it is not durable yet or was trimmed."""


@final
class Stretch:
    """Neighbouring blocks as they lie in the file; each is decoded when it is first asked for."""

    def __init__(self, path: Path, data: bytes, offsets: list[int], positions: list[int]) -> None:
        self.first_offset: Final = offsets[0]
        self.next_offset: Final = offsets[-1]
        self._path: Final = path
        self._data: Final = data
        self._position: Final = positions[0]
        self._offsets: Final = offsets  # of each block, and the one after the last
        self._positions: Final = positions
        self._blocks: Final[dict[int, Block]] = {}

    def __len__(self) -> int:
        return len(self._data)

    def block(self, offset: int) -> Block:
        number = bisect_right(self._offsets, offset) - 1
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = self._decode(number, self._data, self._positions[number] - self._position)
        return block

    def decoded(self, offset: int) -> Block:
        """As `block`, for somebody who keeps it: a block of its own bytes, without the rest of the stretch."""
        number = bisect_right(self._offsets, offset) - 1
        start, end = self._positions[number], self._positions[number + 1]
        return self._decode(number, self._data[start - self._position : end - self._position], 0)

    def _decode(self, number: int, data: bytes, at: int) -> Block:
        start = self._positions[number]
        try:
            block = Block(data, at)
        except BadBlock as error:
            raise LogCorrupt(str(self._path), start, str(error)) from None
        if block.first_offset != self._offsets[number] or block.next_offset != self._offsets[number + 1]:
            raise LogCorrupt(str(self._path), start, "the block is not the one that the index names")
        return block


@final
class Lookup:
    """Blocks by offset out of one directory. For one thread."""

    def __init__(self, directory: Path, cache_bytes: int) -> None:
        self._directory: Final = directory
        self._cache_bytes: Final = cache_bytes
        self._cached_bytes = 0
        self._stretches: Final[OrderedDict[int, Stretch]] = OrderedDict()
        self._order: Final[list[int]] = []
        self._rebuilt: Final[dict[int, Index]] = {}  # of segments whose index file is damaged
        self._run_offset = 0  # where the stretch that was read last ends

    def block(self, offset: int, segment: Segment) -> Block | None:
        """The block with a durable offset of a segment; None if the segment has been trimmed by now."""
        stretch = self._cached(offset)
        try:
            if stretch is None:
                stretch = self._load(offset, segment)
                self._keep(stretch)
            return stretch.block(offset)
        except FileNotFoundError:
            return None
        except LogCorrupt:
            rebuilt = self._rebuilt.get(segment.first_offset)
            if rebuilt is not None and offset < rebuilt.next_offset(segment.first_offset):
                raise
        # The index may be wrong, not the block: find the block by the blocks themselves; an error then says where.
        path = log_path(self._directory, segment.first_offset)
        try:
            rebuilt = rebuilt_index(path, segment.first_offset, segment.next_offset)
        except FileNotFoundError:  # it was trimmed between the two: its index first
            return None
        self._rebuilt[segment.first_offset] = rebuilt
        self._drop(segment)
        return self.block(offset, segment)

    def _cached(self, offset: int) -> Stretch | None:
        at = bisect_right(self._order, offset) - 1
        if at < 0:
            return None
        stretch = self._stretches[self._order[at]]
        if offset >= stretch.next_offset:
            return None
        self._stretches.move_to_end(stretch.first_offset)
        return stretch

    def _load(self, offset: int, segment: Segment) -> Stretch:
        path = log_path(self._directory, segment.first_offset)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            index = self._rebuilt.get(segment.first_offset) or Index.open(
                index_path(self._directory, segment.first_offset)
            )
            number = max(0, index.block_of(offset))
            entries = index.entries(number, min(index.count, number + STRETCH_BLOCKS))
            if len(entries):
                entries = entries.part(0, entries.consistent(entries.position(0), entries.first_offset(0)))
            if not len(entries):
                raise LogCorrupt(str(path), 0, f"the index does not name the block of offset {offset}")
            positions, offsets = entries.positions(), entries.offsets()
            durable = bisect_right(positions, segment.file_bytes) - 1
            size_bytes = RUN_BYTES if offsets[0] == self._run_offset else STRETCH_BYTES
            blocks = min(durable, max(1, bisect_right(positions, positions[0] + size_bytes) - 1))
            if blocks < 1 or not offsets[0] <= offset < offsets[blocks]:
                raise LogCorrupt(str(path), 0, f"the index does not name the block of offset {offset}")
            length = positions[blocks] - positions[0]
            data = os.pread(descriptor, length, positions[0])
        finally:
            os.close(descriptor)
        if len(data) < length:
            raise LogCorrupt(str(path), positions[0], "the file ends before its last durable block")
        self._run_offset = offsets[blocks]
        return Stretch(path, data, offsets[: blocks + 1], positions[: blocks + 1])

    def _drop(self, segment: Segment) -> None:
        """Forget what a wrong index led to."""
        for first_offset in [first for first in self._order if segment.first_offset <= first < segment.next_offset]:
            self._order.remove(first_offset)
            self._cached_bytes -= len(self._stretches.pop(first_offset))

    def _keep(self, stretch: Stretch) -> None:
        old = self._stretches.pop(stretch.first_offset, None)
        if old is None:
            insort(self._order, stretch.first_offset)
        else:
            self._cached_bytes -= len(old)
        self._stretches[stretch.first_offset] = stretch
        self._cached_bytes += len(stretch)
        while self._cached_bytes > self._cache_bytes and len(self._stretches) > 1:
            first_offset, oldest = self._stretches.popitem(last=False)
            self._order.remove(first_offset)
            self._cached_bytes -= len(oldest)

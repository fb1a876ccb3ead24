"""A survey of a log that may be damaged: which blocks of it are good, and from where on it has no gap.

Owns: reading every segment, index and checkpoint once, without trusting one of them.
Never: changing anything; `repair` does.
A torn end is no damage: the writer cuts it off.
"""

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, final

from embermq.store.log.blocks import HEADER_BYTES, Block
from embermq.store.log.checkpoint import Checkpoint, checkpoint_offsets, checkpoint_path
from embermq.store.log.errors import LogCorrupt, NotALog
from embermq.store.log.identity import FILE, LostRange, end_before, goes_on_at, read_identity
from embermq.store.log.segments import (
    Index,
    check_segment_header,
    first_offsets,
    index_path,
    log_path,
    next_block,
    read_entries,
    walk,
)
from embermq.store.rows import Group
from embermq.store.segment import SEGMENT_HEADER_BYTES


class Stretch(NamedTuple):
    """Good blocks of one segment that follow each other: where they lie, their offsets, and their instants."""

    path: Path
    position: int
    end: int
    first_offset: int
    next_offset: int
    first_timestamp_us: int
    last_timestamp_us: int

    def read(self) -> bytes:
        """The blocks as they are."""
        with _mapped(self.path) as view:
            return bytes(view[self.position : self.end])

    def groups(self, from_offset: int = 0) -> Iterator[Group]:
        """The records from an offset on, block by block."""
        with _mapped(self.path) as view:
            for entry in walk(view, self.position, self.first_offset, self.next_offset):
                if entry.first_offset + entry.records > from_offset:
                    yield Block(bytes(view[entry.position : entry.position + entry.total_bytes])).group(from_offset)


class Gap(NamedTuple):
    """Offsets from `first_offset` up to, not including, `end` whose records are damaged or missing.

    The instants are those of the records before and behind them; 0: there is none.
    """

    first_offset: int
    end: int
    after_us: int
    until_us: int


@final
class Survey:
    """What a log's directory holds. `findings`: each damage as a sentence.

    NotALog if there is no log; NewerFormat if a newer EmberMQ wrote it. `is_archived`: of a damaged closed segment
    nothing behind the damage counts as good. The archive may have it whole, and could not have a part of it beside.
    """

    def __init__(self, directory: Path, is_archived: bool = False) -> None:
        self.directory: Final = directory
        self.segments: Final = first_offsets(directory) if directory.is_dir() else []
        if not self.segments:
            raise NotALog(str(directory), "there is no segment file in it")
        self.findings: Final[list[str]] = []
        self.stretches: Final[list[Stretch]] = []
        self.gaps: Final[list[Gap]] = []
        self.bad_headers: Final[list[int]] = []
        self.bad_indexes: Final[list[int]] = []
        self.bad_checkpoints: Final[list[int]] = []
        self.good_checkpoints: Final[list[int]] = []
        self.lost: tuple[LostRange, ...] = ()
        self.bad_identity = False
        # The offset after the last one that the newest index has, if that is more than there is: it was durable once.
        self.claimed = 0
        self._is_archived: Final = is_archived
        self._look_at_identity()
        for number, first_offset in enumerate(self.segments):
            is_newest = number + 1 == len(self.segments)
            self._look_at_segment(first_offset, None if is_newest else end_before(self.lost, self.segments[number + 1]))
        self._find_gaps()
        self._look_at_checkpoints()

    @property
    def begins(self) -> int:
        return self.segments[0]

    @property
    def end(self) -> int:
        """The offset after the last good record, or at which the newest segment begins."""
        return max(self.segments[-1], self.stretches[-1].next_offset if self.stretches else 0)

    @property
    def whole_from(self) -> int:
        """The offset from which on the log has every record up to its end."""
        return self.gaps[-1].end if self.gaps else self.begins

    def last_timestamp_us(self) -> int:
        return max((stretch.last_timestamp_us for stretch in self.stretches), default=0)

    def groups(self, from_offset: int) -> Iterator[Group]:
        """Every good record from an offset on."""
        for stretch in self.stretches:
            if stretch.next_offset > from_offset:
                yield from stretch.groups(from_offset)

    def _look_at_identity(self) -> None:
        try:
            identity = read_identity(self.directory)
            self.lost = () if identity is None else identity.lost
        except LogCorrupt as damage:
            self.bad_identity = True
            self.findings.append(f"{self.directory / FILE}: {damage.detail}")

    def _look_at_segment(self, first_offset: int, following: int | None) -> None:
        path, index = log_path(self.directory, first_offset), Index.open(index_path(self.directory, first_offset))
        if not path.stat().st_size:  # it cannot be mapped
            self._add_bad_header(path, first_offset, 0, "the segment's header is missing")
            return
        with _mapped(path) as view:
            try:
                check_segment_header(path, bytes(view[:SEGMENT_HEADER_BYTES]), first_offset)
            except LogCorrupt as damage:
                self._add_bad_header(path, first_offset, damage.position, damage.detail)
            blocks, wrong = 0, False
            position, offset = SEGMENT_HEADER_BYTES, first_offset
            while True:
                begin, begins_at, first_us, last_us = position, offset, 0, 0
                for entry in walk(view, position, offset, following):
                    wrong = wrong or (blocks < index.count and index.entry(blocks) != entry)
                    blocks += 1
                    first_us = first_us or entry.first_timestamp_us
                    at = entry.position + HEADER_BYTES + 8 * (entry.records - 1)
                    last_us = int.from_bytes(view[at : at + 8], "little", signed=True)
                    position, offset = entry.position + entry.total_bytes, entry.first_offset + entry.records
                if offset > begins_at:
                    self.stretches.append(Stretch(path, begin, position, begins_at, offset, first_us, last_us))
                behind = None if offset == following else next_block(view, position, offset)
                if behind is None or (following is not None and behind[1] >= following):
                    break
                self.findings.append(f"{path}, position {position}: the block of offset {offset} is damaged")
                if self._is_archived and following is not None:
                    break
                position, offset = behind
        self._compare_index(path, following, (blocks, position, offset), wrong)

    def _compare_index(self, path: Path, following: int | None, reached: tuple[int, int, int], is_wrong: bool) -> None:
        """Add what the index of a segment is wrong about, or what it has and the segment has not."""
        blocks, position, offset = reached
        first_offset = int(path.stem)
        claimed = read_entries(path.with_suffix(".idx"), first_offset)
        if following is not None and offset < following:
            self.findings.append(f"{path}, position {position}: offsets {offset} to {following - 1} are missing")
        elif following is None and len(claimed) and not is_wrong and claimed.next_offset() > offset:
            self.claimed = claimed.next_offset()
            self.findings.append(f"{path}, position {position}: offsets {offset} to {self.claimed - 1} are missing")
        elif is_wrong or (following is not None and len(claimed) != blocks):  # a crash may leave the newest one behind
            self.findings.append(f"{path.with_suffix('.idx')}: it is not the index of its segment")
            self.bad_indexes.append(first_offset)

    def _add_bad_header(self, path: Path, first_offset: int, position: int, detail: str) -> None:
        self.bad_headers.append(first_offset)
        self.findings.append(f"{path}, position {position}: {detail}")

    def _find_gaps(self) -> None:
        """What is missing between the good stretches, but for what was lost with a machine before."""
        expected, last_us = self.begins, 0
        for stretch in self.stretches:
            expected = goes_on_at(self.lost, expected)
            if stretch.first_offset != expected:
                self.gaps.append(Gap(expected, stretch.first_offset, last_us, stretch.first_timestamp_us))
            expected, last_us = stretch.next_offset, stretch.last_timestamp_us
        newest = self.segments[-1]
        if goes_on_at(self.lost, expected) < newest:  # which has no good block, and the one before it lacks some
            self.gaps.append(Gap(expected, newest, last_us, 0))

    def _look_at_checkpoints(self) -> None:
        for offset in checkpoint_offsets(self.directory):
            try:
                Checkpoint(self.directory, offset).check()
            except LogCorrupt as damage:
                self.bad_checkpoints.append(offset)
                self.findings.append(f"{checkpoint_path(self.directory, offset)}: {damage.detail}")
            else:
                self.good_checkpoints.append(offset)


@contextmanager
def _mapped(path: Path) -> Iterator[memoryview]:
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), os.fstat(file.fileno()).st_size, access=mmap.ACCESS_READ) as data,
        memoryview(data) as view,
    ):
        yield view

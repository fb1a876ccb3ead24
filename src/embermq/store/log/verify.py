"""Verification: every block of every segment and checkpoint is checked without trusting the index.

Owns: what counts as damage. Works on a stopped server's log and on a running one's.
Never: changing anything.
"""

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, final

from embermq.store.log.blocks import Block
from embermq.store.log.checkpoint import Checkpoint, checkpoint_offsets, checkpoint_path
from embermq.store.log.entries import IndexEntry
from embermq.store.log.errors import LogCorrupt, NotALog
from embermq.store.log.identity import end_before, lost_ranges
from embermq.store.log.segments import (
    FIRST_OFFSET,
    SEGMENT_HEADER_BYTES,
    Index,
    bytes_before_zeros,
    check_segment_header,
    first_offsets,
    index_path,
    log_path,
    next_block,
    walk,
)


@final
class Finding:
    """One thing that is wrong, and where."""

    def __init__(self, path: Path, position: int, detail: str) -> None:
        self.path: Final = path
        self.position: Final = position
        self.detail: Final = detail

    def __str__(self) -> str:
        return f"{self.path}, position {self.position}: {self.detail}"


@final
class SegmentReport:
    """What a segment or a checkpoint holds, and what is wrong with it."""

    def __init__(self, path: Path, is_checkpoint: bool = False) -> None:
        self.path: Final = path
        self.is_checkpoint: Final = is_checkpoint
        self.blocks = 0
        self.records = 0
        self.size_bytes = 0
        self.unfinished_bytes = 0  # after the last block: a write under way, or what a failed one left behind
        self.findings: Final[list[Finding]] = []

    def measure(self, size_bytes: int) -> None:
        """The file has this size."""
        self.size_bytes = size_bytes

    def add_block(self, records: int) -> None:
        self.blocks += 1
        self.records += records

    def end(self, unfinished_bytes: int) -> None:
        """So many bytes follow the last block."""
        self.unfinished_bytes = unfinished_bytes

    def found(self, position: int, detail: str) -> None:
        self.findings.append(Finding(self.path, position, detail))


def verify(directory: Path) -> Iterator[SegmentReport]:
    """A report for each checkpoint and each segment, oldest first."""
    try:
        segments = first_offsets(directory)
    except (FileNotFoundError, NotADirectoryError):
        raise NotALog(str(directory), "there is no such directory") from None
    if not segments:
        raise NotALog(str(directory), "there is no segment file in it")
    yield from _checkpoint_reports(directory, segments[0])
    last_timestamp_us = 0
    lost = lost_ranges(directory)
    for number, first_offset in enumerate(segments):
        following = end_before(lost, segments[number + 1]) if number + 1 < len(segments) else None
        report = SegmentReport(log_path(directory, first_offset))
        # The index first: what it names was durable before the blocks are read, however fast the server writes.
        index = Index.open(index_path(directory, first_offset))
        try:
            last_timestamp_us = _check_segment(report, index, first_offset, following, last_timestamp_us)
        except LogCorrupt as error:
            report.found(error.position, error.detail)
        except FileNotFoundError:
            if first_offsets(directory)[0] > first_offset:  # it was trimmed after the directory was listed
                continue
            raise
        yield report


def _checkpoint_reports(directory: Path, first_offset: int) -> Iterator[SegmentReport]:
    offsets = checkpoint_offsets(directory)
    for offset in offsets:
        report = SegmentReport(checkpoint_path(directory, offset), True)
        try:
            checkpoint = Checkpoint(directory, offset)
            report.measure(checkpoint.size_bytes)
            for block in checkpoint.blocks():
                report.add_block(len(block))
        except LogCorrupt as error:
            report.found(error.position, error.detail)
        except FileNotFoundError:  # it was superseded after the directory was listed
            continue
        yield report
    # After a repair it is a newer one than that of the first offset.
    is_missing = first_offset > FIRST_OFFSET and not any(offset >= first_offset for offset in offsets)
    if is_missing and first_offsets(directory)[0] == first_offset:
        report = SegmentReport(checkpoint_path(directory, first_offset), True)
        report.found(0, f"the log begins at offset {first_offset}, and its checkpoint is missing")
        yield report


def _check_segment(
    report: SegmentReport, index: Index, first_offset: int, following: int | None, last_timestamp_us: int
) -> int:
    with open(report.path, "rb") as file:
        report.measure(os.fstat(file.fileno()).st_size)
        check_segment_header(report.path, file.read(SEGMENT_HEADER_BYTES), first_offset)
        # The newest is read, not mapped: its server may cut the zeros at its end meanwhile.
        data: bytes | mmap.mmap
        if following is None:
            file.seek(0)
            data = file.read()
        else:
            data = mmap.mmap(file.fileno(), report.size_bytes, access=mmap.ACCESS_READ)
    view = memoryview(data)
    end, offset = SEGMENT_HEADER_BYTES, first_offset
    wrong_entries = 0
    read_again_at = -1
    while True:
        for entry in walk(view, end, offset, following):
            wrong_entries += report.blocks < index.count and index.entry(report.blocks) != entry
            last_timestamp_us = _check_timestamps(report, view, entry, last_timestamp_us)
            report.add_block(entry.records)
            end, offset = entry.position + entry.total_bytes, entry.first_offset + entry.records
        if end == len(view) or offset == following:
            break
        behind = next_block(view, end, offset)
        if behind is None or (following is not None and behind[1] >= following):
            break
        if following is None and read_again_at != end:
            # Perhaps zeros were read where the server has written this block, and then the next one, meanwhile.
            read_again_at = end
            view = memoryview(report.path.read_bytes())
            continue
        report.found(end, f"the block of offset {offset} does not match its checksum; {behind[1]} is the next good one")
        end, offset = behind
    report.end(bytes_before_zeros(view, end))
    needed = index.next_offset(first_offset) if following is None else following
    if offset < needed:
        if end < len(view):
            report.found(end, f"the block of offset {offset} does not match its checksum")
        else:
            report.found(end, f"offsets {offset} to {needed - 1} are missing at the end of the segment")
    # After damage the entries are those of other blocks; the blocks' own findings say enough.
    if not report.findings and wrong_entries:
        report.found(0, f"{wrong_entries} entries of its index are wrong; the server makes a new one")
    elif not report.findings and following is not None and index.count != report.blocks:
        report.found(0, f"its index has {index.count} entries for {report.blocks} blocks; the server makes a new one")
    return last_timestamp_us


def _check_timestamps(report: SegmentReport, view: memoryview, entry: IndexEntry, last_timestamp_us: int) -> int:
    timestamps_us = Block(view[entry.position : entry.position + entry.total_bytes]).timestamps_us
    if timestamps_us[0] < last_timestamp_us or list(timestamps_us) != sorted(timestamps_us):
        report.found(entry.position, "the timestamps run backwards")
    return max(last_timestamp_us, timestamps_us[-1])

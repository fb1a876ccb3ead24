"""Recovery: what a log's directory holds when its writer opens it, and putting it right where that is safe.

Owns: cutting a torn end, rebuilding lost index entries, and refusing a log that is damaged in the middle.
Never: dropping a block that another undamaged block follows.
"""

import logging
import mmap
import os
from bisect import bisect_right
from pathlib import Path
from typing import Final

from embermq.store.log.blocks import HEADER_BYTES
from embermq.store.log.entries import INDEX_ENTRY, Entries, first_mismatch
from embermq.store.log.errors import LogCorrupt
from embermq.store.log.identity import end_before, lost_ranges
from embermq.store.log.segments import (
    Index,
    bytes_before_zeros,
    check_segment_header,
    first_offsets,
    index_path,
    log_path,
    next_block,
    walk,
)
from embermq.store.segment import SEGMENT_HEADER_BYTES, Segment

WAY_ON: Final = (
    "`ember store repair` goes on with what is behind it; to go on with what is before it, use `ember backup PLACE` and"
    " `ember restore PLACE --data NEW`"
)

_logger: Final = logging.getLogger("embermq.store")


def recover(directory: Path, check_bytes: int) -> list[Segment]:
    """The segments of a directory, put right; LogCorrupt if that would lose something.

    The newest `check_bytes` of the log are read and their checksums compared; of the rest only the ends are read,
    their blocks are checked when they are read.
    """
    for leftover in (*directory.glob("*.new"), *directory.glob("*.idx")):
        # A segment that was never finished, or the index of one that was being trimmed.
        if leftover.suffix == ".new" or not leftover.with_suffix(".log").exists():
            leftover.unlink()
    offsets = first_offsets(directory)
    lost = lost_ranges(directory)
    segments: list[Segment] = []
    following: int | None = None
    for first_offset in reversed(offsets):
        try:
            segment = _recover_segment(directory, first_offset, following, check_bytes)
        except LogCorrupt as damage:
            raise LogCorrupt(damage.file, damage.position, f"{damage.detail}; {WAY_ON}") from None
        check_bytes = max(0, check_bytes - segment.file_bytes)
        segments.append(segment)
        following = end_before(lost, first_offset)
    segments.reverse()
    return segments


def _recover_segment(directory: Path, first_offset: int, following: int | None, check_bytes: int) -> Segment:
    path = log_path(directory, first_offset)
    with open(path, "r+b") as file:
        check_segment_header(path, file.read(SEGMENT_HEADER_BYTES), first_offset)
        segment = Segment(path, first_offset)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data, memoryview(data) as view:
            index = Index.open(index_path(directory, first_offset))
            if following is not None and not check_bytes and _reaches(index, view, first_offset, following):
                _describe(segment, view, index, index.count)
                return segment
            claimed = index.entries(0, index.count)
            claimed = claimed.part(0, claimed.consistent(SEGMENT_HEADER_BYTES, first_offset))
            entries = _trusted(view, claimed, following, check_bytes)
            known = len(entries)
            end, next_offset = _end(entries, first_offset)
            found = list(walk(view, end, next_offset, following))
            if found:
                entries = Entries(entries.data + b"".join([INDEX_ENTRY.pack(*entry) for entry in found]))
            tail_from = end
            end, next_offset = _end(entries, first_offset)
            size = len(view)
            if next_offset != following and end < size:
                _refuse_damage(path, view, end, next_offset, following)
            if following is not None and next_offset != following:
                raise LogCorrupt(
                    str(path), end, f"offsets {next_offset} to {following - 1} are missing before the next segment"
                )
            if following is None:
                _make_durable(file.fileno(), bytes(view[tail_from:end]), tail_from)
            if len(entries) != index.count or known != index.count:
                _write_index(directory, first_offset, entries)
                index = Index.open(index_path(directory, first_offset))
            _describe(segment, view, index, len(entries))
            unfinished = bytes_before_zeros(view, end) if following is None else 0
        claimed_offset = _end(claimed, first_offset)[1]
        if following is None and claimed_offset > next_offset:
            _logger.error(
                "%s: the disk has lost offsets %d to %d, which were written before",
                path,
                next_offset,
                claimed_offset - 1,
            )
        if following is None and end < size:
            if unfinished:
                _logger.warning(
                    "%s: cut %d bytes of an unfinished block at position %d, the log goes on at offset %d",
                    path,
                    unfinished,
                    end,
                    next_offset,
                )
            os.ftruncate(file.fileno(), end)
            os.fsync(file.fileno())
    return segment


def _reaches(index: Index, view: memoryview, first_offset: int, following: int) -> bool:
    """Whether a closed segment's index begins and ends where it must."""
    if not index.count or index.next_offset(first_offset) != following:
        return first_offset == following
    first, last = index.entry(0), index.entry(index.count - 1)
    return (
        first.position == SEGMENT_HEADER_BYTES
        and first.first_offset == first_offset
        and last.position + last.total_bytes <= len(view)
    )


def _trusted(view: memoryview, found: Entries, following: int | None, check_bytes: int) -> Entries:
    """The entries of an index to build on: all that fit the file, or none if a checked block is not what they say."""
    known = bisect_right(range(len(found)), len(view), key=found.end)
    if following is not None:
        known = min(known, found.blocks_before_offset(following))
    entries = found.part(0, known)
    # The last block is always checked: an index is not synced, so its end is what a power cut may have made up.
    check_from = max(0, len(view) - check_bytes)
    unchecked = min(bisect_right(range(known), check_from, key=entries.end), max(0, known - 1))
    checked = entries.part(unchecked, known)
    sound = not len(checked) or first_mismatch(view[checked.position(0) :], checked, True) is None
    return entries if sound else Entries()


def _refuse_damage(path: Path, view: memoryview, end: int, next_offset: int, following: int | None) -> None:
    if following is not None or next_block(view, end, next_offset) is not None:
        raise LogCorrupt(str(path), end, f"the block of offset {next_offset} does not match its checksum")


def _end(entries: Entries, first_offset: int) -> tuple[int, int]:
    """Position and offset after the last of some entries."""
    if not len(entries):
        return SEGMENT_HEADER_BYTES, first_offset
    return entries.end(), entries.next_offset()


def _make_durable(descriptor: int, tail: bytes, position: int) -> None:
    """Sync blocks that no index entry vouches for.

    After a failed fsync a kernel may call pages clean that never reached the disk: writing the same bytes again
    makes them dirty, so that this sync means something.
    """
    if not tail:
        return
    while tail:
        written = os.pwrite(descriptor, tail, position)
        tail = tail[written:]
        position += written
    os.fsync(descriptor)


def _write_index(directory: Path, first_offset: int, entries: Entries) -> None:
    """Replace an index file. A new file, because readers may have the old one mapped."""
    path = index_path(directory, first_offset)
    rebuilt = path.with_suffix(".idx.new")
    descriptor = os.open(rebuilt, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(entries.data)
    os.rename(rebuilt, path)


def _describe(segment: Segment, view: memoryview, index: Index, blocks: int) -> None:
    if not blocks:
        return
    first, last = index.entry(0), index.entry(blocks - 1)
    segment.blocks = blocks
    segment.next_offset = last.first_offset + last.records
    segment.file_bytes = last.position + last.total_bytes
    segment.first_timestamp_us = first.first_timestamp_us
    at = last.position + HEADER_BYTES + 8 * (last.records - 1)
    segment.last_timestamp_us = int.from_bytes(view[at : at + 8], "little", signed=True)

"""A backup: the log as it is now, copied to a place of the archive's form, while its server runs or is stopped.

Owns: what a backup adds to those before it at the same place.
Never: anything that the server waits for. The uploader copies closed segments, all the time; this copies also the open
one, as far as it is durable.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from embermq.archive.address import parse_address
from embermq.archive.errors import ArchiveError
from embermq.archive.objects import Objects
from embermq.archive.writer import ArchiveWriter
from embermq.store.log.checkpoint import checkpoints
from embermq.store.log.entries import Entries
from embermq.store.log.errors import LogCorrupt
from embermq.store.log.identity import read_identity
from embermq.store.log.reader import LogReader
from embermq.store.segment import Segment

Progress = Callable[[int, int], None]
"""Is told how many bytes were copied, of how many."""

TRIMMED: Final = "the log was trimmed while it was copied: run the backup again"


@dataclass(frozen=True, slots=True)
class BackedUp:
    """What a backup has added, and which offsets its place has now: from `first_offset` up to, not including, `end`."""

    records: int
    size_bytes: int
    first_offset: int
    end: int
    last_timestamp_us: int


def back_up(directory: Path, address: str, progress: Progress | None = None) -> BackedUp:
    """Copy what the log in a directory has, and the place does not have yet, up to the last durable record.

    ArchiveError if the place has another log, or cannot be written to; LogCorrupt if the log is damaged: then what is
    before the damage is copied.
    """
    identity = read_identity(directory)
    if identity is None:
        raise ArchiveError(f"{directory} is a log of an earlier version: start its server once, then it can be copied")
    writer = ArchiveWriter(Objects(parse_address(address)), identity)
    writer.claim()
    reader = LogReader(directory)
    known = {checkpoint.offset for checkpoint in writer.archive.checkpoints()}
    archived = writer.archive.segments()
    end = archived[-1].next_offset if archived else 0
    segments = [segment for segment in reader.segments() if segment.next_offset > end and segment.blocks]
    records, copied, total = 0, 0, sum(segment.size_bytes for segment in segments)
    try:
        for checkpoint in checkpoints(directory):  # first: a place that has lost segments is begun at one of them
            if checkpoint.offset not in known:
                writer.upload_checkpoint(checkpoint)
        for segment in segments:
            entries = reader.entries(segment.first_offset, segment.blocks)
            wanted = entries.part(entries.blocks_before_offset(end), len(entries))
            try:
                added = writer.upload_segment(segment, wanted)
            except LogCorrupt as damage:
                _copy_before(writer, segment, wanted, damage.position)
                raise LogCorrupt(
                    damage.file, damage.position, f"{damage.detail}; {address} has the records before it"
                ) from None
            records += added.next_offset - added.first_offset
            copied += added.size_bytes
            if progress is not None:
                progress(copied, total)
    except FileNotFoundError:
        raise ArchiveError(TRIMMED) from None
    whole = writer.archive.segments()
    if not whole:
        return BackedUp(0, 0, 1, 1, 0)
    return BackedUp(records, copied, whole[0].first_offset, whole[-1].next_offset, whole[-1].last_timestamp_us)


def _copy_before(writer: ArchiveWriter, segment: Segment, entries: Entries, position: int) -> None:
    """Copy the blocks of a segment that lie before a damaged one, which is of one of the entries too."""
    good = entries.part(0, bisect_right(range(len(entries)), position, key=entries.end))
    if len(good):
        begun = Segment(
            segment.path,
            segment.first_offset,
            good.next_offset(),
            segment.blocks - len(entries) + len(good),
            good.end(),
            segment.first_timestamp_us,
            entries.first_timestamp_us(len(good)),  # nothing is between the two
        )
        writer.upload_segment(begun, good)

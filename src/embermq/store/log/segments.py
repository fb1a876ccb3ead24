"""Segments: the files of a log and what is where in them (docs/log-format.md).

Owns: file names, the lock, the header of a segment, the index beside it, and walking a segment block by block.
Never: deciding what to do about damage; the writer cuts or refuses, a reader refuses, `verify` reports.
"""

import fcntl
import mmap
import os
import re
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Final, final

from isal.isal_zlib import crc32

from embermq.store.errors import DirectoryLost
from embermq.store.log.blocks import (
    BLOCK_MAGIC,
    FORMAT_VERSION,
    HEADER_BYTES,
    ROW_BYTES,
    BlockHeader,
    is_whole,
    read_header,
    section_sizes,
)
from embermq.store.log.entries import INDEX_ENTRY, Entries, IndexEntry
from embermq.store.log.errors import LogCorrupt, NewerFormat
from embermq.store.segment import ENTRY_BYTES as ENTRY_BYTES
from embermq.store.segment import SEGMENT_HEADER_BYTES as SEGMENT_HEADER_BYTES

SEGMENT_MAGIC: Final = b"EMBERLOG"
SEGMENT_HEADER: Final = Struct("<8sIIQQ")  # magic, crc32 of what follows it, format version, first offset, 0
FIRST_OFFSET: Final = 1
"""The first offset of a new log: 0 means "no session" where an offset is a session's id."""
TOPIC_INDEX_SUFFIX: Final = ".topics"
"""What `topic_index` keeps beside a closed segment."""

_CHECKED: Final = Struct("<IQQ")
_NAME: Final = re.compile(r"(\d{20})\.log")
_TIMESTAMP: Final = Struct("<q")
_ENTRY_HEAD: Final = Struct("<QQqII")  # all of it but the bytes of topics, client ids, properties and payloads
assert SEGMENT_HEADER.size == SEGMENT_HEADER_BYTES


def log_path(directory: Path, first_offset: int) -> Path:
    return directory / f"{first_offset:020d}.log"


def index_path(directory: Path, first_offset: int) -> Path:
    return directory / f"{first_offset:020d}.idx"


def first_offsets(directory: Path) -> list[int]:
    """The first offsets of the segments in a directory, in order."""
    found = map(_NAME.fullmatch, os.listdir(directory))
    return sorted(int(match[1]) for match in found if match)


def lock_file(path: Path) -> int:
    """Lock a file, which is made if it is missing, until the descriptor is closed; the end of a process closes it too.

    OSError if another process has locked it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def check_place(path: str, opened: os.stat_result) -> None:
    """`DirectoryLost` if what was opened is not at its path any more. OSError, as it comes, if that cannot be told."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise DirectoryLost(path) from None
    if found.st_ino != opened.st_ino or found.st_dev != opened.st_dev:
        raise DirectoryLost(path)


def sync_directory(directory: Path) -> None:
    """Make durable which files a directory has."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path, mode: int = 0o700) -> None:
    """Make a directory, and those above it that are missing, durably: a power cut would take what is in it as well."""
    if path.is_dir():
        return
    make_directory(path.parent, 0o777)
    path.mkdir(mode, exist_ok=True)
    sync_directory(path.parent)


def replace_file(path: Path, text: str) -> None:
    """Write a small file in one step, durably, for its owner alone. OSError as it comes; then the old file stays."""
    unfinished = path.with_name(f"{path.name}.new")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def encode_segment_header(first_offset: int) -> bytes:
    checked = _CHECKED.pack(FORMAT_VERSION, first_offset, 0)
    return SEGMENT_HEADER.pack(SEGMENT_MAGIC, crc32(checked), FORMAT_VERSION, first_offset, 0)


def check_segment_header(path: Path, data: bytes, first_offset: int) -> None:
    """Raises if this is no segment of ours that begins at `first_offset`."""
    if len(data) < SEGMENT_HEADER_BYTES or data[:8] != SEGMENT_MAGIC:
        raise LogCorrupt(str(path), 0, "the segment's header is missing")
    _, crc, version, header_first, _ = SEGMENT_HEADER.unpack_from(data)
    if crc32(data[12:SEGMENT_HEADER_BYTES]) != crc:
        raise LogCorrupt(str(path), 0, "the checksum of the segment's header does not match")
    if version > FORMAT_VERSION:
        raise NewerFormat(str(path), version, FORMAT_VERSION)
    if header_first != first_offset:
        raise LogCorrupt(str(path), 0, f"the segment begins at offset {header_first}, not where its name says")


def index_entry(data: bytes | memoryview, position: int, header: BlockHeader) -> IndexEntry:
    """The index entry of a block that lies at `position` in `data`, which begins where the segment does."""
    (timestamp_us,) = _TIMESTAMP.unpack_from(data, position + HEADER_BYTES)
    return entry_of(header, position, timestamp_us)


def entry_of(header: BlockHeader, position: int, first_timestamp_us: int) -> IndexEntry:
    return IndexEntry(
        position,
        header.first_offset,
        first_timestamp_us,
        header.records,
        header.total_bytes,
        header.topic_bytes,
        header.client_id_bytes,
        header.property_bytes,
        header.payload_bytes,
    )


def packed_entry(block: bytearray, position: int, first_offset: int, first_timestamp_us: int, records: int) -> bytes:
    """The index entry of a block as the file has it, without making an object of it."""
    head = _ENTRY_HEAD.pack(position, first_offset, first_timestamp_us, records, len(block))
    return head + section_sizes(block)


def walk(view: memoryview, position: int, offset: int, end_offset: int | None) -> Iterator[IndexEntry]:
    """The undamaged blocks of a segment from a position on, as long as each continues the offsets.

    `end_offset` is where the next segment begins: what follows in this file was given up after a failed write.
    """
    while end_offset is None or offset < end_offset:
        header = read_header(view, position)
        if header is None or header.first_offset != offset or not is_whole(view, position, header):
            return
        yield index_entry(view, position, header)
        position += header.total_bytes
        offset += header.records


def next_block(view: memoryview, position: int, offset: int) -> tuple[int, int] | None:
    """Position and first offset of the next undamaged block behind the bad one at `position`, which is for `offset`.

    It tells damage in the middle from a torn end. A self-consistent header that reaches to the end of the file or
    beyond it is the last block; the bytes inside it belong to clients and are not searched. If the header itself is
    torn they are, and then what is found there must lie where a block could. A payload made to look like that is
    taken for damage (docs/log-format.md).
    """
    begin = position
    header = read_header(view, position)
    if header is not None and header.first_offset == offset:
        position += header.total_bytes
    data = view.obj
    assert isinstance(data, (bytes, mmap.mmap))
    while (position := data.find(BLOCK_MAGIC, position)) >= 0:
        header = read_header(view, position)
        records_max = (position - begin) // ROW_BYTES  # of the blocks between the two
        is_near = header is not None and 0 < header.first_offset - offset <= records_max and position % 8 == 0
        if header is not None and is_near and is_whole(view, position, header):
            return position, header.first_offset
        position += 1
    return None


def bytes_before_zeros(view: memoryview, position: int) -> int:
    """How many bytes a segment has from a position on, without the zeros at its end: its writer writes some ahead."""
    return len(bytes(view[position:]).rstrip(b"\0"))


def read_entries(path: Path, first_offset: int) -> Entries:
    """The index as far as it is consistent in itself; empty if there is none."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        data = b""
    entries = Entries(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES])
    return entries.part(0, entries.consistent(SEGMENT_HEADER_BYTES, first_offset))


@final
class Index:
    """The index of one segment, searched in place."""

    def __init__(self, data: bytes | mmap.mmap) -> None:
        self._data: Final = data
        self.count: Final = len(data) // ENTRY_BYTES

    @classmethod
    def open(cls, path: Path) -> "Index":
        """What the index file holds now. A half-written entry at its end does not count."""
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return cls(b"")
        try:
            size = os.fstat(descriptor).st_size // ENTRY_BYTES * ENTRY_BYTES
            return cls(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) if size else b"")
        finally:
            os.close(descriptor)

    def entry(self, number: int) -> IndexEntry:
        return IndexEntry._make(INDEX_ENTRY.unpack_from(self._data, number * ENTRY_BYTES))

    def entries(self, start: int, end: int) -> Entries:
        """A copy of some entries."""
        return Entries(self._data[start * ENTRY_BYTES : end * ENTRY_BYTES])

    def next_offset(self, first_offset: int) -> int:
        """The offset after the last indexed block of a segment that begins at `first_offset`."""
        if not self.count:
            return first_offset
        last = self.entry(self.count - 1)
        return last.first_offset + last.records

    def block_of(self, offset: int) -> int:
        """The number of the block that holds an offset, if the index reaches that far."""
        return bisect_right(range(self.count), offset, key=lambda number: self.entry(number).first_offset) - 1

    def blocks_before(self, timestamp_us: int) -> int:
        """How many blocks begin before an instant."""
        return bisect_right(
            range(self.count), timestamp_us - 1, key=lambda number: self.entry(number).first_timestamp_us
        )


def rebuilt_index(path: Path, first_offset: int, following: int) -> Index:
    """The index of a closed segment, made from its blocks: LogCorrupt if they do not lead to the next segment."""
    with open(path, "rb") as file:
        data = file.read()
    entries = list(walk(memoryview(data), SEGMENT_HEADER_BYTES, first_offset, following))
    index = Index(b"".join(INDEX_ENTRY.pack(*entry) for entry in entries))
    reached = index.next_offset(first_offset)
    if reached != following:
        position = entries[-1].position + entries[-1].total_bytes if entries else SEGMENT_HEADER_BYTES
        if position >= len(data):
            detail = f"offsets {reached} to {following - 1} are missing before the next segment"
        else:
            detail = f"the block of offset {reached} does not match its checksum"
        raise LogCorrupt(str(path), position, detail)
    return index

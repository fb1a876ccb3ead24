"""Checkpoints: the retained set and the sessions as of an offset, beside the segments (docs/log-format.md).

Owns: the files, their names, writing one so that a crash leaves all of it or nothing, and finding damage in one.
Never: what a record means; `state` makes the records and takes them back.
The checkpoint of an offset stands for all records before it, so a log that begins at this offset is complete with it.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Final, final

from isal.isal_zlib import crc32

from embermq.store.log.blocks import FORMAT_VERSION, HEADER_BYTES, Block, block_of, read_header
from embermq.store.log.errors import BadBlock, LogCorrupt, NewerFormat
from embermq.store.log.segments import sync_directory
from embermq.store.rows import Group, LogRow

CHECKPOINT_MAGIC: Final = b"EMBERCKP"
CHECKPOINT_HEADER: Final = Struct("<8sIIQQ")  # magic, crc32 of what follows it, format version, offset, timestamp (us)
CHECKPOINT_HEADER_BYTES: Final = CHECKPOINT_HEADER.size
END_KIND: Final = 255
"""The kind of the last record: its payload is the number of the records before it. It is in no segment."""
RECORD_OFFSET: Final = Struct("<Q")  # at the beginning of each payload: the offset that the record has in the log, or 0
BLOCK_RECORDS: Final = 500
BLOCK_BYTES: Final = 256 << 10
"""Small blocks: between two of them a writer gives way to other threads."""
SYNC_BYTES: Final = 4 << 20
"""What is written between two syncs: one sync of everything at the end would delay those of the log."""

_CHECKED: Final = Struct("<IQQ")
_COUNT: Final = Struct("<Q")
_NAME: Final = re.compile(r"(\d{20})\.ckpt")


def checkpoint_path(directory: Path, offset: int) -> Path:
    return directory / f"{offset:020d}.ckpt"


def checkpoint_offsets(directory: Path) -> list[int]:
    """The offsets of the checkpoints in a log's directory, in order."""
    found = map(_NAME.fullmatch, os.listdir(directory))
    return sorted(int(match[1]) for match in found if match)


@final
class CheckpointWriter:
    """Writes a checkpoint under a temporary name; `finish` makes it durable and gives it its name."""

    def __init__(self, directory: Path, offset: int, timestamp_us: int) -> None:
        """`timestamp_us` is that of the last record before the offset."""
        self.offset: Final = offset
        self.records = 0
        self.size_bytes = CHECKPOINT_HEADER_BYTES
        self._path: Final = checkpoint_path(directory, offset)
        self._group = Group(1)
        self._unsynced_bytes = 0
        self._descriptor = os.open(self._new_path(), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            checked = _CHECKED.pack(FORMAT_VERSION, offset, timestamp_us)
            fields = crc32(checked), FORMAT_VERSION, offset, timestamp_us
            _write(self._descriptor, CHECKPOINT_HEADER.pack(CHECKPOINT_MAGIC, *fields))
        except BaseException:
            self.abandon()
            raise

    def add(self, row: LogRow) -> bool:
        """Add a record with the offset that it has in the log, or 0; whether it completed a block, which is written
        then."""
        payload = RECORD_OFFSET.pack(row.offset) + row.payload
        self._group.append(row.timestamp_us, row.kind, row.flags, row.topic, payload, row.client_id, row.properties)
        self.records += 1
        if len(self._group) < BLOCK_RECORDS and self._group.size_bytes < BLOCK_BYTES:
            return False
        self._write_block()
        return True

    def finish(self) -> None:
        """Make the checkpoint durable, then give it its name."""
        self.add(LogRow(self.offset, 0, END_KIND, 0, b"", _COUNT.pack(self.records), b""))
        if len(self._group):
            self._write_block()
        os.fsync(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = -1
        os.rename(self._new_path(), self._path)
        sync_directory(self._path.parent)

    def abandon(self) -> None:
        """Leave nothing behind, unless `finish` is done."""
        if self._descriptor < 0:
            return
        with suppress(OSError):
            os.close(self._descriptor)
        self._descriptor = -1
        with suppress(OSError):
            self._new_path().unlink(missing_ok=True)

    def _new_path(self) -> Path:
        return self._path.with_suffix(".ckpt.new")

    def _write_block(self) -> None:
        block = block_of(self._group)
        _write(self._descriptor, block)
        self.size_bytes += len(block)
        self._unsynced_bytes += len(block)
        if self._unsynced_bytes >= SYNC_BYTES:
            os.fsync(self._descriptor)
            self._unsynced_bytes = 0
        self._group = Group(self._group.next_offset)


@final
class Checkpoint:
    """A checkpoint file that is read. LogCorrupt says where it is damaged."""

    def __init__(self, directory: Path, offset: int) -> None:
        self.path: Final = checkpoint_path(directory, offset)
        self.offset: Final = offset
        with open(self.path, "rb") as file:
            header = file.read(CHECKPOINT_HEADER_BYTES)
            self.size_bytes: Final = os.fstat(file.fileno()).st_size
        if len(header) < CHECKPOINT_HEADER_BYTES or header[:8] != CHECKPOINT_MAGIC:
            raise LogCorrupt(str(self.path), 0, "the checkpoint's header is missing")
        _, crc, version, found, timestamp_us = CHECKPOINT_HEADER.unpack(header)
        if crc32(header[12:]) != crc:
            raise LogCorrupt(str(self.path), 0, "the checksum of the checkpoint's header does not match")
        if version > FORMAT_VERSION:
            raise NewerFormat(str(self.path), version, FORMAT_VERSION)
        if found != offset:
            raise LogCorrupt(str(self.path), 0, f"the checkpoint is of offset {found}, not of the one in its name")
        self.timestamp_us: Final[int] = timestamp_us

    def blocks(self) -> Iterator[Block]:
        """Every block, each checked; the last one ends with the record that says how many there are."""
        expected = 1
        position = CHECKPOINT_HEADER_BYTES
        is_complete = False
        with open(self.path, "rb") as file:
            file.seek(position)
            while position < self.size_bytes:
                head = file.read(HEADER_BYTES)
                header = read_header(head)
                if header is None or header.first_offset != expected or position + header.total_bytes > self.size_bytes:
                    raise LogCorrupt(str(self.path), position, f"there is no block for record {expected}")
                try:
                    block = Block(head + file.read(header.total_bytes - HEADER_BYTES))
                except BadBlock as error:
                    raise LogCorrupt(str(self.path), position, str(error)) from None
                expected += header.records
                position += header.total_bytes
                if position == self.size_bytes:
                    last = block.record(expected - 1)
                    is_complete = last.kind == END_KIND and last.payload[RECORD_OFFSET.size :] == _COUNT.pack(
                        expected - 2
                    )
                    if not is_complete:
                        break
                yield block
        if not is_complete:
            raise LogCorrupt(str(self.path), position, "the end of the checkpoint is missing")

    def rows(self) -> Iterator[list[LogRow]]:
        """Every record but the one at the end, many at a time, each with its offset in the log; 0: it is not known."""
        for block in self.blocks():
            yield [_logged(row) for row in block.group().rows if row.kind != END_KIND]

    def check(self) -> int:
        """Read all of it; returns the number of records."""
        return sum(len(block) for block in self.blocks()) - 1


def _logged(row: LogRow) -> LogRow:
    """The row of a checkpoint as the log has it."""
    (offset,) = RECORD_OFFSET.unpack_from(row.payload)
    payload = row.payload[RECORD_OFFSET.size :]
    return LogRow(offset, row.timestamp_us, row.kind, row.flags, row.topic, payload, row.client_id, row.properties)


def checkpoints(directory: Path) -> list[Checkpoint]:
    """The checkpoints in a log's directory, oldest first, without those whose header is damaged."""
    found: list[Checkpoint] = []
    for offset in checkpoint_offsets(directory):
        with suppress(LogCorrupt, FileNotFoundError):  # another process may delete it meanwhile
            found.append(Checkpoint(directory, offset))
    return found


def undamaged_checkpoint(directory: Path, first_offset: int, next_offset: int) -> Checkpoint | None:
    """The oldest undamaged checkpoint from which a log that has these offsets can be read; None if there is none."""
    for offset in checkpoint_offsets(directory):
        if first_offset <= offset <= next_offset:
            with suppress(LogCorrupt, FileNotFoundError):
                checkpoint = Checkpoint(directory, offset)
                checkpoint.check()
                return checkpoint
    return None


def _write(descriptor: int, data: bytes | bytearray) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]

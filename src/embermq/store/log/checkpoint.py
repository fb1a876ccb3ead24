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

from embermq.store.log.blocks import FORMAT_VERSION, HEADER_BYTES, Block, encode_block, read_header
from embermq.store.log.errors import BadBlock, LogCorrupt, NewerFormat
from embermq.store.log.records import Group
from embermq.store.log.segments import sync_directory

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
class CheckpointGroup:
    """Records of a checkpoint: each has beside its columns the offset that it has in the log; 0: it is not known."""

    __slots__ = ("group", "offsets")

    def __init__(self, offsets: list[int], group: Group) -> None:
        self.offsets: Final = offsets
        self.group: Final = group


@final
class CheckpointWriter:
    """Writes a checkpoint under a temporary name; `finish` makes it durable and gives it its name."""

    __slots__ = ("_descriptor", "_group", "_path", "_unsynced_bytes", "offset", "records", "size_bytes")

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

    def add(
        self,
        offset: int,
        timestamp_us: int,
        kind: int,
        flags: int,
        topic: bytes,
        payload: bytes,
        client_id: bytes,
        properties: bytes = b"",
    ) -> bool:
        """Add a record; whether it completed a block, which is written then."""
        packed = RECORD_OFFSET.pack(offset) + payload
        self._group.append(timestamp_us, kind, flags, topic, packed, client_id, properties)
        self.records += 1
        if len(self._group) < BLOCK_RECORDS and self._group.size_bytes < BLOCK_BYTES:
            return False
        self._write_block()
        return True

    def finish(self) -> None:
        """Make the checkpoint durable, then give it its name."""
        self.add(self.offset, 0, END_KIND, 0, b"", _COUNT.pack(self.records), b"")
        if self._group.topics:
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
        _, block = encode_block(self._group)
        _write(self._descriptor, block)
        self.size_bytes += len(block)
        self._unsynced_bytes += len(block)
        if self._unsynced_bytes >= SYNC_BYTES:
            os.fsync(self._descriptor)
            self._unsynced_bytes = 0
        self._group = Group(self._group.first_offset + len(self._group))


@final
class Checkpoint:
    """A checkpoint file that is read. LogCorrupt says where it is damaged."""

    __slots__ = ("offset", "path", "size_bytes", "timestamp_us")

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

    def groups(self) -> Iterator[CheckpointGroup]:
        """Every record, in groups."""
        for block in self.blocks():
            group = block.group()
            offsets = [RECORD_OFFSET.unpack_from(payload)[0] for payload in group.payloads]
            group.payloads = [payload[RECORD_OFFSET.size :] for payload in group.payloads]
            yield CheckpointGroup(offsets, group)

    def check(self) -> int:
        """Read all of it; returns the number of records."""
        return sum(len(block) for block in self.blocks()) - 1


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

"""Blocks: a commit group as bytes, column by column (docs/log-format.md).

Owns: the layout of a block and its checksum.
Never: a file or a position in one; `segments` knows those.
Lengths are stored, not offsets: the lengths of many blocks concatenate, and one running sum makes Arrow's offsets.
"""

import sys
from itertools import accumulate, pairwise
from struct import Struct, unpack_from
from typing import Final, NamedTuple, final

from isal.isal_zlib import crc32

from embermq.store.log.errors import BadBlock
from embermq.store.log.records import LONG_LENGTH_MAX, Columns, Group

if sys.byteorder != "little":  # the columns are read and written as native arrays
    raise ImportError("the log needs a little-endian machine")

FORMAT_VERSION: Final = 1
BLOCK_MAGIC: Final = b"EMBK"
HEADER: Final = Struct("<4sIHHIQIIIIII")
HEADER_BYTES: Final = HEADER.size
ROW_BYTES: Final = 22
"""What each record takes in the columns of fixed width."""
SECTION_BYTES_MAX: Final = LONG_LENGTH_MAX

_CHECKED_FROM: Final = 8  # the checksum covers everything after itself
_PREFIX: Final = Struct("<4sI")
_REST: Final = Struct("<HHIQIIIIII")


class BlockHeader(NamedTuple):
    """The first bytes of a block, in their order."""

    magic: bytes
    crc: int
    version: int
    header_bytes: int
    records: int
    first_offset: int
    topic_bytes: int
    client_id_bytes: int
    property_bytes: int
    payload_bytes: int
    total_bytes: int
    reserved: int


@final
class Record:
    """One record of the log."""

    __slots__ = ("offset", "timestamp_us", "kind", "flags", "topic", "payload", "client_id", "properties")

    def __init__(
        self,
        offset: int,
        timestamp_us: int,
        kind: int,
        flags: int,
        topic: bytes,
        payload: bytes,
        client_id: bytes,
        properties: bytes,
    ) -> None:
        self.offset: Final = offset
        self.timestamp_us: Final = timestamp_us
        self.kind: Final = kind
        self.flags: Final = flags
        self.topic: Final = topic
        self.payload: Final = payload
        self.client_id: Final = client_id
        self.properties: Final = properties


def block_bytes(count: int, section_bytes: int) -> int:
    """The length of a block of `count` records whose topics, client ids, properties and payloads have these bytes."""
    return (HEADER_BYTES + count * ROW_BYTES + section_bytes + 7) & ~7


def encode_block(group: Group, bytes_max: int = SECTION_BYTES_MAX) -> tuple[BlockHeader, bytearray]:
    """A group as one block: its header, and all its bytes. ValueError if it is empty or larger than `bytes_max`."""
    count = len(group)
    columns = group.columns if group.columns is not None else _columns_of(group)
    topics, client_ids = columns.topics.getvalue(), columns.client_ids.getvalue()
    properties, payloads = columns.properties.getvalue(), columns.payloads.getvalue()
    section_bytes = len(topics) + len(client_ids) + len(properties) + len(payloads)
    total = block_bytes(count, section_bytes)
    if not count or total > bytes_max:
        raise ValueError(f"a block cannot hold {count} records of {total} bytes together")
    sizes = len(topics), len(client_ids), len(properties), len(payloads)
    fields = FORMAT_VERSION, HEADER_BYTES, count, group.first_offset, *sizes, total, 0
    block = bytearray().join(
        (
            _PREFIX.pack(BLOCK_MAGIC, 0),  # the checksum is put in its place afterwards
            _REST.pack(*fields),
            columns.timestamps_us.getvalue(),
            columns.payload_lengths.getvalue(),
            columns.property_lengths.getvalue(),
            columns.topic_lengths.getvalue(),
            columns.client_id_lengths.getvalue(),
            columns.kinds.getvalue(),
            columns.flags.getvalue(),
            topics,
            client_ids,
            properties,
            payloads,
            bytes(total - HEADER_BYTES - count * ROW_BYTES - section_bytes),
        )
    )
    crc = crc32(memoryview(block)[_CHECKED_FROM:])
    _PREFIX.pack_into(block, 0, BLOCK_MAGIC, crc)
    return BlockHeader(BLOCK_MAGIC, crc, *fields), block


def _columns_of(group: Group) -> Columns:
    columns = Columns()
    for row in range(len(group.topics)):
        columns.add(
            group.timestamps_us[row],
            group.kinds[row],
            group.flags[row],
            group.topics[row],
            group.payloads[row],
            group.client_ids[row],
            group.properties[row],
        )
    return columns


def read_header(data: bytes | bytearray | memoryview, position: int = 0) -> BlockHeader | None:
    """The header at a position if its fields agree with one another; None where there can be no block."""
    if len(data) - position < HEADER_BYTES:
        return None
    header = BlockHeader._make(HEADER.unpack_from(data, position))
    if header.magic != BLOCK_MAGIC or not header.records:
        return None
    section_bytes = header.topic_bytes + header.client_id_bytes + header.property_bytes + header.payload_bytes
    if header.total_bytes != block_bytes(header.records, section_bytes):
        return None
    return header


def is_whole(data: memoryview, position: int, header: BlockHeader) -> bool:
    """Whether the block that this header opens is all there and undamaged."""
    end = position + header.total_bytes
    return end <= len(data) and crc32(data[position + _CHECKED_FROM : end]) == header.crc


@final
class Block:
    """An encoded block, checked, whose records are cut out when asked for."""

    __slots__ = (
        "first_offset",
        "next_offset",
        "size_bytes",
        "_data",
        "timestamps_us",
        "_kinds_at",
        "_topics",
        "_client_ids",
        "_properties",
        "_payloads",
    )

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data)
        header = read_header(view)
        if header is None or not is_whole(view, 0, header):
            raise BadBlock("the checksum does not match")
        count = header.records
        self.first_offset: Final = header.first_offset
        self.next_offset: Final = header.first_offset + count
        self.size_bytes: Final = header.total_bytes
        # As bytes: compiled code cuts these without a call.
        self._data: Final = data if isinstance(data, bytes) else bytes(data)
        # One call for all columns of numbers: most blocks of a quiet server hold one record.
        numbers = unpack_from(f"<{count}q{2 * count}I{2 * count}H", data, HEADER_BYTES)
        self.timestamps_us: Final[tuple[int, ...]] = numbers[:count]
        # Typed, since numbers of unknown types make compiled code cut bytes by a general, slower call.
        self._kinds_at: Final = HEADER_BYTES + 20 * count
        topics_at = self._kinds_at + 2 * count
        self._topics: Final[list[int]] = list(accumulate(numbers[3 * count : 4 * count], initial=topics_at))
        self._client_ids: Final[list[int]] = list(accumulate(numbers[4 * count :], initial=self._topics[-1]))
        self._properties: Final[list[int]] = list(
            accumulate(numbers[2 * count : 3 * count], initial=self._client_ids[-1])
        )
        self._payloads: Final[list[int]] = list(accumulate(numbers[count : 2 * count], initial=self._properties[-1]))

    def __len__(self) -> int:
        return self.next_offset - self.first_offset

    def kind(self, offset: int) -> int:
        """The kind of the record at an offset that lies in this block."""
        return self._data[self._kinds_at + offset - self.first_offset]

    def topic(self, offset: int) -> bytes:
        """The topic of the record at an offset that lies in this block."""
        row = offset - self.first_offset
        return self._data[self._topics[row] : self._topics[row + 1]]

    def flags(self, offset: int) -> int:
        """The flags of the record at an offset that lies in this block; so for the next two."""
        return self._data[self._kinds_at + len(self) + offset - self.first_offset]

    def payload(self, offset: int) -> bytes:
        row = offset - self.first_offset
        return self._data[self._payloads[row] : self._payloads[row + 1]]

    def properties(self, offset: int) -> bytes:
        row = offset - self.first_offset
        start, end = self._properties[row], self._properties[row + 1]
        return self._data[start:end] if end > start else b""

    def record(self, offset: int) -> Record:
        """The record at an offset that lies in this block."""
        row = offset - self.first_offset
        data = self._data
        return Record(
            offset,
            self.timestamps_us[row],
            data[self._kinds_at + row],
            data[self._kinds_at + len(self) + row],
            data[self._topics[row] : self._topics[row + 1]],
            data[self._payloads[row] : self._payloads[row + 1]],
            data[self._client_ids[row] : self._client_ids[row + 1]],
            data[self._properties[row] : self._properties[row + 1]],
        )

    def group(self, from_offset: int = 0) -> Group:
        """The block as the group it was, without the records before `from_offset`."""
        skip = max(0, from_offset - self.first_offset)
        count = len(self)
        group = Group(self.first_offset + skip)
        data = self._data
        group.timestamps_us = list(self.timestamps_us[skip:])
        group.kinds = list(data[self._kinds_at + skip : self._kinds_at + count])
        group.flags = list(data[self._kinds_at + count + skip : self._kinds_at + 2 * count])
        group.topics = [data[start:end] for start, end in pairwise(self._topics[skip:])]
        group.payloads = [data[start:end] for start, end in pairwise(self._payloads[skip:])]
        group.client_ids = [data[start:end] for start, end in pairwise(self._client_ids[skip:])]
        group.properties = [data[start:end] for start, end in pairwise(self._properties[skip:])]
        return group


def decode_block(data: bytes | bytearray | memoryview) -> Group:
    """The group that `encode_block` was given. BadBlock if a byte of it has changed."""
    return Block(data).group()

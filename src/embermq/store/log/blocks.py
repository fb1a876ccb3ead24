"""Blocks: a commit group as bytes, column by column (docs/log-format.md).

Owns: the layout of a block and its checksum.
Never: a file or a position in one; `segments` knows those.
Lengths are stored, not offsets: the lengths of many blocks concatenate, and one running sum makes Arrow's offsets.
"""

import sys
from struct import Struct, unpack_from
from typing import Final, NamedTuple, final

from isal.isal_zlib import crc32
from librt.strings import read_i16_le, read_i32_le, read_i64_le
from librt.vecs import append, vec
from mypy_extensions import i64

from embermq.store.log.errors import BadBlock
from embermq.store.rows import LONG_LENGTH_MAX, Group, LogRow

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
_SIZES_AT: Final = 24
_SIZES_END: Final = 40


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


def block_bytes(count: int, section_bytes: int) -> int:
    """The length of a block of `count` records whose topics, client ids, properties and payloads have these bytes."""
    return (HEADER_BYTES + count * ROW_BYTES + section_bytes + 7) & ~7


def block_of(group: Group, bytes_max: int = SECTION_BYTES_MAX) -> bytearray:
    """A group as one block. ValueError if it is empty or larger than `bytes_max`."""
    count = len(group)
    columns = group.columns
    topics, client_ids = columns.topics.getvalue(), columns.client_ids.getvalue()
    properties, payloads = columns.properties.getvalue(), columns.payloads.getvalue()
    section_bytes = len(topics) + len(client_ids) + len(properties) + len(payloads)
    total = block_bytes(count, section_bytes)
    if not count or total > bytes_max:
        raise ValueError(f"a block cannot hold {count} records of {total} bytes together")
    block = bytearray().join(
        (
            HEADER.pack(
                BLOCK_MAGIC,
                0,  # the checksum is put in its place afterwards
                FORMAT_VERSION,
                HEADER_BYTES,
                count,
                group.first_offset,
                len(topics),
                len(client_ids),
                len(properties),
                len(payloads),
                total,
                0,
            ),
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
    _PREFIX.pack_into(block, 0, BLOCK_MAGIC, crc32(memoryview(block)[_CHECKED_FROM:]))
    return block


def section_sizes(block: bytearray) -> bytes:
    """The bytes of topics, client ids, properties and payloads, as block and index entry have them: u32 x 4."""
    return bytes(block[_SIZES_AT:_SIZES_END])


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

    def __init__(self, data: bytes | bytearray | memoryview, at: int = 0) -> None:
        """The block that begins at `at`. Of `bytes` it keeps no copy, but all of them."""
        view = memoryview(data)
        header = read_header(view, at)
        if header is None or not is_whole(view, at, header):
            raise BadBlock("the checksum does not match")
        count = header.records
        self.first_offset: Final = header.first_offset
        self.next_offset: Final = header.first_offset + count
        self.size_bytes: Final = header.total_bytes
        # As bytes: compiled code cuts these without a call.
        self._data: Final = data if isinstance(data, bytes) else bytes(data)
        self._columns_at: Final = at + HEADER_BYTES
        self._kinds_at: Final = self._columns_at + 20 * count
        topics_at = self._kinds_at + 2 * count
        client_ids_at = topics_at + header.topic_bytes
        properties_at = client_ids_at + header.client_id_bytes
        payloads_at = properties_at + header.property_bytes
        self._topics: Final = _positions(self._data, self._columns_at + 16 * count, 2, count, topics_at)
        self._payloads: Final = _positions(self._data, self._columns_at + 8 * count, 4, count, payloads_at)
        # Most blocks have no properties. Client ids and timestamps are cut out when they are first asked for: a queue
        # is read without them.
        self._properties: Final = (
            _positions(self._data, self._columns_at + 12 * count, 4, count, properties_at)
            if header.property_bytes
            else vec[i64]()
        )
        self._client_ids = vec[i64]()
        self._timestamps_us: tuple[int, ...] = ()

    def __len__(self) -> int:
        return self.next_offset - self.first_offset

    @property
    def timestamps_us(self) -> tuple[int, ...]:
        if not self._timestamps_us:
            self._timestamps_us = unpack_from(f"<{len(self)}q", self._data, self._columns_at)
        return self._timestamps_us

    def kind(self, offset: int) -> int:
        """The kind of the record at an offset that lies in this block."""
        return self._data[self._kinds_at + offset - self.first_offset]

    def topic(self, offset: int) -> bytes:
        """The topic of the record at an offset that lies in this block."""
        row = offset - self.first_offset
        return self._data[self._topics[row] : self._topics[row + 1]]

    def topics(self) -> set[bytes]:
        """The topics of its records, each once."""
        data, positions = self._data, self._topics
        return {data[positions[row] : positions[row + 1]] for row in range(len(self))}

    def has_topic(self, offset: int, topic: bytes) -> bool:
        """Whether the record at an offset has this topic; compared in its place, eight bytes at a time."""
        row = offset - self.first_offset
        data = self._data
        at = self._topics[row]
        end = self._topics[row + 1]
        if end - at != len(topic):
            return False
        compared: i64 = 0
        while at + 8 <= end:
            if read_i64_le(data, at) != read_i64_le(topic, compared):
                return False
            at += 8
            compared += 8
        while at < end:
            if data[at] != topic[compared]:
                return False
            at += 1
            compared += 1
        return True

    def flags(self, offset: int) -> int:
        """The flags of the record at an offset that lies in this block."""
        return self._data[self._kinds_at + len(self) + offset - self.first_offset]

    def payload(self, offset: int) -> bytes:
        """The payload of such a record."""
        row = offset - self.first_offset
        return self._data[self._payloads[row] : self._payloads[row + 1]]

    def properties(self, offset: int) -> bytes:
        """The properties of such a record."""
        if not len(self._properties):
            return b""
        row = offset - self.first_offset
        start, end = self._properties[row], self._properties[row + 1]
        return self._data[start:end] if end > start else b""

    def _client_id(self, row: int) -> bytes:
        if not len(self._client_ids):
            count = len(self)
            self._client_ids = _positions(self._data, self._columns_at + 18 * count, 2, count, self._topics[count])
        return self._data[self._client_ids[row] : self._client_ids[row + 1]]

    def record(self, offset: int) -> LogRow:
        """The record at an offset that lies in this block."""
        row = offset - self.first_offset
        data = self._data
        return LogRow(
            offset,
            self.timestamps_us[row],
            data[self._kinds_at + row],
            data[self._kinds_at + len(self) + row],
            data[self._topics[row] : self._topics[row + 1]],
            data[self._payloads[row] : self._payloads[row + 1]],
            self._client_id(row),
            self.properties(offset),
        )

    def group(self, from_offset: int = 0) -> Group:
        """The block as the group it was, without the records before `from_offset`."""
        first_offset = max(from_offset, self.first_offset)
        return Group(first_offset, [self.record(offset) for offset in range(first_offset, self.next_offset)])


def _positions(data: bytes, lengths_at: int, width: int, count: int, first_at: int) -> vec[i64]:
    """Where the values of a column begin, by their lengths of `width` bytes, 2 or 4; and where the last one ends."""
    positions = vec[i64](capacity=count + 1)
    positions = append(positions, first_at)
    at = first_at
    mask = 0xFFFF if width == 2 else 0xFFFF_FFFF  # the lengths are unsigned
    for _ in range(count):
        length: int = read_i16_le(data, lengths_at) if width == 2 else read_i32_le(data, lengths_at)
        at += length & mask
        lengths_at += width
        positions = append(positions, at)
    return positions

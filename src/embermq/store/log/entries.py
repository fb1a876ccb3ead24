"""Index entries: where the durable blocks of a segment lie, one entry of 48 bytes for each (docs/log-format.md).

Owns: entries as their file has them, searching them, and comparing them with one another and with the blocks.
Never: a file; `segments` opens them.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple, final

from isal.isal_zlib import crc32
from librt.strings import read_i32_le, read_i64_le
from mypy_extensions import i64

from embermq.store.log.blocks import BLOCK_MAGIC, HEADER_BYTES, Block
from embermq.store.log.errors import BadBlock
from embermq.store.segment import ENTRY_BYTES


class IndexEntry(NamedTuple):
    """Where one durable block lies, and what it takes to gather it without reading it."""

    position: int
    first_offset: int
    first_timestamp_us: int
    records: int
    total_bytes: int
    topic_bytes: int
    client_id_bytes: int
    property_bytes: int
    payload_bytes: int


INDEX_ENTRY: Final = Struct("<QQqIIIIII")
assert INDEX_ENTRY.size == ENTRY_BYTES

_FIRST_OFFSET: Final = 8
_FIRST_TIMESTAMP: Final = 16
_RECORDS: Final = 24
_TOTAL_BYTES: Final = 28
_CHECKED_FROM: Final = 8  # the checksum of a block covers everything after itself


@final
class Entries:
    """Some index entries, as bytes. Numbers count from the first one, or from the end if they are negative."""

    __slots__ = ("data",)

    def __init__(self, data: bytes = b"") -> None:
        self.data: Final = data  # of whole entries

    def __len__(self) -> int:
        return len(self.data) // ENTRY_BYTES

    def entry(self, number: int) -> IndexEntry:
        return IndexEntry._make(INDEX_ENTRY.unpack_from(self.data, self._at(number)))

    def position(self, number: int) -> int:
        return read_i64_le(self.data, self._at(number))

    def end(self, number: int = -1) -> int:
        """Where a block ends in its file; without a number, the last one."""
        at = self._at(number)
        return read_i64_le(self.data, at) + _u32(self.data, at + _TOTAL_BYTES)

    def first_offset(self, number: int) -> int:
        return read_i64_le(self.data, self._at(number) + _FIRST_OFFSET)

    def next_offset(self, number: int = -1) -> int:
        """The offset after the last of a block; without a number, of the last block."""
        at = self._at(number)
        return read_i64_le(self.data, at + _FIRST_OFFSET) + _u32(self.data, at + _RECORDS)

    def first_timestamp_us(self, number: int) -> int:
        return read_i64_le(self.data, self._at(number) + _FIRST_TIMESTAMP)

    def records(self, number: int) -> int:
        return _u32(self.data, self._at(number) + _RECORDS)

    def total_bytes(self, number: int) -> int:
        return _u32(self.data, self._at(number) + _TOTAL_BYTES)

    def part(self, start: int, end: int) -> "Entries":
        """The entries from one number on and before another."""
        return Entries(self.data[start * ENTRY_BYTES : end * ENTRY_BYTES])

    def chosen(self, numbers: list[int]) -> "Entries":
        """The entries of some numbers; their blocks may lie apart."""
        data = self.data
        return Entries(b"".join([data[number * ENTRY_BYTES : (number + 1) * ENTRY_BYTES] for number in numbers]))

    def block_of(self, offset: int) -> int:
        """The number of the block that holds an offset, if these reach that far; -1 if it is before them."""
        return self._count_up_to(_FIRST_OFFSET, offset) - 1

    def blocks_before_offset(self, offset: int) -> int:
        """How many blocks begin before an offset."""
        return self._count_up_to(_FIRST_OFFSET, offset - 1)

    def blocks_before(self, timestamp_us: int) -> int:
        """How many blocks begin before an instant."""
        return self._count_up_to(_FIRST_TIMESTAMP, timestamp_us - 1)

    def offsets(self) -> list[int]:
        """The first offset of each block, and the one after the last."""
        if not self.data:
            return []
        return [*[self.first_offset(number) for number in range(len(self))], self.next_offset()]

    def positions(self) -> list[int]:
        """Where each block begins, and where the last one ends."""
        if not self.data:
            return []
        return [*[self.position(number) for number in range(len(self))], self.end()]

    def moved_to(self, position: int) -> "Entries":
        """These entries of neighbouring blocks as they are when the first block is at a position."""
        if not self.data or self.position(0) == position:
            return self
        moved_by = position - self.position(0)
        entries = [self.entry(number) for number in range(len(self))]
        return Entries(b"".join([INDEX_ENTRY.pack(entry.position + moved_by, *entry[1:]) for entry in entries]))

    def consistent(self, position: int, offset: int) -> int:
        """How many entries from the first one on continue one another, the first being at `position` and `offset`."""
        data = self.data
        expected_position: i64 = position
        expected_offset: i64 = offset
        at: i64 = 0
        for number in range(len(self)):
            records = _u32(data, at + _RECORDS)
            size_bytes = _u32(data, at + _TOTAL_BYTES)
            if read_i64_le(data, at) != expected_position or read_i64_le(data, at + _FIRST_OFFSET) != expected_offset:
                return number
            if not records or not size_bytes:
                return number
            expected_position += size_bytes
            expected_offset += records
            at += ENTRY_BYTES
        return len(self)

    def _at(self, number: int) -> int:
        return (number if number >= 0 else len(self) + number) * ENTRY_BYTES

    def _count_up_to(self, field: int, value: int) -> int:
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if read_i64_le(self.data, middle * ENTRY_BYTES + field) <= value:
                low = middle + 1
            else:
                high = middle
        return low


def runs(entries: Entries, rows: int, size: int) -> Iterator[Entries]:
    """The entries in pieces that are read together: as many as have so many records and bytes, at least one."""
    first = records = size_bytes = 0
    for number in range(len(entries)):
        records += entries.records(number)
        size_bytes += entries.total_bytes(number)
        if number > first and (records > rows or size_bytes > size):
            yield entries.part(first, number)
            first, records, size_bytes = number, entries.records(number), entries.total_bytes(number)
    if first < len(entries):
        yield entries.part(first, len(entries))


def first_mismatch(data: bytes | memoryview, entries: Entries, checksums: bool) -> int | None:
    """The position of the first block that is not what its entry says or, with `checksums`, is damaged.

    `data` holds the blocks of the entries, one after the other.
    """
    view = memoryview(data)
    known = entries.data
    begin = 0
    for number in range(len(entries)):
        at = number * ENTRY_BYTES
        head = bytes(view[begin : begin + HEADER_BYTES + 8])  # with the first timestamp
        end = begin + entries.total_bytes(number)
        if (
            len(head) < HEADER_BYTES + 8
            or head[:4] != BLOCK_MAGIC
            or end > len(view)
            or read_i64_le(head, 16) != read_i64_le(known, at + _FIRST_OFFSET)
            or read_i64_le(head, HEADER_BYTES) != read_i64_le(known, at + _FIRST_TIMESTAMP)
            or read_i32_le(head, 12) != read_i32_le(known, at + _RECORDS)
            or read_i32_le(head, 40) != read_i32_le(known, at + _TOTAL_BYTES)
            # Of topics and client ids, of properties and payloads.
            or read_i64_le(head, 24) != read_i64_le(known, at + 32)
            or read_i64_le(head, 32) != read_i64_le(known, at + 40)
            or (checksums and crc32(view[begin + _CHECKED_FROM : end]) != _u32(head, 4))
        ):
            return entries.position(number)
        begin = end
    return None


def blocks_in(data: bytes, entries: Entries) -> Iterator[Block]:
    """The blocks of the entries, decoded, each compared with its checksum. BadBlock if one is damaged."""
    at = 0
    for number in range(len(entries)):
        block = Block(data, at)
        if block.first_offset != entries.first_offset(number) or block.next_offset != entries.next_offset(number):
            raise BadBlock("the block is not the one that the index names")
        yield block
        at += block.size_bytes


def _u32(data: bytes, at: int) -> int:
    value: int = read_i32_le(data, at)
    return value & 0xFFFF_FFFF

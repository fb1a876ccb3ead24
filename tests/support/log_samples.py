"""Groups to write and ways to look at what was written, for the tests of the log."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from embermq.store.log.blocks import SECTION_BYTES_MAX, Block, BlockHeader, block_of, read_header
from embermq.store.log.writer import Log
from embermq.store.rows import Group, Kind, LogRow

TESTS = Path(__file__).parent.parent
"""Where another process finds `support`."""
NOW_US = 1_700_000_000_000_000

Row = tuple[int, int, int, int, bytes, bytes, bytes, bytes]


def open_log(
    directory: Path, *, segment_bytes: int = 1 << 20, segment_age_s: int = 3600, check_bytes: int = 64 << 20
) -> Log:
    return Log(directory, segment_bytes=segment_bytes, segment_age_s=segment_age_s, sync=False, check_bytes=check_bytes)


def sample_group(first_offset: int, records: int, seed: int = 0) -> Group:
    """A group of records that differ in everything, some of it empty."""
    random = Random(f"{seed} {first_offset}")
    group = Group(first_offset)
    for row in range(records):
        offset = first_offset + row
        group.append(
            NOW_US + offset * 1000,
            random.choice(list(Kind)),
            random.randrange(128),
            f"plant/größe/{offset}".encode(),
            random.randbytes(random.choice([0, 1, 7, 40])),
            random.choice([b"", b"client-7", "gerät".encode()]),
            random.randbytes(random.choice([0, 0, 5])),
        )
    return group


def fill(log: Log, sizes: Sequence[int], now_us: int = NOW_US) -> list[Row]:
    """Append groups of these many records; returns all rows that were written."""
    rows: list[Row] = []
    for records in sizes:
        group = sample_group(log.next_offset, records)
        log.append(group, now_us)
        rows += rows_of(group)
    return rows


def rows_of(group: Group) -> list[Row]:
    return [row_of(row) for row in group.rows]


def row_of(record: LogRow) -> Row:
    return (
        record.offset,
        record.timestamp_us,
        record.kind,
        record.flags,
        record.topic,
        record.payload,
        record.client_id,
        record.properties,
    )


def replayed(log: Log, offset: int = 1) -> list[Row]:
    return [row for group in log.groups_from(offset) for row in rows_of(group)]


def flipped(data: bytes | bytearray, at: int, bit: int = 0) -> bytes:
    return bytes(data[:at]) + bytes([data[at] ^ 1 << bit]) + bytes(data[at + 1 :])


def segment_files(directory: Path, suffix: str = ".log") -> list[Path]:
    return sorted(directory.glob(f"*{suffix}"))


def block_positions(directory: Path, segment: int = 0) -> Iterator[tuple[int, int]]:
    """Start and end of each block of a segment, by its index."""
    from embermq.store.log.segments import Index

    index = Index.open(segment_files(directory, ".idx")[segment])
    for number in range(index.count):
        entry = index.entry(number)
        yield entry.position, entry.position + entry.total_bytes


def read_many(log: Log, offsets: Sequence[int]) -> list[LogRow]:
    """The records at some offsets; those that are not there are left out."""
    return [record for record in map(log.read, offsets) if record is not None]


def encode_block(group: Group, bytes_max: int = SECTION_BYTES_MAX) -> tuple[BlockHeader, bytearray]:
    """A group as one block: its header, and all its bytes."""
    block = block_of(group, bytes_max)
    header = read_header(block)
    assert header is not None
    return header, block


def read_block(data: bytes | bytearray) -> Group:
    """The group that `encode_block` was given."""
    return Block(data).group()

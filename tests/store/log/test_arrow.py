"""Gathering: the columns of one block and of many become one batch."""

import pyarrow as pa
import pytest

from embermq.store.log.arrow import SCHEMA, gather
from embermq.store.log.entries import INDEX_ENTRY, Entries, IndexEntry
from embermq.store.log.segments import entry_of
from support.log_samples import Row, encode_block, rows_of, sample_group


def batch_of(sizes: list[int], columns: list[str]) -> tuple[pa.RecordBatch, list[Row]]:
    """Blocks of these sizes gathered, and the rows that went in."""
    data = b""
    entries: list[IndexEntry] = []
    rows: list[Row] = []
    for size in sizes:
        group = sample_group(1 + len(rows), size)
        header, block = encode_block(group)
        entries.append(entry_of(header, len(data), group.columns.first_timestamp_us))
        data += block
        rows += rows_of(group)
    return gather(data, Entries(b"".join(INDEX_ENTRY.pack(*entry) for entry in entries)), columns), rows


@pytest.mark.parametrize("sizes", [[1], [7], [1, 1, 1], [3, 1, 12]])
def test_a_batch_has_the_rows_of_its_blocks_in_order(sizes: list[int]) -> None:
    batch, rows = batch_of(sizes, SCHEMA.names)
    batch.validate(full=True)
    assert batch.schema == SCHEMA
    assert batch.column("offset").to_pylist() == [row[0] for row in rows]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [row[1] for row in rows]
    assert batch.column("kind").to_pylist() == [row[2] for row in rows]
    assert [topic.encode() for topic in batch.column("topic").to_pylist()] == [row[4] for row in rows]
    assert batch.column("payload").to_pylist() == [row[5] for row in rows]
    assert batch.column("properties").to_pylist() == [row[7] for row in rows]


def test_a_batch_has_the_columns_that_were_asked_for_in_their_order() -> None:
    batch, rows = batch_of([4, 2], ["payload", "offset"])
    assert batch.schema.names == ["payload", "offset"]
    assert list(zip(*batch.to_pydict().values(), strict=True)) == [(row[5], row[0]) for row in rows]

"""Blocks that came from elsewhere as Arrow batches.

Owns: checking them, and cutting out the records of a range.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from embermq.store.log.arrow import cut, gather
from embermq.store.log.entries import Entries, first_mismatch, runs
from embermq.store.log.errors import LogCorrupt
from embermq.store.log.reader import BATCH_BYTES


def gathered(
    source: str, blocks: memoryview, entries: Entries, start: int, end: int, rows: int, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The records from `start` up to, not including, `end` of neighbouring blocks; at most `rows` in a batch.

    `entries` are their index entries. LogCorrupt names `source` if a block does not match its checksum or its entry.
    """
    first = entries.position(0)
    for run in runs(entries, rows, BATCH_BYTES):
        data = blocks[run.position(0) - first : run.end() - first]
        bad = first_mismatch(data, run, True)
        if bad is not None:
            raise LogCorrupt(source, bad, "the block does not match its checksum or its index entry")
        batch = gather(data, run, columns)
        offset = run.first_offset(0)
        skip = max(0, start - offset)
        kept = batch.slice(skip, max(0, min(batch.num_rows, end - offset) - skip))
        if kept.num_rows:
            yield from cut(kept, rows, BATCH_BYTES)

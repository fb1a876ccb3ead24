"""Gathering: many blocks into one Arrow batch, with no Python for a record and none for a block.

Owns: the log as a table, its columns and their types.
Never: finding blocks or reading files; `reader` brings the bytes and their index entries.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from embermq.store.log.blocks import HEADER_BYTES
from embermq.store.log.entries import Entries, IndexEntry
from embermq.store.segment import ENTRY_BYTES

SCHEMA: Final = pa.schema(
    [
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("kind", pa.int8()),
        pa.field("flags", pa.int8()),
        pa.field("topic", pa.string()),
        pa.field("payload", pa.binary()),
        pa.field("client_id", pa.string()),
        pa.field("properties", pa.binary()),
    ]
)
"""The types are what Spark asks of a Python data source, so that a batch goes through as it is."""

# The sections of a block in their order, and which of them a column is made of: its values, or its lengths and bytes.
_HEADER, _TIMESTAMPS, _PAYLOAD_LENGTHS, _PROPERTY_LENGTHS, _TOPIC_LENGTHS, _CLIENT_ID_LENGTHS = range(6)
_KINDS, _FLAGS, _TOPICS, _CLIENT_IDS, _PROPERTIES, _PAYLOADS, _PADDING = range(6, 13)
_SECTIONS: Final = 13
_ROW_WIDTHS: Final = np.array([0, 8, 4, 4, 2, 2, 1, 1, 0, 0, 0, 0, 0], np.int64)
_COLUMN_SECTIONS: Final[dict[str, tuple[int, ...]]] = {
    "offset": (),
    "timestamp": (_TIMESTAMPS,),
    "kind": (_KINDS,),
    "flags": (_FLAGS,),
    "topic": (_TOPIC_LENGTHS, _TOPICS),
    "payload": (_PAYLOAD_LENGTHS, _PAYLOADS),
    "client_id": (_CLIENT_ID_LENGTHS, _CLIENT_IDS),
    "properties": (_PROPERTY_LENGTHS, _PROPERTIES),
}
_ENTRY_TYPE: Final = np.dtype(
    [(name, code) for name, code in zip(IndexEntry._fields, ("<i8", "<i8", "<i8", *["<u4"] * 6), strict=True)]
)
assert _ENTRY_TYPE.itemsize == ENTRY_BYTES
_LENGTH_TYPES: Final = {
    _PAYLOAD_LENGTHS: "<u4",
    _PROPERTY_LENGTHS: "<u4",
    _TOPIC_LENGTHS: "<u2",
    _CLIENT_ID_LENGTHS: "<u2",
}


def gather(data: bytes | memoryview, entries: Entries, columns: Sequence[str]) -> pa.RecordBatch:
    """The records of some blocks, `data` being their bytes, one block after the other."""
    known = np.frombuffer(entries.data, _ENTRY_TYPE)
    records = int(known["records"].sum())
    wanted = sorted({section for column in columns for section in _COLUMN_SECTIONS[column]})
    sections = _take_sections(data, known, wanted)
    arrays = []
    for column in columns:
        kind = SCHEMA.field(column).type
        made_of = _COLUMN_SECTIONS[column]
        if not made_of:
            buffers = [None, pa.py_buffer(_offsets(known))]
        elif len(made_of) == 1:
            buffers = [None, sections[made_of[0]]]
        else:
            lengths = np.frombuffer(sections[made_of[0]], _LENGTH_TYPES[made_of[0]], records)
            ends = np.zeros(records + 1, np.int32)
            np.cumsum(lengths, out=ends[1:])
            buffers = [None, pa.py_buffer(ends), sections[made_of[1]]]
        arrays.append(pa.Array.from_buffers(kind, records, buffers, null_count=0))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([SCHEMA.field(column) for column in columns]))


def cut(batch: pa.RecordBatch, rows: int, size: int) -> Iterator[pa.RecordBatch]:
    """A batch in pieces of at most `rows` records, fewer where one block holds more than `size` bytes."""
    if batch.num_rows <= rows and batch.nbytes <= 2 * size:
        if batch.num_rows:
            yield batch
        return
    rows = min(rows, max(1, batch.num_rows * size // batch.nbytes))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _offsets(entries: NDArray[np.void]) -> NDArray[np.int64]:
    """The offsets of all records; the blocks may lie apart."""
    records = entries["records"].astype(np.int64)
    before = np.concatenate(([0], records.cumsum()[:-1]))
    shift: NDArray[np.int64] = np.repeat(entries["first_offset"] - before, records)
    return shift + np.arange(len(shift), dtype=np.int64)


def _take_sections(data: bytes | memoryview, entries: NDArray[np.void], wanted: list[int]) -> dict[int, pa.Buffer]:
    """Each wanted section of all blocks, joined.

    The sections of all blocks lie end to end, so the file is an Arrow array of byte strings as it stands; one `take`
    in another order joins them.
    """
    blocks = len(entries)
    lengths = entries["records"].astype(np.int64)[:, None] * _ROW_WIDTHS
    lengths[:, _HEADER] = HEADER_BYTES
    lengths[:, _TOPICS] = entries["topic_bytes"]
    lengths[:, _CLIENT_IDS] = entries["client_id_bytes"]
    lengths[:, _PROPERTIES] = entries["property_bytes"]
    lengths[:, _PAYLOADS] = entries["payload_bytes"]
    lengths[:, _PADDING] = entries["total_bytes"] - lengths.sum(axis=1)
    whole = pa.py_buffer(data)
    if blocks == 1:
        starts = np.concatenate(([0], lengths[0].cumsum())).tolist()
        return {section: whole.slice(starts[section], starts[section + 1] - starts[section]) for section in wanted}
    bounds = np.zeros(blocks * _SECTIONS + 1, np.int64)
    np.cumsum(lengths.ravel(), out=bounds[1:])
    pieces = pa.Array.from_buffers(
        pa.large_binary(), blocks * _SECTIONS, [None, pa.py_buffer(bounds), whole], null_count=0
    )
    order = (np.array(wanted, np.int64)[:, None] + np.arange(blocks, dtype=np.int64) * _SECTIONS).ravel()
    joined = pieces.take(pa.array(order)).buffers()[2]
    totals = lengths.sum(axis=0)
    sections: dict[int, pa.Buffer] = {}
    start = 0
    for section in wanted:
        length = int(totals[section])
        sections[section] = joined.slice(start, length)
        start += length
    return sections

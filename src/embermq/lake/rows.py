"""Rows: Arrow batches of the log with the columns of the source, without Python code for each row.

Owns: how the columns of a record (kind, flags, properties) become the columns that Spark sees.
Never: which records are read; the reader gives the range.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embermq.history.source import ReadableLog
from embermq.lake.properties import PROPERTY_COLUMNS, property_columns
from embermq.lake.topic_masks import arrow_mask
from embermq.store.rows import DUP_FLAG, QOS_MASK, RETAIN_FLAG, Kind

BATCH_ROWS: Final = 50_000
"""Each batch has a fixed cost in the JVM, so these are larger than the default. The log bounds their bytes as well."""
_MESSAGE_KINDS: Final = (Kind.PUBLISH, Kind.RETAINED_REMOVED)
_FLAG_MASKS: Final = {"qos": QOS_MASK, "retain": RETAIN_FLAG, "dup": DUP_FLAG}
_KIND_NAMES: Final = pa.array([Kind(number).name.lower() if number in set(Kind) else None for number in range(256)])


def rows(
    log: ReadableLog,
    columns: pa.Schema,
    start: int,
    end: int,
    kinds: Sequence[int] = (),
    topic_filter: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """The wanted columns of the records from `start` up to, not including, `end`: of some kinds, of some topics."""
    if topic_filter is not None:
        kinds = tuple(kind for kind in _MESSAGE_KINDS if not kinds or kind in kinds)
    needed = log_columns(columns.names, bool(kinds), topic_filter is not None)
    for batch in log.batches(start, end, BATCH_ROWS, needed):
        kept = of_kinds(batch, kinds)
        if topic_filter is not None and kept.num_rows:
            kept = kept.filter(arrow_mask(kept["topic"], topic_filter))
        if kept.num_rows:
            yield pa.RecordBatch.from_arrays([*shown_columns(kept, columns.names)], schema=columns)


def log_columns(columns: Sequence[str], by_kind: bool, by_topic: bool) -> list[str]:
    """The columns of the log that these are made of."""
    needed = {"topic"} if by_topic else set()
    if by_kind:
        needed.add("kind")
    for name in columns:
        if name in _FLAG_MASKS:
            needed |= {"kind", "flags"}
        elif name in PROPERTY_COLUMNS:
            needed |= {"kind", "properties"}
        else:
            needed.add(name)
    return sorted(needed) or ["offset"]


def of_kinds(batch: pa.RecordBatch, kinds: Sequence[int]) -> pa.RecordBatch:
    """The records of some kinds; of all without any."""
    if not kinds:
        return batch
    numbers = np.asarray(batch["kind"])
    mask = np.isin(numbers, kinds) if len(kinds) > 1 else numbers == kinds[0]
    return batch if mask.all() else batch.filter(pa.array(mask))


def shown_columns(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[pa.Array]:
    """Columns of the source, made of those of the log."""
    properties: dict[str, pa.Array] | None = None
    for name in names:
        if name in _FLAG_MASKS:
            yield _flag_column(batch, name)
        elif name == "kind":
            yield pc.take(_KIND_NAMES, batch["kind"], boundscheck=False)
        elif name in PROPERTY_COLUMNS:
            if properties is None:
                properties = property_columns(batch)
            yield properties[name]
        else:
            yield batch[name]


def _flag_column(batch: pa.RecordBatch, name: str) -> pa.Array:
    """QoS, RETAIN or DUP of messages; null for other records."""
    numbers = np.asarray(batch["kind"])
    bits = np.asarray(batch["flags"]).view(np.uint8) & _FLAG_MASKS[name]
    if name == "qos":
        values = pa.Array.from_buffers(pa.int8(), len(bits), [None, pa.py_buffer(bits)])
    else:
        values = pa.Array.from_buffers(
            pa.bool_(), len(bits), [None, pa.py_buffer(np.packbits(bits, bitorder="little"))]
        )
    known = numbers == Kind.PUBLISH
    if known.all():
        return values
    if name == "qos":
        known |= numbers == Kind.SUBSCRIBED
    return pc.if_else(pa.array(known), values, pa.scalar(None, values.type))

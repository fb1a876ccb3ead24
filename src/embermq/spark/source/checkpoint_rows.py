"""The records of a checkpoint of the log as Parquet files, with the columns that the source has for records of the log.

Owns: reading a checkpoint for Spark, in pieces.
Never: what a table makes of the rows.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from embermq.spark.source.arrow_columns import PUBLISHED_COLUMNS, SOURCE_ARROW
from embermq.spark.source.properties import message_columns
from embermq.store.log.checkpoint import END_KIND, Checkpoint, CheckpointGroup
from embermq.store.log.records import QOS_MASK, Kind

CHECKPOINT_ARROW: Final = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("kind", pa.string()),
        ("flags", pa.int8()),
        ("topic", pa.string()),
        ("payload", pa.binary()),
        ("qos", pa.int8()),
        *((name, SOURCE_ARROW.field(name).type) for name in PUBLISHED_COLUMNS),
    ]
)
"""`offset` is null where the checkpoint does not know which record of the log it was."""

_NAMES: Final = {int(kind): kind.name.lower() for kind in Kind}


def stage_checkpoint(checkpoint: Checkpoint, directory: Path) -> str:
    """Write the records to a directory that is emptied first; the path of the file. LogCorrupt if it is damaged."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    path = directory / "checkpoint.parquet"
    with pq.ParquetWriter(path, CHECKPOINT_ARROW, compression="none") as writer:
        for batch in _batches(checkpoint):
            writer.write_batch(batch)
    return str(path)


def _batches(checkpoint: Checkpoint) -> Iterator[pa.RecordBatch]:
    for found in checkpoint.groups():
        batch = _batch(found)
        if batch.num_rows:
            yield batch


def _batch(found: CheckpointGroup) -> pa.RecordBatch:
    group = found.group
    published = int(Kind.PUBLISH)
    rows = [row for row, kind in enumerate(group.kinds) if kind != END_KIND]
    columns = {
        "offset": [found.offsets[row] or None for row in rows],
        "timestamp": [group.timestamps_us[row] for row in rows],
        "kind": [_NAMES.get(group.kinds[row]) for row in rows],
        "flags": [group.flags[row] for row in rows],
        "topic": [group.topics[row].decode() for row in rows],
        "payload": [group.payloads[row] for row in rows],
        "qos": [group.flags[row] & QOS_MASK for row in rows],
        "client_id": [group.client_ids[row].decode() for row in rows],
    }
    # Other records have other properties.
    properties = [group.properties[row] if group.kinds[row] == published else b"" for row in rows]
    columns |= message_columns(properties)
    return pa.RecordBatch.from_pydict(columns, CHECKPOINT_ARROW)

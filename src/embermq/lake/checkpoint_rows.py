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

from embermq.lake.properties import message_columns
from embermq.lake.schema import LOG, PUBLISHED_COLUMNS
from embermq.store.log.checkpoint import Checkpoint
from embermq.store.rows import QOS_MASK, Kind, LogRow

CHECKPOINT_ARROW: Final = LOG.arrow(
    "offset", "timestamp", "kind", "flags", "topic", "payload", "qos", *PUBLISHED_COLUMNS
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
    for rows in checkpoint.rows():
        if rows:
            yield _batch(rows)


def _batch(rows: list[LogRow]) -> pa.RecordBatch:
    columns = {
        "offset": [row.offset or None for row in rows],
        "timestamp": [row.timestamp_us for row in rows],
        "kind": [_NAMES.get(row.kind) for row in rows],
        "flags": [row.flags for row in rows],
        "topic": [row.topic.decode() for row in rows],
        "payload": [row.payload for row in rows],
        "qos": [row.flags & QOS_MASK for row in rows],
        "client_id": [row.client_id.decode() for row in rows],
    }
    # Other records have other properties.
    properties = [row.properties if row.kind == Kind.PUBLISH else b"" for row in rows]
    columns |= message_columns(properties)
    return pa.RecordBatch.from_pydict(columns, CHECKPOINT_ARROW)

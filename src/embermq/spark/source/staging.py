"""Staging: a range of the log as Parquet files, which Spark reads natively as often as it needs.

Owns: reading the log once for all jobs, and the files of one batch.
Spark takes the rows of a Python source one by one and starts processes for it; these files it reads by columns. The
files are not durable: after a crash the range is read again.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from embermq.history.location import LogLocation
from embermq.history.opening import open_log
from embermq.lake.rows import rows
from embermq.lake.schema import LOG_ARROW
from embermq.spark.options import KIND_NAMES
from embermq.spark.source.reader import split

ROW_GROUP_ROWS: Final = 100_000
_REPEATED: Final = ("kind", "topic", "client_id", "content_type", "response_topic")


@dataclass(frozen=True)
class Staged:
    """The files of a range, and what is in them."""

    files: tuple[str, ...]
    kinds: frozenset[str]
    since: datetime | None
    """The oldest timestamp; None if no record is of the wanted kinds."""
    size_bytes: int


def stage(location: LogLocation, start: int, end: int, kinds: Sequence[str], directory: Path, tasks: int) -> Staged:
    """Write the records of some kinds, from `start` up to, not including, `end`, to a directory, emptied first."""
    clear(directory)
    directory.mkdir(parents=True)
    ranges = split(open_log(location).ranges(start, end), tasks)
    numbers = tuple(int(KIND_NAMES[name]) for name in kinds)

    def write(number: int) -> tuple[set[str], list[datetime]]:
        part, file = ranges[number], directory / f"{number}.parquet"
        return _write(rows(open_log(location), LOG_ARROW, part.start, part.end, numbers), file)

    with ThreadPoolExecutor(tasks) as pool:
        written = list(pool.map(write, range(len(ranges))))
    since = [moment for _, moments in written for moment in moments]
    files = tuple(str(directory / f"{number}.parquet") for number in range(len(ranges)))
    return Staged(
        files,
        frozenset(kind for found, _ in written for kind in found),
        min(since) if since else None,
        sum(map(os.path.getsize, files)),
    )


def _write(batches: Iterator[pa.RecordBatch], path: Path) -> tuple[set[str], list[datetime]]:
    """Write batches to a file; their kinds, and the oldest timestamp."""
    kinds: set[str] = set()
    since: list[datetime] = []
    with pq.ParquetWriter(path, LOG_ARROW, compression="none", use_dictionary=list(_REPEATED)) as writer:
        for batch in batches:
            kinds.update(batch["kind"].unique().to_pylist())
            since = since or [batch["timestamp"][0].as_py()]  # they never decrease
            writer.write_batch(batch, ROW_GROUP_ROWS)
    return kinds, since


def clear(directory: Path) -> None:
    """Remove the files of a batch."""
    shutil.rmtree(directory, ignore_errors=True)

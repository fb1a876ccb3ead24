"""Going on after a gap: records that a job needs were trimmed before it has read them.

Owns: what is done then, for each job: a row in `gaps`, and tables made right from a checkpoint of the log.
Never: deciding when a job is at a gap; the pipeline does.
"""

import logging
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from embermq.history.source import ReadableLog
from embermq.instants import EPOCH
from embermq.lake.checkpoint_rows import stage_checkpoint
from embermq.lake.errors import PipelineError
from embermq.lake.known import recorded
from embermq.lake.lake import Lake
from embermq.spark.jobs.reseeding import RESEEDS, Seed
from embermq.spark.lake.gaps import record_gap
from embermq.spark.lake.scratch import Scratch
from embermq.spark.lake.tables import read_table
from embermq.store.log.checkpoint import Checkpoint
from embermq.store.log.segments import FIRST_OFFSET

TRIMMED: Final = "trimmed before it was read"
BEFORE_THE_TABLE: Final = "trimmed before the table was made"

_STAGING: Final = "seed"
_TIMESTAMPS: Final = {"topic_stats": "last_seen"}
"""The column with the timestamp of a record; in other tables it is `timestamp`."""

_logger: Final = logging.getLogger(__name__)


def is_at_gap(log: ReadableLog, position: int | None) -> bool:
    """Whether the log no longer has what a job reads next; None: it has read nothing yet."""
    return _start(position) < log.bounds()[0]


def after_gap(spark: SparkSession, log: ReadableLog, lake: Lake, job: str, position: int | None) -> int:
    """Record the gap that a job is at, and make its tables right; the offset at which it goes on.

    PipelineError if the tables can only be made right with a checkpoint, and there is no undamaged one.
    """
    known_until = None if position is None else _known_until(spark, lake, job, position)
    while True:
        first, end = log.bounds()
        if job not in RESEEDS:
            segment = log.segment_of(first)
            until_us = (segment.since_us if segment is not None else None) or 0
            _record(spark, lake, job, position, known_until, first, until_us)
            return first
        with log.undamaged_checkpoint(first, end) as checkpoint:
            if checkpoint is not None:
                _record(spark, lake, job, position, known_until, checkpoint.offset, checkpoint.timestamp_us)
                _reseed(spark, lake, job, checkpoint, _start(position), known_until)
                return checkpoint.offset
        if log.bounds()[0] == first:  # else trimmed again meanwhile, and the checkpoint superseded
            raise PipelineError(
                f"{job} cannot go on: the log no longer has offsets {_start(position)} to {first - 1}, and there is no "
                f"undamaged checkpoint in {log.name} (`ember log verify` says more); the server writes another one in "
                "time"
            )


def _start(position: int | None) -> int:
    return FIRST_OFFSET if position is None else position


def _known_until(spark: SparkSession, lake: Lake, job: str, before_offset: int) -> datetime | None:
    """The last instant that the tables of a job know without the records from an offset on; None if there is none."""
    recorded_us = recorded(lake).until_us(job, before_offset)
    found = [] if recorded_us is None else [_instant(recorded_us)]
    # A message that one job has read before the offset, the other has read as well.
    for name in {job, "messages"} if job == "retained" and lake.has_table("messages") else {job}:
        newest = _newest_instant(spark, lake, name, before_offset)
        found += [] if newest is None else [newest]
    return max(found, default=None)


def _newest_instant(spark: SparkSession, lake: Lake, job: str, before_offset: int) -> datetime | None:
    """The newest instant in the rows of a job, in UTC, that come from records before an offset; None without rows."""
    if job == "retained":
        found = [
            _newest(read_table(spark, lake, "retained"), "valid_from", "offset", before_offset),
            _newest(read_table(spark, lake, "retained_closed"), "valid_to", "offset_to", before_offset),
        ]
    else:
        rows, column = read_table(spark, lake, job), _TIMESTAMPS.get(job, "timestamp")
        # A rollup has no timestamp of a record, and may have the devices' own times.
        found = [_newest(rows, column, "offset", before_offset)] if column in rows.columns else []
    return max((instant.astimezone(UTC) for instant in found if instant is not None), default=None)


def _newest(rows: DataFrame, column: str, offset: str, before_offset: int) -> datetime | None:
    if offset in rows.columns:
        rows = rows.where(F.col(offset) < before_offset)
    newest: datetime | None = rows.agg(F.max(column)).collect()[0][0]
    return newest


def _record(
    spark: SparkSession,
    lake: Lake,
    job: str,
    position: int | None,
    known_until: datetime | None,
    goes_on_at: int,
    until_us: int,
) -> None:
    """A row in `gaps`, and a line in the log."""
    start = _start(position)
    why = BEFORE_THE_TABLE if position is None else TRIMMED
    gap = {
        "job": job,
        "from_offset": start,
        "to_offset": goes_on_at - 1,
        "from_timestamp": known_until,
        "to_timestamp": _instant(until_us),
        "why": why,
        "noticed": datetime.now(UTC),
    }
    record_gap(spark, lake, gap)
    _logger.warning("%s goes on at offset %d: offsets %d to %d were %s", job, goes_on_at, start, goes_on_at - 1, why)


def _reseed(
    spark: SparkSession, lake: Lake, job: str, checkpoint: Checkpoint, start: int, known_until: datetime | None
) -> None:
    """Make a job's tables right from a checkpoint."""
    scratch = Scratch(spark, lake)
    try:
        staged = stage_checkpoint(checkpoint, scratch.directory(_STAGING))
        rows = spark.read.parquet(*scratch.urls(_STAGING, [staged]))
        seed = Seed(rows, checkpoint.offset, _instant(checkpoint.timestamp_us), start, known_until)
        RESEEDS[job](spark, lake, seed)
    finally:
        scratch.close()


def _instant(timestamp_us: int) -> datetime:
    return EPOCH + timedelta(microseconds=timestamp_us)

"""Going on after a gap: records that a job needs were trimmed before it has read them.

Owns: what is done then, for each job: a row in `gaps`, and tables made right from a checkpoint of the log.
Never: deciding when a job is at a gap; the pipeline does.
"""

import logging
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import SparkSession

from embermq.instants import EPOCH
from embermq.spark.errors import PipelineError
from embermq.spark.jobs.reseeding import RESEEDS, Seed, last_known
from embermq.spark.lake.gaps import record_gap
from embermq.spark.lake.lake import Lake
from embermq.spark.lake.scratch import Scratch
from embermq.spark.source.checkpoint_rows import stage_checkpoint
from embermq.spark.source.logs.readable import ReadableLog
from embermq.store.log.checkpoint import Checkpoint
from embermq.store.log.segments import FIRST_OFFSET

TRIMMED: Final = "trimmed before it was read"
BEFORE_THE_TABLE: Final = "trimmed before the table was made"

_STAGING: Final = "seed"

_logger: Final = logging.getLogger(__name__)


def is_at_gap(log: ReadableLog, position: int | None) -> bool:
    """Whether the log no longer has what a job reads next; None: it has read nothing yet."""
    return _start(position) < log.bounds()[0]


def after_gap(spark: SparkSession, log: ReadableLog, lake: Lake, job: str, position: int | None) -> int:
    """Record the gap that a job is at, and make its tables right; the offset at which it goes on.

    PipelineError if the tables can only be made right with a checkpoint, and there is no undamaged one.
    """
    while True:
        first, end = log.bounds()
        if job not in RESEEDS:
            segment = log.segment_of(first)
            until_us = (segment.since_us if segment is not None else None) or 0
            _record(spark, lake, job, position, first, until_us)
            return first
        with log.undamaged_checkpoint(first, end) as checkpoint:
            if checkpoint is not None:
                _record(spark, lake, job, position, checkpoint.offset, checkpoint.timestamp_us)
                _reseed(spark, lake, job, checkpoint, _start(position))
                return checkpoint.offset
        if log.bounds()[0] == first:  # else trimmed again meanwhile, and the checkpoint superseded
            raise PipelineError(
                f"{job} cannot go on: the log no longer has offsets {_start(position)} to {first - 1}, and there is no "
                f"undamaged checkpoint in {log.name} (`ember log verify` says more); the server writes another one in "
                "time"
            )


def _start(position: int | None) -> int:
    return FIRST_OFFSET if position is None else position


def _record(spark: SparkSession, lake: Lake, job: str, position: int | None, goes_on_at: int, until_us: int) -> None:
    """A row in `gaps`, and a line in the log."""
    start = _start(position)
    why = BEFORE_THE_TABLE if position is None else TRIMMED
    gap = {
        "job": job,
        "from_offset": start,
        "to_offset": goes_on_at - 1,
        "from_timestamp": last_known(spark, lake, start) if job == "retained" else None,
        "to_timestamp": _instant(until_us),
        "why": why,
        "noticed": datetime.now(UTC),
    }
    record_gap(spark, lake, gap)
    _logger.warning("%s goes on at offset %d: offsets %d to %d were %s", job, goes_on_at, start, goes_on_at - 1, why)


def _reseed(spark: SparkSession, lake: Lake, job: str, checkpoint: Checkpoint, start: int) -> None:
    """Make a job's tables right from a checkpoint."""
    scratch = Scratch(spark, lake)
    try:
        staged = stage_checkpoint(checkpoint, scratch.directory(_STAGING))
        rows = spark.read.parquet(*scratch.urls(_STAGING, [staged]))
        RESEEDS[job](spark, lake, Seed(rows, checkpoint.offset, _instant(checkpoint.timestamp_us), start))
    finally:
        scratch.close()


def _instant(timestamp_us: int) -> datetime:
    return EPOCH + timedelta(microseconds=timestamp_us)

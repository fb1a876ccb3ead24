"""Going on after a gap: records that a job needs were trimmed before it has read them.

Owns: what is done then, for each job: a row in `gaps`, and tables made right from a checkpoint of the log.
Never: deciding when a job is at a gap; the pipeline does.
"""

import logging
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from embermq.instants import EPOCH
from embermq.spark.errors import PipelineError
from embermq.spark.jobs.reseeding import RESEEDS, Seed, last_known
from embermq.spark.lake.gaps import record_gap
from embermq.spark.lake.lake import Lake
from embermq.spark.source.checkpoint_rows import stage_checkpoint
from embermq.store.log.checkpoint import Checkpoint, undamaged_checkpoint
from embermq.store.log.reader import LogReader
from embermq.store.log.segments import FIRST_OFFSET

TRIMMED: Final = "trimmed before it was read"
BEFORE_THE_TABLE: Final = "trimmed before the table was made"

_logger: Final = logging.getLogger(__name__)


def is_at_gap(log: LogReader, position: int | None) -> bool:
    """Whether the log no longer has what a job reads next; None: it has read nothing yet."""
    return (FIRST_OFFSET if position is None else position) < log.bounds()[0]


def after_gap(spark: SparkSession, data: Path, lake: Lake, job: str, position: int | None) -> int:
    """Record the gap that a job is at, and make its tables right; the offset at which it goes on.

    PipelineError if the tables can only be made right with a checkpoint, and there is no undamaged one.
    """
    log = LogReader(data / "log")
    first, end = log.bounds()
    start = FIRST_OFFSET if position is None else position
    reseed = RESEEDS.get(job)
    goes_on_at, until = first, log.segments()[0].first_timestamp_us
    checkpoint: Checkpoint | None = None
    if reseed is not None:
        checkpoint = undamaged_checkpoint(data / "log", first, end)
        if checkpoint is None and log.bounds()[0] > first:  # trimmed again meanwhile, and the checkpoint superseded
            return after_gap(spark, data, lake, job, position)
        if checkpoint is None:
            raise PipelineError(
                f"{job} cannot go on: the log no longer has offsets {start} to {first - 1}, and there is no undamaged "
                f"checkpoint in {data / 'log'} (`ember log verify` says more); the server writes another one in time"
            )
        goes_on_at, until = checkpoint.offset, checkpoint.timestamp_us
    why = BEFORE_THE_TABLE if position is None else TRIMMED
    gap = {
        "job": job,
        "from_offset": start,
        "to_offset": goes_on_at - 1,
        "from_timestamp": last_known(spark, lake, start) if job == "retained" else None,
        "to_timestamp": _instant(until),
        "why": why,
        "noticed": datetime.now(UTC),
    }
    record_gap(spark, lake, gap)
    _logger.warning("%s goes on at offset %d: offsets %d to %d were %s", job, goes_on_at, start, goes_on_at - 1, why)
    if reseed is not None and checkpoint is not None:
        directory = (lake.state_directory / "seed").absolute()
        rows = spark.read.parquet(stage_checkpoint(checkpoint, directory))
        try:
            reseed(spark, lake, Seed(rows, checkpoint.offset, _instant(checkpoint.timestamp_us), start))
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    return goes_on_at


def _instant(timestamp_us: int) -> datetime:
    return EPOCH + timedelta(microseconds=timestamp_us)

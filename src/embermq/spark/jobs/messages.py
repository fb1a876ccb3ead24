"""The job of `messages`: every accepted PUBLISH, a row each, in a directory for each day.

Owns: the day of a message, by the server's clock in UTC.
"""

from typing import Final

from pyspark.sql import functions as F

from embermq.spark.jobs.job import Batch, Job
from embermq.spark.lake.lake import Lake
from embermq.spark.lake.tables import DAY, MESSAGES_SCHEMA
from embermq.spark.lake.transactions import append_once, applied_offset

NAME: Final = "messages"


def apply_messages(batch: Batch, lake: Lake) -> None:
    """Append a batch's messages."""
    new = batch.rows.where(F.col("offset") > applied_offset(batch.rows.sparkSession, lake, NAME, NAME))
    append_once(new.withColumn(DAY, F.to_date("timestamp")), lake, NAME, NAME, batch.through)


MESSAGES_JOB: Final = Job(
    name=NAME,
    tables={NAME: MESSAGES_SCHEMA},
    columns=[name for name in MESSAGES_SCHEMA.names if name != DAY],
    kinds=("publish",),
    apply=apply_messages,
)

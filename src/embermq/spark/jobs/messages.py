"""The job of `messages`: every accepted PUBLISH, a row each, in a directory for each day.

Owns: the day of a message, by the server's clock in UTC.
"""

from typing import Final

from pyspark.sql import functions as F

from embermq.lake.delta import applied_offset
from embermq.lake.lake import Lake
from embermq.lake.schema import DAY, MESSAGES, MESSAGES_ARROW
from embermq.spark.jobs.job import Batch, Job
from embermq.spark.lake.transactions import append_once

NAME: Final = "messages"


def apply_messages(batch: Batch, lake: Lake) -> None:
    """Append a batch's messages."""
    new = batch.rows.where(F.col("offset") > applied_offset(lake, NAME, NAME))
    append_once(new.withColumn(DAY, F.to_date("timestamp")), lake, NAME, NAME, batch.through, batch.is_small)


MESSAGES_JOB: Final = Job(
    name=NAME,
    tables=(MESSAGES,),
    columns=MESSAGES_ARROW.names,
    kinds=("publish",),
    apply=apply_messages,
)

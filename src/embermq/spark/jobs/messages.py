"""The job of `messages`: every accepted PUBLISH, a row each.

The columns are those of the source, so that Delta's own sink can append them: it needs no `apply`.
"""

from typing import Final

from embermq.spark.jobs.job import Job
from embermq.spark.lake.tables import MESSAGES_SCHEMA

MESSAGES_JOB: Final = Job(
    name="messages",
    tables={"messages": MESSAGES_SCHEMA},
    columns=MESSAGES_SCHEMA.names,
    kinds=("publish",),
    apply=None,
)

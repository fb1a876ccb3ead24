"""A job: one stream from the log to its tables.

Owns: the form that every job has. Each module beside this one makes one job, or one for each typed table.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from embermq.spark.lake.definitions import Definition
from embermq.spark.lake.lake import Lake

Apply = Callable[[DataFrame, Lake], None]
"""Brings the tables of a job up to the end of a batch. A batch may come again after a crash: it must change nothing
then."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a stream reads, the tables it writes, and how."""

    name: str
    """Also the name of its checkpoint and of its transactions (`lake.transactions`)."""
    tables: Mapping[str, StructType]
    columns: Sequence[str]
    """The columns of the source that it reads."""
    kinds: Sequence[str]
    """The kinds of records that it reads."""
    apply: Apply | None
    """None: Delta's own sink appends every row to the one table."""
    topic_filter: str | None = None
    definition: Definition | None = None
    """The settings that its tables are made from; None if no setting changes their rows."""

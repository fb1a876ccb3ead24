"""A job: how records of the log become the rows of its tables.

Owns: the form that every job has. Each module beside this one makes one job, or one for each typed table.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession

from embermq.lake.lake import Lake
from embermq.lake.made_from import Definition
from embermq.lake.schema import Table


@dataclass(frozen=True)
class Batch:
    """Records of the log: of a job's kinds, with its columns, and up to an offset all of them."""

    rows: DataFrame
    start: int
    """The first offset of the batch."""
    through: int
    """The last offset of the batch, whether its record is of the job's kinds or not."""
    since: datetime
    """No record is older."""
    is_small: bool = False
    """Whether its rows fit in the memory of this process."""


Apply = Callable[[Batch, Lake], None]
"""Brings the tables of a job up to the end of a batch. After a crash a batch may come again, also with other bounds:
rows that a table has applied must change nothing then."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a job reads, the tables it writes, and how."""

    name: str
    tables: Sequence[Table]
    columns: Sequence[str]
    """The columns of the source that it reads."""
    kinds: Sequence[str]
    """The kinds of records that it reads."""
    apply: Apply
    is_merged: bool = False
    """Whether a batch rewrites rows, which costs much more than to append some."""
    topic_filter: str | None = None
    definition: Definition | None = None
    """The settings that its tables are made from; None if no setting changes their rows."""
    found_definition: Callable[[SparkSession, Lake], Definition | None] | None = None
    """Finds in the rows what tables of an earlier version, which did not keep it, were made from; None: no rows."""

    @property
    def table_names(self) -> list[str]:
        return [table.name for table in self.tables]

    def transaction_id(self, table: str) -> str:
        """The name under which a table remembers how far it has applied the log (`lake.transactions`)."""
        return self.name if self.definition is None else table

"""The history of the retained set, as SQL: the one text of `retained_history` and of as-of, for every engine.

Owns: which intervals the two tables of retained messages give together, and when one holds at an instant.
A batch has two commits: first the intervals that it ends are appended to `retained_closed`, then `retained` is merged.
In between there are intervals whose successors `retained` does not have yet. They are left out, so that the tables
always agree: an engine that knows how far `retained` has applied the log leaves out what was closed above that offset.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

import pyarrow as pa

from embermq.lake.schema import RETAINED_CLOSED, duckdb_sql, spark_sql


class Dialect(NamedTuple):
    """How an engine writes a name and a type."""

    quote: str
    type_name: Callable[[pa.DataType], str]


SPARK = Dialect("`", spark_sql)
DUCKDB = Dialect('"', duckdb_sql)


class Part(NamedTuple):
    """A table as a query names it, and the columns that it has: one of an earlier version may lack some."""

    source: str
    columns: Collection[str]


def history_sql(dialect: Dialect, closed: Part, current: Part, has_ended: str) -> str:
    """Every interval in which a message was retained; `valid_to` and `offset_to` are null while it still is.

    `has_ended` is the condition for an interval `c` of `retained_closed` to belong to a batch that has ended.
    """
    return (
        f"select {_columns(dialect, closed.columns)} from {closed.source} where {has_ended} "
        f"union all select {_columns(dialect, current.columns)} from {current.source}"
    )


def applied_sql(through: int) -> str:
    """The condition of `history_sql` where it is known that `retained` has applied the log up to an offset."""
    return f"c.offset_to <= {through}"


def _columns(dialect: Dialect, found: Collection[str]) -> str:
    """The columns of the view as they are in a table `c`; null where it has none."""
    quote, type_name = dialect
    return ", ".join(
        f"c.{quote}{one.name}{quote}"
        if one.name in found
        else f"cast(null as {type_name(one.type)}) as {quote}{one.name}{quote}"
        for one in RETAINED_CLOSED.columns
    )


def as_of_sql(instant: str) -> str:
    """The condition for an interval to hold at an instant, which is an expression."""
    return f"valid_from <= {instant} and (valid_to is null or valid_to > {instant})"


def gap_sql(instant: str) -> str:
    """The condition for a row of `gaps` to say that the retained set at an instant is not known."""
    return f"job = 'retained' and {instant} < to_timestamp and (from_timestamp is null or from_timestamp < {instant})"

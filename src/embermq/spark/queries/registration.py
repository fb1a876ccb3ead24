"""The tables of a lake in a catalog, for everybody who uses that catalog.

Owns: the names there: a table each, with comments, the views `retained_history` and `retained_known`, the functions
`mqtt_matches` and `retained_as_of(instant, topic_filter)`; and one sentence for each thing that a catalog refuses.
Never: a row. The catalog has names and places; the pipeline alone writes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped] # it has no types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from embermq.lake.errors import REMOVED, PipelineError
from embermq.lake.history import SPARK, Part, as_of_sql, gap_sql, history_sql
from embermq.lake.lake import Lake
from embermq.lake.progress import PROGRESS_FILE
from embermq.lake.schema import (
    AS_OF_FUNCTION,
    GAPS,
    HISTORY_VIEW,
    KNOWN_VIEW,
    RETAINED,
    RETAINED_CLOSED,
    definition_of,
    spark_sql,
)
from embermq.spark.lake.tables import create_table, quoted, read_table, table_names, text_literal
from embermq.spark.queries.as_of import check_reached
from embermq.spark.source.topic_filters import matches_function_sql

_HISTORY: Final = """
create or replace view {schema}.{view} ({columns})
comment 'Every interval in which a message was retained; valid_to is null while it still is.'
as {history}
"""
# SQL cannot ask how far `retained` has applied the log. Of a topic that is retained now, intervals that end above its
# offset belong to a batch that has not ended. Of another topic, those do that began after what the pipeline has
# reported: one that began before it had a row in `retained`, which is gone only when the batch has ended.
_HAS_ENDED: Final = """coalesce(c.offset_to <= r.offset, c.offset <
    (select cast(get_json_object(value, '$.jobs.retained.offset') as bigint) from text.{file}), true)"""
_AS_OF: Final = """
create or replace function {functions}.{function}(
    instant timestamp comment 'The instant.',
    topic_filter string default '#' comment 'An MQTT topic filter.')
returns table ({columns})
comment 'The retained messages as of an instant, of the topics that a filter matches.'
return select {names} from {schema}.{view}
where {holds} and {functions}.mqtt_matches({function}.topic_filter, topic)
union all
select {nulls}
from {schema}.gaps
where {in_gap}
    and raise_error(concat('the retained set at this instant is not known: offsets ', from_offset, ' to ', to_offset,
        ' were ', if(why = '{removed}', why, 'trimmed before the pipeline had read them'))) is not null
union all
select {nulls}
from {schema}.{known}
where coalesce({function}.instant > until or {function}.instant < since, {function}.instant > until, true)
    and raise_error(concat('the retained set at this instant is not known: the lake knows it from ',
        coalesce(cast(since as string), 'its beginning'), ' up to ', cast(until as string), ' UTC')) is not null
"""
# The pipeline writes the file every few seconds: it is known how far the tables are also while nothing is new.
_KNOWN: Final = """
create or replace view {schema}.{known} (since comment 'The first instant at which the retained set is known.',
    until comment 'The last instant at which it is known.')
comment 'Between which instants the retained set is known, gaps excepted.'
as select coalesce(timestamp_micros(cast(get_json_object(value, '$.jobs.retained.known_since_us') as bigint)),
        (select min(valid_from) from {schema}.{view})) as since,
    coalesce(timestamp_micros(cast(get_json_object(value, '$.jobs.retained.known_until_us') as bigint)),
        (select greatest(max(valid_from), max(valid_to)) from {schema}.{view}) - interval 1 microsecond) as until
from text.{file}
"""


@dataclass(frozen=True)
class SchemaName:
    """A schema of a catalog of the session."""

    catalog: str
    schema: str

    def __str__(self) -> str:
        return f"{quoted(self.catalog)}.{quoted(self.schema)}"

    @property
    def of_functions(self) -> str:
        """The schema as Spark takes it in the name of a function: of its own catalog by one word only."""
        return quoted(self.schema) if self.catalog == "spark_catalog" else str(self)


def register_tables(spark: SparkSession, lake: Lake, name: SchemaName) -> list[str]:
    """Give everything of a lake a name in a schema; a sentence for each thing that the catalog has refused."""
    check_reached(spark, lake)
    refused: list[str] = []
    with _unless_refused(f"the schema {name}", refused):
        spark.sql(f"create schema if not exists {name}")
    if refused:
        return refused
    create_table(spark, lake, GAPS)  # the function asks it
    for table in table_names(lake):
        with _unless_refused(f"the table {table} in {name}", refused):
            _register_table(spark, lake, name, table)
    if not refused and lake.has_table("retained") and lake.has_table("retained_closed"):
        with _unless_refused(f"the view {HISTORY_VIEW} in {name}", refused):
            if lake.files.read(PROGRESS_FILE) is None:  # both views ask it
                lake.files.write(PROGRESS_FILE, "{}")
            columns = ", ".join(f"{one.name} comment {text_literal(one.comment)}" for one in RETAINED_CLOSED.columns)
            spark.sql(
                _HISTORY.format(schema=name, view=HISTORY_VIEW, columns=columns, history=_history(spark, lake, name))
            )
        names = {"schema": name, "functions": name.of_functions, "view": HISTORY_VIEW, "known": KNOWN_VIEW}
        with _unless_refused(f"the view {KNOWN_VIEW} in {name}", refused):
            spark.sql(_KNOWN.format(**names, file=quoted(lake.table(PROGRESS_FILE))))
        with _unless_refused(f"the function {AS_OF_FUNCTION} in {name}", refused):
            spark.sql(matches_function_sql(name.of_functions))
            nulls = ", ".join(f"cast(null as {spark_sql(one.type)})" for one in RETAINED.columns)
            columns = ", ".join(
                f"{one.name} {spark_sql(one.type)} comment {text_literal(one.comment)}" for one in RETAINED.columns
            )
            at = f"{AS_OF_FUNCTION}.instant"
            of_function = {"function": AS_OF_FUNCTION, "removed": REMOVED, "columns": columns, "nulls": nulls}
            of_function |= {"holds": as_of_sql(at), "in_gap": gap_sql(at)}
            spark.sql(_AS_OF.format(**names, **of_function, names=", ".join(RETAINED.names)))
    return refused


def _history(spark: SparkSession, lake: Lake, name: SchemaName) -> str:
    closed, current = (read_table(spark, lake, one).columns for one in ("retained_closed", "retained"))
    joined = f"{name}.retained_closed c left join {name}.retained r on c.topic = r.topic"
    has_ended = _HAS_ENDED.format(file=quoted(lake.table(PROGRESS_FILE)))
    return history_sql(SPARK, Part(joined, closed), Part(f"{name}.retained c", current), has_ended)


def _register_table(spark: SparkSession, lake: Lake, name: SchemaName, table: str) -> None:
    whole = f"{name}.{quoted(table)}"
    _add_comments(spark, lake, table)
    spark.sql(f"create table if not exists {whole} using delta location {text_literal(lake.table(table))}")
    place = str(spark.sql(f"describe detail {whole}").select("location").collect()[0][0])
    if place.removeprefix("file:") != lake.table(table).removeprefix("file:"):
        raise PipelineError(f"it is there already, and lies in {place}")


def _add_comments(spark: SparkSession, lake: Lake, table: str) -> None:
    """A table of an earlier version gets its comments, in one commit."""
    found = read_table(spark, lake, table).schema
    lacking = [field.name for field in found if not field.metadata.get("comment")]
    if lacking:
        known = definition_of(table, found.names)
        columns = ", ".join(f"{quoted(one)} comment {text_literal(known.comment_of(one))}" for one in lacking)
        spark.sql(f"alter table delta.{quoted(lake.table(table))} alter column {columns}")
        spark.sql(f"comment on table delta.{quoted(lake.table(table))} is {text_literal(known.comment)}")


@contextmanager
def _unless_refused(what: str, refused: list[str]) -> Iterator[None]:
    try:
        yield
    except (PySparkException, Py4JError, PipelineError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        refused.append(f"the catalog has refused {what}: {reason}")

"""The tables of a lake in a catalog, for everybody who uses that catalog.

Owns: the names there: a table each, with comments, the views `retained_history` and `retained_known`, the functions
`mqtt_matches` and `retained_as_of(instant, topic_filter)`; and one sentence for each thing that a catalog refuses.
Never: a row. The catalog has names and places; the pipeline alone writes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped] # it has no types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from embermq.spark.errors import REMOVED, PipelineError
from embermq.spark.lake.comments import column_comment, table_comment
from embermq.spark.lake.lake import Lake
from embermq.spark.lake.progress import PROGRESS_FILE
from embermq.spark.lake.tables import (
    AS_OF_FUNCTION,
    GAPS_SCHEMA,
    HISTORY_VIEW,
    KNOWN_VIEW,
    RETAINED_CLOSED_SCHEMA,
    RETAINED_SCHEMA,
    create_table,
    quoted,
    read_table,
    table_names,
    text_literal,
)
from embermq.spark.queries.applied import check_reached
from embermq.spark.source.topic_filters import matches_function_sql

# Of a topic that is retained now, intervals that end above its offset belong to a batch that has not ended.
_HISTORY: Final = """
create or replace view {schema}.{view} ({columns})
comment 'Every interval in which a message was retained; valid_to is null while it still is.'
as select {closed} from {schema}.retained_closed c left join {schema}.retained r on c.topic = r.topic
where r.offset is null or c.offset_to <= r.offset
union all
select {current} from {schema}.retained c
"""
_AS_OF: Final = """
create or replace function {functions}.{function}(
    instant timestamp comment 'The instant.',
    topic_filter string default '#' comment 'An MQTT topic filter.')
returns table ({columns})
comment 'The retained messages as of an instant, of the topics that a filter matches.'
return select {names} from {schema}.{view}
where valid_from <= {function}.instant and (valid_to is null or valid_to > {function}.instant)
    and {functions}.mqtt_matches({function}.topic_filter, topic)
union all
select {nulls}
from {schema}.gaps
where job = 'retained' and (from_timestamp is null or from_timestamp < {function}.instant)
    and {function}.instant < to_timestamp
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
    create_table(spark, lake, "gaps", GAPS_SCHEMA)  # the function asks it
    for table in table_names(lake):
        with _unless_refused(f"the table {table} in {name}", refused):
            _register_table(spark, lake, name, table)
    if not refused and lake.has_table("retained") and lake.has_table("retained_closed"):
        with _unless_refused(f"the view {HISTORY_VIEW} in {name}", refused):
            columns = ", ".join(
                f"{one} comment {text_literal(column_comment('retained_closed', one))}"
                for one in RETAINED_CLOSED_SCHEMA.names
            )
            closed, current = (
                _history_columns(read_table(spark, lake, one).columns) for one in ("retained_closed", "retained")
            )
            spark.sql(_HISTORY.format(schema=name, view=HISTORY_VIEW, columns=columns, closed=closed, current=current))
        names = {"schema": name, "functions": name.of_functions, "view": HISTORY_VIEW, "known": KNOWN_VIEW}
        with _unless_refused(f"the view {KNOWN_VIEW} in {name}", refused):
            if lake.files.read(PROGRESS_FILE) is None:  # the view asks it
                lake.files.write(PROGRESS_FILE, "{}")
            spark.sql(_KNOWN.format(**names, file=quoted(lake.table(PROGRESS_FILE))))
        with _unless_refused(f"the function {AS_OF_FUNCTION} in {name}", refused):
            spark.sql(matches_function_sql(name.of_functions))
            nulls = ", ".join(f"cast(null as {field.dataType.simpleString()})" for field in RETAINED_SCHEMA)
            columns = ", ".join(
                f"{field.name} {field.dataType.simpleString()} "
                f"comment {text_literal(column_comment('retained', field.name))}"
                for field in RETAINED_SCHEMA
            )
            of_function = {"function": AS_OF_FUNCTION, "removed": REMOVED, "columns": columns, "nulls": nulls}
            spark.sql(_AS_OF.format(**names, **of_function, names=", ".join(RETAINED_SCHEMA.names)))
    return refused


def _history_columns(found: Sequence[str]) -> str:
    """The columns of the view as they are in a table; null where it has none."""
    return ", ".join(
        f"c.{field.name}" if field.name in found else f"cast(null as {field.dataType.simpleString()}) as {field.name}"
        for field in RETAINED_CLOSED_SCHEMA
    )


def _register_table(spark: SparkSession, lake: Lake, name: SchemaName, table: str) -> None:
    whole = f"{name}.{quoted(table)}"
    _add_comments(spark, lake, table)
    spark.sql(f"create table if not exists {whole} using delta location {text_literal(lake.table(table))}")
    place = str(spark.sql(f"describe detail {whole}").select("location").collect()[0][0])
    if place.removeprefix("file:") != lake.table(table).removeprefix("file:"):
        raise PipelineError(f"it is there already, and lies in {place}")


def _add_comments(spark: SparkSession, lake: Lake, table: str) -> None:
    """A table of an earlier version gets its comments, in one commit."""
    lacking = [field.name for field in read_table(spark, lake, table).schema if not field.metadata.get("comment")]
    if lacking:
        columns = ", ".join(f"{quoted(one)} comment {text_literal(column_comment(table, one))}" for one in lacking)
        spark.sql(f"alter table delta.{quoted(lake.table(table))} alter column {columns}")
        spark.sql(f"comment on table delta.{quoted(lake.table(table))} is {text_literal(table_comment(table))}")


@contextmanager
def _unless_refused(what: str, refused: list[str]) -> Iterator[None]:
    try:
        yield
    except (PySparkException, Py4JError, PipelineError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        refused.append(f"the catalog has refused {what}: {reason}")

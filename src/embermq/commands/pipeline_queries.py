"""`ember pipeline query | as-of | report`: questions to the tables of a lake.

DuckDB answers them in a second or two and needs no Java; `--engine spark` asks Spark, for SQL of its dialect.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from embermq.commands.options import KnownLake, directory_option, known_lake, past_instant_us
from embermq.commands.output import Csv, Format, Json, chosen_format, print_rows, printable
from embermq.commands.server_access.target import Config
from embermq.errors import ConfigError
from embermq.instants import EPOCH, NOW

if TYPE_CHECKING:
    from embermq.lake.duck import LocalTables
    from embermq.lake.known import Known

Master = Annotated[str, typer.Option(help="Where Spark runs: local[*], or the URL of a cluster.")]
Rows = Annotated[int, typer.Option("--limit", min=1, help="Show at most this many rows.")]
LOCAL = "local[*]"


class Engine(StrEnum):
    """What answers a query."""

    DUCKDB = "duckdb"
    SPARK = "spark"


EngineName = Annotated[Engine, typer.Option("--engine", help="What answers: DuckDB, or Spark on --master.")]


def query(
    sql: Annotated[str, typer.Argument(metavar="SQL", help="A query over the tables' names.")],
    lake_place: KnownLake = None,
    data: Annotated[Path | None, directory_option("--data", "The log too, as the table `log`.")] = None,
    config: Config = None,
    engine: EngineName = Engine.DUCKDB,
    master: Master = LOCAL,
    limit: Rows = 1000,
    json: Json = False,
    csv: Csv = False,
) -> None:
    """Query the tables in SQL: messages, retained, retained_closed, retained_history, topic_stats, clients, ...

    `ember sql` answers the same, with the tables as lake.NAME; this name stays for one version.
    """
    format = chosen_format(json, csv)
    with errors_as_sentences(needs_spark=engine is Engine.SPARK):
        from embermq.lake.lake import Lake

        lake = Lake(known_lake(lake_place, config))
        if engine is Engine.SPARK:
            from embermq.spark.queries.sql import query_session, run_sql

            with starting_spark(master), query_session(lake, master) as spark:
                result = run_sql(spark, lake, sql, limit, data)
                _show(result.columns, result.rows, result.has_more, limit, format)
            return
        from embermq.lake.duck import open_tables

        with open_tables(lake) as tables:
            if data is not None:
                _add_log(tables, data)
            found = tables.batch(sql, limit=limit + 1)
        rows = [list(row.values()) for row in found[:limit].to_pylist()]
        _show(found.column_names, rows, found.num_rows > limit, limit, format)


def as_of(
    instant: Annotated[
        str, typer.Argument(metavar="T", help="2026-03-01T14:03 (UTC unless it names a zone), 15m ago, or now.")
    ],
    topic_filter: Annotated[str, typer.Argument(metavar="FILTER", help="An MQTT topic filter.")] = "#",
    lake_place: KnownLake = None,
    config: Config = None,
    engine: EngineName = Engine.DUCKDB,
    master: Master = LOCAL,
    limit: Rows = 1000,
    json: Json = False,
    csv: Csv = False,
) -> None:
    """Show the retained messages as of an instant, and up to which instant the tables are known.

    `ember sql "select * from lake.retained_as_of('T')"` answers the same; this name stays for one version.
    """
    format = chosen_format(json, csv)
    with errors_as_sentences(needs_spark=engine is Engine.SPARK):
        from embermq.lake.lake import Lake
        from embermq.lake.topic_masks import filter_problem

        # Both are checked before an engine is started.
        instant_us = past_instant_us("T", instant)
        is_now = instant.strip() == NOW  # the last instant that is known, whichever that is
        problem = filter_problem(topic_filter)
        if problem is not None:
            raise ConfigError(f"{topic_filter}: expected a topic filter: {problem}")
        lake = Lake(known_lake(lake_place, config))
        if engine is Engine.SPARK:
            from embermq.spark.queries import as_of as on_spark
            from embermq.spark.queries.sql import QueryResult, query_session

            with starting_spark(master), query_session(lake, master) as spark:
                known = on_spark.retained_known(spark, lake)
                moment = known.until if is_now else EPOCH + timedelta(microseconds=instant_us)
                result = QueryResult(on_spark.retained_as_of(spark, lake, moment, topic_filter).orderBy("topic"), limit)
                _show_retained(result.columns, result.rows, result.has_more, limit, format)
                _say_known(known)
            return
        from embermq.lake.as_of import retained_as_of
        from embermq.lake.duck import open_tables

        with open_tables(lake) as tables:
            known = tables.retained_known()
            found = retained_as_of(tables, known.until_us if is_now else instant_us, topic_filter, limit + 1)
        rows = [list(row.values()) for row in found[:limit].to_pylist()]
        _show_retained(found.column_names, rows, found.num_rows > limit, limit, format)
        _say_known(known)


def report(
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")] = Path("ember-report.html"),
    lake_place: KnownLake = None,
    config: Config = None,
) -> None:
    """Write one HTML file: rates, topics by prefix, silent topics, retained set, clients, sizes, rejects, gaps, lag."""
    with errors_as_sentences(needs_spark=False):
        from embermq.lake.lake import Lake
        from embermq.lake.report import write_report

        write_report(Lake(known_lake(lake_place, config)), output)
        print(output)


@contextmanager
def errors_as_sentences(needs_spark: bool = True) -> Iterator[None]:
    """Turns the errors of the pipeline and of the log into the one sentence of a command."""
    from embermq.lake.errors import PipelineError
    from embermq.spark.session import what_is_missing
    from embermq.store.errors import StoreError

    try:
        missing = what_is_missing() if needs_spark else None
        if missing is not None:
            raise ConfigError(missing)
        yield
    except (PipelineError, StoreError) as error:
        raise ConfigError(str(error)) from None


@contextmanager
def starting_spark(master: str) -> Iterator[None]:
    """Says on a terminal that Spark starts, which takes a while."""
    if sys.stderr.isatty():
        print(f"starting Spark on {printable(master)}: it takes a while", file=sys.stderr, flush=True)
    yield


def _add_log(tables: "LocalTables", data: Path) -> None:
    """The present log as the table `log`, with the columns that the source has in Spark."""
    from embermq.lake.log_table import log_rows

    tables.add("log", log_rows(data))


def _show_retained(names: Sequence[str], rows: list[list[object]], has_more: bool, limit: int, format: Format) -> None:
    """A table for people has only those properties that a message has."""
    from embermq.lake.schema import PUBLISHED_COLUMNS

    shown = [
        number
        for number, name in enumerate(names)
        if format is not Format.TABLE
        or name not in PUBLISHED_COLUMNS[1:]
        or any(row[number] is not None for row in rows)
    ]
    _show(
        [names[number] for number in shown],
        [[row[number] for number in shown] for row in rows],
        has_more,
        limit,
        format,
    )


def _say_known(known: "Known") -> None:
    """On stderr: what is printed for programs stays as it is."""
    print(f"({known})", file=sys.stderr)


def _show(names: Sequence[str], rows: list[list[object]], has_more: bool, limit: int, format: Format) -> None:
    print_rows(names, rows, format)
    if has_more:
        print(f"(the first {limit} rows; --limit shows more)", file=sys.stderr)

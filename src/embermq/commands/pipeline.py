"""`ember pipeline`: the log as tables on Spark, and queries of them.

Spark is an extra and slow to import, so each command imports it when it runs.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from embermq.commands.options import directory_option
from embermq.errors import ConfigError

if TYPE_CHECKING:
    from embermq.spark.lake.progress import JobProgress
    from embermq.spark.queries.sql import QueryResult

app = typer.Typer(help="The log as tables on Spark: run the pipeline, query its tables.", no_args_is_help=True)

Data = Annotated[Path, directory_option("--data", "The server's data directory.")]
LakeDirectory = Annotated[Path, directory_option("--lake", "The directory of the tables.")]
Master = Annotated[str, typer.Option(help="Where Spark runs: local[*], or the URL of a cluster.")]
Rows = Annotated[int, typer.Option("--limit", min=1, help="Show at most this many rows.")]
DATA = Path("ember-data")
LAKE = Path("ember-lake")
LOCAL = "local[*]"
LINE_EVERY_S = 5.0


@app.command()
def run(
    data: Data = DATA,
    lake_directory: LakeDirectory = LAKE,
    once: Annotated[
        bool, typer.Option("--once/--continuous", help="Stop where the log ends now, or go on with new records.")
    ] = False,
    master: Master = LOCAL,
    config: Annotated[
        Path | None,
        typer.Option(envvar="EMBERMQ_CONFIG", help="Settings file with typed tables (pipeline.tables), TOML."),
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only this job (messages, retained, ...); repeatable.")] = None,
    rebuild: Annotated[
        list[str] | None, typer.Option(metavar="TABLE", help="Build this typed table again from the log; repeatable.")
    ] = None,
    memory: Annotated[str, typer.Option(help="Memory of the driver, as in 2g.")] = "2g",
    every: Annotated[float, typer.Option(min=0.5, help="Seconds between two batches of the merged tables.")] = 30.0,
    records: Annotated[int, typer.Option(min=1, help="The most records that one batch takes.")] = 2_500_000,
    window: Annotated[str, typer.Option(help="The length of a window of topic_stats.")] = "5 minutes",
    skip_trimmed: Annotated[
        bool, typer.Option("--skip-trimmed", help="Skip records that were trimmed before they were read.")
    ] = False,
) -> None:
    """Bring all tables up to date, and with --continuous keep them so. SIGTERM and Ctrl-C stop cleanly."""
    with _errors_as_sentences():
        from embermq.spark.jobs.catalog import JobSettings, chosen_jobs
        from embermq.spark.jobs.typed_tables import read_typed_tables
        from embermq.spark.lake.lake import Lake
        from embermq.spark.lake.progress import progress_line
        from embermq.spark.pipeline import run as run_pipeline

        settings = JobSettings(
            tables_every_s=every,
            records_per_trigger=records,
            stats_window=window,
            skip_trimmed=skip_trimmed,
            typed_tables=read_typed_tables(config),
            only=tuple(only or ()),
            rebuild=tuple(rebuild or ()),
        )
        chosen_jobs(settings)  # refuses a wrong --only or --rebuild before Spark is started
        lines = _ProgressLines()
        print(f"starting Spark on {master}: the first tables take a while", flush=True)
        began_s = time.monotonic()
        done = run_pipeline(
            data,
            Lake(lake_directory),
            once=once,
            master=master,
            settings=settings,
            spark_settings={"spark.driver.memory": memory},
            report=lines.show,
        )
        print(f"{progress_line(done)} | {time.monotonic() - began_s:.1f} s", flush=True)


@app.command()
def status(data: Data = DATA, lake_directory: LakeDirectory = LAKE) -> None:
    """Show how far the tables are, without starting Spark."""
    with _errors_as_sentences():
        from datetime import UTC, datetime

        from embermq.spark.lake.checkpoints import check_checkpoints
        from embermq.spark.lake.lake import Lake
        from embermq.spark.lake.progress import read_progress
        from embermq.store.log.reader import LogReader

        lake = Lake(lake_directory)
        if not lake.exists():
            raise ConfigError(f"{lake_directory} is no lake: `ember pipeline run` makes one")
        end = LogReader(data / "log").bounds()[1]
        check_checkpoints(lake, data / "log")
        progress = read_progress(lake)
        running = lake.is_locked()
        written = progress.get("written")
        when = f", last report {datetime.fromtimestamp(written, UTC):%Y-%m-%d %H:%M:%S} UTC" if written else ""
        state = "running" if running else progress.get("state", "never run")
        print(f"pipeline: {'killed' if state == 'running' and not running else state}{when}")
        print(f"log: next offset {end}")
        rows = [
            [name, job["records"], f"{job['rate']:,.0f}", job["offset"], max(0, end - (job["offset"] or 0))]
            for name, job in progress.get("jobs", {}).items()
        ]
        _print_table(["job", "records", "a second", "next offset", "behind"], rows)


@app.command()
def query(
    sql: Annotated[str, typer.Argument(metavar="SQL", help="A query over the tables' names.")],
    lake_directory: LakeDirectory = LAKE,
    data: Annotated[Path | None, directory_option("--data", "The log too, as the view `log`.")] = None,
    master: Master = LOCAL,
    limit: Rows = 1000,
) -> None:
    """Query the tables in SQL: messages, retained, retained_closed, retained_history, topic_stats, clients, ..."""
    with _errors_as_sentences():
        from embermq.spark.lake.lake import Lake
        from embermq.spark.queries.sql import query_session, run_sql

        lake = Lake(lake_directory)
        with query_session(lake, master) as spark:
            _show(run_sql(spark, lake, sql, limit, data), limit)


@app.command("as-of")
def as_of(
    instant: Annotated[
        str, typer.Argument(metavar="T", help="2026-03-01T14:03 (UTC unless it names a zone), 15m ago, or now.")
    ],
    topic_filter: Annotated[str, typer.Argument(metavar="FILTER", help="An MQTT topic filter.")] = "#",
    lake_directory: LakeDirectory = LAKE,
    master: Master = LOCAL,
    limit: Rows = 1000,
) -> None:
    """Show the retained messages as of an instant."""
    with _errors_as_sentences():
        from embermq.commands.options import past_instant_us
        from embermq.protocol.topics import check_topic_filter
        from embermq.spark.lake.lake import Lake
        from embermq.spark.queries.as_of import retained_as_of
        from embermq.spark.queries.sql import QueryResult, query_session

        # Both are checked before Spark is started.
        past_instant_us("T", instant)
        problem = check_topic_filter(topic_filter)
        if problem is not None:
            raise ConfigError(f"{topic_filter}: expected a topic filter: {problem}")
        lake = Lake(lake_directory)
        with query_session(lake, master) as spark:
            found = retained_as_of(spark, lake, instant, topic_filter).orderBy("topic")
            _show(QueryResult(found, limit), limit)


@app.command()
def report(
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")] = Path("ember-report.html"),
    lake_directory: LakeDirectory = LAKE,
    master: Master = LOCAL,
) -> None:
    """Write one HTML file: message rate, busiest topics, retained set over time, silent topics."""
    with _errors_as_sentences():
        from embermq.spark.lake.lake import Lake
        from embermq.spark.queries.report import write_report
        from embermq.spark.queries.sql import query_session

        lake = Lake(lake_directory)
        with query_session(lake, master) as spark:
            write_report(spark, lake, output)
        print(output)


@app.command()
def compact(
    lake_directory: LakeDirectory = LAKE,
    master: Master = LOCAL,
    keep_hours: Annotated[float, typer.Option(min=0.0, help="Keep files that were needed in the last hours.")] = 168.0,
) -> None:
    """Join small files and remove unneeded ones; safe while the pipeline runs."""
    with _errors_as_sentences():
        from embermq.spark.lake.compaction import compact as compact_tables
        from embermq.spark.lake.lake import Lake
        from embermq.spark.queries.sql import query_session

        lake = Lake(lake_directory)
        with query_session(lake, master) as spark:
            for done in compact_tables(spark, lake, keep_hours):
                print(f"{done.table}: {done.files_removed} files became {done.files_added}", flush=True)


@app.command()
def audit(data: Data = DATA, lake_directory: LakeDirectory = LAKE, master: Master = LOCAL) -> None:
    """Check the rules of retained messages over the tables. Exits with 1 if one is broken."""
    with _errors_as_sentences():
        from embermq.spark.lake.lake import Lake
        from embermq.spark.queries.audit import RULES
        from embermq.spark.queries.audit import audit as find_violations
        from embermq.spark.queries.sql import query_session

        lake = Lake(lake_directory)
        with query_session(lake, master) as spark:
            violations = list(find_violations(spark, lake, data))
        for violation in violations:
            print(f"broken [{violation.clause}]: {violation.rule}: {violation.count} times")
            for example in violation.examples:
                print(f"  {example}")
        if violations:
            raise typer.Exit(1)
        print(f"all {len(RULES)} rules are kept")


class _ProgressLines:
    """Prints a line of progress every few seconds, unless nothing has changed."""

    __slots__ = ("_next_s", "_last_line")

    def __init__(self) -> None:
        self._next_s = 0.0
        self._last_line = ""

    def show(self, progress: "list[JobProgress]") -> None:
        from embermq.spark.lake.progress import progress_line

        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + LINE_EVERY_S
            line = progress_line(progress)
            if line != self._last_line:
                self._last_line = line
                print(line, flush=True)


@contextmanager
def _errors_as_sentences() -> Iterator[None]:
    """Turns the errors of the pipeline and of the log into the one sentence of a command."""
    from embermq.spark.errors import PipelineError
    from embermq.spark.session import what_is_missing
    from embermq.store.log.errors import LogError

    try:
        missing = what_is_missing()
        if missing is not None:
            raise ConfigError(missing)
        yield
    except (PipelineError, LogError) as error:
        raise ConfigError(str(error)) from None


def _show(result: "QueryResult", limit: int) -> None:
    _print_table(result.columns, result.rows)
    if result.has_more:
        print(f"(the first {limit} rows; --limit shows more)", file=sys.stderr)


def _print_table(columns: list[str], rows: list[list[Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns)
    for row in rows:
        table.add_row(*map(_cell, row))
    # Rows are not folded in a file or a pipe.
    Console(width=None if sys.stdout.isatty() else 10_000).print(table)


def _cell(value: object) -> str:
    from rich.markup import escape

    if value is None:
        return ""
    if isinstance(value, (bytes, bytearray)):
        return escape(value.decode("utf-8", "backslashreplace"))
    if isinstance(value, bool):
        return str(value).lower()
    return escape(f"{value:,}" if isinstance(value, int) else str(value))

"""`ember pipeline`: the log as tables on Spark. Queries of them are in `pipeline_queries`.

Spark is an extra and slow to import, so each command imports it when it runs.
"""

import getpass
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup
from typer.main import get_command

from embermq.commands import pipeline_queries
from embermq.commands.cluster.log_location import (
    ArchiveAddress,
    CaFile,
    LogData,
    Server,
    TokenFile,
    default_data,
    log_location,
)
from embermq.commands.cluster.submit import submit
from embermq.commands.options import KnownLake, config_option, directory_option, known_data, known_lake
from embermq.commands.output import Json, json_line, print_table, printable
from embermq.commands.pipeline_queries import LOCAL, Master, errors_as_sentences, starting_spark
from embermq.commands.server_access.target import Config
from embermq.errors import ConfigError

if TYPE_CHECKING:
    from embermq.history.location import LogLocation
    from embermq.lake.progress import JobProgress
    from embermq.lake.settings import PipelineSettings
    from embermq.spark.jobs.catalog import JobSettings
    from embermq.spark.queries.registration import SchemaName

app = typer.Typer(help="The log as tables on Spark: run the pipeline, query its tables.", no_args_is_help=True)

KnownMaster = Annotated[
    str | None,
    typer.Option(show_default="pipeline.master", help="Where Spark runs: local[*], or the URL of a cluster."),
]
KnownData = Annotated[
    Path | None,
    directory_option("--data", "The server's data directory.", "the settings', or what the tables were made from"),
]
CatalogName = Annotated[
    str | None, typer.Option(metavar="NAME", help="Give the tables names in this catalog of Spark, in --schema.")
]
NameOfSchema = Annotated[str | None, typer.Option(metavar="NAME", help="The schema in --catalog; made if need be.")]
LINE_EVERY_S = 5.0
REPORTED_S = 60.0
"""A pipeline of a lake at a URL that has reported since then counts as running."""


@app.command()
def run(
    data: LogData = None,
    archive: ArchiveAddress = None,
    server: Server = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    lake_place: KnownLake = None,
    once: Annotated[
        bool, typer.Option("--once/--continuous", help="Stop where the log ends now, or go on with new records.")
    ] = False,
    master: KnownMaster = None,
    config: Annotated[Path | None, config_option("Settings file, TOML: section pipeline, typed tables.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only this job (messages, retained, ...); repeatable.")] = None,
    rebuild: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TABLE", help="Build this typed table, rollup, violations or topic_stats again; repeatable."
        ),
    ] = None,
    memory: Annotated[
        str | None, typer.Option(show_default="pipeline.memory", help="The most memory for Java's objects, as in 1g.")
    ] = None,
    fresh: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            show_default="pipeline.fresh_s",
            help="How old rows may be when they can be read, where the cost allows it.",
        ),
    ] = None,
    records: Annotated[
        int | None,
        typer.Option(min=1, show_default="pipeline.records_max", help="The most records that one batch takes."),
    ] = None,
    window: Annotated[
        str | None, typer.Option(show_default="pipeline.window", help="The length of a window of topic_stats.")
    ] = None,
    catalog: CatalogName = None,
    schema: NameOfSchema = None,
    submitted: Annotated[bool, typer.Option("--submitted", help="Run in the Spark session of spark-submit.")] = False,
) -> None:
    """Bring all tables up to date, and with --continuous keep them so. SIGTERM and Ctrl-C stop cleanly."""
    with errors_as_sentences(needs_spark=not submitted):
        chosen = _pipeline_settings(config)
        settings = _job_settings(chosen, fresh, records, window, only, rebuild)
        location = log_location(data, archive, server, token_file, ca_file)
        place = known_lake(lake_place, config)
        at = None if submitted else master or chosen.master
        _run(location, place, once, at, memory or chosen.memory, settings, _schema_name(catalog, schema))


def _pipeline_settings(config: Path | None) -> "PipelineSettings":
    from embermq.config import load_unchecked

    return load_unchecked(config).pipeline


def _job_settings(
    chosen: "PipelineSettings",
    fresh: str | None,
    records: int | None,
    window: str | None,
    only: list[str] | None,
    rebuild: list[str] | None,
) -> "JobSettings":
    """The settings, with the options that were given. PipelineError if one is wrong, before Spark is started."""
    from embermq.spark.jobs.catalog import JobSettings, chosen_jobs
    from embermq.spark.lake.maintenance import MaintenanceSettings

    settings = JobSettings(
        fresh_s=chosen.fresh_s if fresh is None else _seconds("--fresh", fresh),
        records_max=records or chosen.records_max,
        stats_window=window or chosen.window,
        typed_tables=chosen.tables,
        rollups=chosen.rollups,
        expectations=chosen.expectations,
        maintenance=MaintenanceSettings(chosen.compact_files, chosen.vacuum_hours, chosen.retention),
        only=tuple(only or ()),
        rebuild=tuple(rebuild or ()),
    )
    chosen_jobs(settings)
    return settings


def _run(
    location: "LogLocation",
    lake_place: str,
    once: bool,
    master: str | None,
    memory: str,
    settings: "JobSettings",
    names: "SchemaName | None",
) -> None:
    """Run the pipeline on a master; on None in the session that spark-submit has prepared."""
    from embermq.lake.lake import Lake
    from embermq.lake.progress import progress_line
    from embermq.spark.pipeline import run as run_pipeline
    from embermq.spark.session import check_launch, submitted_session

    lake, of_java = Lake(lake_place), {"spark.driver.memory": memory}
    if master is not None:
        check_launch(master, of_java)
    place = "the cluster that it was submitted to" if master is None else master
    print(f"starting Spark on {place}: the first tables take a while", flush=True)
    began_s = time.monotonic()
    done = run_pipeline(
        location,
        lake,
        once=once,
        master=master or LOCAL,
        settings=settings,
        spark_settings=of_java,
        report=_ProgressLines().show,
        catalog=names,
        session=submitted_session() if master is None else None,
    )
    print(f"{progress_line(done)} | {time.monotonic() - began_s:.1f} s", flush=True)


@app.command()
def status(
    data: KnownData = None,
    archive: ArchiveAddress = None,
    server: Server = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    lake_place: KnownLake = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Show how far the tables are, without starting Spark."""
    with errors_as_sentences(needs_spark=False):
        from embermq.history.opening import open_log
        from embermq.instants import utc_seconds_text
        from embermq.lake.lake import Lake
        from embermq.lake.pause import is_paused
        from embermq.lake.positions import check_log
        from embermq.lake.progress import read_progress

        lake = Lake(known_lake(lake_place, config))
        if not lake.exists():
            raise ConfigError(f"{lake.place} is no lake: `ember pipeline run` makes one")
        if archive is None and server is None:
            data = known_data(data, config) or lake.data_directory()
        log = open_log(log_location(data, archive, server, token_file, ca_file))
        end = log.bounds()[1]
        check_log(lake, log)
        progress = read_progress(lake)
        written = progress.get("written")
        if lake.is_local:
            running = lake.is_locked()
        else:
            running = progress.get("state") == "running" and time.time() - (written or 0) < REPORTED_S
        when = f", last report {utc_seconds_text(int(written * 1e6))}" if written else ""
        state = ("paused" if is_paused(lake) else "running") if running else progress.get("state", "never run")
        state = "killed" if state in ("running", "paused") and not running else state
        if json:
            print(json_line({"state": state, "next_offset": end, "jobs": progress.get("jobs", {})}))
            return
        print(f"pipeline: {state}{when}")
        print(f"log: next offset {end}")
        rows = [
            [
                *(name, job["records"], round(job["rate"]), job["offset"], max(0, end - (job["offset"] or 0))),
                utc_seconds_text(job["known_until_us"]) if job.get("known_until_us") else None,
            ]
            for name, job in progress.get("jobs", {}).items()
        ]
        print_table(["job", "records", "a second", "next offset", "behind", "known up to"], rows)


@app.command()
def pause(lake_place: KnownLake = None, config: Config = None) -> None:
    """Have a running pipeline apply nothing more, until go-on; also one that is started meanwhile."""
    with errors_as_sentences(needs_spark=False):
        from embermq.lake import pause as pauses
        from embermq.lake.lake import Lake

        lake = Lake(known_lake(lake_place, config))
        print("paused from the next batch on" if pauses.pause(lake, getpass.getuser()) else "it was paused already")


@app.command("go-on")
def go_on(lake_place: KnownLake = None, config: Config = None) -> None:
    """Let a paused pipeline go on, where it was."""
    with errors_as_sentences(needs_spark=False):
        from embermq.lake import pause as pauses
        from embermq.lake.lake import Lake

        lake = Lake(known_lake(lake_place, config))
        print("it goes on" if pauses.go_on(lake) else "it was not paused")


@app.command()
def infer(
    topic_filter: Annotated[str, typer.Argument(metavar="FILTER", help="A topic filter, such as air/+/+.")],
    name: Annotated[str | None, typer.Option(metavar="NAME", help="The name of the table.")] = None,
    data: LogData = None,
    archive: ArchiveAddress = None,
    server: Server = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
) -> None:
    """Propose a typed table: print its settings, from the newest 1,000 messages of a filter."""
    with errors_as_sentences(needs_spark=False):
        from embermq.history.opening import open_log
        from embermq.lake.payloads.inference import propose, sample
        from embermq.lake.topic_masks import filter_problem
        from embermq.lake.typed_tables import table_name

        problem = filter_problem(topic_filter)
        if problem is not None:
            raise ConfigError(f"{topic_filter}: expected a topic filter: {problem}")
        if name is not None:
            try:
                table_name(name)
            except ValueError as error:
                raise ConfigError(f"--name {name}: {error}") from None
        log = open_log(log_location(data, archive, server, token_file, ca_file))
        print(propose(topic_filter, sample(log, topic_filter), name).toml())


@app.command()
def retry(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="A typed table of the settings.")],
    lake_place: KnownLake = None,
    config: Annotated[Path | None, config_option("Settings file, TOML: section pipeline, typed tables.")] = None,
) -> None:
    """Read the rejects of a typed table again, after a fix: those that fit go to the table. No pipeline may run."""
    with errors_as_sentences(needs_spark=False):
        from embermq.lake.lake import Lake
        from embermq.lake.retry import retry as retry_rejects

        tables = {one.name: one for one in _pipeline_settings(config).tables}
        if table not in tables:
            raise ConfigError(
                f"{table}: expected a typed table of the settings ({', '.join(tables) or 'there is none'})"
            )
        done = retry_rejects(Lake(known_lake(lake_place, config)), tables[table])
        print(f"{table}: {done.fitting} rejects fit now and are in the table, {done.left} stay")


app.command("query")(pipeline_queries.query)
app.command("as-of")(pipeline_queries.as_of)
app.command("report")(pipeline_queries.report)
app.command("submit")(submit)


@app.command()
def compact(
    lake_place: KnownLake = None,
    config: Config = None,
    master: Master = LOCAL,
    keep_hours: Annotated[float, typer.Option(min=0.0, help="Keep files that were needed in the last hours.")] = 168.0,
) -> None:
    """Join small files and remove unneeded ones; safe while the pipeline runs."""
    with errors_as_sentences():
        from embermq.lake.lake import Lake
        from embermq.spark.lake.compaction import compact as compact_tables
        from embermq.spark.queries.sql import query_session

        lake = Lake(known_lake(lake_place, config))
        with starting_spark(master), query_session(lake, master) as spark:
            for done in compact_tables(spark, lake, keep_hours):
                print(done, flush=True)


@app.command()
def audit(data: KnownData = None, lake_place: KnownLake = None, config: Config = None, master: Master = LOCAL) -> None:
    """Check the rules of retained messages over the tables. Exits with 1 if one is broken."""
    with errors_as_sentences():
        from embermq.lake.lake import Lake
        from embermq.spark.queries.audit import RULES
        from embermq.spark.queries.audit import audit as find_violations
        from embermq.spark.queries.sql import query_session

        lake = Lake(known_lake(lake_place, config))
        named = known_data(data, config)
        with starting_spark(master), query_session(lake, master) as spark:
            directory = named or lake.data_directory() or default_data()
            violations = list(find_violations(spark, lake, directory, _own_set(directory, config)))
        for violation in violations:
            print(f"broken [{violation.clause}]: {violation.rule}: {violation.count} times")
            for example in violation.examples:
                print(f"  {printable(str(example))}")
        if violations:
            raise typer.Exit(1)
        print(f"all {len(RULES)} rules are kept")


def check_run_options(arguments: Sequence[str]) -> None:
    """ConfigError or a usage error if `ember pipeline run` would refuse its options; nothing is started.

    A settings file that is not here is left to the driver: it may be on another machine.
    """
    command = get_command(app)
    assert isinstance(command, TyperGroup)
    given = command.commands["run"].make_context("ember pipeline run", list(arguments)).params
    with errors_as_sentences(needs_spark=False):
        config = given["config"]
        is_here = config is None or Path(config).exists()
        names = [given[name] if is_here else None for name in ("only", "rebuild")]
        chosen = _pipeline_settings(config if is_here else None)
        _job_settings(chosen, given["fresh"], given["records"], given["window"], *names)
        _schema_name(given["catalog"], given["schema"])


def _schema_name(catalog: str | None, schema: str | None) -> "SchemaName | None":
    from embermq.spark.queries.registration import SchemaName

    if bool(catalog) != bool(schema):
        raise ConfigError("--catalog and --schema: expected both or none of them")
    return SchemaName(catalog, schema) if catalog and schema else None


def _seconds(option: str, text: str) -> float:
    """A time span such as 10s, 500ms or 2m, in seconds."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) *(ms|s|m|h)", text.strip())
    if found is None:
        raise ConfigError(f"{option} {text}: expected a time span above zero, such as 10s, 500ms or 2m")
    return float(found[1]) * {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}[found[2]]


def _own_set(data: Path, config: Path | None) -> list[tuple[str, int]] | None:
    """What the server of a data directory has retained, running or stopped; None if there is no server's state."""
    from embermq.commands.server_access.target import open_target

    if not (data / "state").is_dir():
        return None
    with open_target(data, config) as server:
        return [(retained.topic_name, retained.offset) for retained, _ in server.messages("#", payload_bytes_max=0)]


class _ProgressLines:
    """Prints a line of progress every few seconds, unless nothing has changed."""

    __slots__ = ("_next_s", "_last_line")

    def __init__(self) -> None:
        self._next_s = 0.0
        self._last_line = ""

    def show(self, progress: "list[JobProgress]") -> None:
        from embermq.lake.progress import progress_line

        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + LINE_EVERY_S
            line = progress_line(progress)
            if line != self._last_line:
                self._last_line = line
                print(line, flush=True)

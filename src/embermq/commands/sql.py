"""`ember sql`: the history of a server in SQL, on DuckDB, beside the running server."""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from embermq.commands.errors import errors_as_sentences, print_error
from embermq.commands.options import DEFAULT_LAKE, lake_option
from embermq.commands.output import Csv, Format, Json, chosen_format, counted, print_rows
from embermq.commands.server_access.target import Config, Data, archive_address, log_directory, open_target
from embermq.errors import ConfigError

if TYPE_CHECKING:
    from embermq.lake.lake import Lake
    from embermq.sql.session import RetainedRow, SqlSession

HELP: Final = "A query ends with ; and may have several lines. .tables shows the tables, .quit or Ctrl-D ends."


def sql(
    query: Annotated[
        str | None,
        typer.Argument(metavar="QUERY", help="The query, or - for the input; without one, there is a prompt."),
    ] = None,
    json: Json = False,
    csv: Csv = False,
    parquet: Annotated[
        Path | None, typer.Option("--parquet", metavar="FILE", help="Write the rows to a Parquet file.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option("--memory", metavar="SIZE", help="A query that needs more fails, such as 512MB.")
    ] = None,
    nice: Annotated[
        int, typer.Option("--nice", min=0, max=19, metavar="N", help="How much of its priority the query gives up.")
    ] = 0,
    data: Data = None,
    config: Config = None,
    lake_place: Annotated[
        str | None,
        lake_option("The directory of the lake's tables, or their URL.", f"{DEFAULT_LAKE}, if it is a directory"),
    ] = None,
) -> None:
    """Query the history of a server, running or stopped, in the SQL of DuckDB.

    Tables: messages, retained, retained_as_of('2026-01-31T14:03') or retained_as_of('15m'), clients (what clients did),
    and those of the lake as lake.NAME, with lake.retained_history and lake.retained_as_of('...'). Without a log on this
    machine they are the only ones. A filter on topic or timestamp reads only the blocks of the log that it needs. A
    payload is bytes: decode(payload) is its text. On a terminal it says which tables a query has read.
    """
    format = chosen_format(json, csv)
    if parquet is not None and (json or csv or query is None):
        raise ConfigError("--parquet: expected a query, and no other format")
    if query == "-":
        query = sys.stdin.read()
    with errors_as_sentences():
        from embermq.config import load_unchecked
        from embermq.lake.lake import Lake
        from embermq.sql.session import open_session

        def retained(as_of_us: int | None) -> "Iterator[RetainedRow]":
            with open_target(data, config) as server:
                for found, _ in server.messages("#", as_of_us):
                    yield found.topic_name, found.payload, found.qos, found.offset, found.timestamp_us

        place = lake_place or load_unchecked(config).lake_directory()
        lake = None if place is None else Lake(place)
        directory = _log_directory(data, config, lake)
        archive = None if directory is None else archive_address(data, config)
        if nice:
            os.nice(nice)  # the threads of DuckDB have it too; what was imported until now is not the query
        with open_session(directory, retained, lake, archive, memory) as session:
            if query is None:
                _prompt(session, format)
            elif parquet is not None:
                print(f"wrote {counted(_write_parquet(session, query, parquet), 'row')} to {parquet}", file=sys.stderr)
            else:
                _print(session, query, format)


def _log_directory(data: Path | None, config: Path | None, lake: "Lake | None") -> Path | None:
    """The directory of the log; None on a machine that has only the lake."""
    try:
        return log_directory(data, config)
    except ConfigError:
        if data is None and lake is not None and lake.exists():
            return None
        raise


def _print(session: "SqlSession", query: str, format: Format) -> None:
    """Print the rows, and on a terminal the tables that they come from."""
    session.take_tables_read()
    print_rows(*session.rows(query), format)
    read = session.take_tables_read()
    if read and sys.stderr.isatty():
        shown = [name if name.startswith("lake.") else f"{name} of the log" for name in read]
        print(f"(read: {', '.join(shown)})", file=sys.stderr)


def _write_parquet(session: "SqlSession", query: str, path: Path) -> int:
    """Write all rows, or leave the old file."""
    from pyarrow.parquet import ParquetWriter

    found = session.query(query)
    unfinished = path.with_name(f"{path.name}.unfinished")
    rows = 0
    try:
        with ParquetWriter(unfinished, found.schema) as writer:
            for batch in session.batches(found):
                writer.write_batch(batch)
                rows += batch.num_rows
        os.replace(unfinished, path)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        unfinished.unlink(missing_ok=True)
    return rows


def _prompt(session: "SqlSession", format: Format) -> None:
    """Answer queries until the end of the input. A wrong one does not end it."""
    if sys.stdin.isatty():
        with suppress(ImportError):
            import readline  # noqa: F401 - gives `input` a history and editing
        print(HELP)
    query = ""
    while True:
        try:
            line = input(("...> " if query else "sql> ") if sys.stdin.isatty() else "")
        except EOFError:
            break
        except KeyboardInterrupt:
            query = ""
            print()
            continue
        if not query and line.strip() in (".quit", ".exit"):
            return
        if not query and line.strip() == ".tables":
            print(*session.tables(), sep="\n")
            continue
        query += f"{line}\n"
        if line.rstrip().endswith(";"):
            _answer(session, query, format)
            query = ""
    if query.strip():
        _answer(session, query, format)


def _answer(session: "SqlSession", query: str, format: Format) -> None:
    from embermq.lake.errors import PipelineError
    from embermq.store.errors import StoreError

    try:
        _print(session, query, format)
    except (ConfigError, PipelineError, StoreError) as error:
        print_error(str(error))
    except KeyboardInterrupt:
        print_error("the query was interrupted")
    sys.stdout.flush()

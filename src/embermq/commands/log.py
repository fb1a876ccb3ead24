"""`ember log`: read the log of a server, running or stopped."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from embermq.commands.options import named_directory
from embermq.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

    from embermq.commands.log_lines import Lines
    from embermq.store.log.reader import LogReader

app = typer.Typer(help="Read the log: list its segments, show its records, check it for damage.", no_args_is_help=True)

Directory = Annotated[
    Path, typer.Argument(parser=named_directory("DIR"), metavar="DIR", help="The server's data directory.")
]
Filter = Annotated[str | None, typer.Option("--filter", help="Only topics that match this topic filter.")]
Kinds = Annotated[list[str] | None, typer.Option("--kind", help="Only this kind of record; repeatable.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


@app.command()
def verify(directory: Directory) -> None:
    """Check every block of every segment and checkpoint. Exits with 1 if something is damaged."""
    from embermq.store.log.verify import verify as reports

    with _errors_as_sentences():
        blocks = records = damage = 0
        for report in reports(_log_directory(directory)):
            if not report.is_checkpoint:
                blocks += report.blocks
                records += report.records
            damage += len(report.findings)
            unfinished = f", {report.unfinished_bytes} bytes of an incomplete block" if report.unfinished_bytes else ""
            print(f"{report.path}: {report.records} records in {report.blocks} blocks{unfinished}", flush=True)
            for finding in report.findings:
                print(f"damaged: {finding}", flush=True)
        print(f"{records} records in {blocks} blocks: " + (f"{damage} places damaged" if damage else "undamaged"))
        if damage:
            raise typer.Exit(1)


@app.command()
def stat(directory: Directory, json: Json = False) -> None:
    """Show the segments and the checkpoints: offsets, times, sizes."""
    from embermq.commands.log_lines import print_stat
    from embermq.store.log.checkpoint import checkpoints

    with _errors_as_sentences():
        print_stat(_reader(directory).segments(), checkpoints(_log_directory(directory)), json)


@app.command()
def tail(
    directory: Directory,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with new records, until Ctrl-C.")] = False,
    count: Annotated[int, typer.Option("-n", min=0, help="How many of the last records.")] = 10,
    topic_filter: Filter = None,
    kind: Kinds = None,
    json: Json = False,
) -> None:
    """Show the last records."""
    with _errors_as_sentences():
        lines = _lines(topic_filter, kind, json)
        reader = _reader(directory)
        first, end = reader.bounds()
        for batch in _last(reader, lines, first, end, count):
            lines.print(batch)
        if follow:
            for batch in reader.follow(end):
                lines.print(lines.chosen(batch))


@app.command()
def cat(
    directory: Directory,
    from_offset: Annotated[int | None, typer.Option("--from", show_default="the oldest", help="First offset.")] = None,
    to_offset: Annotated[int | None, typer.Option("--to", show_default="the newest", help="Last offset.")] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="From an instant on: 2026-01-31T14:03 (UTC unless it names a zone), seconds since 1970, or 15m ago."
        ),
    ] = None,
    topic_filter: Filter = None,
    kind: Kinds = None,
    json: Json = False,
) -> None:
    """Show records from an offset or an instant on."""
    from embermq.commands.options import past_instant_us

    if from_offset is not None and since is not None:
        raise ConfigError("--from and --since: expected one of them, not both")
    with _errors_as_sentences():
        lines = _lines(topic_filter, kind, json)
        reader = _reader(directory)
        start, end = reader.bounds()
        if since is not None:
            start = reader.offset_at(past_instant_us("--since", since))
        elif from_offset is not None:
            start = from_offset
        if to_offset is not None:
            end = min(end, to_offset + 1)
        for batch in reader.batches(start, max(start, end)):
            lines.print(lines.chosen(batch))


def _log_directory(directory: Path) -> Path:
    """The log directory of a data directory; the log directory itself is accepted too."""
    return directory / "log" if (directory / "log").is_dir() else directory


def _reader(directory: Path) -> "LogReader":
    from embermq.store.log.reader import LogReader

    return LogReader(_log_directory(directory))


def _lines(topic_filter: str | None, kinds: list[str] | None, json: bool) -> "Lines":
    from embermq.commands.log_lines import Lines, kind_numbers
    from embermq.protocol.topics import check_topic_filter

    if topic_filter is not None and (wrong := check_topic_filter(topic_filter)) is not None:
        raise ConfigError(f"--filter {topic_filter}: expected a topic filter: {wrong}")
    return Lines(topic_filter, kind_numbers(kinds or []), json)


def _last(reader: "LogReader", lines: "Lines", first: int, end: int, count: int) -> list["pa.RecordBatch"]:
    """The last `count` of the chosen records, read backwards in steps."""
    found: list[pa.RecordBatch] = []
    step = max(count, 1000) if lines.chooses else count
    while count > 0 and end > first:
        start = max(first, end - step)
        for batch in reversed([lines.chosen(batch) for batch in reader.batches(start, end)]):
            kept = batch.slice(max(0, batch.num_rows - count))
            count -= kept.num_rows
            found.insert(0, kept)
        end, step = start, step * 2
    return found


@contextmanager
def _errors_as_sentences() -> Iterator[None]:
    """Turns the errors of a log into a sentence and an exit code: 1 for damage, 2 for a wrong directory."""
    from embermq.store.log.errors import LogCorrupt, LogError

    try:
        yield
        sys.stdout.flush()
    except LogCorrupt as error:
        print(f"ember: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    except LogError as error:
        raise ConfigError(str(error)) from None
    except PermissionError as error:
        raise ConfigError(f"{error.filename}: not readable for this user") from None
    except BrokenPipeError:  # `| head` has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        pass

"""`ember log`: read the log of a server, running or stopped."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from embermq.commands.errors import errors_as_sentences
from embermq.commands.options import directory_option
from embermq.commands.output import Json
from embermq.commands.server_access.target import Config, Data, log_directory
from embermq.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

    from embermq.commands.text.log_lines import Lines
    from embermq.store.log.reader import LogReader

app = typer.Typer(
    help="Read the log: list its segments, show its records, check it for damage; restore it from its archive.",
    no_args_is_help=True,
)

Filter = Annotated[str | None, typer.Option("--filter", help="Only topics that match this topic filter.")]
Kinds = Annotated[list[str] | None, typer.Option("--kind", help="Only this kind of record; repeatable.")]


@app.command()
def verify(
    archive: Annotated[str | None, typer.Option(metavar="URL", help="Check all of this archive instead.")] = None,
    data: Data = None,
    config: Config = None,
) -> None:
    """Check every block of every segment and checkpoint. Exits with 1 if something is damaged."""
    from embermq.commands.archive import verify_archive
    from embermq.store.log.verify import verify as reports

    with errors_as_sentences():
        if archive is not None:
            verify_archive(archive)
            return
        blocks = records = damage = 0
        for report in reports(log_directory(data, config)):
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


@app.command("ls")
def list_segments(
    archive: Annotated[
        str | None, typer.Option(metavar="URL", show_default="store.archive", help="The archive of the log.")
    ] = None,
    json: Json = False,
    data: Data = None,
    config: Config = None,
) -> None:
    """List the segments and checkpoints on this disk and in the archive, and the offsets that neither has."""
    from embermq.commands.archive import list_places

    with errors_as_sentences():
        list_places(archive, data, config, json)


@app.command()
def restore(
    source: Annotated[str, typer.Option("--from", metavar="URL", help="The archive.")],
    data: Annotated[Path | None, directory_option("--data", "A directory without a log.", "ember-data")] = None,
    config: Config = None,
) -> None:
    """Make a data directory from an archive when the machine that wrote it is lost, and say what is lost with it."""
    from embermq.commands.archive import restore_directory

    with errors_as_sentences():
        restore_directory(source, data, config)


@app.command()
def stat(json: Json = False, data: Data = None, config: Config = None) -> None:
    """Show the segments and the checkpoints: offsets, times, sizes."""
    from embermq.commands.text.log_lines import print_stat
    from embermq.store.log.checkpoint import checkpoints

    with errors_as_sentences():
        print_stat(_reader(data, config).segments(), checkpoints(log_directory(data, config)), json)


@app.command()
def tail(
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with new records, until Ctrl-C.")] = False,
    count: Annotated[int, typer.Option("-n", min=0, help="How many of the last records.")] = 10,
    topic_filter: Filter = None,
    kind: Kinds = None,
    json: Json = False,
    data: Data = None,
    config: Config = None,
) -> None:
    """Show the last records."""
    with errors_as_sentences():
        lines = _lines(topic_filter, kind, json)
        reader = _reader(data, config)
        first, end = reader.bounds()
        for batch in _last(reader, lines, first, end, count):
            lines.print(batch)
        if follow:
            with suppress(KeyboardInterrupt):
                for batch in reader.follow(end):
                    lines.print(lines.chosen(batch))


@app.command()
def cat(
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
    data: Data = None,
    config: Config = None,
) -> None:
    """Show records from an offset or an instant on."""
    from embermq.commands.options import past_instant_us

    if from_offset is not None and since is not None:
        raise ConfigError("--from and --since: expected one of them, not both")
    with errors_as_sentences():
        lines = _lines(topic_filter, kind, json)
        reader = _reader(data, config)
        start, end = reader.bounds()
        if since is not None:
            start = reader.offset_at(past_instant_us("--since", since))
        elif from_offset is not None:
            start = from_offset
        if to_offset is not None:
            end = min(end, to_offset + 1)
        for batch in reader.batches(start, max(start, end)):
            lines.print(lines.chosen(batch))


def _reader(data: Path | None, config: Path | None) -> "LogReader":
    from embermq.store.log.reader import LogReader

    return LogReader(log_directory(data, config))


def _lines(topic_filter: str | None, kinds: list[str] | None, json: bool) -> "Lines":
    from embermq.commands.text.log_lines import Lines, kind_numbers
    from embermq.protocol.topics import check_topic_filter

    if topic_filter is not None and (wrong := check_topic_filter(topic_filter)) is not None:
        raise ConfigError(f"--filter {topic_filter}: expected a topic filter: {wrong}")
    return Lines(topic_filter, kind_numbers(kinds or []), json)


def _last(reader: "LogReader", lines: "Lines", first: int, end: int, count: int) -> list["pa.RecordBatch"]:
    """The last `count` of the chosen records, read backwards in steps."""
    from embermq.store.log.identity import past_lost

    found: list[pa.RecordBatch] = []
    step = max(count, 1000) if lines.chooses else count
    lost = reader.lost()
    while count > 0 and end > first:
        start = past_lost(lost, max(first, end - step))
        if start >= end:  # all of these were lost with a machine
            start = max(first, end - step)
            end, step = start, step * 2
            continue
        for batch in reversed([lines.chosen(batch) for batch in reader.batches(start, end)]):
            kept = batch.slice(max(0, batch.num_rows - count))
            count -= kept.num_rows
            found.insert(0, kept)
        end, step = start, step * 2
    return found

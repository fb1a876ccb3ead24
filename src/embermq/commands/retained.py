"""`ember retained`: list, change, export and import the retained messages of a server, running or stopped."""

import os
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import typer

from embermq.commands.errors import errors_as_sentences, print_error
from embermq.commands.output import Json, counted, json_line, printable
from embermq.commands.server_access.target import Config, Data, open_target
from embermq.errors import ConfigError

if TYPE_CHECKING:
    from embermq.commands.options import Step
    from embermq.commands.server_access.target import Target
    from embermq.protocol.packets import Publish
    from embermq.store.interface import Retained

app = typer.Typer(
    help="List, change, export and import retained messages, of a running server or in the directory of a stopped one.",
    no_args_is_help=True,
)

QUIET_S: Final = 5.0
REFUSALS_SHOWN: Final = 10
PROGRESS_EVERY: Final = 100
FITTED_ROWS: Final = 200
"""The columns of a table are as wide as its first rows need."""

Filter = Annotated[str, typer.Argument(metavar="FILTER", help="Topic filter, such as home/+/temperature or home/#.")]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Topic name, without wildcards.")]
AsOf = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        metavar="T",
        help="As of an instant: 2026-01-31T14:03 (UTC unless it names a zone), seconds since 1970, or 15m ago.",
    ),
]
Qos = Annotated[int, typer.Option("--qos", min=0, max=2, help="The QoS of the retained message.")]


@app.command()
def ls(
    topic_filter: Filter = "#", as_of: AsOf = None, json: Json = False, data: Data = None, config: Config = None
) -> None:
    """List the retained messages, of now or as of an instant."""
    from embermq.commands.text.retained_text import PREVIEW_BYTES, as_json

    with errors_as_sentences():
        _check_filter(topic_filter)
        as_of_us = _as_of_us(as_of)
        with open_target(data, config) as server:
            if json:
                for retained, _ in server.messages(topic_filter, as_of_us):
                    print(as_json(retained, _instant_us(as_of_us)))
                return
            if not _print_messages(server.messages(topic_filter, as_of_us, PREVIEW_BYTES)):
                then = "" if as_of is None else f" as of {as_of}"
                print_error(f"nothing is retained that matches {topic_filter}{then}")


def _print_messages(messages: "Iterator[tuple[Retained, int]]") -> bool:
    """Print a table; its columns are as wide as the first messages need. False if there are none."""
    from embermq.commands.output import heading
    from embermq.commands.text.retained_text import as_line, columns_for

    first = list(islice(messages, FITTED_ROWS))
    if not first:
        return False
    columns = columns_for(retained.topic_name for retained, _ in first)
    print(heading(columns))
    for retained, payload_bytes in chain(first, messages):
        print(as_line(retained, payload_bytes, columns))
    return True


@app.command()
def history(
    topic_name: Topic,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="T", help="From this instant on; without it, as far as the archive reaches."),
    ] = None,
    json: Json = False,
    data: Data = None,
    config: Config = None,
) -> None:
    """Show when and how the retained message of a topic has changed, oldest first, as far as log and archive reach."""
    from embermq.commands.options import past_instant_us
    from embermq.commands.text.retained_text import change_line, change_object

    with errors_as_sentences():
        _check_name(topic_name)
        since_us = None if since is None else past_instant_us("--since", since)
        with open_target(data, config) as server:
            is_empty = True
            for change in server.changes(topic_name, since_us):
                if is_empty and not json:
                    print(f"{'TIME (UTC)':<27}  {'OFFSET':>12}  {'SIZE':>9}  PAYLOAD")
                is_empty = False
                print(json_line(change_object(change)) if json else change_line(change))
            if is_empty:
                then = "as far as the log reaches" if since is None else f"since {since}"
                print_error(f"nothing was retained on {topic_name} {then}")
                raise typer.Exit(1)


@app.command()
def get(
    topic_name: Topic,
    as_of: AsOf = None,
    raw: Annotated[bool, typer.Option("--raw", help="Print only the bytes of the payload, unchanged.")] = False,
    json: Json = False,
    data: Data = None,
    config: Config = None,
) -> None:
    """Print the payload retained on one topic. Exits with 1 if there is none."""
    from embermq.commands.text.retained_text import as_json

    if raw and json:
        raise ConfigError("--raw and --json: expected one of them, not both")
    with errors_as_sentences():
        _check_name(topic_name)
        as_of_us = _as_of_us(as_of)
        with open_target(data, config) as server:
            retained = server.message(topic_name, as_of_us)
        if retained is None:
            then = "" if as_of is None else f" as of {as_of}"
            print_error(f"nothing is retained on {topic_name}{then}")
            raise typer.Exit(1)
        if raw:
            sys.stdout.buffer.write(retained.payload)
        elif json:
            print(as_json(retained, _instant_us(as_of_us)))
        else:
            text = retained.payload.decode("utf-8", "backslashreplace")
            print("\n".join(printable(line) for line in text.split("\n")))


@app.command("set")
def set_(
    topic_name: Topic,
    payload: Annotated[str | None, typer.Argument(metavar="PAYLOAD", help="The payload, as text.")] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="Read the payload from the input, any bytes.")] = False,
    qos: Qos = 1,
    data: Data = None,
    config: Config = None,
) -> None:
    """Retain a message, as if a client had published it. Subscribers get it; it is durable when the command ends."""
    from embermq.protocol.packets import Publish

    if (payload is not None) == stdin:
        raise ConfigError("expected PAYLOAD or --stdin, one of them")
    with errors_as_sentences():
        _check_name(topic_name)
        # Bytes of the command line that are not UTF-8 stay as they are.
        given = sys.stdin.buffer.read() if payload is None else os.fsencode(payload)
        if not given:
            raise ConfigError("expected a payload that is not empty: `ember retained clear` clears a topic")
        with open_target(data, config) as server:
            refusals = [refusal for refusal in server.retain([Publish(topic_name, given, qos, True)]) if refusal]
        if refusals:
            raise ConfigError(f"not retained on {topic_name}: {refusals[0]}")


@app.command()
def clear(
    topic_filter: Filter,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the topics.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before clearing more than one.")] = False,
    data: Data = None,
    config: Config = None,
) -> None:
    """Clear retained messages. Subscribers get a message with an empty payload, as in MQTT."""
    from embermq.commands.options import bar

    with errors_as_sentences():
        _check_filter(topic_filter)
        with open_target(data, config) as server:
            if dry_run:
                count = 0
                for retained, _ in server.messages(topic_filter, None, 0):
                    print(printable(retained.topic_name))
                    count += 1
                print(f"{counted(count, 'message')} would be cleared", file=sys.stderr)
                return
            if not yes:
                count = sum(1 for _ in server.messages(topic_filter, None, 0))
                if count > 1 and not typer.confirm(f"Clear {count} retained messages?", err=True):
                    print("nothing was cleared", file=sys.stderr)
                    raise typer.Exit(1)
            done = 0
            with bar("clearing", "messages") as step:
                for done in server.clear(topic_filter):
                    step(done, 0)
        print(f"cleared {counted(done, 'message')}")


@app.command()
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write, - for the output.")],
    topic_filter: Annotated[str, typer.Option("--filter", help="Only topics that match this topic filter.")] = "#",
    as_of: AsOf = None,
    data: Data = None,
    config: Config = None,
) -> None:
    """Write retained messages to a file, a JSON object a line. An existing file is replaced when all is written."""
    with errors_as_sentences():
        _check_filter(topic_filter)
        as_of_us = _as_of_us(as_of)
        with open_target(data, config) as server:
            lines = _export_lines(server, topic_filter, as_of_us)
            if str(file) == "-":
                count = sum(sys.stdout.buffer.write(line) > 0 for line in lines)
                sys.stdout.buffer.flush()
            else:
                count = _write_file(file, lines)
        print(f"exported {counted(count, 'message')}", file=sys.stderr)


@app.command("import")
def import_(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="The file to read, - for the input.")] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="URL",
            help="A live MQTT broker: mqtt://[user@]host[:port] or mqtts://...; a password is taken from the"
            " environment variable EMBERMQ_IMPORT_PASSWORD.",
        ),
    ] = None,
    topic_filter: Annotated[
        str | None, typer.Option("--filter", show_default="all; of a broker: #", help="Only topics that match.")
    ] = None,
    qos: Annotated[int, typer.Option(min=0, max=2, help="The QoS of messages that come from a broker.")] = 1,
    quiet: Annotated[
        float,
        typer.Option(min=0.1, max=600, help="Seconds without a retained message that mean the end."),
    ] = QUIET_S,
    ca: Annotated[Path | None, typer.Option(help="The authority of the broker's certificate, PEM.")] = None,
    data: Data = None,
    config: Config = None,
) -> None:
    """Retain the messages of a file that `export` wrote, or of an MQTT broker. Exits with 1 if any is refused."""
    from embermq.commands.options import bar

    if (file is None) == (source is None):
        raise ConfigError("expected FILE or --from URL, one of them")
    with errors_as_sentences():
        if topic_filter is not None:
            _check_filter(topic_filter)
        with open_target(data, config) as server, bar("importing", "messages" if source else "bytes") as step:
            if source is not None:
                imported = _import_broker(server, source, topic_filter or "#", qos, quiet, ca, step)
            else:
                assert file is not None
                imported = _import_file(server, file, topic_filter, step)
        if imported.failure is None or imported.retained:
            refused = f", {imported.refused} were refused" if imported.refused else ""
            print(f"imported {counted(imported.retained, 'message')}{refused}")
        if imported.failure is not None:
            raise imported.failure
        if imported.refused:
            raise typer.Exit(1)


@dataclass(slots=True)
class ImportResult:
    """What an import has done, and the error that ended it early."""

    retained: int = 0
    refused: int = 0
    failure: ConfigError | None = None


def _import_broker(
    server: "Target", url: str, topic_filter: str, qos: int, quiet_s: float, ca: Path | None, step: "Step"
) -> ImportResult:
    from embermq.commands.retained_import import RetainedSource
    from embermq.protocol.packets import Publish

    with RetainedSource(url, quiet_s, ca) as source:
        count = 0

        def messages() -> "Iterator[Publish]":
            nonlocal count
            for message in source.messages(topic_filter):
                count += 1
                if count % PROGRESS_EVERY == 0:
                    step(count, 0)
                yield Publish(message.topic_name, message.payload, qos, True)

        imported = _retain_all(server, messages())
        reported = source.reported_count() if topic_filter == "#" and imported.failure is None else None
        if reported is not None and reported > count:
            print_error(
                f"the broker reports {reported} retained messages, {count} have come: it may send only a part for a"
                " wildcard (then import with several narrower --filter), or they have changed"
            )
    return imported


def _import_file(server: "Target", file: Path, topic_filter: str | None, step: "Step") -> ImportResult:
    from embermq.commands.text.retained_text import from_json
    from embermq.protocol.topics import matches

    standard_input = str(file) == "-"
    name = "the input" if standard_input else str(file)

    def messages() -> "Iterator[Publish]":
        with sys.stdin.buffer if standard_input else _opened(file) as lines:
            size_bytes = 0 if standard_input else file.stat().st_size
            done_bytes = 0
            for number, line in enumerate(lines, 1):
                done_bytes += len(line)
                if number % PROGRESS_EVERY == 0:
                    step(done_bytes, size_bytes)
                if not line.strip():
                    continue
                try:
                    message = from_json(line)
                except ValueError as error:
                    raise ConfigError(f"{name}, line {number}: {error}") from None
                if topic_filter is None or matches(topic_filter, message.topic_name):
                    yield message

    return _retain_all(server, messages())


def _opened(file: Path) -> BinaryIO:
    try:
        return file.open("rb")
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror or error}") from None


def _retain_all(server: "Target", messages: "Iterable[Publish]") -> ImportResult:
    """Retain messages; the first that are refused are shown."""
    from embermq.store.interface import StoreError

    waiting: deque[str] = deque()  # the answers come in the same order
    imported = ImportResult()

    def noted() -> "Iterator[Publish]":
        try:
            for message in messages:
                waiting.append(message.topic_name)
                yield message
        except ConfigError as error:  # the messages before it are retained
            imported.failure = error

    try:
        for refusal in server.retain(noted()):
            topic_name = waiting.popleft()
            if not refusal:
                imported.retained += 1
                continue
            imported.refused += 1
            if imported.refused <= REFUSALS_SHOWN:
                print(f"refused {printable(topic_name)}: {refusal}", file=sys.stderr)
    except (ConfigError, StoreError) as error:
        imported.failure = ConfigError(str(error))
    return imported


def _instant_us(as_of_us: int | None) -> int:
    """The instant that a command asks about."""
    return time.time_ns() // 1000 if as_of_us is None else as_of_us


def _export_lines(server: "Target", topic_filter: str, as_of_us: int | None) -> Iterator[bytes]:
    from embermq.commands.options import bar
    from embermq.commands.text.retained_text import as_json

    total = server.stat().retained_count if topic_filter == "#" else 0
    with bar("exporting", "messages") as step:
        for number, (retained, _) in enumerate(server.messages(topic_filter, as_of_us), 1):
            if number % PROGRESS_EVERY == 0:
                step(number, total)
            yield as_json(retained, _instant_us(as_of_us)).encode() + b"\n"


def _write_file(file: Path, lines: Iterable[bytes]) -> int:
    """Write all lines, or leave the old file. Only its owner can read it."""
    unfinished = file.with_name(f"{file.name}.unfinished")
    try:
        count = 0
        with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            for line in lines:
                out.write(line)
                count += 1
            out.flush()
            os.fsync(out.fileno())
        unfinished.replace(file)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise ConfigError(f"cannot write {file}: {error.strerror or error}") from None
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    return count


def _check_filter(topic_filter: str) -> None:
    from embermq.broker.operator import wrong_topic_filter

    wrong = wrong_topic_filter(topic_filter)
    if wrong:
        raise ConfigError(f"{topic_filter}: expected a topic filter: {wrong}")


def _check_name(topic_name: str) -> None:
    from embermq.broker.operator import wrong_topic_name

    wrong = wrong_topic_name(topic_name)
    if wrong:
        raise ConfigError(f"{topic_name}: expected a topic name: {wrong}")


def _as_of_us(as_of: str | None) -> int | None:
    from embermq.commands.options import past_instant_us

    return None if as_of is None else past_instant_us("--as-of", as_of)

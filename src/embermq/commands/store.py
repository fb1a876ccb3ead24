"""`ember store`: what a server has stored, repairing it, and rebuilding its state from the log."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from embermq.commands.errors import errors_as_sentences
from embermq.commands.output import Json, counted, json_line, print_table, size_text
from embermq.commands.server_access.target import Config, Data, open_target, settings_of
from embermq.errors import ConfigError

if TYPE_CHECKING:
    from embermq.commands.server_access.target import Stat
    from embermq.settings import StoreSettings
    from embermq.store.engines.repair import Repaired
    from embermq.store.engines.survey import Gap

app = typer.Typer(
    help="Show what a server has stored, repair it, and rebuild its state from the log.", no_args_is_help=True
)


@app.command()
def stat(
    json: Json = False,
    data: Data = None,
    config: Config = None,
) -> None:
    """Show the log, the retained messages and the budgets. The server may run or be stopped."""
    with errors_as_sentences():
        settings = settings_of(data, config)
        with open_target(data, config) as server:
            found = _facts(settings.store, server.stat())
        if json:
            print(json_line(found))
            return
        print_table(["store", ""], [[name, value] for name, value in _shown(found)])


@app.command()
def rebuild(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask if something would be lost.")] = False,
    data: Data = None,
    config: Config = None,
) -> None:
    """Delete the state and rebuild it from the log. The server must not run."""
    from embermq.commands.options import bar
    from embermq.engines import rebuild_state
    from embermq.store.errors import StoreBusy

    with errors_as_sentences():
        settings = settings_of(data, config).store
        begins = _log_begins_incomplete(settings)
        if begins and not yes:
            typer.confirm(
                f"The log begins at {begins}, without an undamaged checkpoint. What was retained or queued before, and"
                " not since, is only in the state, and would be lost. Continue?",
                abort=True,
                err=True,
            )
        try:
            with bar("applying", "records") as step:
                applied = rebuild_state(settings, step, bool(begins))
        except StoreBusy as error:
            raise ConfigError(f"{error}: stop it first") from None
        print(f"rebuilt {settings.directory / 'state'} from the log, up to offset {applied}")


@app.command()
def repair(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask if records leave the log.")] = False,
    data: Data = None,
    config: Config = None,
) -> None:
    """Set damaged files aside, so that the server starts with all that is known. The server must not run.

    Nothing is deleted: see the folder set-aside in the data directory.
    """
    from embermq.engines import repair_directory
    from embermq.store.errors import StoreBusy

    def agree(planned: "Repaired") -> None:
        if not yes:
            typer.confirm(f"{_leaving(planned)} Continue?", abort=True, err=True)

    with errors_as_sentences():
        settings = settings_of(data, config).store
        try:
            done = repair_directory(settings, agree)
        except StoreBusy as error:
            raise ConfigError(f"{error}: stop it first") from None
        for sentence in _repaired(settings, done):
            print(sentence)


def _leaving(planned: "Repaired") -> str:
    """What is lost, and what leaves the log, before a question."""
    sentences = [f"{_gap_text(gap)} are damaged or missing." for gap in planned.gaps]
    if planned.begins > planned.begun:
        sentences.append(
            f"The log will begin at offset {planned.begins}. What is before it is set aside: it can be read there, and"
            " is no longer in the history."
        )
    if planned.lacks_before:
        sentences.append(f"What was retained or owed before offset {planned.lacks_before}, and not since, is lost.")
    return " ".join(sentences)


def _gap_text(gap: "Gap") -> str:
    from embermq.instants import utc_text

    after = f" after {utc_text(gap.after_us)}" if gap.after_us else ""
    until = f" before {utc_text(gap.until_us)}" if gap.until_us else ""
    return f"Offsets {gap.first_offset} to {gap.end - 1}{after}{' and' if after and until else ''}{until}"


def _repaired(settings: "StoreSettings", done: "Repaired") -> Iterator[str]:
    """What a repair has found and done, a sentence each."""
    if not done.findings:
        yield f"nothing in {settings.directory} is damaged: nothing was changed"
        return
    for finding in done.findings:
        yield f"damaged: {finding}"
    for gap in done.gaps:
        known = "" if gap in done.unknown else "; the state has applied them, so what is retained and owed is right"
        yield f"{_gap_text(gap)} are lost{known}."
    if done.begins > done.begun:
        yield (
            f"The log begins at offset {done.begins} now. Offsets {done.begun} to {done.begins - 1}, as far as they are"
            f" good, are read by `ember log cat --data '{done.aside}'`."
        )
    if done.copied or done.dropped:
        yield (
            f"Sessions are still owed {counted(done.copied, 'message')} from before; {done.dropped} that they were owed"
            " are lost."
        )
    if done.is_state_new:
        yield "The state was made again from the log."
    if done.lacks_before:
        yield f"What was retained or owed before offset {done.lacks_before}, and not since, is lost."
    yield f"{settings.directory} is repaired; what was damaged is in {done.aside}."


def _log_begins_incomplete(settings: "StoreSettings") -> str:
    """Where the log begins, if it was trimmed and has no undamaged checkpoint of what was before; else empty."""
    from embermq.instants import utc_text
    from embermq.store.log.checkpoint import undamaged_checkpoint
    from embermq.store.log.reader import LogReader

    log = LogReader(settings.directory / "log")
    segments = log.segments()
    if not segments or segments[0].first_offset <= 1:
        return ""
    if undamaged_checkpoint(settings.directory / "log", *log.bounds()) is not None:
        return ""
    return f"offset {segments[0].first_offset}, {utc_text(segments[0].first_timestamp_us)}"


def _facts(settings: "StoreSettings", found: "Stat") -> dict[str, Any]:
    from embermq.instants import utc_text
    from embermq.store.log.reader import LogReader

    segments = LogReader(settings.directory / "log").segments()
    written = [segment for segment in segments if segment.blocks]
    return {
        "directory": str(settings.directory),
        "process": found.process or None,
        "state": found.failing or "ok",
        "retained": {"count": found.retained_count, "bytes": found.retained_bytes},
        "budgets": [
            {"topic_filter": topic_filter, "count": count, "bytes": size_bytes}
            for topic_filter, count, size_bytes in found.budgets
        ],
        "sessions": found.sessions,
        "log_segments": len(segments),
        "log_bytes": sum(segment.size_bytes for segment in segments),
        "first_offset": segments[0].first_offset if segments else found.next_offset,
        "next_offset": found.next_offset,
        "log_begins": utc_text(written[0].first_timestamp_us) if written else None,
        "log_ends": utc_text(written[-1].last_timestamp_us) if written else None,
    }


def _shown(found: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """The facts for people, with units."""
    for name, value in found.items():
        if name == "budgets":
            for budget in value:
                yield f"budget {budget['topic_filter']}", _messages(budget["count"], budget["bytes"])
        elif name == "process":
            yield "server", f"process {value}" if value else "stopped"
        elif name == "retained":
            yield name, _messages(value["count"], value["bytes"])
        else:
            yield name.replace("_", " "), size_text(value) if name == "log_bytes" else str(value)


def _messages(count: int, size_bytes: int) -> str:
    return f"{counted(count, 'message')}, {size_text(size_bytes)}"

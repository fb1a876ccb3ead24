"""`ember migrate`: from Mosquitto's settings to ours; its database is moved by `migrate_database`.

Owns: which files are written, and what is said about them.
Never: what an option becomes (`embermq.mosquitto`).
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from embermq.commands.options import config_option, directory_option
from embermq.errors import ConfigError

if TYPE_CHECKING:
    from embermq.mosquitto.migration import Migration


def migrate(
    file: Annotated[Path, typer.Argument(help="mosquitto.conf or mosquitto.db.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", show_default="ember.toml", help="The settings file to write.")
    ] = None,
    data: Annotated[
        Path | None, directory_option("--data", "The data directory to make from mosquitto.db.", "ember-data")
    ] = None,
    config: Annotated[Path | None, config_option("The settings of the server that mosquitto.db is for.")] = None,
) -> None:
    """Move from Mosquitto: settings, users and rights from mosquitto.conf, or what mosquitto.db has.

    From mosquitto.conf, ember.toml is written with users and access list beside it, and what has no counterpart is
    listed. From mosquitto.db of a stopped Mosquitto, a new data directory is made, with retained messages, sessions
    and their queues. Nothing is overwritten, and Mosquitto's files stay as they are. Exits with 1 if something is not
    moved.
    """
    from embermq.mosquitto.database import is_database

    if not is_database(file):
        if data is not None:
            raise ConfigError(f"--data is for a mosquitto.db, and {file} is none")
        _migrate_settings(file, (output or Path("ember.toml")).absolute())
        return
    from embermq.commands.migrate_database import migrate_database

    if output is not None:
        raise ConfigError(f"--output is for a mosquitto.conf, and {file} is a mosquitto.db")
    migrate_database(file, data, config)


def _migrate_settings(file: Path, output: Path) -> None:
    from embermq.mosquitto.migration import migrate as made_of

    made = made_of(file, output.parent)
    _write(output, made)
    print(f"{output.name}: {', '.join(made.report.moved)}")
    problem = _problem(output)
    _say(made, problem)
    if made.database is not None:
        print(f"When Mosquitto is stopped: ember migrate {made.database} --config {output}")
    if made.report.unmoved or problem:
        raise typer.Exit(1)


def _write(output: Path, made: "Migration") -> None:
    """All files, or none if one exists."""
    texts = {output.parent / each.name: each.text for each in made.files} | {output: made.settings}
    for path in texts:
        if path.exists():
            raise ConfigError(f"{path} exists, and nothing is overwritten: name another file with --output")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as new:
                new.write(text)
    except OSError as error:
        raise ConfigError(f"cannot write {error.filename}: {error.strerror or error}") from None


def _problem(output: Path) -> str:
    """Why a server would not start with the settings; empty if it would."""
    from embermq.config import load
    from embermq.embed import Broker

    try:
        Broker.from_settings(load(output)).check()
    except ConfigError as error:
        return str(error)
    return ""


def _say(made: "Migration", problem: str) -> None:
    from embermq.commands.output import printable

    report = made.report
    for heading, lines in (
        ("No counterpart", report.unmoved),
        ("Different here", report.different),
        ("Not needed here", report.unneeded),
    ):
        if lines:
            print(f"\n{heading}:", *(f"  {printable(line)}" for line in lines), sep="\n")
    print()
    if problem:
        print(f"Before the server starts, change ember.toml: {printable(problem)}")

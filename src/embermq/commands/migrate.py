"""`ember migrate`: from Mosquitto's settings to ours.

Owns: which files are written, and what is said about them.
Never: what an option becomes (`embermq.mosquitto`).
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from embermq.errors import ConfigError

if TYPE_CHECKING:
    from embermq.mosquitto.migration import Migration


def migrate(
    file: Annotated[Path, typer.Argument(help="Mosquitto's settings file, mosquitto.conf.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The settings file to write.")] = Path("ember.toml"),
) -> None:
    """Write ember.toml, users and rights from a mosquitto.conf, and list what has no counterpart.

    Nothing is overwritten, and Mosquitto's files stay as they are. The password file and the access list are written
    beside ember.toml. Exits with 1 if something has no counterpart.
    """
    from embermq.mosquitto.migration import migrate as made_of

    output = output.absolute()
    made = made_of(file, output.parent)
    _write(output, made)
    print(f"{output.name}: {', '.join(made.report.moved)}")
    problem = _problem(output)
    _say(made, problem)
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

"""Every command: its help, its JSON and its errors have one style."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from embermq.cli import command_tree
from embermq.commands.groups import HEADINGS
from support.ember_command import ember, sentence

WIDTH = 80
WITHOUT_JSON = {
    "access add",
    "access delete",
    "access remove",
    "access replace",
    "access set",
    "backup",
    "cluster expel",
    "cluster init",
    "config check",
    "config sample",
    "init",
    "log restore",
    "log verify",
    "migrate",
    "passwd",
    "pipeline audit",
    "pipeline compact",
    "pipeline go-on",
    "pipeline infer",
    "pipeline pause",
    "pipeline report",
    "pipeline retry",
    "pipeline run",
    "pipeline submit",
    "retained clear",
    "retained export",
    "retained import",
    "retained set",
    "restore",
    "serve",
    "store rebuild",
    "store repair",
    "token",
    "up",
    "version",
}
"""Commands that do something instead of showing something, or whose output has a format of its own."""


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and group with its path, the root first."""
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*path, name))


ALL = list(commands(command_tree()))
EVERY = pytest.mark.parametrize(("path", "command"), ALL, ids=[" ".join(path) or "ember" for path, _ in ALL])
LEAVES = [(path, command) for path, command in ALL if not hasattr(command, "commands")]
EVERY_LEAF = pytest.mark.parametrize(("path", "command"), LEAVES, ids=[" ".join(path) for path, _ in LEAVES])


@EVERY
def test_help_says_everything_and_fits(path: tuple[str, ...], command: Any) -> None:
    done = ember(*path, "--help", environment={"COLUMNS": str(WIDTH)})
    assert (done.code, done.errors) == (0, "")
    assert done.text == ember(*path, "-h", environment={"COLUMNS": str(WIDTH)}).text
    assert all(len(line) <= WIDTH for line in done.lines)
    assert done.text.startswith(f"Usage: {' '.join(('ember', *path))} ")
    assert not re.search(r"<\w", done.text), "the name of a Python type"
    words = " ".join(done.text.split())
    assert command.help and " ".join(command.help.split("\n\n")[0].split()) in words
    for parameter in command.params:
        assert parameter.help, f"{parameter.name} has no help"
        # A line may break after the hyphen of a word.
        assert "".join(parameter.help.split()) in "".join(words.split())


def test_every_command_is_under_one_heading() -> None:
    under = [name for names in HEADINGS.values() for name in names]
    assert sorted(under) == sorted(command_tree().commands)
    lines = ember("--help", environment={"COLUMNS": str(WIDTH)}).lines
    assert [line.strip(": ") for line in lines if line.endswith(":") and not line.startswith(" ")] == [
        "Options",
        *HEADINGS,
    ]
    assert [line.split()[0] for line in lines[lines.index("Start a server:") :] if line.startswith("  ")] == under


@EVERY
def test_a_wrong_option_is_one_sentence(path: tuple[str, ...], command: Any) -> None:
    said = sentence(ember(*path, "--no-such-option"))
    assert said.startswith("no such option: --no-such-option") and said.endswith(
        f"(see {' '.join(('ember', *path))} --help)"
    )


@EVERY_LEAF
def test_what_is_shown_is_also_there_as_json(path: tuple[str, ...], command: Any) -> None:
    options = {option for parameter in command.params for option in parameter.opts}
    assert ("--json" in options) != (" ".join(path) in WITHOUT_JSON)


@EVERY_LEAF
def test_a_command_that_needs_a_server_finds_it_in_one_way(path: tuple[str, ...], command: Any) -> None:
    found = {option: parameter for parameter in command.params for option in parameter.opts}
    if "--data" in found:
        assert found["--data"].metavar == "DIR"
    groups = (
        "access",
        "retained",
        "log",
        "store",
        "sql",
        "clients",
        "sessions",
        "bridges",
        "top",
        "reload",
        "backup",
        "restore",
    )
    if path[0] in groups or path in (("pipeline", "status"), ("pipeline", "audit"), ("pipeline", "query")):
        assert {"--data", "--config"} <= set(found)
        assert found["--config"].envvar == "EMBERMQ_CONFIG"


def test_a_number_out_of_range_is_one_sentence() -> None:
    wanted = "invalid value for '--count' / '-C': expected greater than or equal to 1 (see ember sub --help)"
    assert sentence(ember("sub", "a", "-C", "0")) == wanted


def test_a_misspelt_command_is_one_sentence() -> None:
    assert sentence(ember("versoin")) == "no such command 'versoin'. Did you mean 'version'? (see ember --help)"
    assert sentence(ember("log", "tial")).startswith("no such command 'tial'")


def test_a_group_without_a_command_shows_its_help() -> None:
    done = ember("log")
    assert done.code == 2 and done.errors.startswith("Usage: ember log ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands(shell: str) -> None:
    words = {"COMP_WORDS": "ember reta", "COMP_CWORD": "1", "_TYPER_COMPLETE_ARGS": "ember reta"}
    done = ember(
        environment={"_EMBER_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args", **words}
    )
    assert "retained" in done.text

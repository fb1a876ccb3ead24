"""Options that several commands share: the settings file, directories, the lake, past instants, a progress bar.

Owns: how such an option is read and shown, and the sentence for a value that cannot be used.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from embermq.errors import ConfigError
from embermq.instants import EXPECTED, instant_us

DEFAULT_LAKE: Final = "the settings' pipeline.lake"

SHOWN_AGAIN_S: Final = 0.1

Step = Callable[[int, int], None]
"""How much is done, and of how much; 0 if that is not known."""


def named_directory(name: str) -> Callable[[str | Path], Path]:
    """Reads the directory that an option or argument of this name was given."""

    def read(text: str | Path) -> Path:
        from embermq.history.location import is_url

        if text == "":
            raise ConfigError(f"{name}: expected a directory, not ''")
        if is_url(str(text)):
            raise ConfigError(f"{name}: expected a directory of a mounted file system, not the URL {text}")
        return Path(text)

    return read


def directory_option(name: str, help: str, default: str | bool = True) -> Any:
    """An option that takes a directory. `default` is shown where the settings, not the option, have one."""
    return typer.Option(name, parser=named_directory(name), metavar="DIR", show_default=default, help=help)


def config_option(help: str) -> Any:
    """The option --config. Without it the settings file is looked for where one usually is."""

    def find(given: Path | None) -> Path | None:
        from embermq.config import found_file

        return given if given is not None else found_file()

    return typer.Option(
        "--config", envvar="EMBERMQ_CONFIG", callback=find, show_default="ember.toml, if there is one", help=help
    )


def asked_password(from_input: bool, prompt: str = "Password") -> bytes:
    """The password that a command was given: the first line of its input, or typed twice at the terminal."""
    if from_input:
        password = sys.stdin.buffer.readline().rstrip(b"\r\n")
    elif sys.stdin.isatty():
        password = typer.prompt(prompt, hide_input=True, confirmation_prompt=True).encode()
    else:
        raise ConfigError("there is no terminal to ask for a password: give it as the input, and --stdin")
    if not password:
        raise ConfigError("expected a password that is not empty")
    return password


def lake_option(help: str, default: str | bool = True) -> Any:
    """The option --lake: a directory, or a URL of a scheme that a lake can have, as text. `default` as above."""

    def read(text: str | Path) -> str:
        from embermq.lake.errors import LakeError
        from embermq.lake.lake import Lake

        if str(text) == "":
            raise ConfigError("--lake: expected a directory or a URL, not ''")
        try:
            return Lake(text).place
        except LakeError as error:
            raise ConfigError(f"--lake: {error}") from None

    return typer.Option("--lake", parser=read, metavar="PLACE", show_default=default, help=help)


KnownLake = Annotated[
    str | None, lake_option("The directory of the tables, or their URL (hdfs://, s3a://).", DEFAULT_LAKE)
]


def known_lake(lake_place: str | None, config: Path | None) -> str:
    """The lake that an option names, or else the settings."""
    from embermq.config import load_unchecked

    return load_unchecked(config).lake_place() if lake_place is None else lake_place


def known_data(data: Path | None, config: Path | None) -> Path | None:
    """The data directory that an option names, or else the settings; None if neither does."""
    from embermq.config import load_unchecked

    if data is not None:
        return data
    store = load_unchecked(config).store
    return store.directory if "directory" in store.model_fields_set else None


def past_instant_us(option: str, text: str) -> int:
    """The instant that an option names; ConfigError if it names none, or a future one."""
    now_us = time.time_ns() // 1000
    try:
        asked_us = instant_us(text, now_us)
    except ValueError:
        asked_us = -1
    if not 0 <= asked_us <= now_us:
        raise ConfigError(f"{option} {text}: expected {EXPECTED}, not in the future")
    return asked_us


@contextmanager
def bar(title: str, unit: str = "") -> Iterator[Step]:
    """A line that says how far something is; it appears with the first step, only on a terminal, and is gone at the
    end."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    shown_s = 0.0

    def step(done: int, total: int) -> None:
        nonlocal shown_s
        now_s = time.monotonic()
        if now_s - shown_s >= SHOWN_AGAIN_S or done == total:
            shown_s = now_s
            of_all = f" of {total:,}, {100 * done // total} %" if total else ""
            print(f"\r\033[K{title} {done:,}{of_all} {unit}".rstrip(), end="", file=sys.stderr, flush=True)

    try:
        yield step
    finally:
        if shown_s:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

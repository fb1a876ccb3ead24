"""Options that several commands share: directories, past instants, the pipeline's settings, a progress bar.

Owns: how such an option is read and shown, and the sentence for a value that cannot be used.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer

from embermq.errors import ConfigError
from embermq.instants import EXPECTED, instant_us

Step = Callable[[int, int], None]
"""How much is done, and of how much; 0 if that is not known."""


def named_directory(name: str) -> Callable[[str | Path], Path]:
    """Reads the directory that an option or argument of this name was given."""

    def read(text: str | Path) -> Path:
        from embermq.spark.errors import is_url

        if text == "":
            raise ConfigError(f"{name}: expected a directory, not ''")
        if is_url(str(text)):
            raise ConfigError(f"{name}: expected a directory of a mounted file system, not the URL {text}")
        return Path(text)

    return read


def directory_option(name: str, help: str, default: str | bool = True) -> Any:
    """An option that takes a directory. `default` is shown where the settings, not the option, have one."""
    return typer.Option(name, parser=named_directory(name), metavar="DIR", show_default=default, help=help)


def lake_option(help: str, default: str | bool = True) -> Any:
    """The option --lake: a directory, or a URL of a scheme that a lake can have, as text. `default` as above."""

    def read(text: str | Path) -> str:
        from embermq.spark.errors import LakeError
        from embermq.spark.lake.lake import Lake

        if str(text) == "":
            raise ConfigError("--lake: expected a directory or a URL, not ''")
        try:
            return Lake(text).place
        except LakeError as error:
            raise ConfigError(f"--lake: {error}") from None

    return typer.Option("--lake", parser=read, metavar="PLACE", show_default=default, help=help)


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


def check_pipeline_tables(config: Path, lake: Path | str | None = None) -> None:
    """ConfigError if the pipeline would refuse the typed tables of a file, or those that a lake has would not fit them.

    Not checked where Spark is not installed.
    """
    if find_spec("pyspark") is None:
        return
    from embermq.spark.errors import PipelineError
    from embermq.spark.jobs.maintenance_settings import read_maintenance
    from embermq.spark.jobs.typed_tables import check_typed_tables, read_typed_tables
    from embermq.spark.lake.lake import Lake

    try:
        read_maintenance(config)
        if lake is None or not Lake(lake).is_local:  # at a URL the pipeline itself checks them
            read_typed_tables(config)
        else:
            check_typed_tables(config, Lake(lake))
    except PipelineError as error:
        raise ConfigError(str(error)) from None


@contextmanager
def bar(title: str, unit: str = "") -> Iterator[Step]:
    """A progress bar inside the context; it appears with the first step, and only on a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TextColumn(unit), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as progress:
        task = progress.add_task(title, total=None, visible=False)
        yield lambda done, total: progress.update(task, completed=done, total=total or None, visible=True)

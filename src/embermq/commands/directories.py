"""Directories as they are named on the command line.

Owns: how an option for one looks, and the refusal of an empty name. To `Path` that is the current directory; to a
person, a variable that was not set.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from embermq.errors import ConfigError


def named_directory(name: str) -> Callable[[str | Path], Path]:
    """Reads the directory that an option or argument of this name was given."""

    def read(text: str | Path) -> Path:
        if text == "":
            raise ConfigError(f"{name}: expected a directory, not ''")
        return Path(text)

    return read


def directory_option(name: str, help: str, default: str | bool = True) -> Any:
    """An option that takes a directory. `default` is shown where the settings, not the option, have one."""
    return typer.Option(name, parser=named_directory(name), metavar="DIR", show_default=default, help=help)

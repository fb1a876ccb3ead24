"""Directories as they are named on the command line.

Owns: the refusal of an empty name. To `Path` it is the current directory; to a person, a variable that was not set.
"""

from collections.abc import Callable
from pathlib import Path

from embermq.errors import ConfigError


def named_directory(name: str) -> Callable[[str | Path], Path]:
    """Reads the directory that an option or argument of this name was given."""

    def read(text: str | Path) -> Path:
        if text == "":
            raise ConfigError(f"{name}: expected a directory, not ''")
        return Path(text)

    return read

"""The location of a log: what a task needs to know to read it, wherever it runs.

Owns: the parts of a location. A location crosses processes, but its secrets are not shown.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class LogLocation:
    """A log in a data directory."""

    directory: str | None = None

    def __str__(self) -> str:
        return str(self.directory)


def directory_location(data: Path | str) -> LogLocation:
    """The log of a server by its data directory."""
    return LogLocation(directory=str(Path(data).absolute()))

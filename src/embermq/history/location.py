"""The location of a log: what a task needs to know to read it, wherever it runs.

Owns: the parts of a location. It crosses processes with its secrets, and does not show them.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

TIMEOUT_S: Final = 60.0

# `Path` makes one slash of two. A drive of Windows has one letter.
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def is_url(place: str) -> bool:
    """Whether a text is a URL (s3a://..., hdfs://..., file://...) where a directory is expected."""
    return _URL.match(place) is not None


@dataclass(frozen=True)
class LogLocation:
    """A data directory, an archive, a server, or an archive and the server that writes it.

    `path` is the data directory or the archive's address. `authorities` are the certificates, as text, that the
    server's certificate is checked with; the system's without them. A server that does not answer is asked again for
    `timeout_s`.
    """

    path: str | None = None
    server: str | None = None
    token: str | None = field(default=None, repr=False)
    authorities: str | None = field(default=None, repr=False)
    timeout_s: float = TIMEOUT_S

    def __str__(self) -> str:
        return " and ".join(part for part in (self.path, self.server) if part)

    @property
    def directory(self) -> Path | None:
        """The directory of this machine, if it is nothing else."""
        return Path(self.path) if self.path is not None and self.server is None and not is_url(self.path) else None


def directory_location(path: Path | str) -> LogLocation:
    """The log of a server by its data directory."""
    return LogLocation(path=str(Path(path).absolute()))

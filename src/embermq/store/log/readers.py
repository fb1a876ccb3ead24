"""Registered readers: who reads a log from another process, and how far, so that trimming can wait for them.

Owns: the files in `readers/` of the data directory, one for each reader.
Never: deciding what is trimmed.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, final

DIRECTORY: Final = "readers"
BRIDGE: Final = "bridge "
"""How the name of a bridge begins; the others are those of lakes."""


@final
class RegisteredReader:
    """A reader of the log. `next_offset` is the first record that it has not read for good."""

    def __init__(self, path: Path, name: str, next_offset: int) -> None:
        self.path: Final = path
        self.name: Final = name
        self.next_offset: Final = next_offset


def reader_path(data: Path, name: str) -> Path:
    """The file of a reader; its name is that of its lake's directory."""
    return data / DIRECTORY / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.json"


def register_reader(data: Path, name: str, next_offset: int) -> None:
    """Tell the server of a data directory how far a reader is."""
    path = reader_path(data, name)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"name": name, "next_offset": next_offset}))
    os.replace(new, path)


def registered_readers(data: Path) -> Iterator[RegisteredReader]:
    """Every reader; a file that cannot be read counts as one that has read nothing."""
    for path in sorted((data / DIRECTORY).glob("*.json")):
        try:
            found = json.loads(path.read_text())
            yield RegisteredReader(path, str(found["name"]), int(found["next_offset"]))
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError, TypeError):
            yield RegisteredReader(path, path.name, 0)

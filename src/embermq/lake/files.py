"""The pipeline's own small files in a lake, wherever the lake lies.

Owns: the few operations that they need, for a local directory; `hadoop_files` has them for URLs, with Spark, and
`stored_files` those that only read, without. A name is a path below the lake. Errors are OSError.
Never: a table's rows.
"""

import json
import os
import shutil
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, final


class LakeFiles(ABC):
    """Files below one place."""

    @abstractmethod
    def read(self, name: str) -> str | None:
        """The text of a file; None if there is none."""

    @abstractmethod
    def write(self, name: str, text: str) -> None:
        """Replace a file, or make it with its directory. A reader sees the text before or the one after."""

    @abstractmethod
    def names(self, directory: str = "") -> list[str]:
        """What lies in a directory, by name; nothing if there is none."""

    @abstractmethod
    def read_bytes(self, name: str) -> bytes | None:
        """The bytes of a file; None if there is none."""

    @abstractmethod
    def sizes(self, directory: str) -> dict[str, int]:
        """All files below a directory, by their paths in it, each with its size in bytes."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file or a directory with all that lies in it; nothing happens if there is none."""


@final
class LocalFiles(LakeFiles):
    """Files below a local directory."""

    __slots__ = ("_directory",)

    def __init__(self, directory: Path) -> None:
        self._directory: Final = directory

    def read(self, name: str) -> str | None:
        try:
            return (self._directory / name).read_text()
        except FileNotFoundError:
            return None

    def write(self, name: str, text: str) -> None:
        path = self._directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_text(text)
        os.replace(new, path)

    def names(self, directory: str = "") -> list[str]:
        try:
            return sorted(os.listdir(self._directory / directory))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read_bytes(self, name: str) -> bytes | None:
        try:
            return (self._directory / name).read_bytes()
        except FileNotFoundError:
            return None

    def sizes(self, directory: str) -> dict[str, int]:
        root, found = self._directory / directory, {}
        for place, _, names in os.walk(root):
            for name in names:
                path = os.path.join(place, name)
                with suppress(FileNotFoundError):  # removed meanwhile
                    found[os.path.relpath(path, root)] = os.stat(path).st_size
        return found

    def remove(self, name: str) -> None:
        path = self._directory / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def json_object(text: str | None) -> dict[str, Any]:
    """The object in a file of JSON; empty if there is none, or not whole."""
    try:
        found = json.loads(text) if text is not None else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}

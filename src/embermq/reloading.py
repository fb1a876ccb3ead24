"""What a reload of a running server finds: which files have changed, and which settings wait for a restart.

Owns: the digests of the files that were read last, and comparing the settings in use with those that a start would use.
Never: reading a file into force; `embed` does.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from embermq.errors import ConfigError
from embermq.http.options import ReloadReport

if TYPE_CHECKING:
    from embermq.settings import Settings

SHOWN_MAX: Final = 60
"""A value is shown with at most this many characters."""

APPLIED: Final = ("bridges",)
"""Sections that are in force after a reload."""

ReadSettings = Callable[[], "Settings"]


@final
class Reloading:
    """The files and settings of one server, as it has read them last."""

    def __init__(
        self,
        files: Mapping[str, tuple[Path | None, ...]],
        in_use: Mapping[str, Mapping[str, Any]],
        read_settings: ReadSettings | None = None,
    ) -> None:
        """`files` by what they hold, such as "users"; `read_settings` gives the settings that a start would use now."""
        self._files: Final = {name: paths for name, paths in files.items() if any(path is not None for path in paths)}
        self._in_use: Final = in_use
        self._read_settings: Final = read_settings
        self._digests = self._read_digests()

    def wanted(self) -> "Settings | None":
        """The settings that a start would use now; None if nothing reads them. A `ConfigError` if they are wrong."""
        return None if self._read_settings is None else self._read_settings()

    def report(self, read: list[str], applied: Sequence[str] = ()) -> ReloadReport:
        """What is different since the last report, after all of `read` was read again; `applied` was too."""
        before, self._digests = self._digests, self._read_digests()
        changed = [name for name, digest in self._digests.items() if digest != before[name]] + list(applied)
        if self._read_settings is None:
            return ReloadReport(read, changed)
        try:
            settings = self._read_settings().model_dump(mode="json")
        except ConfigError as error:
            return ReloadReport(read, changed, [], str(error))
        return ReloadReport(read, changed, _differences(self._in_use, settings))

    def _read_digests(self) -> dict[str, bytes]:
        return {name: b"".join(map(_digest, paths)) for name, paths in self._files.items()}


def _digest(path: Path | None) -> bytes:
    try:
        return b"" if path is None else hashlib.sha256(path.read_bytes()).digest()
    except OSError:  # the reader of the file says why
        return b"none"


def _differences(in_use: Mapping[str, Mapping[str, Any]], wanted: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [
        f"{section}.{key} is {_shown(values.get(key))}, the settings say {_shown(value)}"
        for section, found in wanted.items()
        if section not in APPLIED
        for values in (in_use.get(section, {}),)
        for key, value in found.items()
        if values.get(key) != value and not (key == "each" and value and values.get(key))  # `listener_changes` says it
    ]


def _shown(value: object) -> str:
    text = "not set" if value is None else json.dumps(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."

"""Files of a lake at a URL, read without Spark by delta-rs, with the credentials that its environment variables name.

Owns: reading them, and the sentence that says what to do where they cannot be read. Importing this module imports no
delta-rs.
"""

import re
from html import unescape
from importlib.util import find_spec
from typing import Any, Final, final

from embermq.lake.errors import LakeError, SqlMissing
from embermq.lake.files import LakeFiles

ADVICE: Final = "`--engine spark` asks Spark, with the credentials that its settings have"


@final
class StoredFiles(LakeFiles):
    """Files below a URL, to read only."""

    __slots__ = ("_place", "_system")

    def __init__(self, place: str) -> None:
        self._place: Final = place
        self._system: Any = None

    def read(self, name: str) -> str | None:
        content = self.read_bytes(name)
        return None if content is None else content.decode()

    def read_bytes(self, name: str) -> bytes | None:
        try:
            with self._opened().open_input_stream(name) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._away(error) from None

    def write(self, name: str, text: str) -> None:
        raise LakeError(f"{self._place} is written by a pipeline only")

    def names(self, directory: str = "") -> list[str]:
        return sorted(entry.base_name for entry in self._entries(directory))

    def sizes(self, directory: str) -> dict[str, int]:
        entries = self._entries(directory, recursive=True)
        return {entry.path.removeprefix(f"{directory}/"): entry.size for entry in entries if entry.is_file}

    def _entries(self, directory: str, recursive: bool = False) -> list[Any]:
        from pyarrow.fs import FileSelector

        try:
            return list(
                self._opened().get_file_info(FileSelector(directory, allow_not_found=True, recursive=recursive))
            )
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._away(error) from None

    def remove(self, name: str) -> None:
        raise LakeError(f"{self._place} is written by a pipeline only")

    def _opened(self) -> Any:
        if self._system is None:
            if find_spec("deltalake") is None:
                raise SqlMissing(
                    f"{self._place} without Spark needs delta-rs, which is an extra: pip install 'embermq[sql]'; or "
                    f"{ADVICE}"
                )
            from deltalake.fs import DeltaStorageHandler
            from pyarrow.fs import PyFileSystem

            try:
                self._system = PyFileSystem(DeltaStorageHandler(self._place, dict(client_options(self._place))))
            except OSError as error:
                raise self._away(error) from None
        return self._system

    def _away(self, error: Exception) -> LakeError:
        return LakeError(f"{self._place} cannot be read without Spark: {plain(str(error))}; {ADVICE}")


def client_options(place: str) -> dict[str, str]:
    """Options of delta-rs for a place: it would try for minutes to reach one that is away."""
    if not place.startswith("s3a:"):
        return {}
    return {"max_retries": "2", "retry_timeout": "10s", "connect_timeout": "5s", "timeout": "30s"}


def plain(text: str) -> str:
    """The text of an error of delta-rs in one line, without the colours of a terminal; of a page of XML or HTML
    only what it says."""
    line = " ".join(re.sub(r"\x1b\[[0-9;]*m|↳", "", text).split())
    before, markup, _ = line.partition("<")
    if not markup:
        return line
    said, code = (_element(line, name) for name in ("Message", "Code"))
    if said is None:
        return before.rstrip(" -:") or "the store answers with a page"
    return f"{said} ({code})" if code is not None else said


def _element(line: str, name: str) -> str | None:
    found = re.search(rf"<{name}>([^<]+)</{name}>", line)
    return unescape(found[1].strip()) if found is not None else None

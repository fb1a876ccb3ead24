"""A lake: a directory or a URL with Delta tables that one pipeline writes.

Owns: where each table lies, and the files in `_embermq` beside the tables: the marker with the lake's format, the lock
of a local lake, Spark's own log. What other modules keep there, they read and write through `files`.
Never: a table's rows.
"""

import fcntl
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, final

from embermq import __version__
from embermq.history.location import is_url
from embermq.lake.errors import LakeError
from embermq.lake.files import LakeFiles, LocalFiles, json_object
from embermq.lake.stored_files import StoredFiles

LAKE_FORMAT: Final = 3
"""2: `messages` is divided by days, and positions are in one file. 3: transactions have the writer's epoch. A lake of
an earlier format is continued."""
STATE_DIRECTORY: Final = "_embermq"
SCHEMES: Final = ("hdfs", "s3a", "file")
S3_STORE_SETTING: Final = "spark.delta.logStore.s3a.impl"
S3_STORE: Final = "embermq.S3LogStore"
"""Writes a commit with If-None-Match. Delta's own class for S3 keeps two writers of one process apart, not of two."""
LOCK_WAIT_S: Final = 15.0
"""After kill -9 of a pipeline its Java process ends a moment later; it has the lock until then."""

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(/+)(.*)")


@final
class Lake:
    """A lake: each table is a directory of its name, the pipeline's own files are in `_embermq`.

    A lake at a URL can be read where delta-rs can; `use` gives it files that can be written.
    """

    __slots__ = ("place", "epoch", "credentials", "_directory", "_files")

    def __init__(self, place: Path | str) -> None:
        text = str(place)
        self._directory: Final = None if is_url(text) else Path(text)
        self.place = _checked_url(text) if self._directory is None else text
        self.epoch: int | None = None
        """The epoch of the pipeline that writes through this object (`lake.epochs`); None for readers."""
        self.credentials: Mapping[str, str] = {}
        """Options of delta-rs for a lake at a URL, beside those of its environment variables."""
        self._files: LakeFiles = StoredFiles(self.place) if self._directory is None else LocalFiles(self._directory)

    def use(self, place: str, files: LakeFiles, credentials: Mapping[str, str]) -> None:
        """From now on read and write the files of a lake at a URL with these, which know it by this name."""
        self.place, self._files, self.credentials = place, files, credentials

    @property
    def is_local(self) -> bool:
        """Whether the lake is a directory, with `flock` for its lock. A URL has a lease instead (`lake.lease`)."""
        return self._directory is not None

    @property
    def files(self) -> LakeFiles:
        """The files of the lake."""
        return self._files

    @property
    def directory(self) -> Path:
        """The directory of a local lake."""
        if self._directory is None:
            raise LakeError(f"{self.place} is no local directory")
        return self._directory

    @property
    def state_directory(self) -> Path:
        """The directory of the pipeline's own files in a local lake."""
        return self.directory / STATE_DIRECTORY

    def table(self, name: str) -> str:
        """The path of a table, as Spark takes it."""
        return f"{self.place}/{name}" if self._directory is None else str(self._directory.absolute() / name)

    def java_log(self, name: str) -> Path:
        """The file for the messages of Spark's Java process; `name` is `pipeline` or `query`, the last run of each."""
        if self._directory is not None:
            return self.state_directory / f"{name}.log"
        directory = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "embermq"
        with suppress(OSError):  # the messages are then not kept
            directory.mkdir(parents=True, exist_ok=True)
        return directory / f"{name}.log"

    def spark_settings(self) -> dict[str, str]:
        """Settings of a session for this lake: Spark's warehouse lies in it, not in the current directory."""
        settings = {"spark.sql.warehouse.dir": self.table(f"{STATE_DIRECTORY}/warehouse")}
        if self.place.startswith("s3a:"):
            settings[S3_STORE_SETTING] = S3_STORE
        return settings

    def has_table(self, name: str) -> bool:
        """Whether a table exists. A crash may leave a directory without a first commit: that is no table."""
        return any(file.endswith(".json") for file in self._files.names(f"{name}/_delta_log"))

    def table_names(self) -> list[str]:
        """The tables that exist, by name."""
        return [name for name in self._files.names() if name != STATE_DIRECTORY and self.has_table(name)]

    # -- the log ------------------------------------------------------------------------------------------------------

    def keep_data_directory(self, data: Path) -> None:
        """Remember whose log the tables are made from, for commands that are not told."""
        try:
            self._files.write(f"{STATE_DIRECTORY}/data.json", json.dumps({"data": str(data.absolute())}))
        except OSError as error:
            raise LakeError(f"{self.table(STATE_DIRECTORY)}/data.json cannot be written: {error}") from None

    def data_directory(self) -> Path | None:
        """The data directory that the last pipeline read; None if that is not known."""
        try:
            found = json_object(self._files.read(f"{STATE_DIRECTORY}/data.json")).get("data")
        except OSError:
            return None
        return Path(found) if isinstance(found, str) else None

    # -- the format ---------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Check that this version may write here; a new place becomes a lake, an earlier format is replaced."""
        if self._format() == LAKE_FORMAT:
            return
        try:
            self._files.write(_MARKER, json.dumps({"format": LAKE_FORMAT, "embermq": __version__}))
        except OSError as error:
            raise LakeError(f"{self.place} cannot be a lake: {error}") from None

    def exists(self) -> bool:
        """Whether the place is a lake; LakeError if it is one that this version cannot use."""
        return self._format() is not None

    def _format(self) -> int | None:
        marker = self.table(_MARKER)
        try:
            text = self._files.read(_MARKER)
            if text is None:
                if self.table_names():
                    raise LakeError(f"{self.place} has tables, but they are not a pipeline's: there is no {marker}")
                return None
            found = json.loads(text)
            version = int(found["format"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise LakeError(f"{marker} cannot be read: {error}") from None
        if version > LAKE_FORMAT:
            raise LakeError(
                f"{self.place} was written by EmberMQ {found.get('embermq', '?')} with lake format {version}, "
                f"this one knows formats up to {LAKE_FORMAT}: use a newer EmberMQ"
            )
        return version

    # -- the lock of a local lake -------------------------------------------------------------------------------------

    @contextmanager
    def lock(self, wait_s: float = LOCK_WAIT_S) -> Iterator[int]:
        """Lock the lake for one pipeline. Gives the lock's descriptor, which the Java process must inherit."""
        from embermq.store.log.segments import lock_file  # imports numpy, which those who read settings do not need

        deadline_s = time.monotonic() + wait_s
        while True:
            try:
                descriptor = lock_file(self.state_directory / "lock")
                break
            except BlockingIOError:
                if time.monotonic() >= deadline_s:
                    raise LakeError(f"another pipeline writes to {self.directory}") from None
                time.sleep(0.1)
        try:
            yield descriptor
        finally:
            # Closing is not enough: the Java process may still have a copy of the descriptor.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def is_locked(self) -> bool:
        """Whether a pipeline runs on this lake, which is a directory."""
        try:
            descriptor = os.open(self.state_directory / "lock", os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False


_MARKER: Final = f"{STATE_DIRECTORY}/lake.json"


def _checked_url(text: str) -> str:
    """A URL of a scheme that is supported, in one form. LakeError otherwise."""
    found = _URL.fullmatch(text)
    scheme = found[1].lower() if found is not None else ""
    if found is None or scheme not in SCHEMES:
        raise LakeError(
            f"the lake {text}: expected a directory, or a URL of {', '.join(SCHEMES[:-1])} or {SCHEMES[-1]}"
        )
    if len(found[2]) == 1 and scheme != "file":
        raise LakeError(f"the lake {text}: expected two slashes after {scheme}: (a `Path` keeps only one)")
    slashes = "/" if scheme == "file" else found[2]
    return f"{scheme}:{slashes}{found[3].rstrip('/')}"

"""A lake: a directory of Delta tables that one pipeline writes.

Owns: where each table lies, and the files in `_embermq` beside the tables: the marker with the lake's format, the lock,
the jobs' positions, Spark's own log.
Never: a table's rows. Importing this module imports no Spark.
"""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, final

from embermq import __version__
from embermq.spark.errors import LakeError, is_url
from embermq.store.log.segments import lock_file

LAKE_FORMAT: Final = 2
"""2: `messages` is divided by days, and positions are in one file. A lake of format 1 is continued."""
STATE_DIRECTORY: Final = "_embermq"
LOCK_WAIT_S: Final = 15.0
"""After kill -9 of a pipeline its Java process ends a moment later; it has the lock until then."""


@final
class Lake:
    """A lake directory: each table is a directory of its name, the pipeline's own files are in `_embermq`."""

    __slots__ = ("directory",)

    def __init__(self, directory: Path | str) -> None:
        if is_url(str(directory)):
            raise LakeError(f"the lake {directory}: expected a directory of a mounted file system, not a URL")
        self.directory: Final = Path(directory)

    @property
    def state_directory(self) -> Path:
        """The directory of the pipeline's own files."""
        return self.directory / STATE_DIRECTORY

    def table(self, name: str) -> str:
        """The path of a table, as Spark takes it."""
        return str(self.directory.absolute() / name)

    @property
    def staging(self) -> Path:
        """The directory for the files of a batch."""
        return (self.state_directory / "batch").absolute()

    def java_log(self, name: str) -> Path:
        """The file for the messages of Spark's Java process; `name` is `pipeline` or `query`, the last run of each."""
        return self.state_directory / f"{name}.log"

    def spark_settings(self) -> dict[str, str]:
        """Settings of a session for this lake: Spark's warehouse lies in it, not in the current directory."""
        return {"spark.sql.warehouse.dir": str((self.state_directory / "warehouse").absolute())}

    def has_table(self, name: str) -> bool:
        """Whether a table exists. A crash may leave a directory without a first commit: that is no table."""
        return any((self.directory / name / "_delta_log").glob("*.json"))

    def table_names(self) -> list[str]:
        """The tables that exist, by name."""
        if not self.directory.is_dir():
            return []
        return sorted(entry.name for entry in self.directory.iterdir() if self.has_table(entry.name))

    def remove_table(self, name: str) -> None:
        """Remove a table. A crash leaves all of it or nothing that is still a table."""
        removed = self.state_directory / "removed"
        shutil.rmtree(removed, ignore_errors=True)  # of an earlier crash
        try:
            removed.mkdir()
            with suppress(FileNotFoundError):
                os.rename(self.directory / name, removed / name)
            shutil.rmtree(removed)
        except OSError as error:
            raise LakeError(f"the table {name} in {self.directory} cannot be removed: {error}") from None

    # -- the log ------------------------------------------------------------------------------------------------------

    def keep_data_directory(self, data: Path) -> None:
        """Remember whose log the tables are made from, for commands that are not told."""
        path = self.state_directory / "data.json"
        new = path.with_suffix(".new")
        try:
            new.write_text(json.dumps({"data": str(data.absolute())}))
            os.replace(new, path)
        except OSError as error:
            raise LakeError(f"{path} cannot be written: {error}") from None

    def data_directory(self) -> Path | None:
        """The data directory that the last pipeline read; None if that is not known."""
        try:
            return Path(json.loads((self.state_directory / "data.json").read_text())["data"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    # -- the format ---------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Check that this version may write here; a new directory becomes a lake, an earlier format is replaced."""
        marker = self._marker()
        if self.exists() and json.loads(marker.read_text())["format"] == LAKE_FORMAT:
            return
        try:
            marker.parent.mkdir(parents=True, exist_ok=True)
            new = marker.with_suffix(".new")
            new.write_text(json.dumps({"format": LAKE_FORMAT, "embermq": __version__}))
            os.replace(new, marker)
        except OSError as error:
            raise LakeError(f"{self.directory} cannot be a lake: {error}") from None

    def exists(self) -> bool:
        """Whether the directory is a lake; LakeError if it is one that this version cannot use."""
        marker = self._marker()
        try:
            found = json.loads(marker.read_text())
            version = int(found["format"])
        except FileNotFoundError:
            if self.table_names():
                raise LakeError(
                    f"{self.directory} has tables, but they are not a pipeline's: there is no {marker}"
                ) from None
            return False
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise LakeError(f"{marker} cannot be read: {error}") from None
        if version > LAKE_FORMAT:
            raise LakeError(
                f"{self.directory} was written by EmberMQ {found.get('embermq', '?')} with lake format {version}, "
                f"this one knows formats up to {LAKE_FORMAT}: use a newer EmberMQ"
            )
        return True

    def _marker(self) -> Path:
        return self.state_directory / "lake.json"

    # -- the lock -----------------------------------------------------------------------------------------------------

    @contextmanager
    def lock(self, wait_s: float = LOCK_WAIT_S) -> Iterator[int]:
        """Lock the lake for one pipeline. Gives the lock's descriptor, which the Java process must inherit."""
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
        """Whether a pipeline runs on this lake."""
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

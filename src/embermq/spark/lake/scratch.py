"""Files of a batch: written on this machine, read by Spark's tasks, then removed.

Owns: where they lie, and how tasks reach them: those of `local[...]` in place, those of a cluster in the lake itself if
it is at a URL. With a lake that is a directory, a cluster has it mounted.
"""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

from pyspark.sql import SparkSession

from embermq.spark.lake.hadoop_files import HadoopFiles
from embermq.spark.lake.lake import STATE_DIRECTORY, Lake


@final
class Scratch:
    """The place of such files, for one pipeline."""

    __slots__ = ("_lake", "_directory", "_uploads")

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self._lake: Final = lake
        is_local = lake.is_local
        self._directory: Final = (
            lake.state_directory.absolute() if is_local else Path(tempfile.mkdtemp(prefix="embermq-"))
        )
        is_cluster = not (spark.sparkContext.master or "").startswith("local")
        files = lake.files
        self._uploads: Final = files if is_cluster and isinstance(files, HadoopFiles) else None

    def directory(self, name: str) -> Path:
        """A directory for files of one kind."""
        return self._directory / name

    def urls(self, name: str, files: Sequence[Path | str]) -> list[str]:
        """Files of such a directory, as Spark's tasks reach them."""
        paths = [Path(file) for file in files]
        if self._uploads is None:
            return [path.as_uri() for path in paths]
        return [self._uploads.upload(path, f"{self._uploaded(name)}/{path.name}") for path in paths]

    def clear(self, name: str) -> None:
        """Remove such a directory."""
        shutil.rmtree(self.directory(name), ignore_errors=True)
        if self._uploads is not None:
            self._uploads.remove(self._uploaded(name))

    def close(self) -> None:
        """Remove all."""
        for name in ("batch", "seed"):
            self.clear(name)
        if not self._lake.is_local:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _uploaded(self, name: str) -> str:
        # By epoch: a pipeline that was deposed must not change the files of the one that writes now.
        return f"{STATE_DIRECTORY}/{name}-{self._lake.epoch}"

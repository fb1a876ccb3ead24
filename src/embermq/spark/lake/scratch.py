"""Files that the pipeline writes on this machine, Spark's tasks read, and it then removes: a batch on one machine, and
a checkpoint of the log.

Owns: where they lie, and how tasks reach them: those of `local[...]` in place, those of a cluster in the lake itself if
it is at a URL. With a lake that is a directory, a cluster has it mounted.
"""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

from pyspark.sql import SparkSession

from embermq.lake.lake import STATE_DIRECTORY, Lake
from embermq.spark.lake.hadoop_files import HadoopFiles


def is_local(spark: SparkSession) -> bool:
    """Whether the tasks of a session run on this machine, and not on a cluster."""
    master = spark.sparkContext.master or ""
    return master.startswith("local") and not master.startswith("local-cluster")


@final
class Scratch:
    """The place of such files, for one pipeline."""

    __slots__ = ("_lake", "_directory", "_uploads")

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self._lake: Final = lake
        self._directory: Final = (
            lake.state_directory.absolute() if lake.is_local else Path(tempfile.mkdtemp(prefix="embermq-"))
        )
        files = lake.files
        self._uploads: Final = files if isinstance(files, HadoopFiles) and not is_local(spark) else None

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
        self.directory("authorities.pem").unlink(missing_ok=True)
        if not self._lake.is_local:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _uploaded(self, name: str) -> str:
        # By epoch: a pipeline that was deposed must not change the files of the one that writes now.
        return f"{STATE_DIRECTORY}/{name}-{self._lake.epoch}"

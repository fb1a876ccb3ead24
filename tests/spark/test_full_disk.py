"""A disk that is full under the lake: a clear error, and once there is room nothing is missing and nothing twice."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from embermq.lake.errors import PipelineError
from embermq.lake.lake import Lake
from embermq.spark.jobs.catalog import JobSettings
from embermq.spark.lake.tables import read_table
from embermq.spark.pipeline import run
from support.recorded import Recorder


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes; only root can make one."""
    place = tmp_path / "small"
    place.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", place], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


@pytest.mark.long
def test_a_full_disk_loses_nothing(spark: SparkSession, tmp_path: Path, small_disk: Path) -> None:
    made = Recorder(tmp_path / "data", group_records=100)
    for number in range(600):
        made.publish(f"t/{number}", os.urandom(1000))
    made.flush()
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1_400_000))
    lake = Lake(small_disk / "lake")
    settings = JobSettings(only=("messages",), records_max=200)
    with pytest.raises(PipelineError, match=r"^messages: .*No space left on device"):
        run(made.data, lake, once=True, settings=settings)
    ballast.unlink()
    run(made.data, lake, once=True, settings=settings)
    offsets = [row[0] for row in read_table(spark, lake, "messages").select("offset").collect()]
    assert sorted(offsets) == list(range(1, 601))
    made.close()

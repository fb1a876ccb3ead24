"""Commands over a lake where the extra `spark` is not installed."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.local_lake import local_lake
from support.recorded import Recorder


@pytest.fixture
def place(recorder: Callable[..., Recorder], tmp_path: Path) -> Path:
    """A directory with data, a lake, and packages in the way of Spark's, which cannot be imported."""
    made = recorder()
    made.publish("t/1", b"1", retain=True)
    made.flush()
    local_lake(tmp_path / "lake", made)
    for name in ("pyspark", "delta"):
        (tmp_path / "missing" / name).mkdir(parents=True)
        (tmp_path / "missing" / name / "__init__.py").write_text("raise ImportError('it is not installed')")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["query", "select count(*) from log", "--data", "data"], "1"),
        (["as-of", "now"], "t/1"),
        (["status", "--data", "data"], "log: next offset 2"),
        (["report", "-o", "report.html"], "report.html"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_query_needs_no_spark(place: Path, command: list[str], said: str) -> None:
    paths = [str(place / "missing"), *(path for path in sys.path if path)]
    ended = subprocess.run(
        [sys.executable, "-m", "embermq", "pipeline", *command, "--lake", "lake"],
        cwd=place,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert said in ended.stdout

"""`ember up` and the pipeline's commands as processes: wrong settings of the pipeline, and a URL as its lake."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.wire import Wire

EMBER = (sys.executable, "-m", "embermq")
TIMEOUT_S = 60


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("EMBERMQ_")}


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            '[[pipeline.tables]]\nname = "a"\nfilter = "a"\nformat = "json"\nschema = "a nosuch"',
            "pipeline.tables.0.schema: expected a type",
        ),
        (
            '[[pipeline.tables]]\nname = "a"\nfilter = 3\nformat = "number"',
            "pipeline.tables.0.filter: expected a valid string, not 3",
        ),
        ("[pipeline]\ntables = 7", "pipeline.tables: expected a list, not 7"),
        ("pipeline = 7", "pipeline: expected a table of settings, not 7"),
        ('[pipeline]\nlakes = "s3a://bucket"', "there is no setting pipeline.lakes, did you mean pipeline.lake?"),
    ],
)
def test_the_server_runs_though_the_settings_of_the_pipeline_are_wrong(
    tmp_path: Path, settings: str, problem: str
) -> None:
    pytest.importorskip("pyspark")
    (tmp_path / "ember.toml").write_text(settings + "\n")
    process = subprocess.Popen(
        [*EMBER, "up", "--port", "0", "--config", "ember.toml"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            if line == "ready\n":
                break
        assert lines[-1:] == ["ready"], process.communicate()[1]
        assert lines[-2].startswith("pipeline: not running: ") and problem in lines[-2]
        (port,) = [int(found[1]) for line in lines if (found := re.search(r"mqtt://.*?:(\d+)", line))]
        with Wire(("127.0.0.1", port)) as client:
            assert client.connect("c").return_code == 0
        process.send_signal(signal.SIGTERM)
        logged = process.communicate(timeout=TIMEOUT_S)[1]
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    (warning,) = [line for line in logged.splitlines() if "pipeline" in line]
    assert "WARNING embermq: the pipeline does not run: " in warning and problem in warning
    assert not (tmp_path / "ember-lake").exists()


# In the server's process: `delta`, which is installed last, is not found before there is a file.
HIDE_DELTA = """
import sys
from importlib.machinery import PathFinder
from pathlib import Path


class Hiding(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == "delta" and not Path("installed").exists():
            return None
        return super().find_spec(name, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = Hiding
"""


def test_the_pipeline_starts_when_spark_has_been_installed_beside_the_server(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    (tmp_path / "sitecustomize.py").write_text(HIDE_DELTA)
    search = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        [*EMBER, "up", "--port", "0"],
        cwd=tmp_path,
        env={**environment(), "PYTHONPATH": search},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        lines = [line.rstrip("\n") for line in iter(process.stdout.readline, "ready\n") if line or process.wait()]
        assert lines[-1].startswith("pipeline: starts when it can: the pipeline needs Spark"), lines
        (tmp_path / "installed").touch()
        assert any(line.startswith("starting Spark on") for line in iter(process.stdout.readline, ""))
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0


@pytest.mark.parametrize("place", ["gs://b", "abfss://c@a/x", "s3://bucket/lake", "http://host/lake"])
def test_a_url_of_another_scheme_is_no_lake(tmp_path: Path, place: str) -> None:
    ended = refused(tmp_path, "pipeline", "run", "--once", "--lake", place)
    expected = "expected a directory, or a URL of hdfs, s3a or file"
    assert ended == f"ember: --lake: the lake {place}: {expected}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("up",),
        ("pipeline", "status"),
        ("pipeline", "query", "select 1"),
        ("pipeline", "as-of", "now"),
        ("pipeline", "audit"),
        ("pipeline", "report"),
        ("pipeline", "compact"),
    ],
    ids=" ".join,
)
def test_no_command_takes_such_a_url_as_its_lake(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert "--lake: the lake gs://bucket/lake: expected" in refused(tmp_path, *arguments, "--lake", "gs://bucket/lake")


def test_a_catalog_needs_a_schema(tmp_path: Path) -> None:
    for option in ("--catalog", "--schema"):
        assert "expected both or none" in refused(tmp_path, "pipeline", "run", option, "ember")


def test_no_command_takes_a_url_as_its_data(tmp_path: Path) -> None:
    assert "--data: expected a directory" in refused(tmp_path, "pipeline", "run", "--data", "hdfs://name/data")
    assert "--data: expected a directory" in refused(tmp_path, "serve", "--data", "s3a://bucket/data")


def refused(directory: Path, *arguments: str) -> str:
    """Run a command that must end with one sentence, and must make no file."""
    ended = subprocess.run(
        [*EMBER, *arguments], cwd=directory, env=environment(), capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert (ended.returncode, ended.stdout) == (2, ""), ended
    assert ended.stderr.count("\n") == 1, ended
    assert list(directory.iterdir()) == []
    return ended.stderr

"""A program in a virtual environment with the wheel of this project, as docs/spark.md shows it."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from support.local_lake import local_lake
from support.recorded import Recorder

ROOT = Path(__file__).parent.parent.parent
PROGRAM = """
from embermq.spark import register

register(spark)  # in this session too, which has looked for formats before
spark.read.format("embermq").load("ember-data").selectExpr("mqtt_matches('plant/+', topic) as fits").show(2)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a virtual environment with this project's wheel and the packages of this environment."""
    pytest.importorskip("build")
    directory = tmp_path_factory.mktemp("wheel")
    build = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(directory),
        str(copy(directory)),
    ]
    subprocess.run(build, env={**os.environ, "EMBERMQ_PURE": "1"}, check=True, capture_output=True, timeout=120)
    venv.create(directory / "venv", symlinks=True)
    (packages,) = (directory / "venv").glob("lib/python3*/site-packages")
    (wheel,) = directory.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(packages)
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    return directory / "venv" / "bin" / "python"


def copy(directory: Path) -> Path:
    """The files of the project that a wheel is built from: building writes beside them."""
    made = directory / "project"
    made.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, made)
    shutil.copytree(ROOT / "src", made / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info"))
    return made


@pytest.mark.long
def test_the_program_of_the_docs_runs_with_the_wheel_and_prints_no_traces(python: Path, tmp_path: Path) -> None:
    made = Recorder(tmp_path / "ember-data", group_records=1000)
    for number in range(60_000):  # more than what Spark has asked for when it has enough rows to show
        made.publish(f"plant/{number}", b"%d" % number)
    made.close()
    local_lake(tmp_path / "ember-lake", made)
    page = (ROOT / "docs" / "spark.md").read_text()
    (shown,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if 'format("delta")' in block]
    program = tmp_path / "program.py"
    program.write_text(shown + PROGRAM)
    # The first `python3` of the PATH has nothing of this.
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho 'this is another Python' >&2\nexit 1\n")
    other.chmod(0o755)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK_"))}
    settings = {"PATH": f"{other.parent}:{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [python, str(program)], env=clean | settings, cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("plant/") == 40 and done.stdout.count("|true|") == 2
    assert "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr

"""SIGTERM for `ember pipeline submit` on a real Spark: the driver stops cleanly and nothing is left running."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.pipeline_process import settings_beside
from support.recorded import Recorder


@pytest.mark.long
def test_a_submitted_pipeline_stops_with_its_command(tmp_path: Path) -> None:
    made = Recorder(tmp_path / "data")
    made.publish("t/1", b"1", retain=True)
    made.close()
    lake = tmp_path / "lake"
    options = ["--data", str(made.data), "--lake", str(lake), "--continuous"]
    with subprocess.Popen(
        [sys.executable, "-m", "embermq", "pipeline", "submit", "--master", "local[2]", "--", *options],
        env={**os.environ, "SPARK_CONF_DIR": str(settings_beside(lake))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        said = [next(line for line in process.stdout if "messages 1 records" in line)]
        process.send_signal(signal.SIGTERM)
        said += process.stdout  # ends when no process is left that has it
        assert process.wait(60) == 0, "".join(said)
    assert json.loads((lake / "_embermq" / "progress.json").read_text())["state"] == "stopped"

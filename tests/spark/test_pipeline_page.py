"""The pages of the pipeline: their settings run as they are, and what their Python examples import exists."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pytest

from support.pipeline_process import PipelineProcess, settings_beside
from support.recorded import Recorder

DOCS = Path(__file__).parent.parent.parent / "docs"
TEXT = "\n".join((DOCS / name).read_text() for name in ("pipeline.md", "tables.md", "spark.md"))
SETTINGS = "\n".join(re.findall(r"^```toml\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL))
COMMANDS = [
    *re.findall(r"^\$ (ember .*?)(?: +#.*)?$", TEXT, re.MULTILINE),
    *(found.replace("\n", " ") for found in re.findall(r"`(ember [^`]* [^`]*[A-Z]+)`", TEXT)),
]
"""The commands of the pages: those after a prompt, then those in its text with a placeholder such as TABLE."""
IMPORTS = re.findall(r"^from (embermq[\w.]*) import ([\w, ]+)$", TEXT, re.MULTILINE)


@pytest.mark.parametrize(("module", "names"), IMPORTS)
def test_what_the_page_imports_exists(module: str, names: str) -> None:
    for name in names.split(", "):
        assert hasattr(import_module(module), name)


def recorded(directory: Path) -> Path:
    """A log with two payloads that fit each typed table of the page, and one that does not."""
    made = Recorder(directory / "data")
    for payload in (b"1.5", b"-2", b"1d"):
        made.publish("air/dongsi/pm25", payload)
    for payload in (b'{"state":"on","load":0.5,"tags":["a","b"]}', b"{}", b'{"load":"high"}'):
        made.publish("plant/7/status", payload)
    made.close()
    (directory / "ember.toml").write_text(SETTINGS)
    return made.data


def table(lake: Path, name: str) -> list[dict[str, object]]:
    """The rows of a table by offset, read without Spark."""
    deltalake = pytest.importorskip("deltalake")
    rows: list[dict[str, object]] = deltalake.DeltaTable(str(lake / name)).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: str(row["offset"]))


def check_tables(lake: Path) -> None:
    air = [(row["offset"], row["station"], row["measure"], row["value"]) for row in table(lake, "air")]
    assert air == [(1, "dongsi", "pm25", 1.5), (2, "dongsi", "pm25", -2.0)]
    status = [(row["offset"], row["state"], row["load"], row["tags"]) for row in table(lake, "status")]
    assert status == [(4, "on", 0.5, ["a", "b"]), (5, None, None, None)]
    assert [row["offset"] for row in table(lake, "status_rejects")] == [6]


@pytest.mark.long
def test_the_settings_of_the_page_run(scratch: Path, tmp_path: Path) -> None:
    data, lake = recorded(tmp_path), tmp_path / "lake"
    only = ("--only", "air", "--only", "status")
    with PipelineProcess(data, lake, "--once", "--config", str(tmp_path / "ember.toml"), *only) as pipeline:
        assert pipeline.process.wait(600) == 0, "".join(pipeline.said[-40:])
    check_tables(lake)


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_every_command_of_the_page_runs(scratch: Path, tmp_path: Path) -> None:
    """In their order, in one directory, with its settings: the first starts the server, the others use its tables."""
    assert [command.split()[:3] for command in COMMANDS[:3]] == [
        ["ember", "up"],
        ["ember", "pipeline", "run"],
        ["ember", "pipeline", "run"],
    ]
    recorded(tmp_path).rename(tmp_path / "ember-data")
    place = Place(tmp_path)
    with place.start(COMMANDS[0], "--port", "0", "--master", "local[2]", "--config", "ember.toml") as up:
        place.wait_for_rows(up, "air_rejects", "status_rejects")
        up.send_signal(signal.SIGTERM)
        assert up.wait(90) == 0
    check_tables(tmp_path / "ember-lake")
    with place.start(COMMANDS[2].replace(" ...", ""), "--master", "local[2]") as continuous:
        place.wait_for_progress(continuous, "running")
        continuous.send_signal(signal.SIGTERM)
        assert continuous.wait(90) == 0
    answers = {}
    for command in [COMMANDS[1], *COMMANDS[3:]]:
        if "FILE" in command:
            command = command.replace("FILE", "ember.toml")
        if "TABLE" in command:
            command = command.replace("TABLE", "air") + " --config ember.toml"
        with place.start(command) as process:
            said, _ = process.communicate(timeout=900)
            assert process.returncode == 0, f"{command}: {said}"
        answers[command] = said
    assert "air/dongsi/pm25" in next(said for command, said in answers.items() if " query " in command)
    assert (tmp_path / "report.html").exists()
    check_tables(tmp_path / "ember-lake")


class Place:
    """A directory in which commands of the page run as they are written."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {**os.environ, "SPARK_CONF_DIR": str(settings_beside(directory / "ember-lake"))}

    @contextmanager
    def start(self, command: str, *more: str) -> Iterator["subprocess.Popen[str]"]:
        program, *arguments = shlex.split(command)
        assert program == "ember"
        process = subprocess.Popen(
            [sys.executable, "-m", "embermq", *arguments, *more],
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def wait_for_rows(self, process: "subprocess.Popen[str]", *tables: str) -> None:
        """Until each table has a commit after the one that created it."""
        logs = [self.directory / "ember-lake" / name / "_delta_log" for name in tables]
        self._wait(process, lambda: all(len(list(log.glob("*.json"))) > 1 for log in logs))

    def wait_for_progress(self, process: "subprocess.Popen[str]", state: str) -> None:
        path = self.directory / "ember-lake" / "_embermq" / "progress.json"
        self._wait(process, lambda: json.loads(path.read_text())["state"] == state)

    def _wait(self, process: "subprocess.Popen[str]", condition: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + 900
        while not condition():
            assert process.poll() is None and time.monotonic() < deadline_s
            time.sleep(0.2)

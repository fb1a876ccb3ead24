"""docs/pipeline.md: its settings run as they are, and what its Python examples import exists."""

import os
import re
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest

from support.pipeline_process import PipelineProcess, settings_beside
from support.recorded import Recorder

PAGE = Path(__file__).parent.parent.parent / "docs" / "pipeline.md"
(SETTINGS,) = re.findall(r"^```toml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
IMPORTS = re.findall(r"^from (embermq[\w.]*) import ([\w, ]+)$", PAGE.read_text(), re.MULTILINE)


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


def test_the_settings_of_the_page_run(scratch: Path, tmp_path: Path) -> None:
    data, lake = recorded(tmp_path), tmp_path / "lake"
    only = ("--only", "air", "--only", "status")
    with PipelineProcess(data, lake, "--once", "--config", str(tmp_path / "ember.toml"), *only) as pipeline:
        assert pipeline.process.wait(240) == 0, "".join(pipeline.said[-40:])
    check_tables(lake)


@pytest.mark.long
def test_the_settings_of_the_page_run_beside_the_server(scratch: Path, tmp_path: Path) -> None:
    data, lake = recorded(tmp_path), tmp_path / "lake"
    arguments = ["--data", str(data), "--lake", str(lake), "--config", str(tmp_path / "ember.toml")]
    process = subprocess.Popen(
        [sys.executable, "-m", "embermq", "up", "--port", "0", "--master", "local[2]", *arguments],
        env={**os.environ, "SPARK_CONF_DIR": str(settings_beside(lake))},
    )
    try:
        deadline_s = time.monotonic() + 400
        # A table has one commit when it is created, and one with rows.
        while any(len(list(lake.glob(f"{name}_rejects/_delta_log/*.json"))) < 2 for name in ("air", "status")):
            assert process.poll() is None and time.monotonic() < deadline_s
            time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(90) == 0
    finally:
        process.kill()
        process.wait()
    check_tables(lake)

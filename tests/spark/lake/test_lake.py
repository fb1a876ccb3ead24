"""A lake's own files: format, lock, progress. No Spark session is needed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from embermq.commands.pipeline import app
from embermq.errors import ConfigError
from embermq.history.directory import DirectoryLog
from embermq.history.source import LogEnd
from embermq.lake.errors import LakeError
from embermq.lake.lake import Lake
from embermq.lake.positions import Positions, check_log
from embermq.lake.progress import JobProgress, read_progress, write_progress
from embermq.spark.pipeline import run
from support.recorded import Recorder


def test_a_new_directory_becomes_a_lake_and_stays_one(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    assert not lake.exists()
    lake.open()
    lake.open()
    assert lake.exists() and lake.table_names() == []
    marker = tmp_path / "lake" / "_embermq" / "lake.json"
    marker.write_text(json.dumps({"format": 1, "embermq": "0.1"}))
    assert lake.exists()
    lake.open()
    assert json.loads(marker.read_text())["format"] == 3


def test_a_lake_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.open()
    (tmp_path / "_embermq" / "lake.json").write_text(json.dumps({"format": 4, "embermq": "9.1"}))
    with pytest.raises(LakeError, match=r"written by EmberMQ 9.1 with lake format 4, this one knows formats up to 3"):
        lake.open()


def test_tables_of_somebody_else_and_a_broken_marker_are_refused(tmp_path: Path) -> None:
    (tmp_path / "messages" / "_delta_log").mkdir(parents=True)
    assert Lake(tmp_path).table_names() == []
    (tmp_path / "messages" / "_delta_log" / "00000000000000000000.json").touch()
    with pytest.raises(LakeError, match="has tables, but"):
        Lake(tmp_path).open()
    (tmp_path / "_embermq").mkdir()
    (tmp_path / "_embermq" / "lake.json").write_text("{")
    with pytest.raises(LakeError, match=r"lake.json cannot be read"):
        Lake(tmp_path).open()


def test_a_lake_of_another_log_is_refused_before_spark_starts(tmp_path: Path) -> None:
    mine, other = Recorder(tmp_path / "mine"), Recorder(tmp_path / "other")
    other.now_us += 77
    for made in (mine, other):
        made.publish("a", b"1")
        made.flush()
        made.close()
    lake = Lake(tmp_path / "lake")
    lake.open()
    check_log(lake, DirectoryLog(other.data))  # nothing was read yet
    Positions(lake, DirectoryLog(mine.data)).save({"messages": 2}, {})
    with pytest.raises(LakeError, match="has the tables of another log"):
        run(other.data, lake, once=True, master="spark://nowhere.invalid:7077")
    lake.keep_data_directory(mine.data)
    status = ["status", "--lake", str(lake.directory)]
    assert "next offset 2" in CliRunner().invoke(app, status, catch_exceptions=False).output
    with pytest.raises(ConfigError, match="has the tables of another log"):
        CliRunner().invoke(app, [*status, "--data", str(other.data)], catch_exceptions=False)


def test_one_pipeline_at_a_time(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.open()
    assert not lake.is_locked()
    with lake.lock():
        assert lake.is_locked()
        with pytest.raises(LakeError, match="another pipeline writes to"), lake.lock(wait_s=0.05):
            pass
    with lake.lock(wait_s=0.05):
        pass


def test_the_lock_outlives_a_killed_pipeline_while_its_java_process_lives(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.open()
    with lake.lock() as lock:
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(lock,))
        # As kill -9 does: the descriptor goes without being unlocked first.
        os.dup2(os.open(os.devnull, os.O_RDWR), lock)
        assert lake.is_locked()
        child.communicate(b"\n")
        assert not lake.is_locked()


def test_progress_is_left_for_others_to_read(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.open()
    assert read_progress(lake) == {}
    write_progress(lake, [JobProgress("messages", offset=7)], LogEnd(9, 5), "done")
    progress = read_progress(lake)
    assert progress["state"] == "done" and progress["log_end"] == 9
    assert progress["jobs"]["messages"]["offset"] == 7

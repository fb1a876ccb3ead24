"""The lake's own state: version, lock, progress; and what is said when Spark cannot run. No Spark needed."""

import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from embermq.commands.pipeline import app
from embermq.errors import ConfigError
from embermq.spark import session
from embermq.spark.errors import JavaMissing, LakeError
from embermq.spark.lake.checkpoints import check_checkpoints
from embermq.spark.lake.lake import Lake
from embermq.spark.lake.progress import JobProgress, read_progress, write_progress
from embermq.spark.pipeline import failure_reason, run
from embermq.spark.queries.plots import Point, bar_plot, duration, line_plot, time_ticks, value_ticks
from embermq.spark.source.stream_offsets import stream_offset
from support.recorded import Recorder


def test_a_new_directory_becomes_a_lake_and_stays_one(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    assert not lake.exists()
    lake.open()
    lake.open()
    assert lake.exists() and lake.table_names() == []


def test_a_lake_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.open()
    (tmp_path / "_embermq" / "lake.json").write_text(json.dumps({"format": 2, "embermq": "9.1"}))
    with pytest.raises(LakeError, match=r"written by EmberMQ 9.1 with lake format 2, this one knows formats up to 1"):
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


def test_rows_cross_over_sockets_that_only_the_user_can_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    local = session.session_settings("local[2]")
    assert local["spark.python.unix.domain.socket.enabled"] == "true"
    assert Path(local["spark.python.unix.domain.socket.dir"]).stat().st_mode & 0o777 == 0o700
    assert "spark.python.unix.domain.socket.enabled" not in session.session_settings("spark://somewhere:7077")
    monkeypatch.setattr(session, "_socket_directory", lambda: "/tmp/" + "a" * 60)
    assert "spark.python.unix.domain.socket.enabled" not in session.session_settings("local[2]")


def test_a_lake_of_another_log_is_refused_before_spark_starts(tmp_path: Path) -> None:
    mine, other = Recorder(tmp_path / "mine"), Recorder(tmp_path / "other")
    other.now_us += 77
    for made in (mine, other):
        made.publish("a", b"1")
        made.flush()
        made.close()
    lake = Lake(tmp_path / "lake")
    lake.open()
    noted = Path(lake.checkpoint("messages")) / "offsets"
    noted.mkdir(parents=True)
    check_checkpoints(lake, other.data / "log")  # nothing was read yet
    (noted / "9").write_text("v1\n{}\n" + json.dumps({"offset": 1}))
    (noted / "10").write_text("v1\n{}\n" + json.dumps(stream_offset(mine.data / "log", 2)))
    (noted / ".10.crc").touch()
    check_checkpoints(lake, mine.data / "log")
    with pytest.raises(LakeError, match=r"has the tables of another log than .*other.log: name another --lake"):
        check_checkpoints(lake, other.data / "log")
    with pytest.raises(LakeError, match="has the tables of another log"):
        run(other.data, lake, once=True, master="no master: Spark must not start")
    status = ["status", "--lake", str(lake.directory), "--data"]
    assert "never run" in CliRunner().invoke(app, [*status, str(mine.data)], catch_exceptions=False).output
    with pytest.raises(ConfigError, match="has the tables of another log"):
        CliRunner().invoke(app, [*status, str(other.data)], catch_exceptions=False)
    (noted / "10").write_text("v1")  # cut short by a full disk
    check_checkpoints(lake, other.data / "log")


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
    write_progress(lake, [JobProgress("messages", offset=7)], 9, "done")
    progress = read_progress(lake)
    assert progress["state"] == "done" and progress["log_end"] == 9
    assert progress["jobs"]["messages"]["offset"] == 7


def test_without_java_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(session, "_JAVA_PLACES", ())
    with pytest.raises(JavaMissing):
        session.java_home()
    assert session.what_is_missing() == (
        "the pipeline needs Java 17 or newer and none was found: install one, or set JAVA_HOME to it"
    )


def test_a_java_that_is_too_old_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, version in (("old", "11.0.2"), ("new", "21.0.1")):
        java = tmp_path / name / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        java.chmod(0o755)
    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setattr(session, "_JAVA_PLACES", (str(tmp_path),))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert session.java_home() == str(tmp_path / "new")


def test_java_that_does_not_start_is_told_in_one_sentence(tmp_path: Path) -> None:
    Recorder(tmp_path / "data").close()
    arguments = ["--data", str(tmp_path / "data"), "--lake", str(tmp_path / "lake"), "--memory", "2x"]
    command = [sys.executable, "-m", "embermq", "pipeline", "run", *arguments]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    log = tmp_path / "lake" / "_embermq" / "pipeline.log"
    assert said.returncode == 2
    assert said.stderr.strip() == f"ember: Java did not start: Invalid maximum heap size: -Xmx2x ({log})"
    assert log.stat().st_mode & 0o777 == 0o600


def test_on_one_machine_spark_listens_on_loopback_only() -> None:
    for master in ("local", "local[*]", "local[4]", "local[2, 3]"):
        assert session.session_settings(master)["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.bindAddress" not in session.session_settings("spark://somewhere:7077")
    assert session.session_settings("local", {"spark.driver.host": "::1"})["spark.driver.host"] == "::1"


def test_without_the_extra_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "find_spec", lambda name: None)
    assert session.what_is_missing() == "the pipeline needs Spark, which is an extra: pip install 'embermq[spark]'"


def test_the_server_and_its_commands_import_no_spark() -> None:
    code = "import sys, embermq, embermq.cli, embermq.spark; print([m for m in sys.modules if m.startswith('pyspark')])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x\nTraceback\n  File y\nembermq.store.errors.LogTrimmed: offset 1 is gone\n\tat z", "offset 1 is gone"),
        ("a\nCaused by: java.io.IOException: No space left on device\n\tat b", "No space left on device (IOException)"),
        ("only this", "only this"),
    ],
)
def test_a_failed_query_is_told_in_one_sentence(text: str, reason: str) -> None:
    assert failure_reason(text) == reason


def test_plots_have_round_ticks_and_escape_names() -> None:
    assert value_ticks(87) == [0, 25, 50, 75, 100]
    assert value_ticks(0) == [0.0, 1.0]
    first, last = datetime(2026, 1, 1, 10, 2, tzinfo=UTC), datetime(2026, 1, 1, 10, 58, tzinfo=UTC)
    assert [label for _, label in time_ticks(first, last)] == ["10:10", "10:20", "10:30", "10:40", "10:50"]
    assert duration(90) == "1.5 min"
    assert "<script>" not in bar_plot([("<script>", 3.0, "<b>")])
    drawn = line_plot([Point(first, 1.0), Point(last, 3.0)], "x")
    assert drawn.count("<polyline") == 1 and "nan" not in drawn
    assert "Nothing yet" in line_plot([], "x")

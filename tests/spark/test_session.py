"""What a session needs: Java, the packages, and settings that keep others out. No Spark session is needed."""

import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.requirements import Requirement

from embermq.lake.errors import PipelineError
from embermq.spark import session
from embermq.spark.errors import JavaMissing
from support.recorded import Recorder


def test_rows_cross_over_sockets_that_only_the_user_can_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    local = session.session_settings("local[2]")
    assert local["spark.python.unix.domain.socket.enabled"] == "true"
    assert Path(local["spark.python.unix.domain.socket.dir"]).stat().st_mode & 0o777 == 0o700
    assert "spark.python.unix.domain.socket.enabled" not in session.session_settings("spark://somewhere:7077")
    monkeypatch.setattr(session, "_socket_directory", lambda: "/tmp/" + "a" * 60)
    assert "spark.python.unix.domain.socket.enabled" not in session.session_settings("local[2]")


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
    arguments = ["--data", str(tmp_path / "data"), "--lake", str(tmp_path / "lake"), "--memory", "99999999999g"]
    command = [sys.executable, "-m", "embermq", "pipeline", "run", *arguments]
    said = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    log = tmp_path / "lake" / "_embermq" / "pipeline.log"
    assert said.returncode == 2
    assert said.stderr.strip() == f"ember: Java did not start: Invalid maximum heap size: -Xmx99999999999g ({log})"
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


def test_a_session_that_the_pipeline_cannot_use_is_refused_with_a_sentence() -> None:
    class Settings:
        def get(self, key: str, default: str) -> str:
            return default

    class Session:
        conf = Settings()

    session_type: Any = Session
    with pytest.raises(PipelineError, match=r"^the session has no Delta Lake: it needs the package io.delta:"):
        session.check_session(session_type())
    session_type.__module__ = "pyspark.sql.connect.session"
    with pytest.raises(PipelineError, match=r"^the pipeline cannot run over Spark Connect"):
        session.check_session(session_type())


def test_where_spark_is_started_here_spark_connect_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PipelineError, match=r"^this cannot run over Spark Connect, and the master is sc://there: "):
        session.prepare_environment("sc://there")
    monkeypatch.setenv("SPARK_REMOTE", "sc://elsewhere")
    with pytest.raises(PipelineError, match=r", and SPARK_REMOTE is sc://elsewhere: unset it$"):
        session.build_session()


def test_the_extra_allows_the_versions_that_were_tested() -> None:
    root = Path(__file__).parent.parent.parent
    extra = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]["spark"]
    allowed = {requirement.name: requirement.specifier for requirement in map(Requirement, extra)}
    pinned = dict(line.split("==") for line in (root / "constraints.txt").read_text().splitlines() if "==" in line)
    oldest = re.findall(r"pyspark==([0-9.]+)", (root / "tools" / "oldest-spark").read_text())
    assert allowed.keys() >= {"delta-spark", "deltalake", "pyspark"}
    for name in allowed:
        assert allowed[name].contains(pinned[name]) and allowed[name].contains(metadata.version(name))
    assert str(allowed["delta-spark"]) == f"<4.5,>={session.TESTED_DELTA}"
    assert str(allowed["pyspark"]) == f"<={pinned['pyspark']},>={oldest[0]}"


def test_delta_lake_is_the_one_for_the_installed_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    delta, pyspark = (metadata.version(name) for name in ("delta-spark", "pyspark"))
    assert f"io.delta:delta-spark_{pyspark.rpartition('.')[0]}_2.13:{delta}" == session.DELTA_PACKAGE
    monkeypatch.setattr(session, "version", {"pyspark": "4.1.3", "delta-spark": "4.4.7"}.__getitem__)
    assert session.delta_package() == "io.delta:delta-spark_4.1_2.13:4.4.7"

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(session, "version", missing)  # a Spark that pip does not know
    assert session.delta_package() == f"io.delta:delta-spark_4.2_2.13:{delta}"


@pytest.mark.parametrize(("configured", "expected"), [({}, {session.COMPRESSION: "zstd"}), ({session.COMPRESSION}, {})])
def test_a_foreign_session_writes_zstd_unless_it_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, configured: set[str], expected: dict[str, str]
) -> None:
    changed: dict[str, str] = {}
    context = SimpleNamespace(getConf=lambda: SimpleNamespace(contains=configured.__contains__))
    foreign: Any = SimpleNamespace(sparkContext=context, conf=SimpleNamespace(set=changed.__setitem__))
    monkeypatch.setattr(session, "check_session", lambda spark: None)
    session.adopt_session(foreign)
    assert changed == expected

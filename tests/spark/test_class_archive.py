"""The archive of Java classes: when it is made and used, and that nothing depends on it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from embermq.spark import class_archive
from embermq.spark.class_archive import archive_options, keep_jars, known_jars, make_archive
from support.recorded import Recorder

PACKAGES = {"spark.jars.packages": "io.delta:delta-spark:1"}


class Session:
    """What these functions use of a session, without Java."""

    sparkContext: Any

    def __init__(self, jars: list[Path], wanted: Path | None = None) -> None:
        self.sparkContext = self
        self._jars = jars
        self._wanted = wanted

    def getConf(self) -> dict[str, str]:
        return {"spark.jars": ",".join(f"file://{jar}" for jar in self._jars)}

    @property
    def _jvm(self) -> Any:
        return self

    java: Any = property(lambda self: self)
    lang: Any = property(lambda self: self)
    System: Any = property(lambda self: self)

    def getProperty(self, name: str) -> str | None:
        return None if self._wanted is None else str(self._wanted)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java, a Spark and two jars, as far as their files matter."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH"):
        monkeypatch.delenv(name, raising=False)
    for name in ("java/lib/modules", "spark/jars/spark.jar", "a.jar", "b.jar"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def session(*arguments: Any) -> Any:
    return Session(*arguments)


def test_jars_that_spark_has_fetched_are_known_until_one_is_gone(place: Path) -> None:
    home, jars = str(place / "spark"), [place / "a.jar", place / "b.jar"]
    assert known_jars(PACKAGES, home) == []
    keep_jars(session(jars), PACKAGES, home)
    assert known_jars(PACKAGES, home) == list(map(str, jars))
    assert known_jars({"spark.jars.packages": "io.delta:delta-spark:2"}, home) == []
    jars[1].unlink()
    assert known_jars(PACKAGES, home) == []


def test_jars_of_a_user_are_left_to_spark(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = str(place / "spark")
    keep_jars(session([place / "a.jar"]), PACKAGES, home)
    assert known_jars({**PACKAGES, "spark.jars": "mine.jar"}, home) == []
    (place / "spark-defaults.conf").write_text("spark.driver.cores 1\n spark.jars   mine.jar\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(place))
    assert known_jars(PACKAGES, home) == []
    keep_jars(session([place / "a.jar", place / "b.jar"]), PACKAGES, home)
    monkeypatch.delenv("SPARK_CONF_DIR")
    assert known_jars(PACKAGES, home) == [str(place / "a.jar")]


@pytest.mark.parametrize("text", ["", "{", "{}", "[1]", '["/nowhere.jar"]'])
def test_a_damaged_list_of_jars_is_no_list(place: Path, text: str) -> None:
    keep_jars(session([place / "a.jar"]), PACKAGES, "")
    (kept,) = (place / "cache" / "embermq").iterdir()
    kept.write_text(text)
    assert known_jars(PACKAGES, "") == []


def test_an_archive_belongs_to_its_java_and_its_jars(place: Path) -> None:
    where = (str(place / "java"), str(place / "spark"), [str(place / "a.jar")])
    assert archive_options(*where, makes_archive=False) == ""
    options = archive_options(*where, makes_archive=True)
    assert "-XX:+RecordDynamicDumpInfo" in options and "SharedArchiveFile" not in options
    archive = Path(options.rpartition("=")[2] + "-7.jsa")
    archive.parent.mkdir(parents=True)
    archive.write_text("classes")
    assert archive_options(*where, makes_archive=True).endswith(f"-XX:SharedArchiveFile={archive}")
    archive.write_text("class")  # cut off
    assert archive_options(*where, makes_archive=True) == options
    archive.write_text("classes")
    (place / "a.jar").write_text("another version")
    assert archive_options(*where, makes_archive=False) == ""
    assert archive_options(str(place / "no java"), *where[1:], makes_archive=True) == ""


def test_paths_that_java_would_take_apart_are_not_used(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "my cache"))
    assert archive_options(str(place / "java"), str(place / "spark"), [], makes_archive=True) == ""


@pytest.mark.parametrize("name", ["SPARK_CONF_DIR", "HADOOP_CONF_DIR", "SPARK_DIST_CLASSPATH"])
def test_a_directory_on_the_class_path_excludes_an_archive(
    place: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    where = (str(place / "java"), str(place / "spark"), [str(place / "a.jar")])
    (place / "conf").mkdir()
    monkeypatch.setenv(name, str(place / "conf"))
    assert archive_options(*where, makes_archive=True) != ""
    (place / "conf" / "spark-defaults.conf").write_text("spark.driver.cores 1\n")
    assert archive_options(*where, makes_archive=True) == ""


def test_a_user_without_a_home_has_no_archive(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    keep_jars(session([place / "a.jar"]), PACKAGES, "")
    assert known_jars(PACKAGES, "") == []
    assert archive_options(str(place / "java"), str(place / "spark"), [], makes_archive=True) == ""


def test_a_directory_that_cannot_be_read_is_no_error(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(directory: str) -> list[str]:
        raise PermissionError(13, "Permission denied", directory)

    monkeypatch.setenv("HADOOP_CONF_DIR", str(place))
    monkeypatch.setattr(os, "listdir", refused)
    assert archive_options(str(place / "java"), str(place / "spark"), [], makes_archive=True) == ""


def test_an_archive_that_cannot_be_made_is_no_error(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = place / "cache" / "embermq" / "classes-1"

    def fail(spark: Any, file: Path) -> None:
        file.write_text("a part")
        raise RuntimeError("no space left")

    monkeypatch.setattr(class_archive, "_dump", fail)
    make_archive(session([], prefix))
    assert list(prefix.parent.iterdir()) == []
    make_archive(session([]))  # Java was not started for it


def test_an_archive_that_was_not_used_for_long_is_removed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = place / "cache" / "embermq" / "classes-1"
    prefix.parent.mkdir(parents=True)
    for name, age_days in (
        ("classes-2-7.jsa", 40),
        ("classes-3-7.jsa", 20),
        ("classes-1.99", 40),
        ("classes-1.98", 1),
        ("classes-1-9.jsa", 0),
    ):  # the last: damaged; without ".jsa": of runs that were killed
        other = prefix.parent / name
        other.write_text("classes")
        os.utime(other, (other.stat().st_mtime, other.stat().st_mtime - age_days * 86_400))
    monkeypatch.setattr(class_archive, "_dump", lambda spark, file: file.write_text("classes"))
    make_archive(session([], prefix))
    assert sorted(path.name for path in prefix.parent.iterdir()) == [
        "classes-1-7.jsa",
        "classes-1.98",
        "classes-3-7.jsa",
    ]


@pytest.mark.long
def test_runs_make_the_archive_use_it_and_do_without_it(tmp_path: Path) -> None:
    made = Recorder(tmp_path / "data")
    made.publish("a/b", b"1", retain=True)
    made.close()
    lake = tmp_path / "lake"
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def run() -> None:
        command = [sys.executable, "-m", "embermq", "pipeline", "run", "--once", "--only", "messages"]
        arguments = ["--data", str(tmp_path / "data"), "--lake", str(lake), "--master", "local[2]"]
        done = subprocess.run([*command, *arguments], env=environment, capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stderr) == (0, ""), done
        assert "[warning]" not in done.stdout, done.stdout

    def archives() -> list[Path]:
        return list((tmp_path / "cache" / "embermq").glob("classes-*"))

    run()  # Spark fetches its jars
    assert archives() == []
    run()
    (archive,) = archives()
    assert archive.stat().st_size > 10 << 20
    run()
    log = lake / "_embermq" / "pipeline.log"
    assert "Exception" not in log.read_text()
    archive.chmod(0o600)  # Java has made it for reading only
    whole = archive.stat().st_size
    archive.write_bytes(bytes(whole))
    run()  # Java leaves it unused
    assert archives() == [archive]
    os.truncate(archive, whole // 2)
    run()  # and is not given this one; another is made
    (another,) = archives()
    assert another.stat().st_size > whole // 2

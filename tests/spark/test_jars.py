"""The jars that Spark has fetched are known at the next start, and Java's options for an archive of their classes."""

from pathlib import Path
from typing import Any

import pytest

from embermq.spark.jars import JAVA_WITH_ARCHIVE, archive_options, keep_jars, known_jars

PACKAGES = {"spark.jars.packages": "io.delta:delta-spark:1"}


def session(jars: list[Path]) -> Any:
    """What is used of a session, without Java."""

    class Session:
        def getConf(self) -> dict[str, str]:
            return {"spark.jars": ",".join(f"file://{jar}" for jar in jars)}

        sparkContext: Any = property(lambda self: self)

    return Session()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with two jars, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    for name in ("a.jar", "b.jar"):
        (tmp_path / name).write_text(name)
    return tmp_path


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


def test_java_keeps_an_archive_of_its_classes_from_19_on(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = place / "cache" / "embermq" / "classes.jsa"
    assert archive_options(JAVA_WITH_ARCHIVE - 1) == ""
    assert archive_options(JAVA_WITH_ARCHIVE).startswith(
        f"-XX:+AutoCreateSharedArchive -XX:SharedArchiveFile={archive}"
    )
    assert archive.parent.is_dir()  # Java makes no directory
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "with space"))
    assert archive_options(JAVA_WITH_ARCHIVE) == ""


def test_a_user_without_a_home_has_no_archive(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    keep_jars(session([place / "a.jar"]), PACKAGES, "")
    assert known_jars(PACKAGES, "") == [] and archive_options(JAVA_WITH_ARCHIVE) == ""

"""`ember pipeline submit`: the line for spark-submit, which a user can also write."""

import shlex
from pathlib import Path

import pytest

from embermq.commands.cluster.submit import DeployMode, Submission, submit_line
from embermq.errors import ConfigError
from embermq.lake.lake import S3_STORE, S3_STORE_SETTING
from embermq.spark.session import DELTA_PACKAGE
from support.ember_command import ember, sentence


def settings_of(line: list[str]) -> dict[str, str]:
    """The settings that Spark ends up with: the last one of a name counts."""
    found = [line[at + 1].partition("=") for at, word in enumerate(line) if word == "--conf"]
    return {key: value for key, _, value in found}


def option(line: list[str], name: str) -> str:
    assert line.count(name) == 1
    return line[line.index(name) + 1]


def test_the_line_has_what_the_pipeline_needs_of_a_session() -> None:
    line = submit_line(Submission("spark://master:7077", arguments=("--once", "--lake", "hdfs://name/lake")))
    assert Path(line[0]).name == "spark-submit" and Path(line[0]).exists()
    assert (option(line, "--master"), option(line, "--deploy-mode")) == ("spark://master:7077", "client")
    assert option(line, "--packages") == DELTA_PACKAGE
    settings = settings_of(line)
    assert settings["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension"
    assert settings["spark.app.name"] == "embermq pipeline"
    assert "spark.jars.packages" not in settings and "spark.driver.bindAddress" not in settings
    assert line[-4].endswith("submitted/program.py") and Path(line[-4]).is_file()
    assert line[-3:] == ["--once", "--lake", "hdfs://name/lake"]


def test_the_settings_of_the_lake_are_those_that_it_needs() -> None:
    line = submit_line(Submission("yarn", arguments=("--lake=s3a://bucket/lake",)))
    assert settings_of(line)[S3_STORE_SETTING] == S3_STORE
    assert settings_of(line)["spark.sql.warehouse.dir"].startswith("s3a://bucket/lake/")


def test_what_the_user_says_wins(tmp_path: Path) -> None:
    file = tmp_path / "spark.conf"
    file.write_text("# a comment\n\nspark.log.level INFO\nspark.executor.memory=3g\nspark.jars.packages a:b:1\n")
    line = submit_line(
        Submission(
            "yarn",
            DeployMode.CLUSTER,
            ("spark.sql.session.timeZone=CET", "spark.x=a=b"),
            ("org.apache.hadoop:hadoop-aws:3.5.0",),
            file,
            ("--files", "token"),
        )
    )
    settings = settings_of(line)
    assert option(line, "--deploy-mode") == "cluster" and option(line, "--properties-file") == str(file)
    assert (settings["spark.sql.session.timeZone"], settings["spark.x"]) == ("CET", "a=b")
    assert "spark.log.level" not in settings and "spark.executor.memory" not in settings
    assert option(line, "--packages").split(",") == [DELTA_PACKAGE, "org.apache.hadoop:hadoop-aws:3.5.0", "a:b:1"]
    assert option(line, "--files") == "token"


@pytest.mark.parametrize(
    ("submission", "said"),
    [
        (Submission("yarn", conf=("spark.x",)), "--conf spark.x: expected KEY=VALUE"),
        (Submission("yarn", arguments=("--master=local",)), "--master: expected before `--`, as --master"),
        (Submission("yarn", arguments=("--memory", "2g")), "--memory: expected before `--`, as --conf spark.driver"),
        (Submission("yarn", properties_file=Path("/none")), "--properties-file: /none cannot be read: "),
    ],
)
def test_what_cannot_be_used_is_told_before_anything_starts(submission: Submission, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        submit_line(submission)
    assert str(caught.value).startswith(said)


def test_the_command_prints_its_line() -> None:
    done = ember("pipeline", "submit", "--master", "k8s://https://api:6443", "--print", "--", "--once")
    assert done.code == 0
    assert shlex.split(done.text)[1:3] == ["--master", "k8s://https://api:6443"]
    assert shlex.split(done.text)[-1] == "--once"
    assert sentence(ember("pipeline", "submit", "--conf", "x", "--print")) == "--conf x: expected KEY=VALUE"

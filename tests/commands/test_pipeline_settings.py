"""What only the pipeline reads is refused by the first command that reads it, and before Spark is started for it."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from embermq.cli import app
from embermq.errors import ConfigError


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ('name = "air"\nfiltr = "a/#"\nformat = "number"', r"pipeline.tables\[0\].filtr: expected one of name, filter"),
        ('name = "air"\nfilter = "a/#/b"\nformat = "number"', "'#' is not the last character"),
        ('name = "air"\nfilter = "a/#"\nformat = "numbr"', "'numbr': expected one of"),
        ('name = "air"\nfilter = "a/#"\nformat = "json"\nschema = "a nosuch"', "expected a type .*, found 'nosuch'"),
    ],
)
def test_a_typed_table_that_cannot_be_is_refused(tmp_path: Path, table: str, problem: str) -> None:
    config = tmp_path / "ember.toml"
    config.write_text(f"[[pipeline.tables]]\n{table}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=problem):
        CliRunner().invoke(app, ["config", "check", str(config)], catch_exceptions=False)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["as-of", "now", "plant/#/x"], "plant/#/x: expected a topic filter: '#' is not the last character"),
        (["run", "--once", "--only", "foo"], "there is no job 'foo': expected one of messages"),
    ],
)
def test_a_wrong_argument_does_not_cost_a_start_of_spark(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], problem: str
) -> None:
    monkeypatch.chdir(tmp_path)  # where there is neither a log nor a lake, which would be the next complaint
    with pytest.raises(ConfigError, match=problem):
        CliRunner().invoke(app, ["pipeline", *arguments], catch_exceptions=False)

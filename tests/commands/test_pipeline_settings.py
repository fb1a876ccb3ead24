"""What only the pipeline reads is refused by the first command that reads it, and before Spark is started for it."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from embermq.cli import app_of
from embermq.errors import ConfigError

WRONG_OPTIONS = [
    (["--once", "--only", "foo"], "there is no job 'foo': expected one of messages"),
    (["--rebuild", "foo"], "--rebuild foo: expected a typed table"),
    (
        ["--rebuild", "messages"],
        r"expected a typed table, a rollup, violations or topic_stats, if it runs \(topic_stats\)",
    ),
    (["--window", "5 minuts"], "--window '5 minuts': expected a length such as '5 minutes'"),
    (["--window", "5"], "--window '5': expected a length"),
    (["--window", "0 minutes"], "--window '0 minutes': expected a length"),
    (["--window", "-5 minutes"], "--window '-5 minutes': expected a length"),
    (["--window", "1 month"], "--window '1 month': expected a length"),
    (["--fresh", "0s"], "--fresh 0s: expected a time span above zero"),
    (["--fresh", "10"], "--fresh 10: expected a time span above zero"),
    (["--catalog", "x"], "--catalog and --schema: expected both or none"),
]


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ('name = "air"\nfiltr = "a/#"\nformat = "number"', "there is no setting pipeline.tables.0.filtr"),
        ('name = "air"\nfilter = "a/#/b"\nformat = "number"', "'#' is not the last character"),
        ('name = "air"\nfilter = "$share/g/a/#"\nformat = "number"', r"\$share/ is for subscriptions only"),
        ('name = "air"\nfilter = "$asof/now/a/#"\nformat = "number"', r"\$asof/ is for subscriptions only"),
        ('name = "air"\nfilter = "a/#"\nformat = "numbr"', "'number' or 'sparkplug', not 'numbr'"),
        ('name = "air"\nfilter = "a/#"\nformat = "json"\nschema = "a nosuch"', "expected a type .*, found 'nosuch'"),
    ],
)
def test_a_typed_table_that_cannot_be_is_refused(tmp_path: Path, table: str, problem: str) -> None:
    config = tmp_path / "ember.toml"
    config.write_text(f"[[pipeline.tables]]\n{table}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=problem):
        CliRunner().invoke(app_of(), ["config", "check", str(config)], catch_exceptions=False)


AVRO = 'name = "r"\nfilter = "r"\nformat = "avro"\nschema = "a int"\nschema_file = "{}"'
PROTOBUF = 'name = "r"\nfilter = "r"\nformat = "protobuf"\nschema = "a int"\nschema_file = "{}"\nmessage = "m.M"'
RECURSIVE = '{"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}'
EMPTY_ITEMS = (
    '{"type": "record", "name": "L", "fields": [{"name": "a", "type": {"type": "array", "items": '
    '{"type": "record", "name": "E", "fields": [{"name": "n", "type": "null"}]}}}]}'
)


@pytest.mark.parametrize(
    ("table", "content", "problem"),
    [
        (AVRO, None, "the table r: .*file: No such file or directory"),
        (AVRO, b"{", "not an Avro schema"),
        (AVRO, b'"string"', "expected the schema of a record"),
        (AVRO, RECURSIVE.encode(), "the record L is within itself, which is not read"),
        (AVRO, EMPTY_ITEMS.encode(), "an array of items without bytes, which is not read"),
        (PROTOBUF, None, "the table r: .*file: No such file or directory"),
        (PROTOBUF, b"{", "not a complete descriptor set, as `protoc"),
        (PROTOBUF, b"", "there is no message m.M, with its package before it"),
    ],
)
def test_a_file_that_cannot_describe_payloads_is_refused(
    tmp_path: Path, table: str, content: bytes | None, problem: str
) -> None:
    if content is not None:
        (tmp_path / "file").write_bytes(content)
    config = tmp_path / "ember.toml"
    config.write_text(f"[[pipeline.tables]]\n{table.format(tmp_path / 'file')}\n", encoding="utf-8")
    for command in (["config", "check", str(config)], ["pipeline", "run", "--config", str(config), "--once"]):
        with pytest.raises(ConfigError, match=problem):
            CliRunner().invoke(app_of(), command, catch_exceptions=False)


def test_a_directory_without_schemas_and_a_missing_package_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "ember.toml"
    config.write_text(f"[[pipeline.tables]]\n{AVRO.format(tmp_path)}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"expected 1 to 10000 schemas as NUMBER.avsc, found 0"):
        CliRunner().invoke(app_of(), ["config", "check", str(config)], catch_exceptions=False)
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(ConfigError, match=r"format avro needs fastavro, .*pip install 'embermq\[formats\]'"):
        CliRunner().invoke(app_of(), ["config", "check", str(config)], catch_exceptions=False)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["as-of", "now", "plant/#/x"], "plant/#/x: expected a topic filter: '#' is not the last character"),
        (["as-of", "now", "$share/g/plant/#"], r"\$share/ is for subscriptions only"),
        *(([*of, *wrong], said) for of in (["run"], ["submit", "--print", "--"]) for wrong, said in WRONG_OPTIONS),
        (["run", "--memory", "1 gig"], "--memory 1 gig: expected an amount such as 512m or 1g"),
        (["run", "--memory", "0g"], "--memory 0g: expected an amount"),
        (["run", "--master", "locl[2]"], r"--master locl\[2\]: expected local"),
        (["run", "--master", "local[0]"], r"--master local\[0\]: expected local"),
    ],
)
def test_a_wrong_argument_does_not_cost_a_start_of_spark(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], problem: str
) -> None:
    monkeypatch.chdir(tmp_path)  # where there is neither a log nor a lake, which would be the next complaint
    with pytest.raises(ConfigError, match=problem):
        CliRunner().invoke(app_of(), ["pipeline", *arguments], catch_exceptions=False)

"""`ember pipeline infer`: the table that it proposes takes the payloads that it was proposed from."""

import json
import tomllib
from pathlib import Path
from typing import Any

import cbor2
import msgpack
import pytest
from typer.testing import CliRunner

from embermq.cli import app_of
from embermq.errors import ConfigError
from embermq.lake.payloads.inference import propose, sample
from embermq.lake.typed_tables import TypedTable
from support.payloads import SPARKPLUG
from support.recorded import Recorder


def proposed(topic_filter: str, *payloads: bytes, topic: str = "plant/7/status") -> tuple[TypedTable, str]:
    """The table as the settings file would have it, and the text."""
    text = propose(topic_filter, [(topic, payload) for payload in payloads]).toml()
    (table,) = tomllib.loads(text)["pipeline"]["tables"]
    return TypedTable.model_validate(table), text


def test_json_becomes_columns_of_its_fields() -> None:
    first: dict[str, Any] = {"state": "on", "load": 1, "n": 7, "tags": ["a"], "in": {"x": 1, "y": None}, "none": None}
    second = {**first, "load": 1.5, "at": "2026-03-01T14:03:00Z", "day": "2026-03-01", "ok": True, "big": 2**70}
    table, text = proposed("plant/+/status", json.dumps(first).encode(), json.dumps(second).encode(), b"{")
    assert table.columns == (
        "state string, load double, n long, tags array<string>, in struct<x: long>, at timestamp, day date, "
        "ok boolean, big double"
    )
    assert (table.name, table.format, table.levels) == ("plant", "json", ("", "level_2"))
    assert "# From 3 messages, of which 1 would be rejected." in text
    assert "The field 'none' is left out: it has no value." in text


def test_a_field_that_cannot_be_a_column_is_left_out_or_renamed() -> None:
    payload = json.dumps({"timestamp": 1, "a b": 1, "x-y": 2, "X-Y": 3, "mixed": [1, "a"], "\n": 1, "level_1": "z"})
    table, text = proposed("+/#", payload.encode())
    assert table.columns == "payload_timestamp long, `x-y` long, `payload_X-Y` long, payload_level_1 string"
    assert table.aliases == {
        "payload_timestamp": ("timestamp",),
        "payload_X-Y": ("X-Y",),
        "payload_level_1": ("level_1",),
    }
    assert "The field 'mixed' is left out: it has no type for array." in text
    assert "The field '\\n' is left out: it cannot be the name of a column." in text
    assert "0 would be rejected" in text


@pytest.mark.parametrize(
    ("payload", "expected", "columns"),
    [
        (b" 21.5 ", "number", ""),
        (b"on", "text", ""),
        (b'"on"', "text", ""),
        (cbor2.dumps({"raw": b"\x00", "n": 1}), "cbor", "raw binary, n long"),
        (msgpack.packb({"raw": b"\x00", "n": 1}), "msgpack", "raw binary, n long"),
    ],
)
def test_the_format_is_the_one_that_most_payloads_have(payload: bytes, expected: str, columns: str) -> None:
    table, text = proposed("air/+/+", payload, payload, topic="air/x/pm25")
    assert (table.format, table.columns, table.levels) == (expected, columns, ("", "level_2", "level_3"))
    assert "0 would be rejected" in text


def test_sparkplug_is_known_by_its_topics() -> None:
    table, _ = proposed("spBv1.0/+/+/+/#", SPARKPLUG[0][1], topic=SPARKPLUG[0][0])
    assert (table.format, table.levels, table.columns) == ("sparkplug", (), "")


def test_deep_and_wide_documents_are_bounded() -> None:
    deep: Any = 1
    for _ in range(60):
        deep = {"d": deep}
    wide = {f"f{number}": number for number in range(2_000)}
    table, text = proposed("a", json.dumps({**wide, "d": deep}).encode())
    assert len(table.values()) == 500 and "at most 500 are proposed" in text
    assert "left out" in proposed("a", json.dumps({"d": deep, "x": 1}).encode())[1]


def test_the_command_reads_the_newest_messages_of_a_filter(tmp_path: Path) -> None:
    made = Recorder(tmp_path / "data", group_records=500)
    for number in range(3_000):
        made.publish("air/x/pm25", b"old" if number < 1_500 else b"%d" % number)
        made.publish("other", b"\xff")
    made.publish("air/x/pm25", b"", retain=True)
    made.close()
    data = ["--data", str(tmp_path / "data")]
    done = CliRunner().invoke(
        app_of(), ["pipeline", "infer", "air/+/+", "--name", "air", *data], catch_exceptions=False
    )
    assert done.exit_code == 0
    (table,) = tomllib.loads(done.stdout)["pipeline"]["tables"]
    assert table == {"name": "air", "filter": "air/+/+", "format": "number", "levels": ["", "level_2", "level_3"]}
    assert "From 1000 messages, of which 0 would be rejected." in done.stdout
    config = tmp_path / "ember.toml"
    config.write_text(done.stdout)
    assert CliRunner().invoke(app_of(), ["config", "check", str(config)]).exit_code == 0
    for topic_filter, said in (
        ("nothing/+", "there is no message with a payload for nothing/"),
        ("other", "the payloads are not numbers, text, or objects"),
        ("a#", "expected a topic filter"),
    ):
        with pytest.raises(ConfigError, match=said):
            CliRunner().invoke(app_of(), ["pipeline", "infer", topic_filter, *data], catch_exceptions=False)
    with pytest.raises(ConfigError, match="expected small letters"):
        CliRunner().invoke(app_of(), ["pipeline", "infer", "air/#", "--name", "A", *data], catch_exceptions=False)


def test_a_sample_is_the_newest_messages_in_their_order(tmp_path: Path) -> None:
    from embermq.history.directory import DirectoryLog

    made = Recorder(tmp_path / "data")
    for number in range(20):
        made.publish("a", b"%d" % number)
    made.close()
    assert sample(DirectoryLog(made.data), "a") == [("a", b"%d" % number) for number in range(20)]

"""Payloads of typed tables and what a strict reader says of each, from `strict_payloads.jsonl`.

Each line has the table, the payload (as text, as `hex`, or as texts to `repeat`), and the verdict: the `row`, without
the columns that are null, or the `field` and the beginning of the `reason` in the rejects.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from embermq.cli import app_of
from embermq.lake.payloads.reader import payload_reader
from embermq.lake.typed_tables import TypedTable
from support.payloads import CASES as FORMAT_CASES
from support.payloads import SPARKPLUG, Case, check_case, settings_of, tables, write_files
from support.recorded import Recorder

CASES = [json.loads(line) for line in (Path(__file__).parent / "strict_payloads.jsonl").read_text().splitlines()]
SCHEMA = (
    "s string, b boolean, y byte, i int, l long, f float, d double, m decimal(5,2), day date, at timestamp, "
    "a array<int>, o struct<x: int, y: array<double>>, t map<string, int>"
)
METRICS = '[[pipeline.tables]]\nname = "metrics"\nfilter = "spBv1.0/+/+/+/#"\nformat = "sparkplug"\n'
SETTINGS = f"""
[[pipeline.tables]]
name = "numbers"
filter = "numbers"
format = "number"

[[pipeline.tables]]
name = "documents"
filter = "documents"
format = "json"
schema = "{SCHEMA}"
"""


def payload_of(case: Mapping[str, Any]) -> bytes:
    if "hex" in case:
        return bytes.fromhex(case["hex"])
    text: str = "".join(part * count for part, count in case["repeat"]) if "repeat" in case else case["payload"]
    return text.encode()


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return dict(value)
    return str(value) if isinstance(value, Decimal) else value.isoformat() if isinstance(value, date) else value


def check(case: Mapping[str, Any], values: Mapping[str, Any] | None, field: str | None, reason: str | None) -> None:
    if "row" in case:
        assert reason is None and values is not None, (case, field, reason)
        found = {name: plain(value) for name, value in values.items() if value is not None}
        assert json.dumps(found, sort_keys=True) == json.dumps(case["row"], sort_keys=True), case
    else:
        assert field == case["field"], (case, values, field, reason)
        assert reason is not None and reason.startswith(case["reason"]), (case, reason)


def test_there_are_enough_payloads() -> None:
    assert len(CASES) > 180 and sum("row" in case for case in CASES) > 30


@pytest.mark.parametrize("case", [case for case in CASES if case["table"] == "documents"], ids=lambda case: "")
def test_a_document_is_read_strictly(case: Mapping[str, Any]) -> None:
    # Without a decimal, other numbers are read in another way.
    schemas = [SCHEMA] if b'"m"' in payload_of(case) else [SCHEMA, SCHEMA.replace("m decimal(5,2), ", "")]
    for schema in schemas:
        table = TypedTable(name="documents", topic_filter="documents", format="json", columns=schema)
        (row,) = payload_reader(table).read_array(pa.array([payload_of(case)])).to_pylist()
        check(case, row["parsed"], row["field"], row["reason"])


@pytest.mark.parametrize("case", [case for case in CASES if case["table"] == "numbers"], ids=lambda case: "")
def test_a_number_is_read_in_the_same_way_without_spark(case: Mapping[str, Any]) -> None:
    reader = payload_reader(TypedTable(name="numbers", topic_filter="numbers", format="number"))
    (row,) = reader.read_array(pa.array([payload_of(case)])).to_pylist()
    check(case, row["parsed"], row["field"], row["reason"])


def test_the_tables_have_exactly_the_payloads_that_fit(spark: SparkSession, tmp_path: Path) -> None:
    """Every format in one run of the command, in the session of all tests: to start Spark takes the most time."""
    deltalake = pytest.importorskip("deltalake")
    made = Recorder(tmp_path / "data")
    cases = {made.publish(case["table"], payload_of(case)): case for case in CASES}
    of_formats = {made.publish(case.table, case.payload): case for case in FORMAT_CASES}
    of_sparkplug = [made.publish(topic, payload) for topic, payload in SPARKPLUG]
    made.close()
    write_files(tmp_path)
    # A table costs seconds; these differ from another one only in their decoder, which is tested without Spark.
    formats = {name: table for name, table in tables(tmp_path).items() if name not in ("registry", "renamed", "top")}
    (tmp_path / "ember.toml").write_text(SETTINGS + "".join(map(settings_of, formats.values())) + METRICS)
    only = [part for name in ("numbers", "documents", *formats, "metrics") for part in ("--only", name)]
    where = ["--data", str(made.data), "--lake", str(tmp_path / "lake"), "--master", "local[2]"]
    arguments = ["pipeline", "run", *where, "--once", "--config", str(tmp_path / "ember.toml"), *only]
    done = CliRunner().invoke(app_of(), arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    seen = []
    for name in ("numbers", "documents", "numbers_rejects", "documents_rejects"):
        for row in deltalake.DeltaTable(str(tmp_path / "lake" / name)).to_pyarrow_table().to_pylist():
            case = cases[row.pop("offset")]
            seen.append(case)
            del row["timestamp"], row["topic"]
            if name.endswith("rejects"):
                assert row["payload"] == payload_of(case)
                check(case, None, row["field"], row["reason"])
            else:
                check(case, row, None, None)
    assert len(seen) == len(CASES)
    check_formats(tmp_path / "lake", formats, of_formats)
    metrics = deltalake.DeltaTable(str(tmp_path / "lake" / "metrics")).to_pyarrow_table()
    assert {*metrics["offset"].to_pylist()} <= {*of_sparkplug} and metrics["is_stale"].to_pylist().count(True) == 16


def check_formats(lake: Path, names: Iterable[str], cases: Mapping[int, Case]) -> None:
    """Each payload is in its table, or in its rejects, or has no rows."""
    deltalake = pytest.importorskip("deltalake")
    for name in names:
        rejects = deltalake.DeltaTable(str(lake / f"{name}_rejects")).to_pyarrow_table().to_pylist()
        misfits = {row["offset"]: row for row in rejects}
        found: dict[int, list[dict[str, Any]]] = {}
        for row in deltalake.DeltaTable(str(lake / name)).to_pyarrow_table().to_pylist():
            offset = row["offset"]
            found.setdefault(offset, []).append(
                {key: row[key] for key in row.keys() - {"offset", "timestamp", "topic"}}
            )
        own = {offset: case for offset, case in cases.items() if case.table == name}
        for offset, case in own.items():
            misfit = misfits.get(offset, {"field": None, "reason": None, "payload": case.payload})
            assert misfit["payload"] == case.payload
            check_case(case, found.get(offset, []), misfit["field"], misfit["reason"])
        assert len(misfits) == len(rejects) == sum(case.rows is None for case in own.values())

"""`ember pipeline retry`: rejects that fit now go to their table, once, whatever comes in between."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from embermq.cli import app_of
from embermq.errors import ConfigError
from embermq.instants import EPOCH
from embermq.lake import retry as retries
from embermq.lake.delta import open_table
from embermq.lake.lake import Lake
from embermq.lake.made_from import write_definition
from embermq.lake.retry import Retried, retry
from embermq.lake.typed_tables import TypedTable

deltalake = pytest.importorskip("deltalake")

BEFORE = {"name": "docs", "filter": "d/+", "format": "json", "schema": "n int", "levels": ["", "which"]}
AFTER = {**BEFORE, "aliases": {"n": ["count"]}}
PAYLOADS = [b'{"n": 1}', b'{"n": "x"}', b"{", b'{"n": null, "count": 4}', b"[]"]


def lake_with(place: Path, settings: dict[str, Any], *rejected: tuple[int, bytes]) -> tuple[Lake, TypedTable]:
    """A lake that has the table, empty, and these rejects."""
    table = TypedTable.model_validate(settings)
    lake = Lake(place)
    lake.open()
    for one in table.tables():
        deltalake.DeltaTable.create(lake.table(one.name), one.arrow())
    rows = [
        {"offset": offset, "timestamp": EPOCH, "topic": f"d/{offset}", "payload": payload, "field": None, "reason": "?"}
        for offset, payload in rejected
    ]
    deltalake.write_deltalake(
        lake.table("docs_rejects"), pa.Table.from_pylist(rows, table.rejects().arrow()), mode="append"
    )
    write_definition(lake, table.name, table.definition())
    return lake, table


def rows_of(lake: Lake, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = open_table(lake, name).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: int(row["offset"]))


def test_what_fits_moves_and_the_rest_stays(tmp_path: Path) -> None:
    lake, table = lake_with(tmp_path / "lake", AFTER, *enumerate(PAYLOADS))
    assert retry(lake, table) == Retried(2, 3)
    assert [(row["offset"], row["which"], row["n"]) for row in rows_of(lake, "docs")] == [(0, "0", 1), (3, "3", 4)]
    assert [row["payload"] for row in rows_of(lake, "docs_rejects")] == [PAYLOADS[at] for at in (1, 2, 4)]
    version = open_table(lake, "docs").version(), open_table(lake, "docs_rejects").version()
    assert retry(lake, table) == Retried(0, 3)
    assert (open_table(lake, "docs").version(), open_table(lake, "docs_rejects").version()) == version


def test_a_crash_between_the_two_tables_duplicates_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, table = lake_with(tmp_path / "lake", AFTER, *enumerate(PAYLOADS))
    write = retries._write

    def fails_for_rejects(lake: Lake, name: str, *others: Any) -> None:
        if name == "docs_rejects":
            raise OSError("no space left")
        write(lake, name, *others)

    with monkeypatch.context() as patch:
        patch.setattr(retries, "_write", fails_for_rejects)
        with pytest.raises(OSError, match="no space left"):
            retry(lake, table)
    assert len(rows_of(lake, "docs")) == 2 and len(rows_of(lake, "docs_rejects")) == 5
    assert retry(lake, table) == Retried(2, 3)
    assert len(rows_of(lake, "docs")) == 2 and len(rows_of(lake, "docs_rejects")) == 3


def test_a_payload_of_several_rows_moves_as_a_whole(tmp_path: Path) -> None:
    settings = {**BEFORE, "explode": "e"}
    lake, table = lake_with(tmp_path / "lake", settings, (0, b'{"e": [{"n": 1}, {"n": 2}]}'), (1, b'{"e": []}'))
    assert retry(lake, table) == Retried(2, 0)
    assert [(row["offset"], row["n"]) for row in rows_of(lake, "docs")] == [(0, 1), (0, 2)]


def test_the_command_says_what_it_did_and_what_it_cannot_do(tmp_path: Path) -> None:
    lake, _ = lake_with(tmp_path / "lake", AFTER, *enumerate(PAYLOADS))
    config = tmp_path / "ember.toml"
    config.write_text(f'[pipeline]\nlake = "{lake.place}"\n{BLOCK}aliases = {{ n = ["count"] }}\n{METRICS}')
    command = ["pipeline", "retry", "docs", "--config", str(config)]
    with lake.lock(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(retries, "LOCK_WAIT_S", 0.0)
        with pytest.raises(ConfigError, match="another pipeline writes to"):
            CliRunner().invoke(app_of(), command, catch_exceptions=False)
    done = CliRunner().invoke(app_of(), command, catch_exceptions=False)
    assert done.stdout == "docs: 2 rejects fit now and are in the table, 3 stay\n"
    for name, said in (
        ("nothing", "nothing: expected a typed table of the settings .docs, metrics."),
        ("metrics", "what an alias means depends on the messages before it: `ember pipeline run --rebuild metrics`"),
    ):
        with pytest.raises(ConfigError, match=said):
            CliRunner().invoke(app_of(), ["pipeline", "retry", name, "--config", str(config)], catch_exceptions=False)
    config.write_text(config.read_text().replace('"n int"', '"n int, m int"'))
    with pytest.raises(ConfigError, match="does not have the columns of the settings yet: `ember pipeline run --once`"):
        CliRunner().invoke(app_of(), command, catch_exceptions=False)
    config.write_text(config.read_text().replace("d/+", "e/+"))
    with pytest.raises(ConfigError, match="was built with filter 'd/"):
        CliRunner().invoke(app_of(), command, catch_exceptions=False)


BLOCK = """
[[pipeline.tables]]
name = "docs"
filter = "d/+"
format = "json"
schema = "n int"
levels = ["", "which"]
"""
METRICS = """
[[pipeline.tables]]
name = "metrics"
filter = "spBv1.0/+/+/+/#"
format = "sparkplug"
"""

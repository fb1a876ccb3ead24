"""The tables of a lake over HTTP: written here with delta-rs, without Spark."""

import asyncio
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from embermq.http.resources.pipeline.lake_tables import (
    FRESH_PART,
    FRESH_S,
    GAPS_MAX,
    LakeFacts,
    LakeTables,
    TableFacts,
    read_tables,
)
from embermq.http.resources.pipeline.progress import facts_of
from embermq.instants import instant_us
from support.lake_files import write_gaps


def test_rows_last_commit_and_gaps(tmp_path: Path) -> None:
    before_us = instant_us("now")
    for _ in range(2):
        write_deltalake(tmp_path / "messages", pa.table({"offset": [1, 2, 3]}), mode="append")
    write_gaps(tmp_path, 1)
    (tmp_path / "_embermq").mkdir()
    (tmp_path / "clients" / "_delta_log").mkdir(parents=True)  # as after a crash before the first commit
    found = facts_of({}, 1, read_tables(tmp_path))
    assert found.tables is not None
    assert [(table.name, table.rows) for table in found.tables] == [("gaps", 1), ("messages", 6)]
    for table in found.tables:
        assert table.committed is not None
        assert before_us - 1000 <= instant_us(table.committed) <= instant_us("now")  # Delta keeps milliseconds
    assert found.gaps is not None
    assert [gap.model_dump(exclude_none=True) for gap in found.gaps] == [
        {
            "job": "retained",
            "from_offset": 0,
            "to_offset": 5,
            "to_timestamp": "2026-01-31T14:03:07.000000Z",
            "why": "trimmed",
            "noticed": "2026-01-31T14:03:07.000000Z",
        }
    ]


def test_only_the_newest_gaps_are_given(tmp_path: Path) -> None:
    write_gaps(tmp_path, GAPS_MAX + 20)
    gaps = read_tables(tmp_path).gaps
    assert gaps is not None
    assert [gap.from_offset for gap in gaps] == [10 * number for number in range(GAPS_MAX + 19, 19, -1)]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"add": 3}', '{"commitInfo": {"timestamp": "x"}}'])
def test_a_table_that_cannot_be_read_hides_no_other(tmp_path: Path, text: str) -> None:
    write_deltalake(tmp_path / "messages", pa.table({"offset": [1]}))
    for name in ("gaps", "broken"):
        (tmp_path / name / "_delta_log").mkdir(parents=True)
        (tmp_path / name / "_delta_log" / "00000000000000000000.json").write_text(text)
    found = read_tables(tmp_path)
    assert found.tables is not None
    assert [(table.name, table.rows) for table in found.tables] == [("broken", None), ("gaps", None), ("messages", 1)]
    assert found.gaps is None


def test_data_files_that_are_gone_leave_the_gaps_unknown(tmp_path: Path) -> None:
    write_gaps(tmp_path, 1)
    for file in (tmp_path / "gaps").glob("*.parquet"):
        file.unlink()
    assert read_tables(tmp_path).gaps is None


def test_nothing_is_known_without_a_lake_or_delta_rs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_tables(None) == read_tables(tmp_path / "none") == LakeFacts()
    assert read_tables(tmp_path) == LakeFacts(tables=[], gaps=[])
    monkeypatch.setitem(sys.modules, "deltalake", None)
    assert read_tables(tmp_path) == LakeFacts()


def test_those_who_ask_share_one_reading_for_a_while() -> None:
    facts = LakeFacts(tables=[TableFacts(name="messages", rows=1)], gaps=[])
    clock_s, readings = [0.0], [0]

    async def test() -> None:
        may_end = asyncio.Event()

        async def read() -> LakeFacts:
            readings[0] += 1
            await may_end.wait()
            clock_s[0] += 2.0
            return facts

        tables = LakeTables(lambda: clock_s[0])
        first, second = (asyncio.ensure_future(tables.get(read)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()  # one who goes away does not end the reading
        may_end.set()
        assert await second == facts
        clock_s[0] += FRESH_PART * 2.0 - 0.1
        assert await tables.get(read) == facts
        assert readings == [1]
        clock_s[0] += 0.2
        assert await tables.get(read) == facts
        assert readings == [2]

    asyncio.run(test())


def test_after_a_failed_reading_the_next_one_waits_too() -> None:
    clock_s, readings = [0.0], [0]

    async def fails() -> LakeFacts:
        readings[0] += 1
        raise RuntimeError("no thread")

    async def test() -> None:
        tables = LakeTables(lambda: clock_s[0])
        for expected in (1, 1, 2):
            with pytest.raises(RuntimeError, match="no thread"):
                await tables.get(fails)
            assert readings == [expected]
            clock_s[0] += FRESH_S * 0.6

    asyncio.run(test())

"""`ember sql` answers what `ember pipeline query` and `as-of` answer, also without a log on this machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("deltalake")

from typer.testing import CliRunner

from embermq.cli import app_of
from embermq.lake.as_of import retained_as_of
from embermq.lake.duck import open_tables
from embermq.lake.errors import NotKnown
from embermq.sql.session import RetainedRow, open_session
from support.local_lake import local_lake
from support.recorded import Recorder


def nothing_retained(_: int | None) -> Iterator[RetainedRow]:
    yield from ()


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Recorder]:
    made = Recorder(tmp_path / "data")
    for number in range(40):
        made.publish(f"t/{number % 4}", b"%d" % number, retain=True)
    made.publish("t/1", b"", retain=True)
    made.flush()
    yield made
    made.close()


@pytest.mark.parametrize("has_log", [True, False])
def test_the_tables_of_the_lake_answer_in_the_same_session(made: Recorder, tmp_path: Path, has_log: bool) -> None:
    lake = local_lake(tmp_path / "lake", made)
    log = made.data / "log" if has_log else None
    instant = made.published[20][1] / 1e6
    with open_session(log, nothing_retained, lake) as session, open_tables(lake) as tables:
        expected = retained_as_of(tables, made.published[20][1]).to_pylist()
        names, rows = session.rows(f"select * from lake.retained_as_of('{instant:.6f}') order by topic")
        assert [dict(zip(names, row, strict=True)) for row in rows] == expected != []
        assert session.take_tables_read() == [f"lake.retained_as_of({instant:.6f})"]
        now = session.rows("select topic, payload from lake.retained_as_of('now') order by topic")[1]
        assert [*now] == [[topic, kept[0]] for topic, kept in sorted(made.retained().items())]
        session.take_tables_read()
        history = "select count(*) n, count(valid_to) ended from retained_history"
        assert [*session.rows(history)[1]] == [list(tables.rows(history)[0].values())]
        assert session.take_tables_read() == ["lake.retained", "lake.retained_closed"]
        with pytest.raises(NotKnown, match="is not known: the lake knows it from"):
            session.rows("select * from lake.retained_as_of('2020-01-01')")
        [*session.rows("select count(*) from messages")[1]]
        assert session.take_tables_read() == ["messages" if has_log else "lake.messages"]


def test_the_command_needs_no_log_where_there_is_a_lake(
    made: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local_lake(tmp_path / "lake", made)
    monkeypatch.chdir(tmp_path / "lake")  # where no server has its data
    query = "select count(*) as n from retained_as_of('now')"
    answered = CliRunner().invoke(app_of(["sql"]), ["sql", "--lake", str(tmp_path / "lake"), "--csv", query])
    assert (answered.exit_code, answered.stdout.split()) == (0, ["n", "3"]), answered.output

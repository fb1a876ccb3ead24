"""Queries of a lake see its tables and nothing else of the machine."""

from pathlib import Path

import pytest

from support.ember_command import ember, sentence
from support.local_lake import local_lake
from support.recorded import Recorder


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    made = Recorder(tmp_path / "data")
    made.publish("t/1", b"1", retain=True)
    made.close()
    return local_lake(tmp_path / "lake", made).directory


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("select * from read_csv('{file}')", "disabled"),
        ("select * from '{file}'", "disabled"),
        ("select * from read_text('{file}')", "disabled"),
        ("select 1; copy messages to '{written}'", "disabled"),
        ("copy messages to '{written}'", "disabled"),
        ("export database '{written}'", "disabled"),
        ("attach '{written}'", "disabled"),
        ("install httpfs", "disabled"),
        ("set enable_external_access = true", "locked"),
        ("set lock_configuration = false", "locked"),
    ],
)
@pytest.mark.parametrize("with_log", [False, True])
def test_a_query_reads_and_writes_no_file(lake: Path, tmp_path: Path, sql: str, said: str, with_log: bool) -> None:
    file, written = tmp_path / "secret.csv", tmp_path / "written"
    file.write_text("a,b\n1,2\n")
    data: list[str | Path] = ["--data", tmp_path / "data"] if with_log else []
    done = ember("pipeline", "query", sql.format(file=file, written=written), "--lake", lake, *data)
    assert said in sentence(done)
    assert not written.exists()


def test_the_tables_and_the_log_are_still_there(lake: Path, tmp_path: Path) -> None:
    sql = 'select l.topic from messages m join log l using ("offset") join retained_history using ("offset")'
    done = ember("pipeline", "query", sql, "--lake", lake, "--data", tmp_path / "data", "--csv")
    assert done.lines == ["topic", "t/1"], done

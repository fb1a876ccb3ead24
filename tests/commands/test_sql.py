"""`ember sql`: formats, the prompt, errors."""

import json
from pathlib import Path

import pyarrow.parquet
import pytest

from support.ember_command import DataPlace, Done, ember, sentence


@pytest.fixture
def filled(place: DataPlace) -> DataPlace:
    place.set("plant/a", b"21.5")
    place.set("plant/b", b"\xff\x1b[2J")
    place.set("plant/a", b"22")
    return place


def sql(place: DataPlace, *arguments: str | Path, stdin: bytes = b"") -> Done:
    return ember("sql", *arguments, "--data", place.data, "--lake", place.data / "none", stdin=stdin)


def test_a_query_in_every_format(filled: DataPlace, tmp_path: Path) -> None:
    query = "select topic, count(*) as n from messages group by topic order by topic"
    assert sql(filled, query).lines == ["TOPIC    N", "plant/a  2", "plant/b  1"]
    assert [json.loads(line) for line in sql(filled, query, "--json").lines] == [
        {"topic": "plant/a", "n": 2},
        {"topic": "plant/b", "n": 1},
    ]
    assert sql(filled, query, "--csv").lines == ["topic,n", "plant/a,2", "plant/b,1"]
    path = tmp_path / "out.parquet"
    done = sql(filled, query, "--parquet", path)
    assert (done.code, done.printed, done.errors) == (0, b"", f"wrote 2 rows to {path}\n")
    assert pyarrow.parquet.read_table(path).to_pydict() == {"topic": ["plant/a", "plant/b"], "n": [2, 1]}


def test_the_retained_set_of_a_server_that_runs_or_is_stopped(filled: DataPlace) -> None:
    query = "select topic, payload from retained order by topic"
    assert sql(filled, query).lines == ["TOPIC    PAYLOAD", "plant/a  22", "plant/b  \\xff\\x1b[2J"]
    first = json.loads(sql(filled, "select timestamp from messages order by 1 limit 1", "--json").text)["timestamp"]
    as_of = f"select topic, decode(payload) as p from retained_as_of('{first}')"
    assert sql(filled, as_of, "--csv").lines == ["topic,p", "plant/a,21.5"]


def test_the_prompt_answers_until_the_input_ends(filled: DataPlace) -> None:
    queries = b"select 1 as x;\nselect\n2 as y;\nnonsense;\n.tables\nselect 3 as z"
    done = sql(filled, stdin=queries)
    assert done.code == 0
    assert done.lines == ["X", "1", "Y", "2", "clients", "messages", "retained", "Z", "3"]
    assert done.errors.startswith("ember: Parser Error") and done.errors.count("\n") == 1
    assert sql(filled, stdin=b".quit\nselect 1;").printed == b""


def test_what_is_wrong_is_one_sentence(filled: DataPlace, tmp_path: Path) -> None:
    assert "Referenced column" in sentence(sql(filled, "select topc from messages"))
    assert "retained_as_of: 'soon' is not" in sentence(sql(filled, "select * from retained_as_of('soon')"))
    assert "--json and --csv" in sentence(sql(filled, "select 1", "--json", "--csv"))
    assert "--parquet: expected a query" in sentence(sql(filled, "--parquet", tmp_path / "x"))
    assert "cannot write" in sentence(sql(filled, "select 1", "--parquet", tmp_path / "none" / "x"))
    assert "is not an EmberMQ log" in sentence(ember("sql", "select 1", "--data", tmp_path / "none"))

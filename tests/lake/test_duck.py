"""The tables in DuckDB: names, functions, types, and one sentence for each error."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from embermq.lake.duck import LocalTables, open_tables
from embermq.lake.errors import LakeError, PipelineError, SqlMissing
from embermq.lake.lake import Lake
from support.local_lake import local_lake
from support.recorded import Recorder


@pytest.fixture
def tables(recorder: Callable[..., Recorder], tmp_path: Path) -> Iterator[LocalTables]:
    made = recorder()
    for number in range(9):
        made.publish(f"t/{number % 3}", b"%d" % number, retain=True)
    made.flush()
    with open_tables(local_lake(tmp_path / "lake", made)) as opened:
        yield opened


def test_queries_see_every_table_and_the_view_of_the_history(tables: LocalTables) -> None:
    assert tables.names == ("messages", "retained", "retained_closed", "topic_stats")
    rows = tables.rows("select topic, count(*) as n from messages group by topic order by topic")
    assert rows == [{"topic": f"t/{number}", "n": 3} for number in range(3)]
    assert tables.rows("select count(*) as n from retained_history where valid_to is null") == [{"n": 3}]
    (row,) = tables.rows('select timestamp, payload from messages where "offset" = ?', (1,))
    assert (row["timestamp"].utcoffset().total_seconds(), row["payload"]) == (0, b"0")
    assert tables.batch("select * from messages", limit=4).num_rows == 4


def test_topic_filters_match_in_sql_constant_or_joined(tables: LocalTables) -> None:
    count = "select count(*)::int as n from messages"
    assert tables.rows(f"{count} where mqtt_matches('t/+', topic)") == [{"n": 9}]
    assert tables.rows(f"{count} where mqtt_matches('t/1', topic)") == [{"n": 3}]
    assert tables.rows(f"{count} where mqtt_matches(null, topic)") == [{"n": 0}]
    joined = "(values ('t/1'), ('+/2'), ('x')) as wanted (filter) on mqtt_matches(filter, topic)"
    assert tables.rows(f"{count} join {joined}") == [{"n": 6}]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("select * from nonsense", "Catalog Error: Table with name nonsense does not exist"),
        ("selec 1", 'Parser Error: syntax error at or near "selec"'),
        ("select max(offset) from messages", '"offset" is a keyword of DuckDB, write the column with double quotes'),
        ("select nosuch from messages", 'Binder Error: Referenced column "nosuch" not found'),
        ("select mqtt_matches('a/#/b', topic) from messages", "'a/#/b' is no topic filter"),
    ],
)
def test_a_query_that_fails_is_told_in_one_sentence(tables: LocalTables, sql: str, said: str) -> None:
    with pytest.raises(PipelineError) as caught:
        tables.rows(sql)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_directory_that_is_no_lake_and_missing_packages_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LakeError, match=r"is no lake: `ember pipeline run` makes one"), open_tables(Lake(tmp_path)):
        pass
    monkeypatch.setattr("embermq.lake.errors.find_spec", lambda package: None)
    with pytest.raises(SqlMissing, match=r"pip install 'embermq\[sql\]'"), open_tables(Lake(tmp_path)):
        pass

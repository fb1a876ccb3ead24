"""The tables of `ember sql`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from embermq.lake.errors import PipelineError
from embermq.sql.session import RetainedRow, SqlSession, open_session
from embermq.store.records import SESSION, SESSION_EXPIRY, SESSION_SEQUENCE
from embermq.store.rows import Group, Kind
from support.log_samples import NOW_US, open_log

EVENTS = [
    (Kind.CONNECTED, 0, b"", b"MQTT 5\n127.0.0.1\nann\nsmith\npersistent"),
    (Kind.SESSION_OPENED, 0, b"", SESSION_EXPIRY.pack(0, 60) + b"ann"),
    (Kind.SUBSCRIBED, 0b101_1101, b"plant/#", SESSION.pack(2)),
    (Kind.PUBLISH, 1, b"plant/a", b'{"value": 21.5}'),
    (Kind.PUBLISH, 0, b"plant/b", b"\xff"),
    (Kind.QUEUED, 0, b"", SESSION_SEQUENCE.pack(2, 1) + bytes(16)),
    (Kind.DISCONNECTED, 0, b"", SESSION_SEQUENCE.pack(2, 3) + b"keep alive"),
    (Kind.SESSION_ENDED, 0, b"", SESSION.pack(2)),
]


def retained(as_of_us: int | None) -> Iterator[RetainedRow]:
    yield "plant/a", b"now" if as_of_us is None else b"%d" % as_of_us, 1, 4, NOW_US


@pytest.fixture
def session(tmp_path: Path) -> Iterator[SqlSession]:
    log = open_log(tmp_path)
    group = Group(1)
    for kind, flags, topic, payload in EVENTS:
        group.append(NOW_US, kind, flags, topic, payload, b"screen")
    log.append(group, NOW_US)
    log.close()
    with open_session(tmp_path, retained) as opened:
        yield opened


def answer(session: SqlSession, sql: str) -> list[list[object]]:
    return list(session.rows(sql)[1])


def test_messages_of_the_log(session: SqlSession) -> None:
    assert session.tables() == ["clients", "messages", "retained"]
    assert answer(session, "select topic, payload, qos from messages") == [
        ["plant/a", b'{"value": 21.5}', 1],
        ["plant/b", b"\xff", 0],
    ]
    query = "select (decode(payload)::json->>'value')::double from messages where topic = 'plant/a'"
    assert answer(session, query) == [[21.5]]
    assert answer(session, "select topic from messages where mqtt_matches('+/b', topic)") == [["plant/b"]]


def test_the_retained_set_of_now_and_as_of_an_instant(session: SqlSession) -> None:
    assert answer(session, "select topic, payload from retained") == [["plant/a", b"now"]]
    query = "select n.payload, t.payload from retained n join RETAINED_AS_OF ('1970-01-01T00:00:07Z') t using (topic)"
    assert answer(session, query) == [[b"now", b"7000000"]]
    assert answer(session, "select payload from retained_as_of('5')") == [[b"5000000"]]
    with pytest.raises(PipelineError, match="retained_as_of: 'soon' is not an instant such as"):
        session.rows("select * from retained_as_of('soon')")


def test_what_only_looks_like_an_instant_is_left_as_it_is(session: SqlSession) -> None:
    query = """select 'it''s retained_as_of(''5'')' as "retained_as_of('5')", $$retained_as_of('5')$$
    -- retained_as_of('soon')
    /* retained_as_of('soon') */"""
    assert session.rows(query)[0][0] == "retained_as_of('5')"
    assert answer(session, query) == [["it's retained_as_of('5')", "retained_as_of('5')"]]
    assert answer(session, "select 'x' || payload::varchar from retained_as_of('5') -- 'it") == [["x5000000"]]


def test_a_session_tells_what_a_query_has_read(session: SqlSession) -> None:
    assert session.take_tables_read() == []
    answer(session, "select count(*) from messages m join retained_as_of('5') r using (topic)")
    assert session.take_tables_read() == ["messages", "retained_as_of(5)"]
    answer(session, "select 'retained'")
    assert session.take_tables_read() == []


def test_a_lake_that_is_not_there_is_told(session: SqlSession) -> None:
    with pytest.raises(PipelineError, match=r"retained_as_of: there is no lake: create one with `ember pipeline run`"):
        session.rows("select * from lake.retained_as_of('5')")


def test_what_clients_did(session: SqlSession) -> None:
    names, rows = session.rows('select * exclude (timestamp, client_id) from clients order by "offset"')
    found = [{name: value for name, value in zip(names, row, strict=True) if value is not None} for row in rows]
    assert found == [
        {
            "offset": 1,
            "event": "connected",
            "protocol": "MQTT 5",
            "address": "127.0.0.1",
            "user_name": "ann\nsmith",
            "persistent": True,
        },
        {"offset": 2, "event": "session_opened", "session_id": 2, "session_expiry_s": 60, "user_name": "ann"},
        {
            "offset": 3,
            "event": "subscribed",
            "session_id": 2,
            "topic_filter": "plant/#",
            "qos": 1,
            "no_local": True,
            "retain_as_published": True,
            "retain_handling": 1,
        },
        {"offset": 7, "event": "disconnected", "session_id": 2, "reason": "keep alive"},
        {"offset": 8, "event": "session_ended", "session_id": 2},
    ]


@pytest.mark.parametrize(
    "sql",
    [
        "select * from '/etc/passwd'",
        "select * from read_text('/etc/passwd')",
        "copy messages to '/tmp/embermq-should-not-exist.csv'",
        "attach '/tmp/embermq-should-not-exist.db'",
        "install httpfs",
        "set enable_external_access = true",
        "select nonsense",
        "nonsense",
        "select (payload::varchar)::int from messages",
    ],
)
def test_what_is_wrong_or_not_allowed_is_one_sentence(session: SqlSession, sql: str) -> None:
    with pytest.raises(PipelineError) as caught:
        list(session.rows(sql)[1])
    assert str(caught.value) and "\n" not in str(caught.value)
    assert not Path("/tmp/embermq-should-not-exist.csv").exists()
    assert answer(session, "select 1") == [[1]]


def test_a_statement_without_rows(session: SqlSession) -> None:
    list(session.rows("create table mine as select 1 as x")[1])
    assert answer(session, "select x from mine") == [[1]]

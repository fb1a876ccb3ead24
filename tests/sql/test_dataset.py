"""The messages as a dataset: what a filter keeps, and how little of the log is read for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from embermq.sql.session import SqlSession, open_session
from embermq.store.log.by_topic.topic_index import topic_index_path
from embermq.store.rows import Group, Kind
from support.log_samples import NOW_US, open_log, segment_files

MESSAGES = 20_000
TOPICS = 200


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log over 20,000 s in blocks of 10 messages; a topic comes in about one block of 20."""
    directory = tmp_path_factory.mktemp("data")
    log = open_log(directory / "log", segment_bytes=200_000)
    for first in range(0, MESSAGES, 10):
        group = Group(log.next_offset)
        for number in range(first, first + 10):
            topic = b"plant/%d" % (number * 7919 % TOPICS)
            group.append(NOW_US + number * 1_000_000, Kind.PUBLISH, 1, topic, b"%060d" % number, b"c")
        log.append(group, NOW_US)
    log.close()
    return directory


@pytest.fixture
def session(data: Path) -> Iterator[SqlSession]:
    with open_session(data / "log", lambda as_of_us: iter(())) as opened:
        yield opened


def answer(session: SqlSession, sql: str) -> list[list[object]]:
    session.count.read_bytes = 0
    return list(session.rows(sql)[1])


FILTERS = [
    "topic = 'plant/7'",
    "topic = 'plant/7' and timestamp >= '2023-11-15 00:00:00Z'",
    "timestamp between '2023-11-15 00:00:00Z' and '2023-11-15 01:00:00Z'",
    "timestamp = '2023-11-15 00:00:07Z'",
    "topic in ('plant/3', 'plant/9', 'absent') and qos = 1",
    "topic = 'plant/7' and payload is not null",
    "topic = 'plant/7' and content_type is null",
    "topic = 'plant/7' or \"offset\" < 100",
    "topic = 'plant/7' or timestamp < '2023-11-14 22:14:00Z'",
    "topic <> 'plant/7' and timestamp < '2023-11-14 22:14:00Z'",
    "topic like 'plant/1%' and \"offset\" between 500 and 700",
    "mqtt_matches('plant/+', topic) and timestamp > '2023-11-15 03:40:00Z'",
    "not (topic = 'plant/7') and \"offset\" < 50",
    "topic is null",
    'topic is not null and qos is not null and "offset" > 19990',
    "payload = encode('0') or topic > 'plant/98'",
    "coalesce(content_type, 'x') = 'x' and topic = 'plant/5'",
    "topic = 'is_valid(payload)'",
    "topic in ('if_else(is_valid(topic), is_in(topic, ', 'plant/5') and client_id = 'c'",
]


@pytest.mark.parametrize("condition", FILTERS)
def test_a_filter_that_is_pushed_down_keeps_the_same_rows(session: SqlSession, condition: str) -> None:
    found = answer(session, f'select "offset", topic from messages where {condition} order by 1')
    # DuckDB filters a table of its own; the log filters nothing.
    expected = answer(
        session,
        f'with everything as materialized (select * from messages) select "offset", topic from everything'
        f" where {condition} order by 1",
    )
    assert found == expected
    assert bool(found) == ("is null" not in condition or "content_type" in condition) or "is_valid" in condition


def test_one_topic_and_one_hour_read_little_of_the_log(session: SqlSession, data: Path) -> None:
    everything = answer(session, "select count(payload) from messages")
    assert everything == [[MESSAGES]] and session.count.read_bytes >= session.count.log_bytes * 0.99

    def share(condition: str) -> float:
        assert answer(session, f"select count(payload) from messages where {condition}") != [[0]]
        return session.count.read_bytes / session.count.log_bytes

    hour = "timestamp between '2023-11-15 00:00:00Z' and '2023-11-15 01:00:00Z'"
    assert share(hour) < 0.3  # of 5.5 hours
    share("topic = 'plant/7'")  # makes the topic indexes
    assert share("topic = 'plant/7'") < 0.3
    assert share(f"topic = 'plant/7' and {hour}") < 0.1
    assert share("topic in ('plant/7', 'plant/8') and qos = 1") < 0.4


def test_closed_segments_have_a_topic_index_that_is_made_again_when_it_is_lost(session: SqlSession, data: Path) -> None:
    query = "select count(*) from messages where topic = 'plant/7'"
    expected = answer(session, query)
    segments, indexes = segment_files(data / "log"), segment_files(data / "log", ".topics")
    assert [path.stem for path in indexes] == [path.stem for path in segments[:-1]]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in indexes)
    indexes[0].unlink()
    indexes[1].write_bytes(b"nonsense")
    indexes[2].write_bytes(indexes[3].read_bytes())
    orphan = indexes[0].with_name(f"{10**19:020d}.topics")
    orphan.write_bytes(b"")
    assert answer(session, query) == expected
    assert segment_files(data / "log", ".topics") == indexes and not orphan.exists()
    made = session.count.read_bytes
    assert answer(session, query) == expected and session.count.read_bytes < made


def test_a_directory_that_cannot_be_written_is_read(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", segment_bytes=3000)
    for number in range(100):
        group = Group(log.next_offset)
        group.append(NOW_US, Kind.PUBLISH, 0, b"t/%d" % (number % 4), b"x" * 50, b"c")
        log.append(group, NOW_US)
    log.close()
    for path in segment_files(tmp_path / "log")[:-1]:
        topic_index_path(tmp_path / "log", int(path.stem)).mkdir()  # nothing can be written there
    with open_session(tmp_path / "log", lambda as_of_us: iter(())) as session:
        assert answer(session, "select count(*) from messages where topic = 't/1'") == [[25]]


def test_trimming_removes_the_topic_index(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=500)
    for _ in range(3):
        group = Group(log.next_offset)
        group.append(NOW_US, Kind.PUBLISH, 0, b"t", b"x" * 400, b"c")
        log.append(group, NOW_US)
    with open_session(tmp_path, lambda as_of_us: iter(())) as session:
        assert answer(session, "select count(*) from messages where topic = 't'") == [[3]]
    assert len(segment_files(tmp_path, ".topics")) == 2
    log.trim(log.next_offset)
    assert segment_files(tmp_path, ".topics") == []
    log.close()

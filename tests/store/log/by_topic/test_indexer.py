"""The indexer: each segment has its topic index once it is closed, without a query."""

from pathlib import Path

from embermq.store.log.by_topic.indexer import TopicIndexer
from embermq.store.log.by_topic.topic_index import read_topic_index, topic_index_path
from embermq.store.log.writer import Log
from embermq.store.rows import Group, Kind


def append(log: Log, topics: int) -> None:
    group = Group(log.next_offset)
    for number in range(topics):
        group.append(1_000, Kind.PUBLISH, 1, b"topic/%d" % number, b"x" * 100, b"client")
    log.append(group, 1_000)


def open_log(directory: Path) -> Log:
    return Log(directory, segment_bytes=10_000_000, segment_age_s=3600, sync=False)


def indexed(log: Log) -> list[int | None]:
    """For each segment the number of topics in its index; None if it has none."""
    found = []
    for segment in log.segments():
        index = read_topic_index(topic_index_path(log.directory, segment.first_offset), segment.next_offset)
        found.append(None if index is None else len(index))
    return found


def test_closed_segments_get_an_index_and_the_open_one_does_not(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, 1)
    log.roll()
    append(log, 2)
    indexer = TopicIndexer(log)
    for topics in (3, 4):
        log.roll()
        append(log, topics)
    indexer.segment_begins()
    indexer.wait()
    assert indexed(log) == [None, 2, 3, None]  # the first was closed before
    log.roll()
    append(log, 5)
    indexer.segment_begins()
    indexer.wait()
    assert indexed(log) == [None, 2, 3, 4, None]
    indexer.close()
    log.close()


def test_a_segment_that_is_gone_is_no_error(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    indexer = TopicIndexer(log)
    append(log, 1)
    log.roll()
    append(log, 2)
    log.roll()
    append(log, 3)
    topic_index_path(tmp_path, log.segments()[0].first_offset).with_suffix(".log").unlink()
    indexer.segment_begins()
    indexer.wait()
    assert indexed(log) == [None, 2, None]
    indexer.close()


def test_closing_gives_up_what_is_being_made(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    indexer = TopicIndexer(log)
    append(log, 1)
    log.roll()
    append(log, 2)
    indexer.close()
    indexer.segment_begins()
    indexer.wait()
    assert indexed(log) == [None, None]
    log.close()

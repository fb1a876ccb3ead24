"""`embermq.open_log`: the messages of a log as Arrow, and which blocks are read for them."""

from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import embermq
from embermq.protocol.topics import matches
from embermq.sql.open_log import OpenLog
from embermq.store.log.errors import LogCorrupt, NotALog
from embermq.store.rows import RETAIN_FLAG, Group, Kind
from support.ember_command import server, wire
from support.log_samples import NOW_US, block_positions, flipped, open_log, segment_files

TOPICS = [f"plant/{line}/{name}" for line in range(10) for name in ("temperature", "state")] + ["$SYS/uptime", "größe"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of 3,000 messages and other records, 1 s apart, in several segments; the topics change with time."""
    directory = tmp_path_factory.mktemp("data")
    log = open_log(directory / "log", segment_bytes=50_000)
    random = Random(7)
    for number in range(600):
        group = Group(log.next_offset)
        names = random.sample(TOPICS, 3)
        for row in range(5):
            at_us = NOW_US + (number * 5 + row) * 1_000_000
            topic = random.choice(names).encode()
            flags = random.choice([0, 1, 2, 1 | RETAIN_FLAG])
            group.append(at_us, Kind.PUBLISH, flags, topic, b"%d" % (number * 5 + row), b"client-%d" % (row % 3))
        group.append(at_us, Kind.SUBSCRIBED, 1, b"plant/#", bytes(8), b"screen")
        log.append(group, NOW_US)
    log.close()
    assert len(segment_files(directory / "log")) > 3
    return directory


def all_rows(log: OpenLog) -> list[dict[str, Any]]:
    return [row for batch in log.batches() for row in batch.to_pylist()]


def test_all_messages_come_in_order_and_nothing_else(data: Path) -> None:
    log = embermq.open_log(data)
    rows = all_rows(log)
    assert [row["payload"] for row in rows] == [b"%d" % number for number in range(3000)]
    assert log.bounds() == (1, 3601)
    assert rows[0].keys() == set(log.schema.names)
    assert rows[7]["timestamp"] == datetime.fromtimestamp(NOW_US // 1_000_000 + 7, UTC)
    assert rows[7]["offset"] == 9  # every sixth record is a subscription
    assert all_rows(embermq.open_log(data / "log")) == rows


@pytest.mark.parametrize("topic_filter", ["plant/3/state", "plant/+/temperature", "plant/4/#", "#", "$SYS/#", "none"])
@pytest.mark.parametrize(("since_s", "until_s"), [(None, None), (700, None), (None, 900), (1200, 1260), (5000, None)])
def test_a_filter_keeps_what_it_says(data: Path, topic_filter: str, since_s: int | None, until_s: int | None) -> None:
    log = embermq.open_log(data)

    def instant(seconds: int | None) -> datetime | None:
        return None if seconds is None else datetime.fromtimestamp(NOW_US // 1_000_000 + seconds, UTC)

    since, until = instant(since_s), instant(until_s)
    found = [row for batch in log.batches(topic_filter, since, until) for row in batch.to_pylist()]
    expected = [
        row
        for row in all_rows(log)
        if matches(topic_filter, str(row["topic"]))
        and (since_s is None or row["timestamp"] >= since)
        and (until_s is None or row["timestamp"] < until)
    ]
    assert found == expected
    if since_s is None and until_s is None:
        assert bool(found) == (topic_filter != "none")


def test_columns_and_instants_as_text(data: Path) -> None:
    log = embermq.open_log(data)
    reader = log.reader(
        "plant/1/state", since="2023-11-14T22:20", until="2023-11-14T22:40:00Z", columns=["topic", "qos"]
    )
    table = reader.read_all()
    assert table.schema.names == ["topic", "qos"] and table.num_rows > 5
    assert set(table["topic"].to_pylist()) == {"plant/1/state"}
    assert list(log.batches(since="1s")) == []
    with pytest.raises(ValueError, match="there is no column colour; expected offset, timestamp"):
        log.batches(columns=["colour"])
    with pytest.raises(ValueError, match="is no topic filter"):
        log.batches("a/#/b")
    with pytest.raises(ValueError, match="is not an instant"):
        log.batches(since="yesterday")


def test_a_directory_without_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotALog):
        embermq.open_log(tmp_path)


def test_messages_of_a_running_server_are_seen_with_their_properties(tmp_path: Path) -> None:
    with server(tmp_path / "data") as broker:
        with wire(broker, "c1") as client:
            client.publish("a", b"1", qos=1)
            log = embermq.open_log(tmp_path / "data")
            assert [(row["topic"], row["payload"], row["qos"]) for row in all_rows(log)] == [("a", b"1", 1)]
            client.publish("a", b"2", qos=1)
            assert [row["payload"] for row in all_rows(log)] == [b"1", b"2"]
        assert all_rows(log)[0]["user_properties"] is None


def test_damage_in_a_block_that_is_needed_is_named(data: Path, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    for path in (data / "log").iterdir():
        (tmp_path / "log" / path.name).write_bytes(path.read_bytes())
    first = segment_files(tmp_path / "log")[0]
    start, end = list(block_positions(tmp_path / "log"))[4]
    first.write_bytes(flipped(first.read_bytes(), end - 9))
    with pytest.raises(LogCorrupt) as caught:
        all_rows(embermq.open_log(tmp_path))
    assert (caught.value.file, caught.value.position) == (str(first), start)


def test_a_dataset_can_be_read_like_any_other(data: Path) -> None:
    dataset = embermq.open_log(data).dataset()
    assert dataset.to_table().num_rows == dataset.count_rows() == 3000
    assert dataset.head(5, columns=["topic"]).num_rows == 5
    import pyarrow.compute as pc

    late = pa.scalar(NOW_US + 2_000_000_000, pa.timestamp("us", "UTC"))
    assert dataset.to_table(["offset"], filter=pc.field("timestamp") >= late).num_rows == 1000

"""The blocks of an archive that have one topic: all of its records, newest first, and few others."""

from pathlib import Path

import pytest

from embermq.archive.errors import NotArchived
from embermq.history.archived_blocks import ArchivedBlocks
from embermq.history.topic_runs import newest_topic_runs
from embermq.http.resources.topics.one_topic import OneTopic
from embermq.store.log.arrow import gather
from embermq.store.log.by_topic.chosen_blocks import ChosenBlocks
from embermq.store.log.writer import Log
from embermq.store.rows import Group, Kind
from support.archives import upload_closed, writer_of

EVER = 1 << 60
GROUPS = 120


@pytest.fixture(params=["with topic indexes", "without"])
def blocks(request: pytest.FixtureRequest, tmp_path: Path) -> ArchivedBlocks:
    """Of a log of 120 groups, ten in a segment. Group n has a record of `all` and one of `n`, at the instant 1000 n."""
    log = Log(tmp_path / "log", segment_bytes=1 << 20, segment_age_s=3600, sync=False)
    for number in range(GROUPS):
        if number % 10 == 0:
            log.close_segment()
        group = Group(log.next_offset)
        group.append(number * 1_000, Kind.PUBLISH, 1, b"all", bytes(200), b"client")
        group.append(number * 1_000, Kind.PUBLISH, 1, b"%d" % number, b"x", b"client")
        log.append(group, number * 1_000)
    log.close_segment()
    log.close()
    if request.param == "with topic indexes":
        list(ChosenBlocks(tmp_path / "log", OneTopic("all", 0, EVER)).batches(["offset"]))
    upload_closed(str(tmp_path / "archive"), tmp_path / "log")
    return ArchivedBlocks(str(tmp_path / "archive"), tmp_path / "log")


END = 2 * GROUPS + 1


def found(
    blocks: ArchivedBlocks, topic: str, since_us: int = 0, until_us: int = EVER, before: int = END
) -> tuple[list[int], int]:
    """The offsets of a topic in the order in which the runs come, each run from its end on; and the bytes read."""
    offsets: list[int] = []
    read_bytes, lowest = 0, END
    for one in newest_topic_runs(blocks, topic, since_us, until_us, before, END):
        assert one.first_offset <= lowest
        lowest = one.first_offset
        read_bytes += one.read_bytes
        if one.run is not None:
            batch = gather(one.run.data, one.run.entries, ["offset", "topic"])
            assert batch["offset"][0].as_py() == one.first_offset
            offsets += [row["offset"] for row in reversed(batch.to_pylist()) if row["topic"] == topic]
    return offsets, read_bytes


def test_all_records_of_a_topic_come_newest_first(blocks: ArchivedBlocks) -> None:
    assert found(blocks, "all")[0] == list(range(END - 2, 0, -2))
    assert found(blocks, "75")[0] == [152]
    assert found(blocks, "none")[0] == []
    # Whole blocks come, and those of a block before the span that may reach into it.
    offsets, _ = found(blocks, "all", since_us=50_000, until_us=61_000, before=119)
    assert offsets[:9] == list(range(117, 99, -2)) and len(offsets) <= 11


def test_a_topic_index_saves_reading_the_blocks(blocks: ArchivedBlocks, tmp_path: Path) -> None:
    has_index = any((tmp_path / "archive" / "segments").glob("*.topics"))
    rare, common = found(blocks, "75")[1], found(blocks, "all")[1]
    assert rare < common - 25_000 if has_index else rare == common


def test_segments_outside_of_the_time_are_not_read(blocks: ArchivedBlocks) -> None:
    assert found(blocks, "all", since_us=GROUPS * 1_000)[1] == 0
    assert found(blocks, "all", until_us=0)[1] == 0
    assert 0 < found(blocks, "all", since_us=50_000, until_us=59_000)[1] < found(blocks, "all")[1] / 5


def test_segments_whose_retention_is_over_are_the_end(blocks: ArchivedBlocks, tmp_path: Path) -> None:
    assert len(found(blocks, "all")[0]) == GROUPS
    writer = writer_of(str(tmp_path / "archive"), tmp_path / "log")
    for segment in writer.archive.segments()[:4]:
        writer.delete(segment)
    assert found(blocks, "all")[0] == list(range(END - 2, 80, -2)), "although the list of before has them"
    segment = writer.archive.segments()[2]
    (tmp_path / "archive" / f"{segment.name}.log").unlink()
    with pytest.raises(NotArchived):
        found(blocks, "all")

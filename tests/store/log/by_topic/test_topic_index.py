"""The topic index: the blocks of each topic, in a file that pyarrow and versions that used it read and write too."""

import os
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from embermq.store.log.blocks import Block, block_of
from embermq.store.log.by_topic.topic_index import (
    TopicIndex,
    TopicIndexBuilder,
    parse_topic_index,
    read_topic_index,
    write_topic_index,
)
from embermq.store.rows import Group, Kind

SCHEMA = pa.schema([("topic", pa.string()), ("blocks", pa.list_(pa.int32()))])


def built(*blocks: list[str], topics_max: int = 100) -> TopicIndex:
    builder = TopicIndexBuilder(topics_max)
    offset = 1
    for topics in blocks:
        group = Group(offset)
        for topic in topics:
            group.append(1_000, Kind.PUBLISH, 0, topic.encode(), b"x", b"client")
        builder.add(Block(bytes(block_of(group))))
        offset += len(topics)
    return builder.index()


def rows_of(index: TopicIndex) -> dict[str, list[int]]:
    return {index.topic(number).decode(): index.blocks_of((number,)) for number in range(len(index))}


def as_versions_with_pyarrow_wrote(rows: dict[str, list[int]], next_offset: int) -> bytes:
    metadata = {b"next_offset": b"%d" % next_offset, b"complete": b"1"}
    lists = [{"topic": topic, "blocks": blocks} for topic, blocks in rows.items()]
    file = pa.BufferOutputStream()
    table = pa.Table.from_pylist(lists, SCHEMA.with_metadata(metadata))
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return bytes(file.getvalue())


def test_a_topic_has_its_blocks() -> None:
    index = built(["b", "a"], ["b", "c"], ["a", "a"])
    assert index.is_complete
    assert rows_of(index) == {"a": [0, 2], "b": [0, 1], "c": [1]}
    assert index.blocks_of((0, 2)) == [0, 1, 2] and index.blocks_of(()) == []


def test_a_topic_is_found_by_its_whole_name() -> None:
    topics = ["", "a", "a/b", "aa", "b", "é/ü"]
    index = built(topics)
    for topic in topics:
        number = index.number_of(topic.encode())
        assert number is not None and index.topic(number) == topic.encode()
    for topic in ("/b", "a/", "ab", "ba", "é", "c"):
        assert index.number_of(topic.encode()) is None
    assert built(["a"]).number_of(b"") is None


def test_a_segment_with_too_many_topics_has_an_empty_index() -> None:
    assert len(built(["a", "b"], ["c"], topics_max=3)) == 3
    full = built(["a", "b"], ["c"], topics_max=2)
    assert not full.is_complete and len(full) == 0


def test_a_segment_without_records_has_no_topics() -> None:
    index = built()
    assert index.is_complete and len(index) == 0 and index.number_of(b"a") is None


@pytest.mark.parametrize("blocks", [[], [["a"]], [["a", "", "é/1"], ["a"] * 3, [f"t/{n}" for n in range(50)]]])
def test_what_is_written_is_read_by_pyarrow_and_here(tmp_path: Path, blocks: list[list[str]]) -> None:
    index = built(*blocks)
    path = tmp_path / "00000000000000000001.topics"
    path.with_suffix(".log").touch()  # an index without a segment is removed
    write_topic_index(path, index, 77)
    table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    table.validate(full=True)
    assert table.schema.equals(SCHEMA)
    assert table.schema.metadata == {b"next_offset": b"77", b"complete": b"1"}
    assert dict(zip(table["topic"].to_pylist(), table["blocks"].to_pylist(), strict=True)) == rows_of(index)
    again = read_topic_index(path, 77)
    assert again is not None and again.columns == index.columns and again.is_complete
    assert read_topic_index(path, 78) is None, "the segment has grown since"
    assert read_topic_index(tmp_path / "none", 77) is None


@pytest.mark.parametrize("rows", [{}, {"b": [0, 1], "": [2], "a/ü": [1]}])
def test_what_versions_with_pyarrow_wrote_is_read(rows: dict[str, list[int]]) -> None:
    index = parse_topic_index(as_versions_with_pyarrow_wrote(rows, 5), 5)
    assert index is not None and index.is_complete and rows_of(index) == rows


def test_damaged_files_are_no_index_or_another_but_no_error() -> None:
    whole = as_versions_with_pyarrow_wrote({"a": [0], "b": [1, 2]}, 5)
    assert all(parse_topic_index(whole[:size], 5) is None for size in range(len(whole)))
    random = Random(5)
    for _ in range(2_000):
        damaged = bytearray(whole)
        for _ in range(3):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        parse_topic_index(bytes(damaged), 5)
    other = pa.table({"topic": ["a"], "blocks": [1]})
    file = pa.BufferOutputStream()
    with pa.ipc.new_file(file, other.schema) as writer:
        writer.write_table(other)
    assert parse_topic_index(bytes(file.getvalue()), 5) is None


def test_an_index_is_synced_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a power cut leaves a file of the right length with blocks left out: it has no checksum."""
    path = tmp_path / "00000000000000000001.topics"
    path.with_suffix(".log").touch()
    synced: list[int] = []

    def fsync(descriptor: int) -> None:
        assert not path.exists()
        synced.append(os.fstat(descriptor).st_size)

    monkeypatch.setattr(os, "fsync", fsync)
    write_topic_index(path, TopicIndexBuilder().index(), 8)
    assert synced == [path.stat().st_size]

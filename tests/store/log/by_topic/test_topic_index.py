"""The topic index: the blocks of each topic, however the records are read."""

import numpy as np
import pyarrow as pa
import pytest

from embermq.store.log.by_topic.topic_index import TopicIndex, build_topic_index

TOPICS = ["b", "a", "b", "c", "a", "a"]


@pytest.mark.parametrize("rows", [1, 2, 4, 6])
def test_a_topic_has_its_blocks_of_all_batches(rows: int) -> None:
    batches = (pa.array(TOPICS[start : start + rows]) for start in range(0, len(TOPICS), rows))
    index = TopicIndex(build_topic_index(batches, np.array([2, 2, 2]), 7))
    assert index.is_complete
    assert index.topics.to_pylist() == ["b", "a", "c"]
    found = [index.blocks_of(np.arange(3) == number).tolist() for number in range(3)]
    assert found == [[0, 1], [0, 2], [1]]


def test_a_segment_without_records_has_no_topics() -> None:
    index = TopicIndex(build_topic_index(iter(()), np.array([], np.int64), 1))
    assert index.is_complete
    assert len(index.topics) == 0

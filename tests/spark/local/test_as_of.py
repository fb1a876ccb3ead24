"""The retained set as of an instant, asked without Spark."""

import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from embermq.protocol.topics import matches
from embermq.spark.local.as_of import retained_as_of
from embermq.spark.local.tables import open_tables
from support.local_lake import local_lake
from support.recorded import Recorder


def found(table: pa.Table) -> dict[str, tuple[bytes, int, int]]:
    rows = table.to_pylist()
    assert [row["topic"] for row in rows] == sorted({row["topic"] for row in rows})
    return {row["topic"]: (row["payload"], row["qos"], row["offset"]) for row in rows}


@pytest.mark.parametrize("through", [None, 150])
def test_answers_equal_the_model_also_between_the_two_commits_of_a_batch(
    recorder: Callable[..., Recorder], tmp_path: Path, through: int | None
) -> None:
    made, source = recorder(), random.Random(4)
    for number in range(300):
        topic = f"plant/{source.randrange(4)}/{source.randrange(5)}" if source.random() < 0.9 else "$ops/x"
        made.publish(topic, b"" if source.random() < 0.2 else b"%d" % number, number % 3, source.random() < 0.7)
    made.flush()
    lake = local_lake(tmp_path / "lake", made, through)
    last_us = made.now_us if through is None else made.published[through - 1][1]
    with open_tables(lake) as tables:
        for at_us in [made.published[5][1] - 1, *(made.published[n][1] for n in (7, 60, 140)), last_us]:
            for topic_filter in ("#", "plant/+/3", "plant/1/#", "$ops/#", "plant/2/2"):
                wanted = {name: value for name, value in made.retained(at_us).items() if matches(topic_filter, name)}
                assert found(retained_as_of(tables, at_us, topic_filter)) == wanted
        assert retained_as_of(tables, last_us, "#", limit=2).num_rows == 2
        with pytest.raises(ValueError, match="is no topic filter"):
            retained_as_of(tables, last_us, "a/#/b")

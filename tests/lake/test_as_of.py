"""The retained set as of an instant, asked without Spark."""

import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from embermq.lake.as_of import retained_as_of
from embermq.lake.duck import open_tables
from embermq.lake.errors import REMOVED, InGap, NotKnown
from embermq.protocol.topics import matches
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


def test_an_instant_in_a_gap_has_no_answer(recorder: Callable[..., Recorder], tmp_path: Path) -> None:
    made = recorder()
    for number in range(30):
        made.publish(f"t/{number % 4}", b"%d" % number, 1, True)
    made.flush()
    lake = local_lake(tmp_path / "lake", made)
    instants_us = [made.published[number][1] for number in range(30)]
    gap = {"job": ["retained"], "from_offset": [6], "to_offset": [20]}
    times = {
        name: pa.array([at_us], pa.timestamp("us", "UTC"))
        for name, at_us in (("from_timestamp", instants_us[4]), ("to_timestamp", instants_us[19]))
    }
    write_deltalake(lake.table("gaps"), pa.table({**gap, **times}))
    with open_tables(lake) as tables:
        for known in (4, 19, 29):
            assert found(retained_as_of(tables, instants_us[known])) == made.retained(instants_us[known])
        assert found(retained_as_of(tables, tables.retained_known().until_us)) == made.retained()
        for unknown in (5, 18):
            with pytest.raises(
                InGap, match="offsets 6 to 20 were trimmed before the pipeline had read them; it is known"
            ):
                retained_as_of(tables, instants_us[unknown])


def test_an_instant_that_the_lake_has_not_reached_is_refused(recorder: Callable[..., Recorder], tmp_path: Path) -> None:
    made = recorder()
    for number in range(4):
        made.publish(f"t/{number}", b"%d" % number, 1, True)
    made.flush()
    lake = local_lake(tmp_path / "lake", made, through=3)
    with open_tables(lake) as tables:
        known = tables.retained_known()
        assert (known.until_us, known.next_offset) == (made.published[3][1] - 1, 4)
        assert len(retained_as_of(tables, known.until_us)) == 3
        with pytest.raises(NotKnown, match=r"not known: the lake has read the log up to 2023-\S+ \(before offset 4\)"):
            retained_as_of(tables, made.published[3][1])
        with pytest.raises(NotKnown, match=r"not known: the lake knows it from 2023-11-14T22:13:20.001000Z"):
            retained_as_of(tables, made.published[0][1] - 1)


def test_before_what_retention_has_removed_nothing_is_known(recorder: Callable[..., Recorder], tmp_path: Path) -> None:
    made = recorder()
    for number in range(6):
        made.publish("t", b"%d" % number, 1, True)
    made.flush()
    lake = local_lake(tmp_path / "lake", made)
    bound_us = made.published[4][1]
    gap = {"job": ["retained"], "from_offset": [1], "to_offset": [3], "why": [REMOVED]}
    times = {
        "from_timestamp": pa.nulls(1, pa.timestamp("us", "UTC")),
        "to_timestamp": pa.array([bound_us], pa.timestamp("us", "UTC")),
    }
    write_deltalake(lake.table("gaps"), pa.table({**gap, **times}))
    with open_tables(lake) as tables:
        assert found(retained_as_of(tables, bound_us)) == made.retained(bound_us)
        with pytest.raises(InGap, match="offsets 1 to 3 were removed by the retention of the lake; it is known again"):
            retained_as_of(tables, bound_us - 1)

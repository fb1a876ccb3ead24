"""The auditor is silent about a good lake and finds each kind of seeded violation."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from embermq.lake.lake import Lake
from embermq.spark.queries.audit import RULES, audit
from support.checkpoints import trim_with_checkpoint
from support.lakes import feed, job_named, new_lake
from support.recorded import Recorder

TABLES = ("messages", "retained", "retained_closed")


@pytest.fixture(scope="module")
def audited(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lake, Path]]:
    """A lake without a fault, on a log whose beginning was trimmed."""
    directory = tmp_path_factory.mktemp("audit")
    made = Recorder(directory / "data", segment_bytes=600)
    for number in range(60):
        made.publish(f"t/{number % 6}", b"%d" % number, retain=number % 4 != 0)
    made.publish("t/1", b"", retain=True)
    made.publish("t/1", b"again", retain=True)
    made.publish("t/2", b"", retain=True)
    made.remove_retained("t/3")
    made.flush()
    messages, retained = job_named("messages"), job_named("retained")
    lake = new_lake(spark, directory / "lake", messages, retained)
    feed(spark, lake, made.data, messages, [1, 65])
    feed(spark, lake, made.data, retained, [1, 20, 65])
    trim_with_checkpoint(made, 25, directory / "state")
    assert 25 <= made.log.first_offset <= 40
    yield lake, made.data
    made.close()


def broken(spark: SparkSession, lake: Lake, data: Path) -> dict[str, tuple[str, tuple[str, ...]]]:
    own_set = [("t/0", 55), ("t/1", 62), ("t/4", 59), ("t/5", 60)]
    return {found.rule: (found.clause, found.examples) for found in audit(spark, lake, data, own_set)}


def test_a_good_lake_keeps_every_rule(spark: SparkSession, audited: tuple[Lake, Path]) -> None:
    assert broken(spark, *audited) == {}


def test_each_kind_of_violation_is_found(spark: SparkSession, audited: tuple[Lake, Path], tmp_path: Path) -> None:
    shutil.copytree(audited[0].directory, tmp_path / "lake")
    lake = Lake(tmp_path / "lake")
    names = {name: f"delta.`{lake.table(name)}`" for name in TABLES}
    for statement in (
        "delete from {retained} where topic = 't/1'",
        "update {retained} set qos = 2 where topic = 't/5'",
        "update {retained_closed} set offset_to = 64 where topic = 't/1' and offset_to = 61",
        "insert into {retained} values"
        " ('t/8', cast('' as binary), 0, 58, timestamp'2030-01-01', null, null, null, null, null, null, null),"
        " ('t/9', cast('x' as binary), 0, 57, timestamp'2030-01-01', null, null, null, null, null, null, null)",
        "update {retained_closed} set valid_to = valid_to + interval 1 hour where topic = 't/3'",
        "insert into {messages} select * from {messages} where (offset in (3, 40))",
        "delete from {messages} where (offset in (5, 41, 60))",  # 5 is not in the log any more
    ):
        spark.sql(statement.format(**names))
    found = broken(spark, lake, audited[1])
    replayed, cleared, empty, unasked, overlapping, twice, lacking, own = (found[rule.sentence] for rule in RULES)
    assert replayed[0] == "MQTT-3.3.1-5"
    assert "t/1: the message of offset 62 is missing" in replayed[1]
    assert any(example.startswith("t/5: ") for example in replayed[1])
    assert "t/9: the message of offset 57 should not be there" in replayed[1]
    assert cleared[0] == "MQTT-3.3.1-10" and any("the clear of offset 61 left" in example for example in cleared[1])
    assert empty == ("MQTT-3.3.1-11", ("t/8: offset 58 has no payload",))
    assert unasked[0] == "MQTT-3.3.1-12" and "t/9: offset 57 is no PUBLISH with RETAIN" in unasked[1]
    assert overlapping[0] == "MQTT-3.3.1-5" and any(example.startswith("t/3: ") for example in overlapping[1])
    assert twice == ("exactly once", ("offset 3 is there 2 times", "offset 40 is there 2 times"))
    missing = tuple(f"t/{(at - 1) % 6}: offset {at} is in the log, not in the table" for at in (41, 60))
    assert lacking == ("exactly once", missing)
    assert "t/1: the server retains offset 62, the table has no row" in own[1]
    assert "t/9: the table has offset 57, the server retains nothing" in own[1]

"""Tables of earlier versions: new columns are added, `messages` is divided by days, and all go on where they were."""

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from embermq.lake.lake import Lake
from embermq.lake.schema import DAY, MESSAGES
from embermq.spark.jobs.catalog import JobSettings
from embermq.spark.lake.tables import read_table
from embermq.spark.pipeline import run
from support.lakes import job_named, records
from support.recorded import Recorder


def test_a_lake_of_an_earlier_version_is_continued(
    spark: SparkSession, recorder: Callable[..., Recorder], tmp_path: Path
) -> None:
    made = recorder()
    for number in range(40):
        made.publish(f"t/{number % 3}", b"%d" % number)
    made.flush()
    lake = Lake(tmp_path / "lake")
    lake.open()
    # As Delta's own sink wrote it: no days, and no transaction of ours. An even earlier one had no content types.
    before = records(spark, made.data, job_named("messages"), 1, 31).drop("content_type")
    before.write.format("delta").save(lake.table("messages"))
    done = run(made.data, lake, once=True, settings=JobSettings(only=("messages",)))
    assert done[0].records == 10
    table = read_table(spark, lake, "messages")
    assert sorted(table.columns) == sorted(MESSAGES.names)
    rows = table.select("offset", "payload", DAY).orderBy("offset").collect()
    assert [(row["offset"], bytes(row["payload"])) for row in rows] == [(one[0], one[3]) for one in made.published]
    assert {str(row[DAY]) for row in rows} == {"2023-11-14"}
    assert all("day=" in path for path in table.inputFiles())

"""A lake at a URL: the pipeline runs there, and two pipelines that both believe they are alone make no wrong table."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from embermq.commands.pipeline import app
from embermq.errors import ConfigError
from embermq.lake.errors import LakeError, LeaseLost
from embermq.lake.lake import Lake
from embermq.lake.progress import read_progress
from embermq.spark.jobs import retained
from embermq.spark.jobs.catalog import JobSettings
from embermq.spark.lake.hadoop_files import use_spark
from embermq.spark.lake.lease import Lease, lease_state
from embermq.spark.lake.tables import read_table
from embermq.spark.lake.transactions import append_once
from embermq.spark.pipeline import run
from support.lakes import retained_of
from support.recorded import Recorder

SETTINGS = JobSettings(records_max=60, only=("messages", "retained"))
LEASE_S = 0.4


def recorded(directory: Path, count: int = 200) -> Recorder:
    made = Recorder(directory / "data")
    for number in range(count):
        made.publish(f"t/{number % 7}", b"%d" % number if number % 13 else b"", retain=number % 2 == 0)
    return made.flush()


def check(spark: SparkSession, made: Recorder, lake: Lake) -> None:
    """Each message is there once, and the retained set is right, now and at the instants in which it has changed."""
    offsets = [row[0] for row in read_table(spark, lake, "messages").select("offset").collect()]
    assert sorted(offsets) == [published[0] for published in made.published]
    assert retained_of(read_table(spark, lake, "retained")) == made.retained()
    closed = read_table(spark, lake, "retained_closed").select("topic", "offset").collect()
    assert len(set(closed)) == len(closed)
    assert len(closed) + len(made.retained()) == sum(1 for event in made.retained_events if event[3] is not None)


def test_a_pipeline_that_lost_its_lease_in_mid_batch_changes_nothing_and_ends(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, url = recorded(tmp_path), (tmp_path / "lake").as_uri()
    taken_over: list[int] = []

    def paused(*arguments: Any) -> None:
        """In its second batch the pipeline stands still; another one takes over and does all the work."""
        if not taken_over and arguments[-1] > 100:
            taken_over.append(arguments[-1])
            run(made.data, Lake(url), once=True, settings=SETTINGS, lease_s=LEASE_S)
        append_once(*arguments)

    monkeypatch.setattr(retained, "append_once", paused)
    monkeypatch.setattr(Lease, "_keep", lambda lease: None)  # it stands still, so it renews nothing
    with pytest.raises(LeaseLost, match=r"another pipeline has taken over file:.*lake \(epoch 2, this one had 1\)"):
        run(made.data, Lake(url), once=True, settings=SETTINGS, lease_s=LEASE_S)
    lake = use_spark(Lake(url), spark)
    assert taken_over == [120]
    check(spark, made, lake)
    assert read_progress(lake)["state"] == "done" and lease_state(lake)["ended"] is True
    # Everything goes on: a third one finds nothing to do but what is new.
    made.publish("t/1", b"new", retain=True)
    made.close()
    done = run(made.data, Lake(url), once=True, settings=SETTINGS, lease_s=LEASE_S)
    assert [job.records for job in done] == [1, 1]
    check(spark, made, lake)


def test_schemes_that_are_not_supported_are_refused(tmp_path: Path) -> None:
    for url in ("gs://bucket/lake", "ftp://host/lake", "s3://bucket/lake"):
        with pytest.raises(LakeError, match="expected a directory, or a URL of hdfs, s3a or file"):
            Lake(url)
        with pytest.raises(ConfigError, match=f"--lake: the lake {url}: expected a directory"):
            CliRunner().invoke(app, ["status", "--lake", url], catch_exceptions=False)
    with pytest.raises(LakeError, match="two slashes after s3a: "):
        Lake(Path("s3a://bucket/lake"))
    assert Lake("hdfs://host:9000/a/b/").table("messages") == "hdfs://host:9000/a/b/messages"
    assert Lake("file:///a/b").table("messages") == "file:/a/b/messages"


def test_a_file_system_that_is_away_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    for url in ("hdfs://127.0.0.1:1/lake", "s3a://no-such-bucket/lake"):
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        with pytest.raises(
            ConfigError, match=rf"{url} cannot be read without Spark: .*; `--engine spark` asks"
        ) as said:
            CliRunner().invoke(app, ["query", "select 1", "--lake", url], catch_exceptions=False)
        assert "\n" not in str(said.value)

"""A lake on a real HDFS: run, resumed, asked with both engines; and two pipelines that fight for it."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from embermq.commands.pipeline import app
from embermq.errors import ConfigError
from embermq.lake.errors import PipelineError
from embermq.lake.lake import Lake
from embermq.lake.progress import read_progress
from embermq.spark.jobs.catalog import JobSettings
from embermq.spark.lake.hadoop_files import use_spark
from embermq.spark.pipeline import run
from spark.test_lake_at_url import check, recorded
from support.java_services import hdfs
from support.pipeline_process import PipelineProcess

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

SLOW_S = 600.0
"""Two pipelines, an HDFS and a session of Spark need minutes where two cores do other work too."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with hdfs(tmp_path_factory.mktemp("hdfs")) as url:
        yield url


def ask(*arguments: str) -> str:
    answered = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert answered.exit_code == 0, answered.output
    return answered.output


def test_a_lake_on_hdfs_is_run_resumed_and_asked(spark: SparkSession, place: str, tmp_path: Path) -> None:
    made, url = recorded(tmp_path), f"{place}/lakes/one"
    assert {job.records for job in run(made.data, Lake(url), once=True)} == {200}
    made.publish("t/3", b"more", retain=True)
    made.close()
    assert {job.records for job in run(made.data, Lake(url), once=True)} == {1}
    lake = use_spark(Lake(url), spark)
    check(spark, made, lake)
    assert lake.table_names() == ["clients", "gaps", "messages", "retained", "retained_closed", "topic_stats"]
    for engine in ("duckdb", "spark"):
        said = ask("query", "select count(*) as n from messages", "--lake", url, "--engine", engine, "--json")
        assert said == f'{{"n": {len(made.published)}}}\n'
        assert "more" in ask("as-of", "now", "t/3", "--lake", url, "--engine", engine, "--csv")
    assert "pipeline: done" in ask("status", "--lake", url)
    ask("report", "--lake", url, "-o", str(tmp_path / "report.html"))
    assert "all 8 rules are kept" in ask("audit", "--lake", url)


def test_two_pipelines_that_both_believe_they_are_alone(spark: SparkSession, place: str, tmp_path: Path) -> None:
    """The first stands still in mid-batch for longer than its lease; the second takes over; the first goes on."""
    made, url = recorded(tmp_path, 1_500), f"{place}/lakes/fought"
    made.close()
    steps = ("--records", "150", "--fresh", "100ms", "--only", "messages", "--only", "retained")
    lake = use_spark(Lake(url), spark)

    def batches(since_s: float = 0) -> int:
        progress = read_progress(lake)
        jobs = progress.get("jobs", {}).values() if progress.get("written", 0) > since_s else []
        return min((job["batches"] for job in jobs), default=0)

    with PipelineProcess(made.data, url, "--continuous", *steps) as first:
        first.wait_until(lambda: batches() >= 2, SLOW_S)
        os.killpg(first.process.pid, signal.SIGSTOP)
        stopped_s = time.time()
        with PipelineProcess(made.data, url, "--continuous", *steps) as second:
            second.wait_until(lambda: batches(stopped_s) >= 1, SLOW_S)
            os.killpg(first.process.pid, signal.SIGCONT)
            assert first.process.wait(SLOW_S) == 2, "".join(first.said[-20:])
            (sentence,) = [line for line in first.said if "has taken over" in line]
            assert "stopping; no row was lost or duplicated" in sentence
            second.wait_until(lambda: {job["lag"] for job in read_progress(lake)["jobs"].values()} == {0}, SLOW_S)
            assert second.terminate() == 0, "".join(second.said[-20:])
    check(spark, made, lake)


def test_an_hdfs_that_is_away_is_one_sentence(spark: SparkSession, tmp_path: Path) -> None:
    made = recorded(tmp_path, 5)
    made.close()
    with pytest.raises(
        PipelineError, match=r"hdfs://127.0.0.1:1/lake/_embermq/lake.json cannot be read: .*Connection refused"
    ):
        run(made.data, Lake("hdfs://127.0.0.1:1/lake"), once=True, settings=JobSettings(only=("messages",)))
    with pytest.raises(ConfigError, match="Connection refused"):
        ask("query", "select 1", "--lake", "hdfs://127.0.0.1:1/lake", "--engine", "spark")

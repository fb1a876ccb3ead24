"""Rollups of a log that grows, while the pipeline's driver is killed again and again, and built again after that."""

import random
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from embermq.config import load_unchecked
from embermq.lake.lake import Lake
from embermq.lake.progress import read_progress
from embermq.spark.jobs.catalog import JobSettings
from embermq.spark.pipeline import run
from spark.jobs.test_rollups import HOUR_US, Value, model, publish_late, stored
from support.pipeline_process import PipelineProcess
from support.recorded import Recorder

SETTINGS = """
[[pipeline.tables]]
name = "status"
filter = "plant/+"
format = "json"
schema = "load struct<cpu: double>, measured timestamp"

[[pipeline.rollups]]
name = "hours"
table = "status"
every = "hour"
value = "load.cpu"
time = "measured"
gap_s = "2m"

[[pipeline.rollups]]
name = "days"
table = "status"
every = "day"
value = "load.cpu"
time = "measured"
"""
STEPS = ("--only", "hours", "--only", "days", "--fresh", "500ms", "--records", "300", "--continuous")
KILLS = 4


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_rollup_equals_its_model_though_the_driver_is_killed(spark: SparkSession, tmp_path: Path) -> None:
    config, lake, made = tmp_path / "ember.toml", Lake(tmp_path / "lake"), Recorder(tmp_path / "data")
    config.write_text(SETTINGS)
    values: list[Value] = []
    done = threading.Event()

    def publish() -> None:
        seed = 0
        while not done.wait(0.1):
            seed += 1
            values.extend(publish_late(made, 10, seed))
            made.flush()

    publishing = threading.Thread(target=publish)
    publishing.start()
    chance = random.Random(42)
    try:
        for number in range(KILLS):
            with PipelineProcess(made.data, lake.directory, *STEPS, "--config", str(config)) as pipeline:
                pipeline.wait_for("hours ")
                if number % 2:  # else in its first batches
                    pipeline.wait_until(lambda: read_progress(lake)["jobs"]["hours"]["batches"] > 0)
                threading.Event().wait(chance.uniform(0, 4))
                assert pipeline.process.poll() is None, "".join(pipeline.said[-40:])
                pipeline.kill()
    finally:
        done.set()
        publishing.join()
    chosen = load_unchecked(config).pipeline
    settings = JobSettings(typed_tables=chosen.tables, rollups=chosen.rollups, only=("hours", "days"))
    run(made.data, lake, once=True, settings=settings)
    hours, days = (model(values, hours * HOUR_US, gap_us) for hours, gap_us in ((1, 120_000_000), (24, 8_640_000_000)))
    assert stored(spark, lake, "hours") == hours
    assert stored(spark, lake, "days") == days
    again = JobSettings(
        typed_tables=chosen.tables, rollups=chosen.rollups, only=("hours", "days"), rebuild=("hours",), records_max=500
    )
    run(made.data, lake, once=True, settings=again)
    assert stored(spark, lake, "hours") == hours
    assert stored(spark, lake, "days") == days
    made.close()

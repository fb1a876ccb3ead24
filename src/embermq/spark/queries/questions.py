"""Questions to a lake: a session for one, and its answer as plain values.

Owns: the way from a query to what a command prints, and from Spark's errors to one sentence.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from embermq.spark.errors import LakeError, PipelineError
from embermq.spark.lake.lake import check_lake, java_log, spark_settings_of
from embermq.spark.lake.tables import Lake
from embermq.spark.queries.as_of import retained_as_of
from embermq.spark.queries.views import create_views
from embermq.spark.session import DEFAULT_MASTER, build_session, launch_java


@contextmanager
def asking(lake_directory: Path, master: str = DEFAULT_MASTER) -> Iterator[tuple[SparkSession, Lake]]:
    """A session for a lake that exists; one that was made for it ends with it. PipelineError says what was wrong."""
    lake = Lake(lake_directory)
    if not check_lake(lake):
        raise LakeError(f"{lake_directory} is no lake: `ember pipeline run` makes one")
    logging.getLogger("SQLQueryContextLogger").disabled = True  # it writes a page of JSON for a misspelt column
    found = SparkSession.getActiveSession()
    settings = spark_settings_of(lake)
    launch_java(master, settings, java_log(lake, "question"))
    spark = build_session(master, "embermq question", settings)
    try:
        yield spark, lake
    except PySparkException as error:
        raise PipelineError(str(error).strip().splitlines()[0].rstrip("; ")) from None
    except ValueError as error:
        raise PipelineError(str(error)) from None
    finally:
        if found is None:
            spark.stop()


class Answer:
    """The first rows of a query; `cut` if there are more."""

    __slots__ = ("columns", "rows", "cut")

    def __init__(self, frame: DataFrame, limit: int) -> None:
        found = frame.limit(limit + 1).collect()
        self.columns = frame.columns
        self.rows: list[list[Any]] = [list(row) for row in found[:limit]]
        self.cut = len(found) > limit


def ask_sql(spark: SparkSession, lake: Lake, sql: str, limit: int, data: Path | None = None) -> Answer:
    """The answer to a query over the tables' names, with `data` over `log` too."""
    create_views(spark, lake, data)
    return Answer(spark.sql(sql), limit)


def ask_as_of(spark: SparkSession, lake: Lake, instant: str, topic_filter: str, limit: int) -> Answer:
    """What was retained at an instant, by topic."""
    return Answer(retained_as_of(spark, lake, instant, topic_filter).orderBy("topic"), limit)

"""Queries of a lake: a session for them, the tables' names in SQL, and a result as plain values.

Owns: the way from a query to what a command prints, from Spark's errors to one sentence, and that a query sees the
tables and nothing else: it reads and writes no file of its own choice.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, final

from py4j.protocol import Py4JError  # type: ignore[import-untyped] # it has no types
from pyspark.errors import ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from embermq.lake.damage import check_tables
from embermq.lake.errors import LakeError, PipelineError
from embermq.lake.lake import Lake
from embermq.spark.errors import failure_reason, whole_text
from embermq.spark.lake.hadoop_files import use_spark
from embermq.spark.lake.tables import read_table, table_names
from embermq.spark.queries.as_of import create_history_view
from embermq.spark.session import DEFAULT_MASTER, build_session, launch_java

LOG_VIEW: Final = "log"

_FILES_AS_TABLES: Final = "spark.sql.runSQLOnFiles"
"""Whether SQL takes csv.`/etc/passwd` for a table."""
_HARMLESS: Final = ("Show", "Describe")
"""How the names of the commands begin that only tell something of the tables."""
_CODE: Final = re.compile(
    r"\b(?:(?:try_)?reflect|java_method)`?\s*(?:(?:/\*.*?\*/|--[^\n]*)\s*)*\(", re.IGNORECASE | re.DOTALL
)
"""Functions that call methods of Java."""


@contextmanager
def query_session(lake: Lake, master: str = DEFAULT_MASTER) -> Iterator[SparkSession]:
    """A session to query a lake with, stopped at the end unless it ran before. PipelineError says what went wrong."""
    if lake.is_local:
        check_exists(lake)
        check_tables(lake)
    logging.getLogger("SQLQueryContextLogger").disabled = True  # it writes a page of JSON for a misspelt column
    running = SparkSession.getActiveSession()
    settings = lake.spark_settings()
    launch_java(master, settings, lake.java_log("query"))
    try:
        spark = build_session(master, "embermq query", settings)
    except Py4JError as error:  # Spark opens the file system of the lake
        raise PipelineError(f"{lake.place}: {failure_reason(whole_text(error))}") from None
    try:
        use_spark(lake, spark)
        check_exists(lake)
        if not lake.is_local:
            check_tables(lake)
        yield spark
    except PySparkException as error:
        raise PipelineError(str(error).strip().splitlines()[0].rstrip("; ")) from None
    except Py4JError as error:  # of Delta's own classes
        raise PipelineError(f"{lake.place}: {failure_reason(whole_text(error))}") from None
    except ValueError as error:
        raise PipelineError(str(error)) from None
    finally:
        if running is None:
            spark.stop()


def check_exists(lake: Lake) -> None:
    """LakeError if there is no lake."""
    if not lake.exists():
        raise LakeError(f"{lake.place} is no lake: `ember pipeline run` makes one")


def create_views(spark: SparkSession, lake: Lake, data: Path | None = None) -> None:
    """Give SQL every table of a lake by its name, `retained_history`, and with `data` the present log as `log`."""
    for name in table_names(lake):
        read_table(spark, lake, name).createOrReplaceTempView(name)
    if lake.has_table("retained") and lake.has_table("retained_closed"):
        create_history_view(spark, lake)
    if data is not None:
        spark.read.format("embermq").load(str(data.absolute())).createOrReplaceTempView(LOG_VIEW)


@final
class QueryResult:
    """The first rows of a query; `has_more` if these are not all."""

    __slots__ = ("columns", "rows", "has_more")

    def __init__(self, frame: DataFrame, limit: int) -> None:
        found = frame.limit(limit + 1).collect()
        self.columns: Final = frame.columns
        self.rows: Final[list[list[Any]]] = [list(row) for row in found[:limit]]
        self.has_more: Final = len(found) > limit


def run_sql(spark: SparkSession, lake: Lake, sql: str, limit: int, data: Path | None = None) -> QueryResult:
    """The result of a query over the tables' names; with `data`, over `log` too."""
    create_views(spark, lake, data)
    _check_query(spark, sql)
    before = spark.conf.get(_FILES_AS_TABLES)
    spark.conf.set(_FILES_AS_TABLES, "false")
    try:
        return QueryResult(spark.sql(sql), limit)
    finally:
        spark.conf.set(_FILES_AS_TABLES, before or "true")


def _check_query(spark: SparkSession, sql: str) -> None:
    """PipelineError unless SQL only asks: Spark would run a command, such as INSERT OVERWRITE DIRECTORY, at once."""
    parser: Any = spark._jsparkSession.sessionState().sqlParser()
    if _CODE.search(sql):
        raise PipelineError("reflect and java_method: expected a query without them: they call any method of Java")
    try:
        plan = parser.parsePlan(f"select * from (\n{sql.rstrip().removesuffix(';')}\n)")  # where no command can be
        if "ScriptTransformation" in plan.toString():
            raise PipelineError("TRANSFORM: expected a query without it: it runs programs")
    except ParseException:
        if not parser.parsePlan(sql).getClass().getSimpleName().startswith(_HARMLESS):
            raise PipelineError(
                "expected a query (SELECT, WITH, SHOW or DESCRIBE): other statements could write, and read any file"
            ) from None

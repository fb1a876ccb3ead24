"""The data pipeline on Spark: the log as tables, the retained set as of any instant, and rows published to a server.

source/   the log as rows                      lake/      writing the tables of a lake
sink/     rows published to a server           jobs/      from the log to the tables
queries/  as of, SQL, audit                    pipeline   runs all jobs

What needs no Spark is in `embermq.lake`.

`register(spark)` adds the format "embermq" to a session; with the package installed Spark also finds it by itself, if
it looks with this Python, which importing this package before the session is made sees to.
Importing this package imports no Spark, so that a command can say what is missing.
"""

from typing import TYPE_CHECKING

from embermq.lake.errors import LakeError, PipelineError
from embermq.spark.errors import JavaMissing, OptionError, SparkMissing
from embermq.spark.session import build_session, use_this_python, what_is_missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "JavaMissing",
    "LakeError",
    "OptionError",
    "PipelineError",
    "SparkMissing",
    "build_session",
    "register",
    "what_is_missing",
]


use_this_python()


def register(spark: "SparkSession") -> None:
    """Add the format "embermq" to a session, to read and to write, and `mqtt_matches` for SQL."""
    from embermq.spark.data_source import EmberDataSource
    from embermq.spark.source.topic_filters import matches_function_sql

    use_this_python(spark)
    spark.dataSource.register(EmberDataSource)
    spark.sql(matches_function_sql())

"""The data pipeline on Spark: the log as tables, retained state at any instant, and back.

`register(spark)` makes the format "embermq" known to a session; with the package installed Spark also finds it itself.
Importing this package imports no Spark: the server's commands look here for what is missing.
"""

from typing import TYPE_CHECKING

from embermq.spark.errors import JavaMissing, LakeError, OptionError, PipelineError, SparkMissing
from embermq.spark.session import build_session, what_is_missing

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


def register(spark: "SparkSession", functions: bool = True) -> None:
    """Make the format "embermq" known here, to read and to write; with `functions`, `mqtt_matches` of SQL as well."""
    from embermq.spark.source.reader import EmberDataSource
    from embermq.spark.source.topic_filters import matches_function_sql

    spark.dataSource.register(EmberDataSource)
    if functions:
        spark.sql(matches_function_sql())

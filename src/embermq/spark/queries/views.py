"""The tables by their names in SQL.

Owns: the temporary views of a session: each table, `retained_history`, and the log itself as `log`.
"""

from pathlib import Path

from pyspark.sql import SparkSession

from embermq.spark.lake.tables import Lake, read_table
from embermq.spark.queries.as_of import create_history_view


def create_views(spark: SparkSession, lake: Lake, data: Path | None = None) -> None:
    """Make every table of a lake known by its name, and with `data` the log as it stands now."""
    for name in lake.names():
        read_table(spark, lake, name).createOrReplaceTempView(name)
    if lake.exists("retained") and lake.exists("retained_closed"):
        create_history_view(spark, lake)
    if data is not None:
        spark.read.format("embermq").load(str(data.absolute())).createOrReplaceTempView("log")

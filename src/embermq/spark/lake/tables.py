"""The tables of a lake, as Spark creates and opens them.

Owns: the statements that create and change a table. What its columns are is in `embermq.lake.schema`.
Never: what goes into a table; each job knows its own.
"""

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from embermq.lake.lake import Lake
from embermq.lake.schema import DAY, TABLES, Column, Table, spark_sql


def spark_schema(table: Table) -> StructType:
    """The columns of a table, with their comments."""
    return StructType.fromJson(table.spark_json())


def table_names(lake: Lake) -> list[str]:
    """The tables that exist in a lake: first those that every lake has, then the typed ones by name."""
    names = lake.table_names()
    return [*(name for name in TABLES if name in names), *(name for name in names if name not in TABLES)]


def create_table(spark: SparkSession, lake: Lake, table: Table) -> None:
    """Create a table unless it exists.

    Without deletion vectors: readers outside Spark often lack them, and a MERGE was no faster with them. In SQL, which
    Spark Connect knows without a plugin of Delta Lake.
    """
    if lake.has_table(table.name):
        return
    properties = {
        "delta.enableDeletionVectors": "false",
        "delta.logRetentionDuration": "interval 7 days",
        "delta.checkpointInterval": "50",
    }
    if table.statistics:
        properties["delta.dataSkippingStatsColumns"] = ",".join(table.statistics)
    given = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    divided = f"partitioned by ({table.divided_by})" if table.divided_by else ""
    spark.sql(
        f"create table if not exists delta.{quoted(lake.table(table.name))} ({spark_schema(table).toDDL()}) "
        f"using delta {divided} comment {text_literal(table.comment)} tblproperties ({given})"
    )


def quoted(name: str) -> str:
    """A name as SQL takes it."""
    return "`" + name.replace("`", "``") + "`"


def text_literal(text: str) -> str:
    """A text as SQL takes it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def read_table(spark: SparkSession, lake: Lake, name: str) -> DataFrame:
    """A table of the lake as a DataFrame."""
    return spark.read.format("delta").load(lake.table(name))


def add_columns(spark: SparkSession, lake: Lake, name: str, columns: Iterable[Column]) -> None:
    """Add columns that a table of an earlier version lacks; its rows have null there."""
    added = ", ".join(f"{quoted(column.name)} {spark_sql(column.type)}" for column in columns)
    spark.sql(f"alter table delta.`{lake.table(name)}` add columns ({added})")


def rewrite_columns(rows: DataFrame, lake: Lake, table: Table) -> None:
    """Replace a table by its own rows with other columns, in one commit."""
    commented = rows.to(spark_schema(table))
    commented.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(lake.table(table.name))


def partition_by_day(spark: SparkSession, lake: Lake, name: str) -> None:
    """Divide a table of an earlier version by days, in one commit that rewrites it."""
    rows = read_table(spark, lake, name).withColumn(DAY, F.to_date("timestamp"))
    writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    writer.partitionBy(DAY).save(lake.table(name))

"""The tables of a lake.

Owns: the columns and types of every table, and how a table is created and opened.
Never: what goes into a table; each job knows its own.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DateType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from embermq.spark.lake.comments import table_comment, with_comments
from embermq.spark.lake.lake import STATE_DIRECTORY, Lake
from embermq.spark.source.arrow_columns import PUBLISHED_COLUMNS
from embermq.spark.source.columns import SOURCE_SCHEMA

DAY: Final = "day"
"""The column that `messages` is divided by: the date of the timestamp, in UTC."""
MESSAGES_SCHEMA: Final = StructType(
    [*(field for field in SOURCE_SCHEMA.fields if field.name != "kind"), StructField(DAY, DateType())]
)

_RETAINED_FIELDS: Final = (
    StructField("topic", StringType()),
    StructField("payload", BinaryType()),
    StructField("qos", ByteType()),
    StructField("offset", LongType()),
    StructField("valid_from", TimestampType()),
)
_PUBLISHED_FIELDS: Final = tuple(SOURCE_SCHEMA[name] for name in PUBLISHED_COLUMNS)
# Earlier versions did not have who published it and its properties: they are last, where a table gets new columns.
RETAINED_SCHEMA: Final = StructType([*_RETAINED_FIELDS, *_PUBLISHED_FIELDS])
RETAINED_CLOSED_SCHEMA: Final = StructType(
    [
        *_RETAINED_FIELDS,
        StructField("valid_to", TimestampType()),
        StructField("offset_to", LongType()),
        *_PUBLISHED_FIELDS,
    ]
)
TOPIC_STATS_SCHEMA: Final = StructType(
    [
        StructField("topic", StringType()),
        StructField("window_start", TimestampType()),
        StructField("window_end", TimestampType()),
        StructField("messages", LongType()),
        StructField("bytes", LongType()),
        StructField("first_seen", TimestampType()),
        StructField("last_seen", TimestampType()),
        StructField("longest_silence_us", LongType()),
    ]
)
CLIENTS_SCHEMA: Final = StructType(
    [
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("event", StringType()),
        StructField("client_id", StringType()),
        StructField("persistent", BooleanType()),
        StructField("session_id", LongType()),
        StructField("topic_filter", StringType()),
        StructField("qos", ByteType()),
        StructField("no_local", BooleanType()),
        StructField("retain_as_published", BooleanType()),
        StructField("retain_handling", ByteType()),
        StructField("session_expiry_s", LongType()),
        StructField("user_name", StringType()),
        StructField("protocol", StringType()),
        StructField("address", StringType()),
        StructField("reason", StringType()),
    ]
)
GAPS_SCHEMA: Final = StructType(
    [
        StructField("job", StringType()),
        StructField("from_offset", LongType()),
        StructField("to_offset", LongType()),
        StructField("from_timestamp", TimestampType()),
        StructField("to_timestamp", TimestampType()),
        StructField("why", StringType()),
        StructField("noticed", TimestampType()),
    ]
)
REJECTS_SCHEMA: Final = StructType(
    [
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("topic", StringType()),
        StructField("payload", BinaryType()),
        StructField("field", StringType()),
        StructField("reason", StringType()),
    ]
)
TYPED_KEYS: Final = (
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("topic", StringType()),
)

TABLES: Final = {
    "messages": MESSAGES_SCHEMA,
    "retained": RETAINED_SCHEMA,
    "retained_closed": RETAINED_CLOSED_SCHEMA,
    "topic_stats": TOPIC_STATS_SCHEMA,
    "clients": CLIENTS_SCHEMA,
    "gaps": GAPS_SCHEMA,
}
STATS_COLUMNS: Final = {
    "messages": "offset,timestamp,topic",
    "retained": "topic,offset,valid_from",
    "retained_closed": "topic,offset,valid_from,valid_to,offset_to",
    "topic_stats": "topic,window_start,first_seen,last_seen",
}
HISTORY_VIEW: Final = "retained_history"
KNOWN_VIEW: Final = "retained_known"
"""Between which instants the retained set is known: columns `since` and `until`, one row."""
AS_OF_FUNCTION: Final = "retained_as_of"
RESERVED_NAMES: Final = (*TABLES, HISTORY_VIEW, KNOWN_VIEW, AS_OF_FUNCTION, STATE_DIRECTORY, "log")


def table_names(lake: Lake) -> list[str]:
    """The tables that exist in a lake: first those that every lake has, then the typed ones by name."""
    names = lake.table_names()
    return [*(name for name in TABLES if name in names), *(name for name in names if name not in TABLES)]


def create_table(spark: SparkSession, lake: Lake, name: str, schema: StructType) -> None:
    """Create a table unless it exists.

    Without deletion vectors: readers outside Spark often lack them, and a MERGE was no faster with them. In SQL, which
    Spark Connect knows without a plugin of Delta Lake.
    """
    if lake.has_table(name):
        return
    properties = {
        "delta.enableDeletionVectors": "false",
        "delta.logRetentionDuration": "interval 7 days",
        "delta.checkpointInterval": "50",
    }
    if name in STATS_COLUMNS:
        properties["delta.dataSkippingStatsColumns"] = STATS_COLUMNS[name]
    given = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    divided = f"partitioned by ({DAY})" if DAY in schema.names else ""
    spark.sql(
        f"create table if not exists delta.{quoted(lake.table(name))} ({with_comments(name, schema).toDDL()}) "
        f"using delta {divided} comment {text_literal(table_comment(name))} tblproperties ({given})"
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


def with_all_columns(rows: DataFrame, schema: StructType) -> DataFrame:
    """The columns of a schema; those that a table of an earlier version does not have are null."""
    return rows.select(
        *(
            F.col(field.name) if field.name in rows.columns else F.lit(None).cast(field.dataType).alias(field.name)
            for field in schema
        )
    )


def add_columns(spark: SparkSession, lake: Lake, name: str, fields: Sequence[StructField]) -> None:
    """Add columns that a table of an earlier version lacks; its rows have null there."""
    columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in fields)
    spark.sql(f"alter table delta.`{lake.table(name)}` add columns ({columns})")


def partition_by_day(spark: SparkSession, lake: Lake, name: str) -> None:
    """Divide a table of an earlier version by days, in one commit that rewrites it."""
    rows = read_table(spark, lake, name).withColumn(DAY, F.to_date("timestamp"))
    writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    writer.partitionBy(DAY).save(lake.table(name))

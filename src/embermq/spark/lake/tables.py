"""Tables: the schemas of the source and of every table of the lake, and where they lie.

Owns: column names, types, and how a table is created and opened.
Never: what goes into a table; each job knows its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from embermq.store.log.records import Kind

_USER_PROPERTY: Final = StructType([StructField("name", StringType()), StructField("value", StringType())])

# (column, Spark type, Arrow type): Spark wants exactly these Arrow types from a reader.
_SOURCE_COLUMNS: Final = (
    ("offset", LongType(), pa.int64()),
    ("timestamp", TimestampType(), pa.timestamp("us", "UTC")),
    ("kind", StringType(), pa.string()),
    ("topic", StringType(), pa.string()),
    ("payload", BinaryType(), pa.binary()),
    ("qos", ByteType(), pa.int8()),
    ("retain", BooleanType(), pa.bool_()),
    ("dup", BooleanType(), pa.bool_()),
    ("client_id", StringType(), pa.string()),
    ("expiry", LongType(), pa.int64()),
    ("content_type", StringType(), pa.string()),
    ("response_topic", StringType(), pa.string()),
    ("correlation_data", BinaryType(), pa.binary()),
    (
        "user_properties",
        ArrayType(_USER_PROPERTY),
        pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())])),
    ),
)

SOURCE_SCHEMA: Final = StructType([StructField(name, kind) for name, kind, _ in _SOURCE_COLUMNS])
"""The log as rows; `expiry` is in seconds. A reader may be given a part of these columns as its schema."""
_NEVER_NULL: Final = frozenset(("offset", "timestamp"))
_NEVER_NULL_OF_A_PUBLISH: Final = _NEVER_NULL | {"topic", "payload", "qos", "retain", "dup", "client_id"}
SOURCE_ARROW: Final = pa.schema([*((name, kind) for name, _, kind in _SOURCE_COLUMNS), ("flags", pa.int8())])

FLAGS_FIELD: Final = StructField("flags", ByteType())
"""The flags of a record as they are; not a column of the source by itself, but it may be asked for."""

MESSAGES_SCHEMA: Final = StructType([field for field in SOURCE_SCHEMA.fields if field.name != "kind"])

RETAINED_SCHEMA: Final = StructType(
    [
        StructField("topic", StringType()),
        StructField("payload", BinaryType()),
        StructField("qos", ByteType()),
        StructField("offset", LongType()),
        StructField("valid_from", TimestampType()),
    ]
)
RETAINED_CLOSED_SCHEMA: Final = StructType(
    [*RETAINED_SCHEMA.fields, StructField("valid_to", TimestampType()), StructField("offset_to", LongType())]
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
REJECTS_SCHEMA: Final = StructType(
    [
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("topic", StringType()),
        StructField("payload", BinaryType()),
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
}
STATS_COLUMNS: Final = {
    "messages": "offset,timestamp,topic",
    "retained": "topic,offset,valid_from",
    "retained_closed": "topic,offset,valid_from,valid_to,offset_to",
    "topic_stats": "topic,window_start,first_seen,last_seen",
}
REJECTS_SUFFIX: Final = "_rejects"
HISTORY_VIEW: Final = "retained_history"
STATE_DIRECTORY: Final = "_embermq"
RESERVED_NAMES: Final = (*TABLES, HISTORY_VIEW, STATE_DIRECTORY, "log")


def source_schema(kinds: Sequence[int], columns: Sequence[str] = SOURCE_SCHEMA.names) -> StructType:
    """Columns of the source if only these kinds of records are read (none: all), with those marked that have no null.

    Spark looks at every single value of the others to see whether it is one.
    """
    never_null = _NEVER_NULL_OF_A_PUBLISH if tuple(kinds) == (Kind.PUBLISH,) else _NEVER_NULL
    types = {field.name: field.dataType for field in (*SOURCE_SCHEMA.fields, FLAGS_FIELD)}
    return StructType([StructField(name, types[name], name not in never_null) for name in columns])


@dataclass(frozen=True)
class Lake:
    """A lake directory: each table is a directory of its name, what the pipeline itself needs is in `_embermq`."""

    directory: Path

    def table(self, name: str) -> str:
        """Where a table lies, as Spark is told."""
        return str(self.directory.absolute() / name)

    def checkpoint(self, job: str) -> str:
        return str(self.directory.absolute() / STATE_DIRECTORY / "checkpoints" / job)

    def exists(self, name: str) -> bool:
        """Whether there is such a table; a crash may leave a directory without a first commit, which is none."""
        return any((self.directory / name / "_delta_log").glob("*.json"))

    def names(self) -> Iterator[str]:
        """The tables that are there, those that every lake has first."""
        yield from (name for name in TABLES if self.exists(name))
        if self.directory.is_dir():
            yield from sorted(
                entry.name for entry in self.directory.iterdir() if entry.name not in TABLES and self.exists(entry.name)
            )


def as_lake(lake: "Lake | Path | str") -> Lake:
    return lake if isinstance(lake, Lake) else Lake(Path(lake))


def create_table(spark: SparkSession, lake: Lake, name: str, schema: StructType) -> None:
    """Create a table unless it is there.

    No deletion vectors: readers outside Spark often lack them, and a MERGE was no faster with them.
    """
    if lake.exists(name):
        return
    builder = (
        DeltaTable.createIfNotExists(spark)
        .location(lake.table(name))
        .addColumns(schema)
        .property("delta.enableDeletionVectors", "false")
        .property("delta.logRetentionDuration", "interval 7 days")
    )
    if name in STATS_COLUMNS:
        builder = builder.property("delta.dataSkippingStatsColumns", STATS_COLUMNS[name])
    builder.execute()


def read_table(spark: SparkSession, lake: "Lake | Path | str", name: str) -> DataFrame:
    """A table of the lake as a DataFrame."""
    return spark.read.format("delta").load(as_lake(lake).table(name))

"""The columns of a record as Spark and Arrow see them.

Owns: the names and types of the source's columns, and which of them are never null.
Never: the tables of the lake; those are in `lake.tables`.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
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

# (column, Spark type, Arrow type): Spark accepts exactly these Arrow types from a reader.
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
    ("payload_format", ByteType(), pa.int8()),
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
"""The log as rows. `expiry` is in seconds, and `payload_format` is 1 for text (MQTT 5.0, 3.3.2.3).

A reader may be given a part of these columns as its schema.
"""
SOURCE_ARROW: Final = pa.schema([*((name, kind) for name, _, kind in _SOURCE_COLUMNS), ("flags", pa.int8())])

FLAGS_FIELD: Final = StructField("flags", ByteType())
"""The flags of a record, unchanged. Not one of the default columns; a schema can ask for it."""

_NEVER_NULL: Final = frozenset(("offset", "timestamp"))
_NEVER_NULL_IN_A_PUBLISH: Final = _NEVER_NULL | {"topic", "payload", "qos", "retain", "dup", "client_id"}


def source_schema(kinds: Sequence[int], columns: Sequence[str] = SOURCE_SCHEMA.names) -> StructType:
    """Columns of the source when only these kinds of records are read; no kinds means all kinds.

    Columns that are never null are marked: Spark tests every value of the others for null.
    """
    never_null = _NEVER_NULL_IN_A_PUBLISH if tuple(kinds) == (Kind.PUBLISH,) else _NEVER_NULL
    types = {field.name: field.dataType for field in (*SOURCE_SCHEMA.fields, FLAGS_FIELD)}
    return StructType([StructField(name, types[name], name not in never_null) for name in columns])

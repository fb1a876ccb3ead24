"""The columns of a record as Spark sees them; `arrow_columns` has them as Arrow does.

Owns: the names and types of the source's columns, and which of them are never null.
Never: the tables of the lake; those are in `lake.tables`.
"""

from collections.abc import Sequence
from typing import Final

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

# Spark accepts exactly the Arrow types of `arrow_columns` from a reader.
_SPARK_TYPES: Final = {
    "offset": LongType(),
    "timestamp": TimestampType(),
    "kind": StringType(),
    "topic": StringType(),
    "payload": BinaryType(),
    "qos": ByteType(),
    "retain": BooleanType(),
    "dup": BooleanType(),
    "client_id": StringType(),
    "expiry": LongType(),
    "payload_format": ByteType(),
    "content_type": StringType(),
    "response_topic": StringType(),
    "correlation_data": BinaryType(),
    "user_properties": ArrayType(_USER_PROPERTY),
}

SOURCE_SCHEMA: Final = StructType([StructField(name, kind) for name, kind in _SPARK_TYPES.items()])
"""The log as rows. `expiry` is in seconds, and `payload_format` is 1 for text (MQTT 5.0, 3.3.2.3).

A reader may be given a part of these columns as its schema.
"""

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

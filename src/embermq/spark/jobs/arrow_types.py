"""Types of Spark as types of Arrow, for the columns of typed tables. Spark's own function for it is not public.

Owns: `arrow_type`, for the types that `typed_schema` accepts.
"""

from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

_SIMPLE: Final[dict[type[DataType], pa.DataType]] = {
    BooleanType: pa.bool_(),
    ByteType: pa.int8(),
    ShortType: pa.int16(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    StringType: pa.string(),
    DateType: pa.date32(),
    TimestampType: pa.timestamp("us", "UTC"),
}


def arrow_type(kind: DataType) -> pa.DataType:
    """The type in which Spark takes values of one of its types."""
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", arrow_type(kind.elementType), kind.containsNull))
    if isinstance(kind, MapType):
        value = pa.field("value", arrow_type(kind.valueType), kind.valueContainsNull)
        return pa.map_(pa.field("key", arrow_type(kind.keyType), False), value)
    if isinstance(kind, StructType):
        return pa.struct([pa.field(field.name, arrow_type(field.dataType), field.nullable) for field in kind])
    return _SIMPLE[type(kind)]

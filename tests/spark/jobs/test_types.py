"""Types of Arrow as types of Spark, and schemas as text: as Spark itself has them."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from embermq.lake.schema import LOG_ARROW, TABLES, spark_sql, struct_json
from embermq.lake.typed_schema import parse_schema

EVERY_TYPE = (
    "a boolean, b byte, c short, d int, e long, f float, g double, h decimal(12,3), i string, j date, k timestamp, "
    "l array<array<timestamp>>, m map<string, struct<x: int, y: map<string, date>>>"
)

SCHEMAS = [
    "state string, load double, tags array<string>",
    "a TINYINT, b byte, c SMALLINT,d short,e int,f Integer,g bigint,h long",
    "a float, b boolean, c date, d timestamp",
    "a decimal, b decimal(5), c decimal(38,38), d DECIMAL( 7 , 2 )",
    "a struct<x: int, y: array<struct<z double>>>, b map<string, array<int>>",
    "`wind-speed` double, `from` string, 2m double, `a``b` int",
]


@pytest.mark.newest_spark
def test_the_types_are_those_of_spark() -> None:
    for columns in (parse_schema(EVERY_TYPE), LOG_ARROW, *(table.arrow() for table in TABLES.values())):
        assert to_arrow_schema(StructType.fromJson(struct_json(columns)), timezone="UTC") == columns


def test_the_names_in_sql_are_those_of_spark() -> None:
    for columns in (parse_schema(EVERY_TYPE), LOG_ARROW):
        assert [spark_sql(field.type) for field in columns] == [
            field.dataType.simpleString() for field in StructType.fromJson(struct_json(columns))
        ]


def test_spark_reads_the_same_columns(spark: SparkSession) -> None:
    for text in SCHEMAS:
        assert StructType.fromJson(struct_json(parse_schema(text))) == StructType.fromDDL(text), text

"""Schemas of typed tables are parsed without Spark, as Spark parses them."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from embermq.spark.jobs.typed_schema import DEPTH_MAX, SchemaError, parse_schema

SCHEMAS = [
    "state string, load double, tags array<string>",
    "a TINYINT, b byte, c SMALLINT,d short,e int,f Integer,g bigint,h long",
    "a float, b boolean, c date, d timestamp",
    "a decimal, b decimal(5), c decimal(38,38), d DECIMAL( 7 , 2 )",
    "a struct<x: int, y: array<struct<z double>>>, b map<string, array<int>>",
    "`wind-speed` double, `from` string, 2m double, `a``b` int",
]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected the name of a column, found the end"),
        ("a", r"expected a type \(string, boolean, .*\), found the end"),
        ("a nosuch", "found 'nosuch'"),
        ("a binary", "found 'binary'"),
        ("a int,", "expected the name of a column, found the end"),
        ("a int b int", "expected a comma or the end of the schema, found 'b'"),
        ("a int not null", "expected a comma or the end of the schema, found 'not'"),
        ("a array<int", "expected '>', found the end"),
        ("a array<int>>", "found '>'"),
        ("a map<int, int>", "expected string: the names in a JSON object are strings, found 'int'"),
        ("a decimal(39,2)", "expected 1 to 38 digits"),
        ("a decimal(3,4)", "no more places than digits"),
        ("a decimal(x)", "expected a whole number, found 'x'"),
        ("a int, A string", "the column 'A' is there twice"),
        ("`a b` int", "expected a name without spaces"),
        ("a-b int", "'-' is in no schema"),
        ("a struct<>", "expected the name of a column, found '>'"),
        ("a " + "array<" * DEPTH_MAX + "int" + ">" * DEPTH_MAX, "more than 32 types within each other"),
    ],
)
def test_a_text_that_is_no_schema_is_refused(text: str, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        parse_schema(text)


def test_spark_reads_the_same_columns(spark: SparkSession) -> None:
    for text in SCHEMAS:
        assert parse_schema(text) == StructType.fromDDL(text), text

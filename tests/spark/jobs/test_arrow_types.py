"""Types of Spark as types of Arrow: the same as Spark's own. No Spark session is needed."""

import pytest
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructField, StructType

from embermq.spark.jobs.arrow_types import arrow_type
from embermq.spark.jobs.typed_schema import parse_schema


@pytest.mark.newest_spark
def test_the_types_are_those_of_spark() -> None:
    schema = parse_schema(
        "a boolean, b byte, c short, d int, e long, f float, g double, h decimal(12,3), i string, j date, k timestamp, "
        "l array<array<timestamp>>, m map<string, struct<x: int, y: map<string, date>>>"
    )
    whole = StructType([StructField("whole", schema, nullable=False)])
    assert arrow_type(whole) == to_arrow_type(whole, timezone="UTC")

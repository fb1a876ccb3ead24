"""The jobs of expectations: values of a typed table that are not as expected, a row in its violations for each rule.

Owns: the rules as expressions, and the last value of each topic, from which changes go on in the next batch.
"""

from collections.abc import Sequence
from functools import partial, reduce
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from embermq.lake.delta import applied_offset
from embermq.lake.expectations import Expectation, TableExpectations
from embermq.lake.lake import Lake
from embermq.lake.payloads.reader import PayloadReader, payload_reader
from embermq.lake.schema import LAST_VALUES, VIOLATIONS
from embermq.spark.jobs.job import Batch, Job
from embermq.spark.jobs.typed_tables import read_typed, split_typed
from embermq.spark.lake.tables import quoted, read_table
from embermq.spark.lake.transactions import append_once, replace_once

_KEYS: Final = ("offset", "timestamp", "topic")


def expectations_job(expected: TableExpectations) -> Job:
    """The job of a typed table's violations. LakeError if the payloads cannot be read here."""
    tables = expected.tables()
    return Job(
        name=expected.name,
        tables=tables,
        columns=("offset", "timestamp", "topic", "payload", "retain"),
        kinds=("publish",),
        apply=partial(apply_expectations, expected=expected, reader=payload_reader(expected.source)),
        is_merged=len(tables) > 1,
        topic_filter=expected.source.topic_filter,
        definition=expected.definition(),
    )


def apply_expectations(batch: Batch, lake: Lake, expected: TableExpectations, reader: PayloadReader) -> None:
    """Append the violations of a batch, then replace the last values: one that comes again finds those before it."""
    names = [table.name for table in expected.tables()]
    through = {name: applied_offset(lake, name, name) for name in names}
    new = batch.rows.where(F.col("offset") > min(through.values()))
    rows, _ = split_typed(read_typed(new, expected.source, reader), expected.source)
    rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        if rows.isEmpty():
            return
        found = rows.select(*_KEYS, F.explode(_broken(expected.expectations)).alias("found")).select(*_KEYS, "found.*")
        values = _numbers(rows, expected.expectations)
        if values is not None:
            values = values.unionByName(read_table(rows.sparkSession, lake, names[1]))
            found = found.unionByName(_steep(values, expected.expectations))
        # What both tables have applied is judged already; those rows are needed for the next change only.
        found = found.where(F.col("offset") > max(through.values())).select(*VIOLATIONS.names)
        if not found.isEmpty():
            append_once(found, lake, names[0], names[0], batch.through, batch.is_small)
        if values is not None:
            newest = F.max(F.struct("offset", "timestamp", "last")).alias("newest")
            last = values.groupBy("topic", "field").agg(newest).select("topic", "field", "newest.*")
            replace_once(last.select(*LAST_VALUES.names), lake, names[1], names[1], batch.through)
    finally:
        rows.unpersist()


def _value(path: str) -> Column:
    return F.col(".".join(map(quoted, path.split("."))))


def _broken(expectations: Sequence[Expectation]) -> Column:
    """The rules that a row breaks by itself: its field, the rule, and the value as text."""
    found = []
    for one in expectations:
        value = _value(one.column)
        rules = {
            "not_null": value.isNull() if one.not_null else None,
            "min": None if one.min is None else value < one.min,
            "max": None if one.max is None else value > one.max,
            "allowed": ~value.isin(*one.allowed) if one.allowed else None,
        }
        for rule, is_broken in rules.items():
            if is_broken is not None:
                shown = (
                    F.lit(one.column).alias("field"),
                    F.lit(rule).alias("rule"),
                    value.cast("string").alias("value"),
                )
                found.append(F.when(is_broken, F.struct(*shown)))
    return F.array_compact(F.array(*found).cast("array<struct<field:string,rule:string,value:string>>"))


def _numbers(rows: DataFrame, expectations: Sequence[Expectation]) -> DataFrame | None:
    """The values whose changes are compared, as rows of the last values; None if there are none."""
    found = [
        rows.select("topic", F.lit(one.column).alias("field"), "offset", "timestamp", _value(one.column).alias("last"))
        for one in expectations
        if one.rate_max is not None
    ]
    return (
        reduce(DataFrame.unionByName, found).withColumn("last", F.col("last").cast("double")).dropna()
        if found
        else None
    )


def _steep(values: DataFrame, expectations: Sequence[Expectation]) -> DataFrame:
    """The violations of `rate_max`. Two values of one instant are not compared."""
    before = F.lag(F.struct("timestamp", "last")).over(Window.partitionBy("topic", "field").orderBy("offset"))
    seconds = (F.unix_micros("timestamp") - F.unix_micros(F.col("before.timestamp"))) / 1_000_000
    limits = [F.when(F.col("field") == one.column, one.rate_max) for one in expectations if one.rate_max is not None]
    is_steep = (seconds > 0) & (F.abs(F.col("last") - F.col("before.last")) > F.coalesce(*limits) * seconds)
    found = values.withColumn("before", before).where(is_steep)
    return found.select(*_KEYS, "field", F.lit("rate_max").alias("rule"), F.col("last").cast("string").alias("value"))

"""The jobs of typed tables: the payloads of a topic filter as typed columns, and those that do not fit as rejects.

Owns: splitting a batch into rows that fit the schema of a `TypedTable` and rejects.
Never: a stream that fails because of a payload.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import StructType

from embermq.lake.delta import applied_offset
from embermq.lake.lake import Lake
from embermq.lake.payloads.reader import PayloadReader, need_library, payload_reader
from embermq.lake.payloads.sparkplug import CERTIFICATE_PATTERN, RESULT, Certificates
from embermq.lake.payloads.values import NOT_UTF8, TOO_LARGE
from embermq.lake.schema import REJECTS, struct_json
from embermq.lake.typed_tables import TypedTable
from embermq.spark.jobs.job import Apply, Batch, Job
from embermq.spark.lake.tables import read_table, spark_schema
from embermq.spark.lake.transactions import append_once, replace_once

_WHITE_SPACE: Final = " \t\n\r"
_NUMBER: Final = (
    r"\A[ \t\n\r]*+-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?[ \t\n\r]*+\z"  # RFC 8259, section 6
)
SMALL_ROWS: Final = 500_000
"""The most rows that are appended from the memory of this process."""
READ_KEYS: Final = ("offset", "timestamp", "topic", "payload")


def typed_job(table: TypedTable) -> Job:
    """The job of one typed table. LakeError if its payloads cannot be read here."""
    return Job(
        name=table.name,
        tables=table.tables(),
        columns=("offset", "timestamp", "topic", "payload", "retain"),
        kinds=("publish",),
        apply=_apply_of(table),
        topic_filter=table.topic_filter,
        definition=table.definition(),
    )


def _apply_of(table: TypedTable) -> Apply:
    if table.format == "sparkplug":
        need_library(table)
        return partial(apply_sparkplug, table=table)
    return partial(apply_typed, table=table, reader=payload_reader(table))


def read_typed(messages: DataFrame, table: TypedTable, reader: PayloadReader) -> DataFrame:
    """Each message with its values in `parsed`, or with the field that does not fit and the reason.

    A message that clears a retained one is left out.
    """
    values = valued(messages)
    if table.format != "number":
        # Spark needs pandas for a function with annotations. Its types leave out that a struct may be returned.
        read = arrow_udf(lambda payloads: reader.read_array(payloads), StructType.fromJson(struct_json(reader.result)))  # type: ignore[call-overload]
        return values.select(*READ_KEYS, read("payload").alias("read")).select(*READ_KEYS, "read.*")
    text = F.col("payload").cast("string")
    # What Spark casts to a double is more than a number of RFC 8259: 1d, 0x1p3, NaN, +1, .5
    number = F.when(text.rlike(_NUMBER), F.trim(text, F.lit(_WHITE_SPACE)).try_cast("double"))
    # A step of its own: Spark would match the pattern once for each use of the value.
    numbers = values.select(*READ_KEYS, number.alias("value"))
    value = F.col("value")
    is_text = F.expr("is_valid_utf8(cast(payload as string))")
    reason = (
        F.when(value.isNull(), F.when(is_text, F.lit("not a number")).otherwise(F.lit(NOT_UTF8)))
        .when(F.abs(value) == float("inf"), F.lit(TOO_LARGE.format("double")))
        .alias("reason")
    )
    field = F.when(F.col("reason") != NOT_UTF8, F.lit("value")).alias("field")
    return numbers.select(*READ_KEYS, F.struct(value).alias("parsed"), reason).select("*", field)


def valued(messages: DataFrame) -> DataFrame:
    """The messages that have a value: all but those that clear a retained one."""
    return messages.where(~(F.col("retain") & (F.length("payload") == 0))).select(*READ_KEYS)


def split_typed(read: DataFrame, table: TypedTable) -> tuple[DataFrame, DataFrame]:
    """The rows that fit, and the rejects, of what `read_typed` returns."""
    split = F.split("topic", "/", -1)
    levels = [F.get(split, number).alias(name) for number, name in enumerate(table.levels) if name]
    values = [F.col("parsed").getField(field.name).alias(field.name) for field in table.values()]
    fitting = read.where(F.col("reason").isNull())
    if table.has_many_rows:
        fitting = fitting.select("offset", "timestamp", "topic", F.explode("parsed").alias("parsed"))
    fitting = fitting.select("offset", "timestamp", "topic", *levels, *values)
    return fitting, read.where(F.col("reason").isNotNull()).select(*REJECTS.names)


def apply_typed(batch: Batch, lake: Lake, table: TypedTable, reader: PayloadReader) -> None:
    """Append a batch to a typed table and its rejects."""
    through = _applied(lake, table)
    read = read_typed(batch.rows.where(F.col("offset") > min(through.values())), table, reader)
    with _kept(read):
        _append(read, batch, lake, table, through)


def apply_sparkplug(batch: Batch, lake: Lake, table: TypedTable) -> None:
    """Append a batch of Sparkplug B: what the certificates before a message say is known wherever it is read.

    The certificates come last: a batch that comes again finds those before it.
    """
    through = _applied(lake, table)
    births = table.tables()[2]
    spark = batch.rows.sparkSession
    new = valued(batch.rows.where(F.col("offset") > min(through.values())))
    found = new.where(F.col("topic").rlike(CERTIFICATE_PATTERN)).collect()
    known = read_table(spark, lake, births.name).collect()
    messages = {row["offset"]: row for row in (*known, *found)}
    certificates = Certificates.among((at, row["topic"], bytes(row["payload"])) for at, row in messages.items())
    # Spark needs pandas for a function with annotations. Its types leave out that a struct may be returned.
    read = arrow_udf(lambda *columns: certificates.read_array(*columns), StructType.fromJson(struct_json(RESULT)))  # type: ignore[call-overload]
    rows = new.select(*READ_KEYS, read("offset", "topic", "payload").alias("read")).select(*READ_KEYS, "read.*")
    with _kept(rows):
        _append(rows, batch, lake, table, through)
    if any(row["offset"] > through[births.name] for row in found):
        newest = [tuple(messages[offset]) for offset, _, _ in certificates.newest()]
        replace_once(spark.createDataFrame(newest, spark_schema(births)), lake, births.name, births.name, batch.through)


def _applied(lake: Lake, table: TypedTable) -> dict[str, int]:
    return {one.name: applied_offset(lake, one.name, one.name) for one in table.tables()}


@contextmanager
def _kept(read: DataFrame) -> Iterator[None]:
    """Several tables take from it, and it is read once."""
    read.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield
    finally:
        read.unpersist()


def _append(read: DataFrame, batch: Batch, lake: Lake, table: TypedTable, through: Mapping[str, int]) -> None:
    """Append what was read to a typed table and its rejects."""
    if read.isEmpty():
        return
    is_small = batch.is_small
    if is_small and table.has_many_rows:  # a few bytes may be a row
        is_small = (read.agg(F.sum(F.size("parsed"))).collect()[0][0] or 0) <= SMALL_ROWS
    for name, rows in zip((table.name, table.rejects().name), split_typed(read, table), strict=True):
        append_once(rows.where(F.col("offset") > through[name]), lake, name, name, batch.through, is_small)

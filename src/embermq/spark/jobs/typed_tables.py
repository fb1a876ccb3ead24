"""The jobs of typed tables: the payloads of a topic filter as typed columns, and those that do not fit as rejects.

Owns: splitting a batch into rows that fit the schema of a `TypedTable` and rejects.
Never: a stream that fails because of a payload.
"""

from functools import partial
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import StructType

from embermq.lake.delta import applied_offset
from embermq.lake.lake import Lake
from embermq.lake.payloads.reader import PayloadReader, payload_reader
from embermq.lake.payloads.values import NOT_UTF8, TOO_LARGE
from embermq.lake.schema import REJECTS, struct_json
from embermq.lake.typed_tables import TypedTable
from embermq.spark.jobs.job import Batch, Job
from embermq.spark.lake.transactions import append_once

_WHITE_SPACE: Final = " \t\n\r"
_NUMBER: Final = (
    r"\A[ \t\n\r]*+-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?[ \t\n\r]*+\z"  # RFC 8259, section 6
)
_READ_KEYS: Final = ("offset", "timestamp", "topic", "payload")


def typed_job(table: TypedTable) -> Job:
    """The job of one typed table. LakeError if its payloads cannot be read here."""
    return Job(
        name=table.name,
        tables=(table.table(), table.rejects()),
        columns=("offset", "timestamp", "topic", "payload", "retain"),
        kinds=("publish",),
        apply=partial(apply_typed, table=table, reader=payload_reader(table)),
        topic_filter=table.topic_filter,
        definition=table.definition(),
    )


def read_typed(messages: DataFrame, table: TypedTable, reader: PayloadReader) -> DataFrame:
    """Each message with its values in `parsed`, or with the field that does not fit and the reason.

    A message that clears a retained one is left out.
    """
    values = messages.where(~(F.col("retain") & (F.length("payload") == 0))).select(*_READ_KEYS)
    if table.format != "number":
        # Spark needs pandas for a function with annotations. Its types leave out that a struct may be returned.
        read = arrow_udf(lambda payloads: reader.read_array(payloads), StructType.fromJson(struct_json(reader.result)))  # type: ignore[call-overload]
        return values.select(*_READ_KEYS, read("payload").alias("read")).select(*_READ_KEYS, "read.*")
    text = F.col("payload").cast("string")
    # What Spark casts to a double is more than a number of RFC 8259: 1d, 0x1p3, NaN, +1, .5
    number = F.when(text.rlike(_NUMBER), F.trim(text, F.lit(_WHITE_SPACE)).try_cast("double"))
    # A step of its own: Spark would match the pattern once for each use of the value.
    numbers = values.select(*_READ_KEYS, number.alias("value"))
    value = F.col("value")
    is_text = F.expr("is_valid_utf8(cast(payload as string))")
    reason = (
        F.when(value.isNull(), F.when(is_text, F.lit("not a number")).otherwise(F.lit(NOT_UTF8)))
        .when(F.abs(value) == float("inf"), F.lit(TOO_LARGE.format("double")))
        .alias("reason")
    )
    field = F.when(F.col("reason") != NOT_UTF8, F.lit("value")).alias("field")
    return numbers.select(*_READ_KEYS, F.struct(value).alias("parsed"), reason).select("*", field)


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
    through = {name: applied_offset(lake, name, name) for name in (table.name, table.rejects().name)}
    read = read_typed(batch.rows.where(F.col("offset") > min(through.values())), table, reader)
    read = read.persist(StorageLevel.MEMORY_AND_DISK)  # both tables take from it, and it is read once
    try:
        if read.isEmpty():
            return
        for name, rows in zip((table.name, table.rejects().name), split_typed(read, table), strict=True):
            append_once(rows.where(F.col("offset") > through[name]), lake, name, name, batch.through, batch.is_small)
    finally:
        read.unpersist()

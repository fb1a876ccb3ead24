"""The jobs of typed tables: a topic filter and a schema give a table of typed columns, and one of rejects.

    [[pipeline.tables]]
    name = "air"
    filter = "air/+/+"
    format = "number"                # the payload is a number as text: one column, `value`
    levels = ["", "station", "measure"]

    [[pipeline.tables]]
    name = "status"
    filter = "plant/+/status"
    format = "json"
    schema = "state string, load double, tags array<string>"

Owns: these settings, and splitting a batch into rows that fit the schema and rejects.
Never: a stream that fails because of a payload.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import DoubleType, StringType, StructField, StructType

from embermq.spark.errors import PipelineError
from embermq.spark.jobs.job import Batch, Job
from embermq.spark.jobs.strict_json import NOT_UTF8, TOO_LARGE, DocumentReader
from embermq.spark.jobs.typed_schema import SchemaError, parse_schema
from embermq.spark.lake.comments import REJECTS_SUFFIX
from embermq.spark.lake.definitions import Definition, check_definition
from embermq.spark.lake.lake import Lake
from embermq.spark.lake.tables import REJECTS_SCHEMA, RESERVED_NAMES, TYPED_KEYS
from embermq.spark.lake.transactions import append_once, applied_offset
from embermq.spark.source.topic_masks import filter_problem

FORMATS: Final = ("json", "number")

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_WHITE_SPACE: Final = " \t\n\r"
_NUMBER: Final = (
    r"\A[ \t\n\r]*+-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?[ \t\n\r]*+\z"  # RFC 8259, section 6
)
_READ_KEYS: Final = ("offset", "timestamp", "topic", "payload")
_SECTION_KEYS: Final = ("tables", "retention", "compact_files", "vacuum_hours")
_KEYS: Final = ("name", "filter", "format", "schema", "levels")


@dataclass(frozen=True)
class TypedTable:
    """One table of typed payloads."""

    name: str
    topic_filter: str
    format: str
    schema: str = ""
    levels: tuple[str, ...] = ()

    @property
    def rejects(self) -> str:
        return self.name + REJECTS_SUFFIX

    def value_fields(self) -> list[StructField]:
        """The columns that come from the payload; SchemaError if the schema is none."""
        if self.format == "number":
            return [StructField("value", DoubleType())]
        return parse_schema(self.schema).fields

    def definition(self) -> Definition:
        """The settings that decide what the rows are, each in one form."""
        levels = list(self.levels)
        while levels and not levels[-1]:
            levels.pop()
        schema = StructType(self.value_fields()).simpleString()
        return {"filter": self.topic_filter, "format": self.format, "schema": schema, "levels": levels}

    def table_schema(self) -> StructType:
        levels = [StructField(name, StringType()) for name in self.levels if name]
        return StructType([*TYPED_KEYS, *levels, *self.value_fields()])


def typed_job(table: TypedTable) -> Job:
    """The job of one typed table."""
    return Job(
        name=table.name,
        tables={table.name: table.table_schema(), table.rejects: REJECTS_SCHEMA},
        columns=("offset", "timestamp", "topic", "payload", "retain"),
        kinds=("publish",),
        apply=partial(apply_typed, table=table),
        topic_filter=table.topic_filter,
        definition=table.definition(),
    )


def read_section(config: Path) -> dict[str, object]:
    """The section `pipeline` of a configuration file."""
    try:
        settings = tomllib.loads(config.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PipelineError(f"{config}: {error}") from None
    pipeline = settings.get("pipeline", {})
    if not isinstance(pipeline, dict):
        raise PipelineError(f"{config}: pipeline: expected a section")
    for key in pipeline:
        if key not in _SECTION_KEYS:
            raise PipelineError(f"{config}: pipeline.{key}: expected one of {', '.join(_SECTION_KEYS)}")
    return pipeline


def read_typed_tables(config: Path | None) -> tuple[TypedTable, ...]:
    """The tables that a configuration file asks for; none without a file."""
    if config is None:
        return ()
    entries = read_section(config).get("tables", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise PipelineError(f"{config}: pipeline.tables: expected [[pipeline.tables]] sections")
    tables = tuple(_typed_table(f"{config}: pipeline.tables[{number}]", entry) for number, entry in enumerate(entries))
    names = [name for table in tables for name in (table.name, table.rejects)]
    for name in names:
        if names.count(name) > 1:
            raise PipelineError(f"{config}: pipeline.tables: the name {name!r} is used twice")
    return tables


def check_typed_tables(config: Path, lake: Lake) -> None:
    """PipelineError if a configuration file or the tables of a lake, which it changes, would stop the pipeline."""
    for table in read_typed_tables(config):
        check_definition(lake, table.name, table.definition())


def _typed_table(where: str, entry: Mapping[str, object]) -> TypedTable:
    for key in entry:
        if key not in _KEYS:
            raise PipelineError(f"{where}.{key}: expected one of {', '.join(_KEYS)}")
    for key in ("name", "filter", "format", "schema"):
        if not isinstance(entry.get(key, ""), str):
            raise PipelineError(f"{where}.{key}: {entry[key]!r}: expected a text")
    name, topic_filter, form = (str(entry.get(key, "")) for key in ("name", "filter", "format"))
    if not _NAME.fullmatch(name) or name in RESERVED_NAMES:
        raise PipelineError(f"{where}.name: {name!r}: expected small letters, digits and _, and not {RESERVED_NAMES}")
    problem = filter_problem(topic_filter)
    if problem is not None:
        raise PipelineError(f"{where}.filter: {topic_filter!r}: expected an MQTT topic filter ({problem})")
    if form not in FORMATS:
        raise PipelineError(f"{where}.format: {form!r}: expected one of {', '.join(FORMATS)}")
    schema = str(entry.get("schema", ""))
    if (form == "json") != bool(schema):
        raise PipelineError(f"{where}.schema: {schema!r}: expected columns as in 'a double, b string' for json only")
    levels = entry.get("levels", [])
    if not isinstance(levels, list) or not all(isinstance(level, str) for level in levels):
        raise PipelineError(f"{where}.levels: expected a list of column names, empty for a level that is not wanted")
    table = TypedTable(name, topic_filter, form, schema, tuple(levels))
    _check_columns(where, table)
    return table


def _check_columns(where: str, table: TypedTable) -> None:
    try:
        names = [name.lower() for name in table.table_schema().names]
    except SchemaError as error:
        raise PipelineError(f"{where}.schema: {table.schema!r}: {error}") from None
    for name in names:
        if names.count(name) > 1:
            raise PipelineError(f"{where}: the column {name!r} is used twice")


def read_typed(messages: DataFrame, table: TypedTable) -> DataFrame:
    """Each message with its values in `parsed`, or with the field that does not fit and the reason.

    A message that clears a retained one is left out.
    """
    values = messages.where(~(F.col("retain") & (F.length("payload") == 0))).select(*_READ_KEYS)
    if table.format == "json":
        reader = DocumentReader(StructType(table.value_fields()))
        # Spark needs pandas for a function with annotations. Its types leave out that a struct may be returned.
        read = arrow_udf(lambda payloads: reader.read_array(payloads), reader.result_type())  # type: ignore[call-overload]
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
    values = [F.col("parsed").getField(field.name).alias(field.name) for field in table.value_fields()]
    fitting = read.where(F.col("reason").isNull()).select("offset", "timestamp", "topic", *levels, *values)
    return fitting, read.where(F.col("reason").isNotNull()).select(*REJECTS_SCHEMA.names)


def apply_typed(batch: Batch, lake: Lake, table: TypedTable) -> None:
    """Append a batch to a typed table and its rejects."""
    spark = batch.rows.sparkSession
    through = {name: applied_offset(spark, lake, name, name) for name in (table.name, table.rejects)}
    read = read_typed(batch.rows.where(F.col("offset") > min(through.values())), table)
    read = read.persist(StorageLevel.MEMORY_AND_DISK)  # both tables take from it, and it is read once
    try:
        if read.isEmpty():
            return
        for name, rows in zip((table.name, table.rejects), split_typed(read, table), strict=True):
            append_once(rows.where(F.col("offset") > through[name]), lake, name, name, batch.through)
    finally:
        read.unpersist()

"""Preparing a job's tables: made if they are not there, and refused or changed if they are of an earlier version.

Owns: whether a job's tables can be continued, and from which offset.
Never: what a job does with a batch.
"""

from collections.abc import Iterable

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from embermq.lake.delta import applied, claim_table
from embermq.lake.epochs import NOTHING_APPLIED
from embermq.lake.errors import LakeError
from embermq.lake.evolution import origins
from embermq.lake.lake import Lake
from embermq.lake.made_from import check_definition, has_definition, write_definition
from embermq.lake.positions import Positions
from embermq.lake.schema import Table, spark_sql
from embermq.spark.jobs.job import Job
from embermq.spark.lake.tables import (
    add_columns,
    create_table,
    partition_by_day,
    quoted,
    read_table,
    rewrite_columns,
    spark_schema,
)
from embermq.spark.lake.transactions import reset_table


def prepare_job(spark: SparkSession, job: Job, lake: Lake, positions: Positions) -> int | None:
    """Make a job's tables ready; the next offset that it reads, None if it has read nothing yet."""
    present = [name for name in job.table_names if lake.has_table(name)]
    missing = ", ".join(name for name in job.table_names if name not in present)
    _claim(job, lake, present)
    found = {name: applied(lake, name, job.transaction_id(name)) for name in present}
    # A crash may have come while they were created: then none has rows.
    if missing and all(one.through == NOTHING_APPLIED for one in found.values()):
        positions.forget(job.name)
        if job.definition is not None:
            write_definition(lake, job.name, job.definition)
        for table in job.tables:
            create_table(spark, lake, table)
        _claim(job, lake, job.table_names)
        return None
    if missing:
        raise LakeError(f"the table {missing} is missing beside {', '.join(present)}: {_advice(job)}")
    _keep_definition(spark, job, lake)
    _evolve(spark, job, lake)
    for table in job.tables:
        _bring_up_to_date(spark, job, lake, table)
    if job.definition is not None:
        write_definition(lake, job.name, job.definition)
    through = min(one.through for one in found.values())
    if through == NOTHING_APPLIED and job.name == "messages":
        # Earlier versions wrote it with Delta's own sink, which keeps another transaction identifier.
        last = read_table(spark, lake, "messages").agg(F.max("offset")).collect()[0][0]
        through = NOTHING_APPLIED if last is None else last
    known = positions.get(job.name, {name: one.version for name, one in found.items()})
    if known is None:
        return None if through == NOTHING_APPLIED else through + 1
    return max(known, through + 1)


def reset_job(spark: SparkSession, job: Job, lake: Lake, positions: Positions) -> None:
    """Empty the tables of a job, so that it begins again. After a crash in between, its definition is still refused."""
    positions.forget(job.name)
    for table in job.tables:
        if lake.has_table(table.name):
            reset_table(spark, lake, table, job.transaction_id(table.name))
    if job.definition is not None:
        write_definition(lake, job.name, job.definition)


def _claim(job: Job, lake: Lake, tables: Iterable[str]) -> None:
    """Where no lock keeps other writers away, refuse the commits of those before this one, from their first one on."""
    if not lake.is_local:
        for name in tables:
            claim_table(lake, name, [job.transaction_id(name)])


def _keep_definition(spark: SparkSession, job: Job, lake: Lake) -> None:
    """Keep what tables of an earlier version were made from, and refuse them if the settings say something else."""
    if job.definition is not None and job.found_definition is not None and not has_definition(lake, job.name):
        write_definition(lake, job.name, job.found_definition(spark, lake) or job.definition)
        check_definition(lake, job.name, job.definition)


def _evolve(spark: SparkSession, job: Job, lake: Lake) -> None:
    """Give a typed table the columns that the settings say, as far as the rule allows (`evolution`)."""
    if job.definition is None or "aliases" not in job.definition:
        return
    (table, *_) = job.tables
    rows = read_table(spark, lake, table.name)
    before = {field.name: field.dataType.simpleString() for field in rows.schema}
    after = {column.name: spark_sql(column.type) for column in table.columns}
    found = origins(before, after, job.definition["aliases"] or {})
    if found is None or before == after:
        return
    added = [column for column in table.columns if found[column.name] is None]
    if all(before.get(name) == after[name] for name, old in found.items() if old is not None):
        add_columns(spark, lake, table.name, added)
        return
    columns = [
        (F.lit(None) if found[name] is None else F.col(quoted(found[name] or ""))).cast(kind).alias(name)
        for name, kind in after.items()
    ]
    rewrite_columns(rows.select(*columns), lake, table)


def _bring_up_to_date(spark: SparkSession, job: Job, lake: Lake, table: Table) -> None:
    """Add columns that an earlier version did not have; refuse other differences."""
    name, found = table.name, read_table(spark, lake, table.name).schema
    types = {field.name: field.dataType for field in found}
    if any(field.name in types and types[field.name] != field.dataType for field in spark_schema(table)) or any(
        column not in table.names for column in types
    ):
        raise LakeError(
            f"the table {name} in {lake.place} has other columns ({found.simpleString()}) than this version "
            f"or this configuration writes: {_advice(job)}"
        )
    new = [column for column in table.columns if column.name not in types and column.name != table.divided_by]
    if new and job.definition is not None and job.found_definition is None:
        lacking = ", ".join(column.name for column in new)
        raise LakeError(f"the table {name} in {lake.place} lacks columns ({lacking}): {_advice(job)}")
    if new:
        add_columns(spark, lake, name, new)
    if table.divided_by is not None and table.divided_by not in types:
        partition_by_day(spark, lake, name)


def _advice(job: Job) -> str:
    if job.definition is not None:
        return f"`ember pipeline run --rebuild {job.name}` builds it again from the log"
    return f"delete {' and '.join(job.table_names)}, and the pipeline builds them again from the log"

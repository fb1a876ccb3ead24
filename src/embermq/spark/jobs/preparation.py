"""Preparing a job's tables: made if they are not there, and refused or changed if they are of an earlier version.

Owns: whether a job's tables can be continued, and from which offset.
Never: what a job does with a batch.
"""

from collections.abc import Iterable

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from embermq.spark.errors import LakeError
from embermq.spark.jobs.job import Job
from embermq.spark.lake.definitions import check_definition, has_definition, write_definition
from embermq.spark.lake.lake import Lake
from embermq.spark.lake.positions import Positions
from embermq.spark.lake.tables import DAY, add_columns, create_table, partition_by_day, read_table
from embermq.spark.lake.transactions import NOTHING_APPLIED, applied, claim_table, reset_table


def prepare_job(spark: SparkSession, job: Job, lake: Lake, positions: Positions) -> int | None:
    """Make a job's tables ready; the next offset that it reads, None if it has read nothing yet."""
    present = [name for name in job.tables if lake.has_table(name)]
    missing = ", ".join(name for name in job.tables if name not in present)
    _claim(spark, job, lake, present)
    found = {name: applied(spark, lake, name, job.transaction_id(name)) for name in present}
    # A crash may have come while they were created: then none has rows.
    if missing and all(one.through == NOTHING_APPLIED for one in found.values()):
        positions.forget(job.name)
        if job.definition is not None:
            write_definition(lake, job.name, job.definition)
        for name, schema in job.tables.items():
            create_table(spark, lake, name, schema)
        _claim(spark, job, lake, job.tables)
        return None
    if missing:
        raise LakeError(f"the table {missing} is missing beside {', '.join(present)}: {_advice(job)}")
    _keep_definition(spark, job, lake)
    for name in job.tables:
        _bring_up_to_date(spark, job, lake, name)
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
    for name, schema in job.tables.items():
        if lake.has_table(name):
            reset_table(spark, lake, name, job.transaction_id(name), schema)
    if job.definition is not None:
        write_definition(lake, job.name, job.definition)


def _claim(spark: SparkSession, job: Job, lake: Lake, tables: Iterable[str]) -> None:
    """Where no lock keeps other writers away, refuse the commits of those before this one, from their first one on."""
    if not lake.is_local:
        for name in tables:
            claim_table(spark, lake, name, [job.transaction_id(name)])


def _keep_definition(spark: SparkSession, job: Job, lake: Lake) -> None:
    """Keep what tables of an earlier version were made from, and refuse them if the settings say something else."""
    if job.definition is not None and job.found_definition is not None and not has_definition(lake, job.name):
        write_definition(lake, job.name, job.found_definition(spark, lake) or job.definition)
        check_definition(lake, job.name, job.definition)


def _bring_up_to_date(spark: SparkSession, job: Job, lake: Lake, name: str) -> None:
    """Add columns that an earlier version did not have; refuse other differences."""
    wanted, found = job.tables[name], read_table(spark, lake, name).schema
    types = {field.name: field.dataType for field in found}
    if any(field.name in types and types[field.name] != field.dataType for field in wanted) or any(
        column not in wanted.names for column in types
    ):
        raise LakeError(
            f"the table {name} in {lake.place} has other columns ({found.simpleString()}) than this version "
            f"or this configuration writes: {_advice(job)}"
        )
    new = [field for field in wanted if field.name not in types and field.name != DAY]
    if new and job.definition is not None and job.found_definition is None:
        raise LakeError(f"the table {name} in {lake.place} lacks columns ({_names(new)}): {_advice(job)}")
    if new:
        add_columns(spark, lake, name, new)
    if DAY in wanted.names and DAY not in types:
        partition_by_day(spark, lake, name)


def _names(fields: list[StructField]) -> str:
    return ", ".join(field.name for field in fields)


def _advice(job: Job) -> str:
    if job.definition is not None:
        return f"`ember pipeline run --rebuild {job.name}` builds it again from the log"
    return f"delete {' and '.join(job.tables)}, and the pipeline builds them again from the log"

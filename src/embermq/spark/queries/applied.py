"""How far a job has brought a table, for queries in any session.

Owns: reading that from the files of Delta's log over Spark Connect, which has no call for it; and whether both sides of
Spark Connect reach the lake.
"""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from embermq.spark.errors import LakeError
from embermq.spark.lake import transactions
from embermq.spark.lake.epochs import epoch_and_offset
from embermq.spark.lake.lake import Lake
from embermq.spark.lake.transactions import Applied
from embermq.spark.session import is_connect


def applied(spark: SparkSession, lake: Lake, table: str, job: str) -> Applied:
    """The newest version of a table, the epoch of its last writer, and the last offset that a job has applied."""
    if not is_connect(spark):
        return transactions.applied(spark, lake, table, job)
    check_reached(spark, lake)
    earlier = None
    # Delta removes commits that a checkpoint has, after a week. Commits are read last: they have the newest version.
    if any(name.endswith(".parquet") for name in lake.files.names(f"{table}/_delta_log")):
        _, earlier = _newest(spark, lake, table, job, "parquet")
    version, transaction = _newest(spark, lake, table, job, "json")
    transaction = max((one for one in (transaction, earlier) if one is not None), default=None)
    return Applied(version, *epoch_and_offset(transaction))


def check_reached(spark: SparkSession, lake: Lake) -> None:
    """LakeError if Spark Connect may reach a lake that this process does not: gaps and tables would be overlooked."""
    if is_connect(spark) and not lake.exists():
        raise LakeError(f"{lake.place} is no lake here: over Spark Connect the client must reach it as the server does")


def _newest(spark: SparkSession, lake: Lake, table: str, job: str, form: str) -> tuple[int, int | None]:
    """The newest version of a table in files of its log, and the version of the job's transaction identifier there.

    Neither ever gets lower (`lake.epochs`). Files are named by versions of 20 digits.
    """
    actions = spark.read.format(form).schema("txn struct<appId string, version bigint>")
    files = actions.load(f"{lake.table(table)}/_delta_log/{'[0-9]' * 20}.*{form}")
    of_job = F.when(F.col("txn.appId") == job, F.col("txn.version"))
    version = F.substring("_metadata.file_name", 1, 20).cast("bigint")
    found = files.agg(F.max(version).alias("version"), F.max(of_job).alias("transaction")).collect()[0]
    return found["version"], found["transaction"]

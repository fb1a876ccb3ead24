"""The audit: whether the tables obey the rules of retained messages.

Owns: each rule as a query that finds its violations, with the clause of MQTT 3.1.1 that it comes from.
Never: repairing. A table can be rebuilt from the log: delete it and run the pipeline.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from embermq.lake.checkpoint_rows import stage_checkpoint
from embermq.lake.delta import applied
from embermq.lake.errors import PipelineError
from embermq.lake.lake import Lake
from embermq.lake.schema import LOG_ARROW, spark_sql
from embermq.spark.jobs.job import Job
from embermq.spark.jobs.messages import MESSAGES_JOB
from embermq.spark.jobs.retained import RETAINED_JOB, retained_columns, retained_events
from embermq.spark.lake.tables import read_table
from embermq.spark.queries.as_of import retained_history
from embermq.store.log.checkpoint import Checkpoint, undamaged_checkpoint
from embermq.store.log.reader import LogReader
from embermq.store.log.segments import FIRST_OFFSET

EXAMPLES_MAX: Final = 10

OwnMessage = tuple[str, int]
"""A topic, and the offset of the message that the server retains for it."""


@dataclass(frozen=True)
class Violation:
    """A rule that is broken: by how many rows, and the first of them."""

    rule: str
    clause: str
    count: int
    examples: tuple[str, ...]


@dataclass(frozen=True)
class Rule:
    """A sentence that must be true, and the query for what makes it false: rows of (topic, detail)."""

    sentence: str
    clause: str
    find: Callable[["Evidence"], DataFrame]


class Evidence:
    """The tables at one instant, and what they must be: the log as far as `retained` has applied it, after a checkpoint
    if the log was trimmed. `own_set` is what the server itself has retained, if it was asked.
    """

    __slots__ = ("spark", "lake", "data", "through", "known_from", "current", "history", "events", "own_set")

    def __init__(
        self, spark: SparkSession, lake: Lake, data: Path, staging: Path, own_set: Sequence[OwnMessage] | None = None
    ) -> None:
        self.spark = spark
        self.lake = lake
        self.data = data
        self.own_set = own_set
        version, _, self.through = applied(lake, "retained", RETAINED_JOB.name)
        self.current = spark.read.format("delta").option("versionAsOf", version).load(lake.table("retained"))
        self.history = retained_history(spark, lake)
        first, end = LogReader(data / "log").bounds()
        checkpoint = _checkpoint(data, first, end, self.through) if first > FIRST_OFFSET else None
        self.known_from = first if checkpoint is None else checkpoint.offset
        self.events = retained_events(self.records(self.known_from, min(end, self.through + 1)))
        if checkpoint is not None:
            rows = spark.read.parquet(stage_checkpoint(checkpoint, staging)).where(F.col("kind") == "publish")
            self.events = self.events.unionByName(retained_columns(rows, F.lit(False).alias("cleared")))

    def records(self, start: int, end: int, job: Job = RETAINED_JOB, columns: Sequence[str] = ()) -> DataFrame:
        """The records of the log that a job's tables are made from, from one offset up to another."""
        names = columns or job.columns
        schema = ", ".join(f"{name} {spark_sql(LOG_ARROW.field(name).type)}" for name in names)
        return (
            self.spark.read.format("embermq")
            .schema(schema)
            .option("kinds", ",".join(job.kinds))
            .option("startingOffsets", start)
            .option("endingOffsets", max(start, end))
            .load(str(self.data))
        )


def _checkpoint(data: Path, first: int, end: int, through: int) -> Checkpoint:
    """The checkpoint that a trimmed log begins with. PipelineError if the tables cannot be compared with it."""
    found = undamaged_checkpoint(data / "log", first, end)
    if found is None:
        raise PipelineError(
            f"nothing can be compared: the log in {data} begins at offset {first} and has no undamaged checkpoint "
            "(`ember log verify` says more)"
        )
    if through + 1 < found.offset:
        raise PipelineError(
            f"nothing can be compared: `retained` has read the log up to offset {through}, and the log begins at "
            f"{found.offset}: run the pipeline first"
        )
    return found


def _last_events(evidence: Evidence) -> DataFrame:
    newest = F.max_by(F.struct("payload", "qos", "offset", "valid_from", "cleared"), "offset")
    return evidence.events.groupBy("topic").agg(newest.alias("last")).select("topic", "last.*")


def _not_a_replay(evidence: Evidence) -> DataFrame:
    """Topics whose row in `retained` is not what a replay of the log leaves."""
    replay = _last_events(evidence).where(~F.col("cleared"))
    return _differing(replay, evidence.current)


def _differing(replay: DataFrame, current: DataFrame) -> DataFrame:
    left, right = replay.alias("r"), current.alias("c")
    joined = left.join(right, F.col("r.topic") == F.col("c.topic"), "full_outer")
    missing = F.col("c.topic").isNull()
    extra = F.col("r.topic").isNull()
    columns = ("payload", "qos", "offset", "valid_from")
    equal: Column = F.lit(True)
    for name in columns:
        equal = equal & F.col(f"r.{name}").eqNullSafe(F.col(f"c.{name}"))
    detail = (
        F.when(missing, F.format_string("the message of offset %d is missing", F.col("r.offset")))
        .when(extra, F.format_string("the message of offset %d should not be there", F.col("c.offset")))
        .otherwise(F.format_string("offset %d is retained, it should be %d", F.col("c.offset"), F.col("r.offset")))
    )
    return joined.where(missing | extra | ~equal).select(
        F.coalesce("r.topic", "c.topic").alias("topic"), detail.alias("detail")
    )


def _clears_without_effect(evidence: Evidence) -> DataFrame:
    """Messages that stayed retained when the next clear of their topic came."""
    nothing = F.lit(None).cast("long")
    intervals = evidence.history.select("topic", "offset", "offset_to", nothing.alias("clear"))
    clears = evidence.events.where("cleared").select(
        "topic", "offset", nothing.alias("offset_to"), F.col("offset").alias("clear")
    )
    later = Window.partitionBy("topic").orderBy("offset").rowsBetween(1, Window.unboundedFollowing)
    followed = intervals.unionByName(clears).withColumn("next_clear", F.first("clear", ignorenulls=True).over(later))
    survived = F.col("clear").isNull() & (F.col("offset_to").isNull() | (F.col("offset_to") > F.col("next_clear")))
    detail = F.format_string("the clear of offset %d left offset %d retained", F.col("next_clear"), F.col("offset"))
    return followed.where(F.col("next_clear").isNotNull() & survived).select("topic", detail.alias("detail"))


def _zero_bytes(evidence: Evidence) -> DataFrame:
    empty = F.col("payload").isNull() | (F.length("payload") == 0)
    detail = F.format_string("offset %d has no payload", F.col("offset"))
    return evidence.history.where(empty).select("topic", detail.alias("detail"))


def _overlaps(evidence: Evidence) -> DataFrame:
    """Intervals of a topic that run into the next one, or end before they begin."""
    of_topic = Window.partitionBy("topic").orderBy("offset", "valid_from")
    following = evidence.history.select(
        "topic",
        "offset",
        "offset_to",
        "valid_from",
        "valid_to",
        F.lead("offset").over(of_topic).alias("next_offset"),
        F.lead("valid_from").over(of_topic).alias("next_from"),
    )
    runs_on = F.col("next_offset").isNotNull() & (
        F.col("valid_to").isNull()
        | (F.col("valid_to") > F.col("next_from"))
        | (F.col("offset_to") > F.col("next_offset"))
    )
    backwards = F.col("valid_to") < F.col("valid_from")
    detail = F.when(
        backwards, F.format_string("the interval of offset %d ends before it begins", F.col("offset"))
    ).otherwise(
        F.format_string("offset %d is still retained when offset %d begins", F.col("offset"), F.col("next_offset"))
    )
    return following.where(runs_on | backwards).select("topic", detail.alias("detail"))


def _never_retained(evidence: Evidence) -> DataFrame:
    """Retained rows without a retained PUBLISH in the log."""
    published = evidence.events.where(~F.col("cleared")).select("topic", "offset")
    covered = evidence.history.where(F.col("offset") >= evidence.known_from)
    detail = F.format_string("offset %d is no PUBLISH with RETAIN", F.col("offset"))
    return covered.join(published, ["topic", "offset"], "left_anti").select("topic", detail.alias("detail"))


def _nothing(evidence: Evidence) -> DataFrame:
    return evidence.spark.createDataFrame([], "topic string, detail string")


def _twice(evidence: Evidence) -> DataFrame:
    """Offsets that are in `messages` more than once."""
    if not evidence.lake.has_table("messages"):  # its job has never run
        return _nothing(evidence)
    repeated = read_table(evidence.spark, evidence.lake, "messages").groupBy("offset").count().where("count > 1")
    detail = F.format_string("offset %d is there %d times", F.col("offset"), F.col("count"))
    return repeated.select(F.lit("").alias("topic"), detail.alias("detail"))


def _not_there(evidence: Evidence) -> DataFrame:
    """Every PUBLISH that the log has and `messages` has not, as far as both reach.

    Rows that were removed because of their age are not missing: from the day of the oldest row on, all must be there.
    """
    if not evidence.lake.has_table("messages"):
        return _nothing(evidence)
    table = read_table(evidence.spark, evidence.lake, "messages")
    through = applied(evidence.lake, "messages", MESSAGES_JOB.name).through
    first, end = LogReader(evidence.data / "log").bounds()
    published = evidence.records(first, min(end, through + 1), MESSAGES_JOB, ("offset", "timestamp", "topic"))
    oldest = table.agg(F.min("timestamp").alias("oldest")).collect()[0]["oldest"]
    if oldest is not None:
        published = published.where(F.to_date("timestamp") >= F.to_date(F.lit(oldest)))
    detail = F.format_string("offset %d is in the log, not in the table", F.col("offset"))
    return published.join(table.select("offset"), "offset", "left_anti").select("topic", detail.alias("detail"))


def _not_the_servers(evidence: Evidence) -> DataFrame:
    """Topics whose row in `retained` is not the server's retained message, unless they have changed since."""
    if evidence.own_set is None:
        return _nothing(evidence)
    names = pa.array([topic for topic, _ in evidence.own_set], pa.string())
    offsets = pa.array([offset for _, offset in evidence.own_set], pa.int64())
    own = evidence.spark.createDataFrame(pa.table({"topic": names, "own_offset": offsets}))
    first, end = LogReader(evidence.data / "log").bounds()
    later = evidence.records(
        max(first, evidence.through + 1), end
    )  # nothing was ever retained: from the first record on
    current = evidence.current.where(~F.col("topic").startswith("$")).select("topic", "offset")
    joined = current.join(own, "topic", "full_outer").join(retained_events(later).select("topic"), "topic", "left_anti")
    missing, extra = F.col("offset").isNull(), F.col("own_offset").isNull()
    detail = (
        F.when(missing, F.format_string("the server retains offset %d, the table has no row", F.col("own_offset")))
        .when(extra, F.format_string("the table has offset %d, the server retains nothing", F.col("offset")))
        .otherwise(F.format_string("the table has offset %d, the server %d", F.col("offset"), F.col("own_offset")))
    )
    differs = missing | extra | (F.col("offset") != F.col("own_offset"))
    return joined.where(differs).select("topic", detail.alias("detail"))


RULES: Final = (
    Rule("`retained` equals a replay of the log", "MQTT-3.3.1-5", _not_a_replay),
    Rule("every clear took effect", "MQTT-3.3.1-10", _clears_without_effect),
    Rule("no zero-byte message is retained", "MQTT-3.3.1-11", _zero_bytes),
    Rule("only a PUBLISH with RETAIN is retained", "MQTT-3.3.1-12", _never_retained),
    Rule("a topic has one retained message at a time", "MQTT-3.3.1-5", _overlaps),
    Rule("every message is there once", "exactly once", _twice),
    Rule("`messages` has every PUBLISH of the log", "exactly once", _not_there),
    Rule("`retained` equals the server's own retained set", "MQTT-3.3.1-5", _not_the_servers),
)


def audit(
    spark: SparkSession, lake: Lake, data: Path, own_set: Sequence[OwnMessage] | None = None
) -> Iterator[Violation]:
    """Every rule that is broken. Without the server's `own_set` its rule is not checked."""
    with TemporaryDirectory(prefix="embermq-") as staging:
        evidence = Evidence(spark, lake, data, Path(staging) / "checkpoint", own_set)
        for rule in RULES:
            found = rule.find(evidence)
            rows = found.orderBy("topic", "detail").limit(EXAMPLES_MAX).collect()
            if rows:
                examples = tuple(f"{row['topic']}: {row['detail']}" if row["topic"] else row["detail"] for row in rows)
                count = len(rows) if len(rows) < EXAMPLES_MAX else found.count()
                yield Violation(rule.sentence, rule.clause, count, examples)

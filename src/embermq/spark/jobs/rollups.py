"""The jobs of rollups: a value of a typed table for each topic and each minute, hour or day.

Owns: the rows of a batch, and merging them with those of earlier batches. Merging gives what all values at once would
have given, in whatever order they have come: a value that is late for its window corrects the row. Silences too: of two
rows of a window the common parts of their silences are kept.
"""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from delta.tables import DeltaTable
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from embermq.lake.delta import applied_offset
from embermq.lake.epochs import NOTHING_APPLIED
from embermq.lake.lake import Lake
from embermq.lake.payloads.reader import PayloadReader, payload_reader
from embermq.lake.rollups import Rollup
from embermq.lake.schema import ROLLUP
from embermq.lake.typed_tables import TypedTable
from embermq.spark.jobs.job import Batch, Job
from embermq.spark.jobs.typed_tables import read_typed, split_typed
from embermq.spark.lake.tables import quoted, read_table
from embermq.spark.lake.transactions import append_once, merge_once

EARLIEST: Final = datetime(1971, 1, 1, tzinfo=UTC)
AHEAD_MAX: Final = timedelta(days=1)
"""A value whose own time is before the one, or further ahead of the server's than the other, is left out: such a clock
was not set."""

_LENGTH_US: Final = "unix_micros(x.until) - unix_micros(x.since)"
_COMMON: Final = (
    "array_sort(filter(flatten(transform(t.silences, a -> transform(s.silences, b -> named_struct("
    "'since', greatest(a.since, b.since), 'until', least(a.until, b.until))))), x -> {length} > {gap_us}))"
)


def rollup_job(rollup: Rollup, source: TypedTable) -> Job:
    """The job of one rollup. LakeError if the payloads cannot be read here."""
    return Job(
        name=rollup.name,
        tables=(rollup.table(),),
        columns=("offset", "timestamp", "topic", "payload", "retain"),
        kinds=("publish",),
        apply=partial(apply_rollup, rollup=rollup, source=source, reader=payload_reader(source)),
        is_merged=True,
        topic_filter=source.topic_filter,
        definition=rollup.definition(source),
    )


def apply_rollup(batch: Batch, lake: Lake, rollup: Rollup, source: TypedTable, reader: PayloadReader) -> None:
    """Merge the values of a batch into the rows of their windows.

    The first batch also takes what the typed table has of records that the log has no more.
    """
    through = applied_offset(lake, rollup.name, rollup.name)
    fitting, _ = split_typed(read_typed(batch.rows.where(F.col("offset") > through), source, reader), source)
    values = _values(fitting, rollup)
    if through == NOTHING_APPLIED and lake.has_table(source.name):
        earlier = read_table(batch.rows.sparkSession, lake, source.name).where(F.col("offset") < batch.start)
        values = values.unionByName(_values(earlier, rollup))
    stats = batch_rollup(values, rollup).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        since_us = stats.agg(F.min(F.unix_micros("window_start"))).collect()[0][0]
        if since_us is None:
            return
        if through == NOTHING_APPLIED:  # to an empty table they need only be appended
            append_once(stats, lake, rollup.name, rollup.name, batch.through)
            return
        merge_once(
            batch.rows.sparkSession,
            lake,
            rollup.name,
            rollup.name,
            batch.through,
            lambda table: _add(table, stats, since_us, rollup.gap_us),
        )
    finally:
        stats.unpersist()


def _values(rows: DataFrame, rollup: Rollup) -> DataFrame:
    """The values of rows of the typed table, each with its time."""
    value = F.col(".".join(map(quoted, rollup.value.split("."))))
    time = F.col(".".join(map(quoted, rollup.time.split(".")))) if rollup.time else F.col("timestamp")
    values = rows.select("topic", "offset", "timestamp", value.cast("double").alias("value"), time.alias("time"))
    if rollup.time:
        latest = F.col("timestamp") + F.expr(f"interval {AHEAD_MAX.days} days")
        values = values.where(F.col("time").between(F.lit(EARLIEST), latest))
    return values.where(F.col("value").isNotNull())


def batch_rollup(values: DataFrame, rollup: Rollup) -> DataFrame:
    """The rows of values with their times, one for each topic and window."""
    in_slot = Window.partitionBy("topic", "slot").orderBy("time")
    one = F.struct("time", "offset", "value")  # of values of one time, the last that came is the last
    before = F.coalesce(F.lag("time").over(in_slot), F.col("slot.start"))
    is_gap = F.unix_micros("time") - F.unix_micros(before) > rollup.gap_us
    grouped = (
        values.withColumn("slot", F.window("time", f"1 {rollup.every}"))
        .withColumn("silence", F.when(is_gap, _silence(before, F.col("time"))))
        .groupBy("topic", "slot")
        .agg(
            F.count("*").alias("count"),
            F.sum("value").alias("total"),
            F.min("value").alias("min"),
            F.max("value").alias("max"),
            F.min(one).alias("first_one"),
            F.max(one).alias("last_one"),
            F.collect_list("silence").alias("found"),
        )
    )
    at_end = F.array(_silence(F.col("last_one.time"), F.col("slot.end")))
    silences = F.array_sort(F.concat("found", F.filter(at_end, lambda x: _length_us(x) > rollup.gap_us)))
    return (
        grouped.withColumn("silences", silences)
        .withColumn("gaps", F.size("silences").cast("long"))
        .withColumn("longest_silence_us", _longest(F.col("silences")))
        .withColumn("avg", F.col("total") / F.col("count"))
        .select("*", F.col("slot.start").alias("window_start"), F.col("slot.end").alias("window_end"))
        .select("*", F.col("first_one.value").alias("first"), F.col("first_one.time").alias("first_seen"))
        .select("*", F.col("last_one.value").alias("last"), F.col("last_one.time").alias("last_seen"))
        .select(*ROLLUP.names)
    )


def _silence(since: Column, until: Column) -> Column:
    return F.struct(since.alias("since"), until.alias("until"))


def _length_us(silence: Column) -> Column:
    return F.unix_micros(silence["until"]) - F.unix_micros(silence["since"])


def _longest(silences: Column) -> Column:
    return F.coalesce(F.array_max(F.transform(silences, _length_us)), F.lit(0)).cast("long")


def _add(table: DeltaTable, stats: DataFrame, since_us: int, gap_us: int) -> None:
    common = _COMMON.format(length=_LENGTH_US, gap_us=gap_us)
    values: dict[str, str | Column] = {name: f"s.{name}" for name in ROLLUP.names}
    sums: dict[str, str | Column] = {
        "count": "t.count + s.count",
        "total": "t.total + s.total",
        "min": "least(t.min, s.min)",
        "max": "greatest(t.max, s.max)",
        "avg": "(t.total + s.total) / (t.count + s.count)",
        "first": "if(s.first_seen < t.first_seen, s.first, t.first)",
        "last": "if(s.last_seen >= t.last_seen, s.last, t.last)",
        "first_seen": "least(t.first_seen, s.first_seen)",
        "last_seen": "greatest(t.last_seen, s.last_seen)",
        "gaps": f"cast(size({common}) as long)",
        "longest_silence_us": f"coalesce(array_max(transform({common}, x -> {_LENGTH_US})), 0L)",
        "silences": common,
    }
    # The bound on the window lets Delta skip files of older windows: the cost does not grow with the history.
    recent = F.col("t.window_start") >= F.timestamp_micros(F.lit(since_us))
    same = (F.col("t.topic") == F.col("s.topic")) & (F.col("t.window_start") == F.col("s.window_start"))
    (
        table.alias("t")
        .merge(stats.alias("s"), same & recent)
        .whenMatchedUpdate(set=sums)
        .whenNotMatchedInsert(values=values)
        .execute()
    )

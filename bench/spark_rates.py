"""What Spark does with the log, beside what it does with its own Parquet: `python -m bench.spark_rates`.

Each line compares two ways in one run, taking turns, so that a busy machine slows both. Targets are those of the
pipeline's promises (docs/pipeline.md). Needs the `spark` extra and Java.
"""

import argparse
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.machine import Cores, facts
from embermq.instants import EPOCH
from embermq.lake.lake import Lake
from embermq.lake.schema import MESSAGES_ARROW
from embermq.spark import build_session
from embermq.spark.jobs.catalog import JobSettings, all_jobs
from embermq.spark.jobs.job import Batch
from embermq.spark.lake.tables import create_table
from embermq.spark.queries.as_of import retained_as_of
from embermq.spark.source.columns import source_schema
from embermq.store.log.writer import Log
from embermq.store.rows import RETAIN_FLAG, Group, Kind

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

START_US: Final = 1_750_000_000_000_000
WARM_UP_ROUNDS: Final = 3
SCAN_WARM_UP_ROUNDS: Final = 10
"""A scan is over so soon that what Java compiles of Spark itself counts for long."""
FEW_PAYLOADS: Final = 1000
"""So few that Parquet keeps them in a dictionary."""
SECTIONS: Final = ("scan", "append", "retained", "sink", "places")


def write_log(
    data: Path,
    count: int,
    topics: int,
    group_records: int,
    payloads: int = FEW_PAYLOADS,
    segment_bytes: int = 256 << 20,
) -> None:
    """A log of retained publishes over random topics, payloads of about 40 bytes, one microsecond apart.

    It has `payloads` different ones: few, as of a switch, or as many as messages, as of a device that sends the time.
    """
    source = random.Random(1)
    names = [f"plant/{n % 7}/line/{n % 13}/device-{n}/temp".encode() for n in range(topics)]
    said = [b'{"value": %d.%03d, "at": %d}' % (n * 7 % 90, n % 1000, START_US + n) for n in range(payloads)]
    log = Log(data / "log", segment_bytes=segment_bytes, segment_age_s=10**9, sync=False)
    for start in range(0, count, group_records):
        size = min(group_records, count - start)
        group = Group(log.next_offset)
        chosen = source.choices(names, k=size)
        values = said[start : start + size] if payloads == count else source.choices(said, k=size)
        for at, (topic, value) in enumerate(zip(chosen, values, strict=True), START_US + start):
            group.append_unapplied(at, Kind.PUBLISH, 1 | RETAIN_FLAG, topic, value, b"gateway-1", b"")
        log.append(group, START_US)
    log.close()


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def compare(rounds: int, *works: Callable[[], object], warm_up: int = WARM_UP_ROUNDS) -> list[float]:
    """The median seconds of each, taking turns, after rounds that do not count: Java compiles what it runs often."""
    for _ in range(warm_up):
        for work in works:
            work()
    seconds = [[timed(work) for work in works] for _ in range(rounds)]
    return [statistics.median(of_one) for of_one in zip(*seconds, strict=True)]


def line(name: str, said: str, ratio: float, target: float, at_least: bool = True) -> None:
    met = ratio >= target if at_least else ratio <= target
    bound = "at least" if at_least else "at most"
    print(f"{name:<42} {said:<66} {ratio:10,.2f}  ({bound} {target:,g}: {'met' if met else 'NOT MET'})", flush=True)


@contextmanager
def scratch() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="bench-spark-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def log_rows(spark: "SparkSession", data: Path) -> "DataFrame":
    return spark.read.format("embermq").schema(message_columns()).option("kinds", "publish").load(str(data))


def ceiling_rows(spark: "SparkSession", data: Path, rows: int) -> "DataFrame":
    return spark.read.format("ceiling").schema(message_columns()).option("rows", rows).load(str(data))


def message_columns() -> "StructType":
    """The columns of `messages` that come from the log: the pipeline adds the day."""
    return source_schema((Kind.PUBLISH,), MESSAGES_ARROW.names)


def register_ceiling(spark: "SparkSession") -> None:
    """The format "ceiling": as many rows as a log has, but one batch of it again and again, so Python does no work.

    What is faster than this cannot be had from any source that is written in Python.
    """
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    from embermq.spark.data_source import EmberDataSource
    from embermq.spark.source.reader import OffsetRange

    class CeilingReader(DataSourceReader):
        def __init__(self, log: DataSourceReader, rows: int) -> None:
            self.log, self.rows = log, rows

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(0), InputPartition(1)]

        def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
            from embermq.lake.rows import BATCH_ROWS

            batch = next(iter(self.log.read(OffsetRange(1, BATCH_ROWS + 1))))
            for _ in range(self.rows // 2 // batch.num_rows):
                yield batch

    class Ceiling(DataSource):
        @classmethod
        def name(cls) -> str:
            return "ceiling"

        def reader(self, schema: "StructType") -> DataSourceReader:
            log = EmberDataSource({"path": self.options["path"], "kinds": "publish"})
            return CeilingReader(log.reader(schema), int(self.options["rows"]))

    spark.dataSource.register(Ceiling)


def log_and_parquet(spark: "SparkSession", rows: int, payloads: int) -> Iterator[tuple[int, Path, str]]:
    """The same rows twice, for blocks of several sizes."""
    for group_records in (10, 100, 1000):
        with scratch() as directory:
            data, parquet = directory / "data", str(directory / "parquet")
            write_log(data, rows, 100_000, group_records, payloads)
            log_rows(spark, data).write.parquet(parquet)
            yield group_records, data, parquet


def bench_scan(spark: "SparkSession", rows: int, rounds: int, payloads: int) -> None:
    """The same rows from the log and from Parquet, every column of them aggregated."""
    from pyspark.sql import functions as F

    totals = [
        F.max("offset"),
        F.max("timestamp"),
        F.sum(F.length("topic")),
        F.sum(F.length("payload")),
        F.sum("qos"),
        F.count_if("retain"),
        F.count_if("dup"),
        F.max("client_id"),
        F.count("expiry"),
        F.count("content_type"),
        F.count("response_topic"),
        F.count("correlation_data"),
        F.count("user_properties"),
    ]
    for group_records, data, parquet in log_and_parquet(spark, rows, payloads):

        def scan_log(data: Path = data) -> object:
            return log_rows(spark, data).agg(*totals).collect()

        def scan_parquet(parquet: str = parquet) -> object:
            return spark.read.parquet(parquet).agg(*totals).collect()

        def scan_nothing(data: Path = data) -> object:
            return ceiling_rows(spark, data, rows).agg(*totals).collect()

        assert scan_log() == scan_parquet(), "the two answers differ"
        ours, theirs, free = compare(rounds, scan_log, scan_parquet, scan_nothing, warm_up=SCAN_WARM_UP_ROUNDS)
        said = f"{rows / ours:,.0f} rows/s, Parquet {rows / theirs:,.0f}; reading nothing {theirs / free:.2f}"
        line(f"scan, {payloads:,} payloads, blocks of {group_records:,}", said, theirs / ours, 0.8)


def bench_append(spark: "SparkSession", rows: int, rounds: int, payloads: int) -> None:
    """The same rows from the log and from Parquet, appended to a table of Delta."""
    for group_records, data, parquet in log_and_parquet(spark, rows, payloads):

        def append_log(data: Path = data) -> None:
            log_rows(spark, data).write.format("delta").mode("append").save(str(data.parent / "ours"))

        def append_parquet(parquet: str = parquet) -> None:
            spark.read.parquet(parquet).write.format("delta").mode("append").save(str(Path(parquet).parent / "theirs"))

        ours, theirs = compare(rounds, append_log, append_parquet)
        said = f"{rows / ours:,.0f} rows/s, Parquet {rows / theirs:,.0f}"
        line(f"log -> messages, blocks of {group_records:,}", said, theirs / ours, 0.85)


def feed_retained(spark: "SparkSession", data: Path, lake: Lake, publishes: int, batch: int) -> list[float]:
    """Apply the retained job batch by batch; the seconds of each."""
    (job,) = [job for job in all_jobs(JobSettings()) if job.name == "retained"]
    lake.open()
    for table in job.tables:
        create_table(spark, lake, table)
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    seconds = []
    columns = "offset long, timestamp timestamp, kind string, topic string, payload binary, qos byte, retain boolean"
    for start in range(1, publishes + 1, batch):
        frame = (
            spark.read.format("embermq")
            .schema(columns)
            .option("kinds", "publish,retained_removed")
            .option("startingOffsets", start)
            .option("endingOffsets", min(start + batch, publishes + 1))
            .load(str(data))
        )
        began = time.perf_counter()
        job.apply(Batch(frame, start, min(start + batch - 1, publishes), EPOCH), lake)
        seconds.append(time.perf_counter() - began)
        print(f"  batch of {batch:,} at {start:,}: {seconds[-1]:.1f} s", flush=True)
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    return seconds


def bench_retained(spark: "SparkSession", publishes: int, topics: int, batch: int, rounds: int) -> None:
    """The retained tables at ten times the topics, and as-of beside an aggregate over all events."""
    from pyspark.sql import functions as F

    with scratch() as directory:
        few, many = directory / "few", directory / "many"
        write_log(few / "data", 3 * batch, topics // 10, 1000)
        write_log(many / "data", publishes, topics, 1000)
        few_s = feed_retained(spark, few / "data", Lake(few / "lake"), 3 * batch, batch)
        many_s = feed_retained(spark, many / "data", Lake(many / "lake"), publishes, batch)
        rate = publishes / sum(many_s)
        line("retained + retained_closed", f"{publishes:,} publishes, {topics:,} topics, a second", rate, 50_000)
        growth = statistics.median(many_s[1:]) / statistics.median(few_s[1:])
        said = (
            f"batch {statistics.median(many_s[1:]):.1f} s, {topics // 10:,} topics {statistics.median(few_s[1:]):.1f} s"
        )
        line(f"micro-batch at {topics:,} topics", said, growth, 1.5, at_least=False)
        instant = EPOCH.fromtimestamp((START_US + publishes * 6 // 10) / 1e6, EPOCH.tzinfo)
        log_rows(spark, many / "data").write.format("delta").save(str(many / "events"))

        def as_of() -> object:
            return retained_as_of(spark, Lake(many / "lake"), instant).agg(F.count("*"), F.sum("offset")).collect()

        def aggregate() -> object:
            newest = F.max_by(F.struct("payload", "qos", "offset"), "offset").alias("last")
            events = spark.read.format("delta").load(str(many / "events"))
            then = events.where("retain").where(F.col("timestamp") <= F.lit(instant)).groupBy("topic").agg(newest)
            return then.where(F.length("last.payload") > 0).agg(F.count("*"), F.sum("last.offset")).collect()

        assert as_of() == aggregate(), "the two answers differ"
        ours, theirs = compare(rounds, as_of, aggregate)
        line(
            "as of, all topics",
            f"{ours:.1f} s, aggregate over events {theirs:.1f} s",
            ours / theirs,
            0.3,
            at_least=False,
        )


def bench_sink(spark: "SparkSession", rows: int) -> None:
    """A DataFrame of retained messages into a real server that syncs every commit."""
    import re
    import subprocess
    import sys

    with scratch() as directory:
        command = [sys.executable, "-m", "embermq", "serve", "--port", "0", "--data", str(directory / "data")]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert server.stdout is not None
            port = 0
            for said in server.stdout:
                found = re.search(r"mqtt://.*?:(\d+)", said)
                port = int(found[1]) if found else port
                if said == "ready\n":
                    break
            frame = spark.range(0, rows, 1, 2).selectExpr(
                "concat('load/', id) as topic", "concat('{\"value\": ', id, '}') as payload"
            )

            def load() -> None:
                writer = frame.write.format("embermq").mode("append").option("retain", "true")
                writer.option("url", f"mqtt://127.0.0.1:{port}").option("progressSeconds", "0").save()

            load()
            seconds = min(timed(load) for _ in range(3))
            line("sink", f"{rows:,} retained rows, 2 tasks, rows a second", rows / seconds, 50_000)
        finally:
            server.terminate()
            server.wait(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=SECTIONS, help="one section; repeatable")
    parser.add_argument("--rows", type=int, default=2_000_000, help="rows of a scan or an append")
    parser.add_argument("--publishes", type=int, default=10_000_000, help="retained publishes")
    parser.add_argument("--topics", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=2_500_000, help="retained publishes of a micro-batch")
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    sections = chosen.only or SECTIONS
    print(facts(Cores(None, None)), flush=True)
    spark = build_session("local[2]", "embermq bench", {"spark.driver.memory": "6g"})
    if "scan" in sections:
        register_ceiling(spark)
        for payloads in (chosen.rows, FEW_PAYLOADS):
            bench_scan(spark, chosen.rows, chosen.rounds, payloads)
    if "append" in sections:
        bench_append(spark, chosen.rows, chosen.rounds, FEW_PAYLOADS)
    if "retained" in sections:
        bench_retained(spark, chosen.publishes, chosen.topics, chosen.batch, chosen.rounds)
    if "sink" in sections:
        bench_sink(spark, min(chosen.rows, 500_000))
    if "places" in sections:
        from bench.spark_places import bench_places

        bench_places(spark, chosen.rows, chosen.rounds)
    spark.stop()


if __name__ == "__main__":
    main()

"""Twelve stations report the air of Beijing, hour by hour; the pipeline remembers all of it.

Starts from nothing and ends at a plot: a server, a replay of real readings as retained device state, the pipeline, then
questions to its tables. Takes the file beijing-air.csv.gz (Chen, S., Beijing Multi-Site Air Quality, UCI Machine
Learning Repository, CC BY 4.0): 4.98 million readings of 144 topics, with real gaps.

    python examples/beijing_air.py beijing-air.csv.gz --hours 3500 --out air
"""

import argparse
import csv
import gzip
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from embermq import Broker
from embermq.lake.lake import Lake
from embermq.lake.plots import STYLE, Point, duration, line_plot
from embermq.lake.report import write_report
from embermq.lake.typed_tables import TypedTable
from embermq.spark import build_session
from embermq.spark.jobs.catalog import JobSettings
from embermq.spark.lake.tables import read_table
from embermq.spark.options import parse_sink_options
from embermq.spark.pipeline import run
from embermq.spark.queries.as_of import retained_as_of
from embermq.spark.queries.silences import silences
from embermq.spark.sink.publisher import connect_with_retry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEASURES = ("pm25", "pm10", "so2", "no2", "co", "o3", "temp", "pres", "dewp", "rain", "wd", "wspm")
CLOCK = "air/clock"  # says which hour of the file is being replayed
QOS1_RETAINED = 0x33
HOURS_A_DAY = 24
AIR = TypedTable(name="air", topic_filter="air/+/+", format="number", levels=("", "station", "measure"))

Readings = list[tuple[str, str]]


@dataclass(frozen=True)
class Evening:
    """A moment of the replay when a whole day was acknowledged, and what must have been retained then."""

    instant: datetime
    retained: dict[str, str]


def hours_of(path: Path, most: int | None) -> Iterator[tuple[str, Readings]]:
    """Each hour of the file with its readings; a missing one is no message."""
    with gzip.open(path, "rt", newline="") as file:
        for number, (hour, rows) in enumerate(groupby(csv.DictReader(file), key=lambda row: row["time"])):
            if most is not None and number >= most:
                return
            yield (
                hour,
                [
                    (f"air/{row['station']}/{measure}", row[measure])
                    for row in rows
                    for measure in MEASURES
                    if row[measure]
                ],
            )


def replay(port: int, path: Path, most: int | None) -> tuple[int, list[Evening]]:
    """Publish the hours in order; how many messages, and every evening."""
    publisher = connect_with_retry(parse_sink_options({"url": f"mqtt://127.0.0.1:{port}"}), "beijing")
    retained: dict[str, str] = {}
    evenings: list[Evening] = []
    messages = 0
    for number, (hour, readings) in enumerate(hours_of(path, most), 1):
        rows = [(CLOCK, hour), *readings]
        publisher.publish(
            [QOS1_RETAINED] * len(rows), [topic.encode() for topic, _ in rows], [value.encode() for _, value in rows]
        )
        retained.update(rows)
        messages += len(rows)
        if number % HOURS_A_DAY == 0:
            publisher.flush()
            evenings.append(Evening(datetime.now(UTC), dict(retained)))
    publisher.finish()
    return messages, evenings


def check_as_of(spark: "SparkSession", lake: Lake, evenings: list[Evening], questions: int) -> int:
    """Ask for some evenings, compare with the file; how many messages were compared."""
    compared = 0
    for evening in random.Random(1).sample(evenings, min(questions, len(evenings))):
        answer = retained_as_of(spark, lake, evening.instant).collect()
        found = {row["topic"]: bytes(row["payload"]).decode() for row in answer}
        if found != evening.retained or len(answer) != len(found):
            raise SystemExit(f"as of {evening.instant}: the tables differ from the file")
        compared += len(found)
    return compared


def daily_mean(spark: "SparkSession", lake: Lake, station: str, measure: str) -> list[Point]:
    """The mean of a measure on each day of the file: a reading belongs to the hour that the clock said last."""
    read_table(spark, lake, "messages").createOrReplaceTempView("messages")
    rows = spark.sql(f"""
        with said as (
            select offset, topic, cast(payload as string) as text,
                   last(case when topic = '{CLOCK}' then cast(payload as string) end, true)
                       over (order by offset) as hour
            from messages where topic in ('{CLOCK}', 'air/{station}/{measure}'))
        select to_timestamp(substr(hour, 1, 10)) as day, avg(try_cast(text as double)) as mean
        from said where topic <> '{CLOCK}' group by 1 order by 1
    """).collect()
    return [Point(row["day"].replace(tzinfo=UTC), row["mean"]) for row in rows if row["mean"] is not None]


def explore(spark: "SparkSession", lake: Lake, out: Path) -> None:
    """Two HTML files: the daily mean of fine dust, and the report."""
    of_stations = silences(spark, lake).where("topic like 'air/%/%'")
    quietest = of_stations.orderBy("silence_us", ascending=False).limit(5).collect()
    silent = "".join(f"<li>{row['topic']}: {duration(row['silence_us'] / 1e6)} of the replay</li>" for row in quietest)
    plots = "".join(
        f"<h2>{station}: PM2.5, daily mean, µg/m³</h2>{line_plot(daily_mean(spark, lake, station, 'pm25'), 'µg/m³')}"
        for station in ("Dongsi", "Huairou")
    )
    style = f"body{{font:15px system-ui;max-width:900px;margin:2rem auto;--line:#d9480f;--grid:#e3e7ec}}{STYLE}"
    page = f"<!doctype html><meta charset=utf-8><title>Beijing air</title><style>{style}</style>{plots}"
    (out / "air.html").write_text(f"{page}<h2>Longest silences</h2><ul>{silent}</ul>\n", encoding="utf-8")
    write_report(lake, out / "report.html")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="beijing-air.csv.gz")
    parser.add_argument("--hours", type=int, help="only this many hours; all 35,064 by default")
    parser.add_argument(
        "--out", type=Path, default=Path("beijing-air"), help="a new directory for log, tables and plots"
    )
    parser.add_argument("--questions", type=int, default=10, help="evenings to compare with the file")
    chosen = parser.parse_args(arguments)
    chosen.out.mkdir(parents=True)
    data, lake = chosen.out / "data", Lake(chosen.out / "lake")
    began = time.monotonic()
    with Broker.in_thread(data=data, sys_interval_s=0) as broker:
        assert broker.port is not None
        messages, evenings = replay(broker.port, chosen.file, chosen.hours)
    seconds = time.monotonic() - began
    print(f"{messages:,} messages through the server in {seconds:.1f} s, {messages / seconds:,.0f} a second")
    began = time.monotonic()
    run(data, lake, once=True, settings=JobSettings(typed_tables=(AIR,)))
    print(f"all tables in {time.monotonic() - began:.1f} s")
    spark = build_session()
    values, texts = read_table(spark, lake, "air").count(), read_table(spark, lake, "air_rejects").count()
    print(f"{values:,} numbers in the table `air`, {texts:,} payloads that are none (wind directions) in `air_rejects`")
    compared = check_as_of(spark, lake, evenings, chosen.questions)
    print(f"as of {min(chosen.questions, len(evenings))} evenings: {compared:,} retained messages equal the file")
    explore(spark, lake, chosen.out)
    print(f"see {chosen.out / 'air.html'} and {chosen.out / 'report.html'}")


if __name__ == "__main__":
    main()

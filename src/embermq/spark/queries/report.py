"""The report: one HTML file about a lake, with plots, that a browser shows without any other file.

Owns: its four queries, and the page.
"""

from datetime import UTC, datetime, timedelta
from html import escape
from itertools import accumulate
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from embermq.instants import EPOCH
from embermq.spark.lake.lake import Lake
from embermq.spark.lake.tables import read_table
from embermq.spark.queries.as_of import retained_history
from embermq.spark.queries.gaps import gaps
from embermq.spark.queries.plots import Point, bar_plot, duration, line_plot, short_number

BINS: Final = 150
TOPICS_MAX: Final = 15

_TIME: Final = "%Y-%m-%d %H:%M:%S"
_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1d2430; --soft: #6b7686; --line: #d9480f; --grid: #e3e7ec; --page: #fff }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #97a1b0; --line: #ff8787; --grid: #2c3440;
  --page: #14181f } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 900px;
  margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem; margin-bottom: 0 } h2 { font-size: 1.1rem; margin: 2rem 0 .3rem }
p { margin: .2rem 0 } .soft, .none { color: var(--soft) } svg { width: 100%; height: auto }
.tick { font: 12px system-ui, sans-serif; fill: var(--soft) } .end { text-anchor: end } .mid { text-anchor: middle }
.grid { stroke: var(--grid) } .line { fill: none; stroke: var(--line); stroke-width: 1.6 }
.area { fill: var(--line); opacity: .15 } .bar { fill: var(--line); opacity: .75 }
dl { display: flex; flex-wrap: wrap; gap: 1.5rem; margin: 1rem 0 } dt { color: var(--soft) }
dd { margin: 0; font-size: 1.4rem }
"""


def write_report(spark: SparkSession, lake: Lake, path: Path, now: datetime | None = None) -> None:
    """Write the report of a lake to a file."""
    path.write_text(report_html(spark, lake, now or datetime.now(UTC)), encoding="utf-8")


def report_html(spark: SparkSession, lake: Lake, now: datetime) -> str:
    """The report of a lake as a page."""
    messages = read_table(spark, lake, "messages")
    totals = messages.agg(
        F.count("*"), F.unix_micros(F.min("timestamp")), F.unix_micros(F.max("timestamp")), F.sum(F.length("payload"))
    ).collect()[0]
    count, first_us, last_us, size = totals[0], totals[1] or 0, totals[2] or 0, totals[3] or 0
    topics = read_table(spark, lake, "topic_stats").select("topic").distinct().count()
    retained = read_table(spark, lake, "retained").count()
    figures = {
        "messages": f"{count:,}",
        "topics": f"{topics:,}",
        "retained now": f"{retained:,}",
        "payload bytes": short_number(size),
    }
    bin_us = max(1_000_000, -(-(last_us - first_us + 1) // BINS))
    sections = [
        (
            "Message rate",
            "messages a second",
            line_plot(_rate(messages, first_us, last_us, bin_us), "messages a second"),
        ),
        ("Busiest topics", "messages since the beginning", bar_plot(_busiest(spark, lake))),
        (
            "Retained set over time",
            "topics with a retained message",
            line_plot(_retained_over_time(retained_history(spark, lake), last_us, bin_us), "retained messages"),
        ),
        (
            "Silent topics",
            "since their last message, seen from the newest one; the longest silence between two messages in brackets",
            bar_plot(_silent(spark, lake, last_us)),
        ),
    ]
    period = (
        f"{_instant(first_us):%Y-%m-%d %H:%M:%S} to {_instant(last_us):%Y-%m-%d %H:%M:%S} UTC" if count else "no data"
    )
    body = "".join(
        f'<h2>{escape(title)}</h2><p class="soft">{escape(what)}</p>{plot}' for title, what, plot in sections
    )
    numbers = "".join(f"<div><dt>{escape(name)}</dt><dd>{value}</dd></div>" for name, value in figures.items())
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>EmberMQ report</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
        f'<h1>EmberMQ report</h1><p class="soft">{period}; made {now:{_TIME}} UTC</p>'
        f"<dl>{numbers}</dl>{body}</body></html>\n"
    )


def _instant(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def _bin(column: str, first_us: int, bin_us: int) -> Column:
    return F.floor((F.unix_micros(column) - F.lit(first_us)) / F.lit(bin_us)).cast("int")


def _rate(messages: DataFrame, first_us: int, last_us: int, bin_us: int) -> list[Point]:
    rows = messages.groupBy(_bin("timestamp", first_us, bin_us).alias("bin")).count().collect()
    counts = {row["bin"]: row["count"] for row in rows}
    if not counts:
        return []
    bins = (last_us - first_us) // bin_us + 1
    return [Point(_instant(first_us + bin_us * n), counts.get(n, 0) * 1e6 / bin_us) for n in range(bins)]


def _busiest(spark: SparkSession, lake: Lake) -> list[tuple[str, float, str]]:
    stats = read_table(spark, lake, "topic_stats").groupBy("topic")
    rows = stats.agg(F.sum("messages").alias("n"), F.sum("bytes").alias("size"))
    top = rows.orderBy(F.desc("n"), "topic").limit(TOPICS_MAX).collect()
    return [(row["topic"], row["n"], f"{row['n']:,} ({short_number(row['size'])}B)") for row in top]


def _retained_over_time(history: DataFrame, last_us: int, bin_us: int) -> list[Point]:
    """The size of the set at the end of each bin: what began minus what ended up to then."""
    first_us = history.agg(F.unix_micros(F.min("valid_from"))).collect()[0][0]
    if first_us is None:
        return []
    began = history.select(_bin("valid_from", first_us, bin_us).alias("bin"), F.lit(1).alias("change"))
    ended = history.where("valid_to is not null").select(
        _bin("valid_to", first_us, bin_us).alias("bin"), F.lit(-1).alias("change")
    )
    rows = began.unionByName(ended).groupBy("bin").agg(F.sum("change").alias("change")).collect()
    changes = {row["bin"]: row["change"] for row in rows}
    bins = max((last_us - first_us) // bin_us + 1, max(changes) + 1)
    sizes = accumulate(changes.get(number, 0) for number in range(bins))
    return [Point(_instant(first_us + bin_us * (number + 1)), size) for number, size in enumerate(sizes)]


def _silent(spark: SparkSession, lake: Lake, last_us: int) -> list[tuple[str, float, str]]:
    rows = (
        gaps(spark, lake)
        .orderBy("last_seen", "topic")
        .limit(TOPICS_MAX)
        .select("topic", F.unix_micros("last_seen").alias("last_us"), "silence_us")
    )
    silent = []
    for row in rows.collect():
        since_s = (last_us - row["last_us"]) / 1e6
        silent.append((row["topic"], since_s, f"{duration(since_s)} ({duration(row['silence_us'] / 1e6)})"))
    return silent

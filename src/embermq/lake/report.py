"""The report: one HTML file about a lake, with plots, that a browser shows without any other file.

Owns: the page and its order. `report_data` has the queries, `plots` the drawing.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Final

from embermq.lake.duck import open_tables
from embermq.lake.lake import Lake
from embermq.lake.plots import STYLE, bar_plot, duration, line_plot, short_number
from embermq.lake.report_data import ReportData, read_report_data

_TIME: Final = "%Y-%m-%d %H:%M:%S"
_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1d2430; --soft: #6b7686; --line: #d9480f; --grid: #e3e7ec; --page: #fff }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #97a1b0; --line: #ff8787; --grid: #2c3440;
  --page: #14181f } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 900px;
  margin: 1rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem; margin-bottom: 0 } h2 { font-size: 1.1rem; margin: 2rem 0 .3rem }
h3 { font-size: .95rem; margin: 1rem 0 0; overflow-wrap: anywhere }
p { margin: .2rem 0 } .soft, .none { color: var(--soft) }
dl { display: flex; flex-wrap: wrap; gap: .5rem 1.5rem; margin: 1rem 0 } dt { color: var(--soft) }
dd { margin: 0; font-size: 1.4rem }
"""


def write_report(lake: Lake, path: Path, now: datetime | None = None) -> None:
    """Write the report of a lake to a file."""
    path.write_text(report_html(lake, now or datetime.now(UTC)), encoding="utf-8")


def report_html(lake: Lake, now: datetime) -> str:
    """The report of a lake as a page."""
    with open_tables(lake) as tables:
        data = read_report_data(tables)
    axis = data.axis
    period = f"{axis.first:{_TIME}} to {axis.last:{_TIME}} UTC" if data.messages else "no data"
    body = "".join(
        f'<h2>{escape(title)}</h2><p class="soft">{escape(what)}</p>{plot}' for title, what, plot in _sections(data)
    )
    numbers = "".join(f"<div><dt>{escape(name)}</dt><dd>{value}</dd></div>" for name, value in _figures(data).items())
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>EmberMQ report</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}{STYLE}</style></head>'
        f'<body><h1>EmberMQ report</h1><p class="soft">{period}; made {now:{_TIME}} UTC</p>'
        f"<dl>{numbers}</dl>{body}</body></html>\n"
    )


def _figures(data: ReportData) -> dict[str, str]:
    return {
        "messages": f"{data.messages:,}",
        "topics": f"{data.topics:,}",
        "retained now": f"{data.retained:,}",
        "payload bytes": short_number(data.payload_bytes),
        "clients seen": f"{data.clients:,}",
        "rejected payloads": f"{sum(count for _, count in data.rejects):,}",
        "gaps": f"{len(data.gaps):,}",
    }


def _sections(data: ReportData) -> list[tuple[str, str, str]]:
    """Title, explanation and drawing of each part. All plots over time have the same axis."""
    return [
        ("Message rate", "messages a second", line_plot(data.rate, "messages a second", data.axis)),
        ("Topics by prefix", "messages a second of each group, on the axis above", _groups(data)),
        (
            "Silent topics",
            "silent for longer than their own rhythm explains, seen from the newest message",
            bar_plot(
                [
                    (
                        one.topic,
                        one.silence_s / one.longest_s,
                        f"silent for {duration(one.silence_s)}; a message every {duration(one.interval_s)}, "
                        f"at most {duration(one.longest_s)} apart",
                    )
                    for one in data.silent
                ]
            )
            if data.silent
            else '<p class="none">No topic is silent for longer than usual.</p>',
        ),
        (
            "Retained set over time",
            "topics with a retained message",
            line_plot(data.retained_over_time, "retained messages", data.axis),
        ),
        (
            "Clients: connections",
            "connections opened in each interval",
            line_plot(data.connects, "connections opened", data.axis),
        ),
        ("Clients: ends of connections", "by reason", _counts(data.drops)),
        ("Payload sizes", "bytes, of the newest messages", _counts(data.sizes)),
        ("Rejected payloads", "of typed tables, by reason", _counts(data.rejects)),
        ("Gaps", "offsets that were trimmed before they were read", _lines(data.gaps, "The tables have no gap.")),
        ("Lag", "records behind the log when the pipeline last reported", _lines(data.lags, "Not known.")),
    ]


def _groups(data: ReportData) -> str:
    parts = []
    for group in data.groups:
        what = f"{group.messages:,} messages, {group.topics:,} topics, {short_number(group.payload_bytes)}B"
        parts.append(f'<h3>{escape(group.name)}</h3><p class="soft">{what}</p>')
        parts.append(line_plot(group.rate, f"messages a second of {group.name}", data.axis, is_small=True))
        parts.append(bar_plot([(topic, count, f"{count:,}") for topic, count in group.busiest]))
    return "".join(parts) or '<p class="none">Nothing yet.</p>'


def _counts(counts: Sequence[tuple[str, int]]) -> str:
    return bar_plot([(name, count, f"{count:,}") for name, count in counts])


def _lines(lines: Sequence[str], nothing: str) -> str:
    if not lines:
        return f'<p class="none">{escape(nothing)}</p>'
    return "".join(f"<p>{escape(line)}</p>" for line in lines)

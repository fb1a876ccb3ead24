"""`python -m bench.picture`: the figures of a run as a picture and as a table, for the pages of this repository.

Owns: which shapes are shown, the SVG file `docs/bench.svg`, and the table in `docs/performance.md`.
Never: a figure of its own. All of them are in `docs/bench.json`, which `python -m bench --json` wrote.
"""

import json
import math
import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final

from bench.figures import MEMORY, PEERS

DOCS: Final = Path(__file__).parent.parent / "docs"
RESULT: Final = DOCS / "bench.json"
PICTURE: Final = DOCS / "bench.svg"
PAGE: Final = DOCS / "performance.md"
TABLE_BEGINS: Final = "<!-- written by python -m bench.picture -->\n"
TABLE_ENDS: Final = "<!-- end -->\n"

WIDTH: Final = 860
LABEL_WIDTH: Final = 330
BAR_WIDTH: Final = 430
ROW_HEIGHT: Final = 34
TOP: Final = 60
SCALE_MAX: Final = 128  # times Mosquitto, at the right end; the scale is logarithmic
SCALE_MIN: Final = 0.25


OURS: Final = ("EmberMQ", MEMORY)


@dataclass(frozen=True, slots=True)
class Shown:
    """One shape: a row of the run. `inverse` makes a figure of which less is better comparable with the rates."""

    scenario: str
    metric: str
    label: str
    inverse: bool = False


SHOWN: Final = (
    Shown("flood 1->1, QoS 0", "rate", "flood 1 to 1, QoS 0"),
    Shown("flood 1->1, QoS 1", "rate", "flood 1 to 1, QoS 1"),
    Shown("flood 1->1, QoS 2", "rate", "flood 1 to 1, QoS 2"),
    Shown("flood 1->1, QoS 0, TLS", "rate", "flood 1 to 1, QoS 0, TLS"),
    Shown("flood 1->1, QoS 0, WebSocket", "rate", "flood 1 to 1, QoS 0, WebSocket"),
    Shown("flood 1->50, QoS 0", "rate", "flood 1 to 50, QoS 0"),
    Shown("flood 50->1, QoS 1", "rate", "flood 50 to 1, QoS 1"),
    Shown("paced, 200 publishers, 4,000 messages/s, QoS 0", "cpu_us", "4,000 messages/s, QoS 0", True),
    Shown("paced, 200 publishers, 4,000 messages/s, QoS 1", "cpu_us", "4,000 messages/s, QoS 1", True),
    Shown("paced, 200 publishers, 10,000 messages/s, QoS 0", "cpu_us", "10,000 messages/s, QoS 0", True),
    Shown("paced, 200 publishers, 10,000 messages/s, QoS 1", "cpu_us", "10,000 messages/s, QoS 1", True),
    Shown("retained publishes, QoS 1, 1 publisher", "rate", "retained publishes, QoS 1"),
    Shown("CONNECT, CONNACK, DISCONNECT", "rate", "connections opened and closed"),
    Shown("idle connections", "bytes", "memory of an idle connection", True),
    Shown("an offline session's queue of 50,000, QoS 1", "rate", "offline queue, drained a second"),
    Shown("`#` over a million retained messages", "qos0_rate", "# over 1M retained, QoS 0"),
    Shown("`#` over a million retained messages", "qos1_rate", "# over 1M retained, QoS 1"),
)


@dataclass(frozen=True, slots=True)
class Line:
    """What is shown of one shape: medians as text, and how many times better than Mosquitto; None: not measured."""

    label: str
    unit: str
    medians: dict[str, float]
    better: dict[str, float]  # than Mosquitto, by the name of a server


def lines_of(result: dict[str, Any]) -> list[Line]:
    """The shapes that were measured, in the order of `SHOWN`."""
    rows = {(row["scenario"], row["metric"]): row for row in result["rows"]}
    lines: list[Line] = []
    for shown in SHOWN:
        row = rows.get((shown.scenario, shown.metric))
        if row is None:
            continue
        medians: dict[str, float] = row["medians"]
        theirs = medians.get("Mosquitto")
        better = {
            name: theirs / value if shown.inverse else value / theirs
            for name, value in medians.items()
            if value and theirs and name != "Mosquitto"
        }
        lines.append(Line(shown.label, row["unit"], medians, better))
    return lines


def peers_of(lines: list[Line]) -> list[str]:
    return [name for name in PEERS if any(name in line.medians for line in lines)]


def machine_of(result: dict[str, Any]) -> str:
    peers = "".join(f", {name} {result[name]}" for name in PEERS if name in result)
    return (
        f"{result['cpu']}, {result['cores']} cores, {result['memory_gib']:g} GiB, Linux {result['kernel']},"
        f" Python {result['python']}, Mosquitto {result.get('mosquitto', 'not measured')}{peers}, {result['date']},"
        f" medians of {result['rounds']} rounds, load average at the start {result['load_average']:g}"
    )


def table(result: dict[str, Any]) -> str:
    """The figures as Markdown."""
    lines = lines_of(result)
    peers = peers_of(lines)
    heads = ["default (disk, synced)", "`--memory`", "Mosquitto", *peers, "times better", "with `--memory`", *peers]
    text = f"| shape | unit | {' | '.join(heads)} |\n|---|---|{'---:|' * len(heads)}\n"
    for line in lines:
        cells = [_figure(line.medians.get(name)) for name in (*OURS, "Mosquitto", *peers)]
        cells += [_times(line.better.get(name)) for name in (*OURS, *peers)]
        text += f"| {line.label} | {line.unit} | {' | '.join(cells)} |\n"
    return f"{text}\nMeasured on: {machine_of(result)}.\n"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if value < 10 else f"{value:.0f}"


def picture(result: dict[str, Any]) -> str:
    """The figures as bars on a logarithmic scale, in SVG."""
    lines = lines_of(result)
    height = TOP + ROW_HEIGHT * len(lines) + 50
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
        ' font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        '<text x="12" y="24" font-size="16">EmberMQ beside Mosquitto: how many times better (right of 1x)</text>',
        f'<rect x="12" y="34" width="12" height="12" fill="{_COLOURS[0]}"/><text x="30" y="45">as it starts: on disk,'
        " synced, recording everything</text>",
        f'<rect x="380" y="34" width="12" height="12" fill="{_COLOURS[1]}"/><text x="398" y="45">--memory</text>',
    ]
    for number in (0.5, 1, 2, 4, 8, 16, 32, 64):
        x, bottom = _x(number), TOP + ROW_HEIGHT * len(lines)
        parts.append(
            f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="{"#333" if number == 1 else "#ddd"}"/>'
        )
        parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle" fill="#555">{number:g}x</text>')
    for index, line in enumerate(lines):
        y = TOP + ROW_HEIGHT * index
        parts.append(f'<text x="{LABEL_WIDTH - 10}" y="{y + 20}" text-anchor="end">{escape(line.label)}</text>')
        for place, value in enumerate(line.better.get(name) for name in OURS):
            if value is None:
                continue
            low, high = sorted((_x(1), _x(value)))
            top = y + 4 + 13 * place
            parts.append(
                f'<rect x="{low:.1f}" y="{top}" width="{high - low:.1f}" height="11" fill="{_COLOURS[place]}"/>'
            )
            parts.append(f'<text x="{high + 4:.1f}" y="{top + 10}" font-size="11">{value:.2g}</text>')
    parts.append(f'<text x="12" y="{height - 10}" font-size="10" fill="#555">{escape(machine_of(result))}</text>')
    return "\n".join([*parts, "</svg>", ""])


_COLOURS: Final = ("#d9480f", "#f5a366")


def _x(times: float) -> float:
    part = math.log(min(max(times, SCALE_MIN), SCALE_MAX) / SCALE_MIN) / math.log(SCALE_MAX / SCALE_MIN)
    return LABEL_WIDTH + part * BAR_WIDTH


def with_table(page: str, result: dict[str, Any]) -> str:
    """A page with the table of a run in the place that is marked for it."""
    before, rest = page.split(TABLE_BEGINS)
    _, after = rest.split(TABLE_ENDS)
    return before + TABLE_BEGINS + "\n" + table(result) + "\n" + TABLE_ENDS + after


def main() -> int:
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    PICTURE.write_text(picture(result), encoding="utf-8")
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), result), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

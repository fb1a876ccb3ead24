"""Plots as inline SVG: a line over time, and bars with names. No library, no script: a report is one file.

Owns: scales, ticks and the drawing.
Never: where the numbers come from.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import escape
from typing import Final

WIDTH: Final = 860
HEIGHT: Final = 260
LEFT: Final = 64
RIGHT: Final = 16
TOP: Final = 12
BOTTOM: Final = 34
BAR_HEIGHT: Final = 22
BAR_NAME_WIDTH: Final = 300
NAME_CHARACTERS_MAX: Final = 42

_STEPS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


@dataclass(frozen=True)
class Point:
    """A value at an instant."""

    at: datetime
    value: float


def line_plot(points: Sequence[Point], unit: str) -> str:
    """A filled line over time."""
    if not points:
        return '<p class="none">Nothing yet.</p>'
    first, last = points[0].at, max(points[-1].at, points[0].at + timedelta(seconds=1))
    span_s = (last - first).total_seconds()
    ticks = value_ticks(max(point.value for point in points))
    highest = ticks[-1]

    def x(at: datetime) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * ((at - first).total_seconds() / span_s)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value / highest)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(unit)} over time">']
    for tick in ticks:
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>')
        parts.append(f'<text class="tick end" x="{LEFT - 8}" y="{y(tick) + 4:.1f}">{short_number(tick)}</text>')
    for at, label in time_ticks(first, last):
        parts.append(f'<text class="tick mid" x="{x(at):.1f}" y="{HEIGHT - 12}">{label}</text>')
    path = " ".join(f"{x(point.at):.1f},{y(point.value):.1f}" for point in points)
    base = f"{y(0):.1f}"
    parts.append(f'<polygon class="area" points="{LEFT},{base} {path} {x(points[-1].at):.1f},{base}"/>')
    parts.append(f'<polyline class="line" points="{path}"/></svg>')
    return "".join(parts)


def bar_plot(bars: Sequence[tuple[str, float, str]]) -> str:
    """One bar for each (name, value, what to write beside it)."""
    if not bars:
        return '<p class="none">Nothing yet.</p>'
    highest = max(value for _, value, _ in bars) or 1.0
    height = BAR_HEIGHT * len(bars) + 4
    width_max = WIDTH - BAR_NAME_WIDTH - 130
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img">']
    for number, (name, value, label) in enumerate(bars):
        top = number * BAR_HEIGHT + 2
        width = max(1.0, width_max * value / highest)
        shown = name if len(name) <= NAME_CHARACTERS_MAX else name[: NAME_CHARACTERS_MAX - 1] + "…"
        parts.append(
            f'<text class="tick end" x="{BAR_NAME_WIDTH - 8}" y="{top + 15}">{escape(shown)}'
            f"<title>{escape(name)}</title></text>"
            f'<rect class="bar" x="{BAR_NAME_WIDTH}" y="{top}" width="{width:.1f}" height="{BAR_HEIGHT - 6}" rx="2"/>'
            f'<text class="tick" x="{BAR_NAME_WIDTH + width + 8:.1f}" y="{top + 15}">{escape(label)}</text>'
        )
    return "".join([*parts, "</svg>"])


def value_ticks(highest: float, about: int = 4) -> list[float]:
    """Round numbers from 0 to at least `highest`."""
    if highest <= 0:
        return [0.0, 1.0]
    raw = highest / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw)
    return [step * number for number in range(math.ceil(highest / step - 1e-9) + 1)]


def time_ticks(first: datetime, last: datetime, most: int = 7) -> list[tuple[datetime, str]]:
    """Round instants between two, with what to write below them."""
    span_s = (last - first).total_seconds()
    step_s = next((step for step in _STEPS_S if span_s / step <= most), None)
    if step_s is None:
        step_s = 86400 * math.ceil(span_s / 86400 / most)
    start_s = math.ceil(first.timestamp() / step_s) * step_s
    form = "%H:%M:%S" if step_s < 60 else "%H:%M" if span_s < 86400 else "%d %b %H:%M" if step_s < 86400 else "%d %b %Y"
    count = int((last.timestamp() - start_s) // step_s) + 1
    ticks = [datetime.fromtimestamp(start_s + step_s * number, UTC) for number in range(max(0, count))]
    return [(tick, tick.strftime(form)) for tick in ticks]


def short_number(value: float) -> str:
    """A number for an axis: 1.2k, 3M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def duration(seconds: float) -> str:
    """A length of time as people say it."""
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.3g} s"

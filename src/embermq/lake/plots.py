"""Plots for a page that is one file: SVG for lines, plain HTML for names and numbers, so that a phone shows them too.

Owns: scales, ticks and the drawing. A drawing stretches to the width of the page, its text does not.
Never: where the numbers come from.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Final

WIDTH: Final = 1000
HEIGHT: Final = 200
LOG_ABOVE: Final = 30.0
"""A range in which the highest value is more than this many times the usual one gets a logarithmic scale."""

STYLE: Final = """
.plot { display: grid; grid-template-columns: 3.2rem 1fr; margin: .3rem 0 1rem }
.plot svg { width: 100%; height: 9rem; overflow: visible } .small svg { height: 3rem }
.plot .values { position: relative } .plot .times { position: relative; grid-column: 2; height: 2.6em }
.tick { position: absolute; color: var(--soft); font-size: .75rem; line-height: 1.1; white-space: pre;
  text-align: center }
.values .tick { right: .4rem; transform: translateY(-50%) } .times .tick { transform: translateX(-50%) }
.times .tick:first-child { transform: none } .times .tick:last-child:not(:first-child) { transform: translateX(-100%) }
.grid { stroke: var(--grid); vector-effect: non-scaling-stroke }
.line { fill: none; stroke: var(--line); stroke-width: 1.6; vector-effect: non-scaling-stroke }
.area { fill: var(--line); opacity: .15 }
.bars { list-style: none; margin: .3rem 0 1rem; padding: 0 }
.bars li { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 1rem; padding: .2rem 0 }
.bars b { font-weight: normal; overflow-wrap: anywhere } .bars span { color: var(--soft) }
.bars i { flex-basis: 100%; height: .3rem; border-radius: 2px;
  background: linear-gradient(var(--line), var(--line)) no-repeat left / var(--part) 100%, var(--grid) }
@media (max-width: 480px) { .times .tick:nth-child(even) { display: none } }
"""

_STEPS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_NOTHING: Final = '<p class="none">Nothing yet.</p>'


@dataclass(frozen=True)
class Point:
    """A value at an instant."""

    at: datetime
    value: float


@dataclass(frozen=True)
class Axis:
    """The time that plots of one page have in common."""

    first: datetime
    last: datetime

    def part(self, at: datetime) -> float:
        """How far an instant is along the axis, from 0 to 1."""
        span_s = max(1.0, (self.last - self.first).total_seconds())
        return min(1.0, max(0.0, (at - self.first).total_seconds() / span_s))


def line_plot(points: Sequence[Point], unit: str, axis: Axis | None = None, is_small: bool = False) -> str:
    """A filled line over time. Without an axis it has one of its own."""
    if not points:
        return _NOTHING
    axis = axis or Axis(points[0].at, points[-1].at)
    values = [point.value for point in points]
    scale = Scale(values)

    def y(value: float) -> str:
        return f"{HEIGHT * (1 - scale.part(value)):.1f}"

    ticks = [scale.ticks[0], scale.ticks[-1]] if is_small else scale.ticks
    drawn = "".join(f'<line class="grid" x1="0" x2="{WIDTH}" y1="{y(tick)}" y2="{y(tick)}"/>' for tick in ticks)
    path = " ".join(f"{WIDTH * axis.part(point.at):.1f},{y(point.value)}" for point in points)
    first, last = (f"{WIDTH * axis.part(point.at):.1f}" for point in (points[0], points[-1]))
    names = "".join(
        f'<span class="tick" style="top:{100 * (1 - scale.part(tick)):.1f}%">{short_number(tick)}</span>'
        for tick in ticks
    )
    return (
        f'<div class="plot{" small" if is_small else ""}"><div class="values">{names}</div>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(unit)} over time, at most {short_number(max(values))}">{drawn}'
        f'<polygon class="area" points="{first},{HEIGHT} {path} {last},{HEIGHT}"/>'
        f'<polyline class="line" points="{path}"/></svg>{_times(axis, is_small)}</div>'
        + (f'<p class="soft">logarithmic scale: {escape(unit)}</p>' if scale.is_logarithmic and not is_small else "")
    )


def _times(axis: Axis, is_small: bool) -> str:
    """The instants below a plot; a small one has the axis of the plot above it."""
    if is_small:
        return ""
    ticks = "".join(
        f'<span class="tick" style="left:{100 * axis.part(at):.1f}%">{escape(label)}</span>'
        for at, label in time_ticks(axis.first, axis.last)
    )
    return f'<div class="times">{ticks}</div>'


def bar_plot(bars: Sequence[tuple[str, float, str]]) -> str:
    """One bar for each (name, value, what to write beside it)."""
    if not bars:
        return _NOTHING
    scale = Scale([value for _, value, _ in bars])
    drawn = "".join(
        f"<li><b>{escape(name)}</b><span>{escape(label)}</span>"
        f'<i style="--part:{100 * scale.part(value):.1f}%"></i></li>'
        for name, value, label in bars
    )
    note = '<p class="soft">logarithmic scale</p>' if scale.is_logarithmic else ""
    return f'<ul class="bars">{drawn}</ul>{note}'


class Scale:
    """Values as parts of a plot's height or width: linear, or logarithmic if few values are far above the rest."""

    __slots__ = ("is_logarithmic", "ticks")

    def __init__(self, values: Sequence[float]) -> None:
        highest = max(values)
        positive = [value for value in values if value > 0]
        usual = statistics.median(positive) if positive else 0.0
        self.is_logarithmic: Final = bool(positive) and highest > LOG_ABOVE * usual
        self.ticks: Final = log_ticks(min(positive), highest) if self.is_logarithmic else value_ticks(highest)

    def part(self, value: float) -> float:
        """Where a value is, from 0 to 1. Nothing is at 0 on either scale."""
        lowest, highest = self.ticks[0], self.ticks[-1]
        if not self.is_logarithmic:
            return value / highest
        if value <= lowest:
            return 0.0
        return math.log(value / lowest) / math.log(highest / lowest)


def value_ticks(highest: float, about: int = 4) -> list[float]:
    """Round numbers from 0 to at least `highest`."""
    if highest <= 0:
        return [0.0, 1.0]
    raw = highest / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw)
    return [step * number for number in range(math.ceil(highest / step - 1e-9) + 1)]


def log_ticks(lowest: float, highest: float, most: int = 5) -> list[float]:
    """Powers of ten around a range of positive numbers; the first stands for all that is below."""
    first, last = math.floor(math.log10(lowest) - 1e-9), math.ceil(math.log10(highest) - 1e-9)
    step = max(1, math.ceil((last - first) / (most - 1)))
    return [10.0 ** (first + step * number) for number in range(math.ceil((last - first) / step) + 1)]


def time_ticks(first: datetime, last: datetime, most: int = 6) -> list[tuple[datetime, str]]:
    """Round instants between two, with what to write below them. The first of each day has its date."""
    span_s = max(1.0, (last - first).total_seconds())
    step_s = next((step for step in _STEPS_S if span_s / step <= most), None)
    if step_s is None:
        step_s = 86400 * math.ceil(span_s / 86400 / most)
    start_s = math.ceil(first.timestamp() / step_s) * step_s
    count = int((last.timestamp() - start_s) // step_s) + 1
    ticks = [datetime.fromtimestamp(start_s + step_s * number, UTC) for number in range(max(0, count))]
    if not ticks:
        ticks = [first]
    form = "%H:%M:%S" if step_s < 60 else "%H:%M"
    found, day = [], None
    for tick in ticks:
        date = tick.strftime("%d %b %Y" if day is None else "%d %b")
        if step_s >= 86400:
            label = date
        else:
            label = tick.strftime(form) + ("" if tick.date() == day else f"\n{date}")
        found.append((tick, label))
        day = tick.date()
    return found


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

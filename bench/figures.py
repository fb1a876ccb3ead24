"""Figures: what a scenario measures, how rounds become one number, and how they are shown.

Owns: the metrics' names, units and directions, medians, ratios, targets, the table and the JSON file.
Never: a measurement.
"""

import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

Figures = Mapping[str, float]

MEMORY = "--memory"
"""The name of EmberMQ with its store in memory, measured beside it as it starts by default."""
BEFORE = "before"
"""The name of another build of EmberMQ that is measured in the same run."""


PEERS = ("rumqttd", "NATS")
"""Other servers, measured where they are installed."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One column of a result. A target bounds EmberMQ's median: `ratio` against Mosquitto's, `value` by itself.

    `memory_ratio` bounds that of EmberMQ with `--memory`, where it is measured.
    """

    key: str
    label: str
    unit: str
    better: Literal["more", "less", "zero", "none"] = "none"
    ratio: float | None = None
    value: float | None = None
    memory_ratio: float | None = None


@dataclass(slots=True)
class Row:
    scenario: str
    metric: Metric
    values: dict[str, list[float]] = field(default_factory=dict)

    def median(self, server: str) -> float | None:
        measured = self.values.get(server)
        return statistics.median(measured) if measured else None

    @property
    def ratio(self) -> float | None:
        ours, theirs = self.median("EmberMQ"), self.median("Mosquitto")
        return ours / theirs if ours is not None and theirs else None

    @property
    def memory_ratio(self) -> float | None:
        ours, theirs = self.median(MEMORY), self.median("Mosquitto")
        return ours / theirs if ours is not None and theirs else None

    @property
    def change(self) -> float | None:
        """EmberMQ against the build before; a ratio within one run, so that both saw the same load of the machine."""
        ours, before = self.median("EmberMQ"), self.median(BEFORE)
        return ours / before if ours is not None and before else None

    def verdicts(self) -> list[tuple[str, bool]]:
        """Each target that EmberMQ can be compared with, in words, and whether it is met."""
        metric = self.metric
        ours = [value for value in (self.median("EmberMQ"), self.median(MEMORY)) if value is not None]
        if metric.better == "zero":
            return [("0", not any(ours))] if ours else []
        sign = ">=" if metric.better == "more" else "<="
        judged = (
            (self.median("EmberMQ"), metric.value, f"{sign} {metric.value:,g}" if metric.value is not None else ""),
            (self.ratio, metric.ratio, f"{sign} {metric.ratio} x"),
            (self.memory_ratio, metric.memory_ratio, f"{sign} {metric.memory_ratio} x with {MEMORY}"),
        )
        return [
            (words, found >= wanted if metric.better == "more" else found <= wanted)
            for found, wanted, words in judged
            if found is not None and wanted is not None
        ]

    @property
    def met(self) -> bool | None:
        """Whether EmberMQ keeps all targets; None where there is none or nothing to compare."""
        verdicts = self.verdicts()
        return all(met for _, met in verdicts) if verdicts else None


@dataclass(slots=True)
class Report:
    """All rows of a run, in the order they were measured."""

    rows: dict[tuple[str, str], Row] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, scenario: str, metrics: tuple[Metric, ...], server: str, figures: Figures) -> None:
        for metric in metrics:
            if metric.key in figures:
                row = self.rows.setdefault((scenario, metric.key), Row(scenario, metric))
                row.values.setdefault(server, []).append(figures[metric.key])

    def note(self, text: str) -> None:
        self.notes.append(text)

    def missed(self) -> list[Row]:
        return [row for row in self.rows.values() if row.met is False]

    def table(self) -> Table:
        table = Table(title="EmberMQ beside Mosquitto: medians of the rounds", title_justify="left")
        table.add_column("scenario")
        table.add_column("figure")
        table.add_column("unit")
        servers = [
            name
            for name in ("EmberMQ", MEMORY, BEFORE, "Mosquitto", *PEERS, "sink")
            if any(name in r.values for r in self.rows.values())
        ]
        for name in servers:
            table.add_column(name, justify="right")
        if BEFORE in servers:
            table.add_column("to before", justify="right")
        table.add_column("ratio", justify="right")
        if MEMORY in servers:
            table.add_column("ratio of --memory", justify="right")
        table.add_column("target")
        last = ""
        for row in self.rows.values():
            if last and row.scenario != last:
                table.add_section()
            cells = [row.scenario if row.scenario != last else "", row.metric.label, row.metric.unit]
            cells += [shown(row.median(name)) for name in servers]
            if BEFORE in servers:
                cells.append("" if row.change is None else f"{row.change:.2f}")
            cells.append("" if row.ratio is None else f"{row.ratio:.2f}")
            if MEMORY in servers:
                cells.append("" if row.memory_ratio is None else f"{row.memory_ratio:.2f}")
            table.add_row(*cells, verdict(row))
            last = row.scenario
        return table

    def write_json(self, path: Path, heading: Mapping[str, object]) -> None:
        rows = [
            {
                "scenario": row.scenario,
                "metric": row.metric.key,
                "unit": row.metric.unit,
                "better": row.metric.better,
                "values": row.values,
                "medians": {name: row.median(name) for name in row.values},
                "ratio": row.ratio,
                "ratio_of_memory": row.memory_ratio,
                "to_before": row.change,
                "target_met": row.met,
            }
            for row in self.rows.values()
        ]
        path.write_text(json.dumps({**heading, "notes": self.notes, "rows": rows}, indent=2) + "\n", encoding="utf-8")


def shown(value: float | None) -> str:
    if value is None:
        return ""
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 100 else f"{value:.1f}"


def verdict(row: Row) -> str:
    return "\n".join(f"{words}: {'met' if met else 'MISSED'}" for words, met in row.verdicts())


def show(console: Console, report: Report, heading: Mapping[str, object]) -> None:
    for key, value in heading.items():
        console.print(f"{key}: {value}", highlight=False)
    console.print(report.table(), highlight=False)
    for note in report.notes:
        console.print(f"note: {note}", highlight=False)
